package ibverbs

import "errors"

// Errors of this package; test with errors.Is. Those of the control path are package tcp's.
var (
	// ErrOptions: options that cannot work; the text lists every fault.
	ErrOptions = errors.New("ibverbs: bad options")
	// ErrNotBuilt: this program was built without libibverbs.
	ErrNotBuilt = errors.New("ibverbs: this program was built without RDMA: build it with " +
		"CGO_ENABLED=1 go build -tags ibverbs ./cmd/txnode, which needs a C compiler and the headers of " +
		"libibverbs (Debian: libibverbs-dev)")
	// ErrDevice: the device, its port or its GID is not there, or cannot do what is needed.
	ErrDevice = errors.New("ibverbs: no such device")
)

// errSilentVerb is that a request had no completion for Options.TCP.Verb.
var errSilentVerb = errors.New("no completion in time: its queue pair was put into the error state")

func refusal(result uint32) error {
	if result == resultStopped {
		return errors.New("it is stopped, or the server does not have it")
	}
	return errors.New("its server has no memory for one more queue pair, or cannot reach this host: see its log")
}
