package shm

import (
	"fmt"
	"path/filepath"
	"time"

	"txnode/internal/validate"
	"txnode/rdma/region"
)

// Options configure a client: Dial. The zero value is usable.
type Options struct {
	// Servers are the names of the servers whose blades the fabric has, in this order. Every
	// process must give the same. nil: all servers of the directory, in the order of their names.
	Servers []string
	// Seed of all randomness of the fabric; 0: from the clock.
	Seed uint64
	// Connect bounds how long a connection takes to come about; 0: 3 seconds.
	Connect time.Duration
	// Control bounds a call of the control path, and a key fence of this process, which there is
	// when a server has died; 0: 5 seconds.
	Control time.Duration
}

// ServerOptions configure a server.
type ServerOptions struct {
	// Name of the server in its directory: 1 to 32 letters, digits, '-' and '_'.
	Name string
	// Blades are the regions to serve: those with a Path are files, and the others shared memory.
	// Shared, Words and File are set by the server; HugePages is not possible.
	Blades []region.Options
	// Seed of the access keys; 0: a random one. With another one than 0, each server of the name
	// must have its own: a key of one must not open what the next has.
	Seed uint64
	// Patience is for how long a client that a key fence waits for may give no sign of life before
	// it is ended (SIGKILL): it is in the middle of a verb, and has not answered the question
	// whether it lives. Give the longest lease that a client has, or more: one that is silent for
	// so long cannot have renewed its lease, so it has lost it. 0: 10 seconds.
	Patience time.Duration
	// Connections bounds how many there are at a time; 0: 1024. A client has one for each of its
	// calls at a time, and one more.
	Connections int
	// Timeout bounds how long a client may take for the beginning of a connection and to take
	// answers; 0: 5 seconds.
	Timeout time.Duration
	// Describe returns what the program says of itself to those that ask with Ask: at most 60 KiB.
	// nil: nothing. It may be called by several goroutines at once.
	Describe func() []byte
	// Report is told of each connection that was refused or has failed, of each key fence that
	// is not complete (ErrStuck), and of each client that was ended for one (*KilledError). It
	// may be called by several goroutines at once, must not wait, and must not call the
	// server. nil: nothing is.
	Report func(err error)
}

// Defaults of durations, and the longest ServerOptions.Patience.
const (
	DefaultConnect  = 3 * time.Second
	DefaultControl  = 5 * time.Second
	DefaultPatience = 10 * time.Second
	MaxPatience     = 24 * time.Hour
)

const (
	defaultConnections = 1024
	defaultTimeout     = 5 * time.Second
	maxBlades          = 4096
	maxName            = 32
	maxUnixPath        = 103 // of a socket, on all systems, in bytes
)

type span struct {
	name string
	d    *time.Duration
	or   time.Duration
}

func spans(f *validate.Faults, all ...span) {
	for _, s := range all {
		f.Check(*s.d >= 0, "%s is %v: a duration of 0 or more is possible", s.name, *s.d)
		if *s.d == 0 {
			*s.d = s.or
		}
	}
}

func (o *Options) complete(dir string) error {
	var f validate.Faults
	spans(&f, span{"Connect", &o.Connect, DefaultConnect}, span{"Control", &o.Control, DefaultControl})
	seen := map[string]bool{}
	for _, name := range o.Servers {
		checkName(&f, dir, name)
		f.Check(!seen[name], "server %q is named twice", name)
		seen[name] = true
	}
	return f.Err(ErrOptions)
}

func (o *ServerOptions) complete(dir string) error {
	var f validate.Faults
	checkName(&f, dir, o.Name)
	f.Check(len(o.Blades) > 0 && len(o.Blades) <= maxBlades, "%d blades: between 1 and %d are possible",
		len(o.Blades), maxBlades)
	for i, b := range o.Blades {
		f.Check(!b.HugePages, "blade %d: reserved huge pages cannot be shared", i)
		f.Check(!b.Shared && b.Words == nil && b.File == nil,
			"blade %d: Shared, Words and File are the server's to set", i)
		f.Check(!b.ReadOnly || b.Path != "", "blade %d: read-only memory has nothing to read: give it a Path", i)
	}
	spans(&f, span{"Patience", &o.Patience, DefaultPatience}, span{"Timeout", &o.Timeout, defaultTimeout})
	f.Check(o.Patience <= MaxPatience, "Patience is %v: at most %v is possible", o.Patience, MaxPatience)
	f.Check(o.Connections >= 0, "%d connections: 1 or more are possible", o.Connections)
	if o.Connections == 0 {
		o.Connections = defaultConnections
	}
	return f.Err(ErrOptions)
}

func checkName(f *validate.Faults, dir, name string) {
	ok := name != "" && len(name) <= maxName
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	f.Check(ok, "server %q: a name has 1 to %d letters, digits, '-' and '_'", name, maxName)
	if path := socketOf(dir, name); ok {
		f.Check(len(path) <= maxUnixPath, "the socket %s: its path has more than %d bytes, give a shorter directory",
			path, maxUnixPath)
	}
}

// Files of a server in the directory; lanesFile is that of all.
const (
	lanesFile = "lanes"
	socketExt = ".sock"
)

// Names are patterns of the names that files of servers and clients have in a directory (see
// path/filepath.Match).
var Names = []string{lanesFile, "*.keys", "*.keys.new", "*" + socketExt}

func socketOf(dir, name string) string { return filepath.Join(dir, name+socketExt) }
func keysOf(dir, name string) string   { return filepath.Join(dir, name+".keys") }

// damaged is the error for a file of the directory that cannot be used.
func damaged(path, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s; end all processes that use the directory and remove the file",
		ErrDirectory, path, fmt.Sprintf(format, args...))
}
