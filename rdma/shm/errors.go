package shm

import "errors"

// Errors of this package; test with errors.Is. A server that does not answer is rdma.ErrBladeDown
// besides.
var (
	// ErrOptions: options that cannot work; the text lists every fault.
	ErrOptions = errors.New("shm: bad options")
	// ErrRefused: the server does not want this client: another version or user, or too many connections.
	ErrRefused = errors.New("shm: connection refused")
	// ErrProtocol: the peer has sent something else than it was asked for.
	ErrProtocol = errors.New("shm: protocol error")
	// ErrDirectory: a file of the directory is damaged, of another version or of another kind of
	// process, or another server has the name.
	ErrDirectory = errors.New("shm: the directory cannot be used")
	// ErrStuck: a process that was in the middle of a verb could not be ended, so that the verb may
	// still take effect. Its text names the process.
	ErrStuck = errors.New("shm: a process does not end")
)
