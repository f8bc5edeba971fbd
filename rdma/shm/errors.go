package shm

import (
	"errors"
	"fmt"
	"time"

	"txnode/rdma"
)

// Errors of this package; test with errors.Is. A server that does not answer is rdma.ErrBladeDown
// besides.
var (
	// ErrOptions: options that cannot work; the text lists every fault.
	ErrOptions = errors.New("shm: bad options")
	// ErrRefused: the server does not want this client: another version or user, or too many
	// connections.
	ErrRefused = errors.New("shm: connection refused")
	// ErrProtocol: the peer has sent something else than it was asked for.
	ErrProtocol = errors.New("shm: protocol error")
	// ErrDirectory: the directory is another user's, or other users may write to it; a file in it
	// is damaged, of another version or of another kind of process; or another server has the name.
	ErrDirectory = errors.New("shm: the directory cannot be used")
	// ErrStuck: a key fence is not complete. A process is in the middle of a verb, and there is no
	// proof that it has ended, so the verb may still take effect. Its text names the process. It is
	// an rdma.ErrUnfenced.
	ErrStuck = fmt.Errorf("shm: the key fence is not complete: %w", rdma.ErrUnfenced)
)

// KilledError is that a server has ended a client: ServerOptions.Report.
type KilledError struct {
	Server string
	// Process and User are numbers, as the system has told them of the client's connection. Process
	// is 0 for one of a name space that this process does not see.
	Process int
	User    uint32
	// Silent is for how long it had not answered.
	Silent time.Duration
}

// Error says which process was ended, and why.
func (e *KilledError) Error() string {
	return fmt.Sprintf("shm: server %s has killed its client, process %d of user %d: a key fence waits for it, and "+
		"for %v it was in the middle of a verb and gave no sign of life",
		e.Server, e.Process, e.User, e.Silent)
}
