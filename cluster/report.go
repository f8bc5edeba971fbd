package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"txnode/rdma"
	"txnode/rdma/shm"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// ReportService is the name of the service by which a daemon of blades, or of a catalog, says how
// it is: see Reporter.
const ReportService = "report"

// Report is what a daemon says of itself.
type Report struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	// Time is when it answered, by the clock of its host.
	Time        time.Time `json:"time"`
	Began       time.Time `json:"began"`
	Connections int       `json:"connections"`
	Limit       int       `json:"limit"` // of connections
	// OpenFiles is the limit of files that it can have open at a time; 0: not known.
	OpenFiles uint64 `json:"open_files,omitempty"`
	// Counted: the daemon executes the verbs on its blades, and counts them. Verbs on shared memory
	// are executed by clients.
	Counted bool          `json:"counted"`
	Blades  []BladeReport `json:"blades"`
	// Full are its disks that are full, each in words, with what goes on and what to do.
	Full []string `json:"full,omitempty"`
	// Processes are those that have told this daemon of themselves in the last 15 seconds. A server
	// of shared memory is told nothing.
	Processes []ProcessReport `json:"processes,omitempty"`
}

// BladeReport is a blade of a daemon. All but Connections are totals since the daemon began.
type BladeReport struct {
	Size        uint64 `json:"size"`        // bytes
	Provisioned uint64 `json:"provisioned"` // bytes that clients have asked for
	KeyChanges  uint64 `json:"key_changes"`
	Fault       string `json:"fault,omitempty"` // why it is stopped

	Connections  int                 `json:"connections"` // queue pairs
	Verbs        [rdma.NumOps]uint64 `json:"verbs"`
	Failed       uint64              `json:"failed"`
	BytesRead    uint64              `json:"bytes_read"`
	BytesWritten uint64              `json:"bytes_written"`
}

// Reporter answers for a daemon: its Answer is the tcp.Service named ReportService, and its
// Describe is for shm.ServerOptions. Its methods are safe for concurrent use.
//
// A request without bytes is a question, and its reply is a Report as JSON. Another one is a
// ProcessReport as JSON, which the reporter remembers; its reply has no bytes. Any client that
// may connect can say anything of itself, so what a reporter remembers is bounded, and is for
// people to look at.
type Reporter struct {
	report func() Report
	board  board
}

// NewReporter makes a reporter of a daemon, of which report says how it is. It may be called by
// several goroutines at once.
func NewReporter(report func() Report) *Reporter { return &Reporter{report: report} }

// errRequest is of a request that a Reporter does not know.
var errRequest = errors.New("the request is none that this release of txnode knows")

// Answer is a tcp.Service.
func (r *Reporter) Answer(_ context.Context, request []byte) ([]byte, error) {
	if len(request) > 0 {
		return nil, r.board.put(request, time.Now())
	}
	return r.board.reply(time.Now(), r.report)
}

// Build is how far the process is that builds copies, as this daemon was told; zero: none is known
// to.
func (r *Reporter) Build() txn.CopyMetrics { return r.board.build(time.Now()) }

// Describe is the report without processes, for shm.ServerOptions.
func (r *Reporter) Describe() []byte {
	p, err := json.Marshal(r.report())
	if err != nil {
		panic(err) // strings and numbers
	}
	return p
}

// AskReport asks the daemon at an address of blades, or of a catalog, how it is. tcp.ErrRefused: it
// is a program that has no such service. Other errors name the address and match those of Connect.
func AskReport(ctx context.Context, address string, o Options) (*Report, error) {
	if dir, name, ok := BladeAddress(address).shared(); ok {
		p, err := shm.Ask(ctx, dir, name, o.Shm)
		if err != nil {
			return nil, oneLine(err)
		}
		return decodeReport(address, p)
	}
	c, err := tcp.DialService(ctx, controlOf(address), ReportService, o.tcp())
	if err != nil {
		return nil, oneLine(err)
	}
	defer c.Close()
	p, err := c.Call(ctx, nil)
	if err != nil {
		return nil, oneLine(err)
	}
	return decodeReport(address, p)
}

// decodeReport accepts any bytes.
func decodeReport(address string, p []byte) (*Report, error) {
	r := &Report{}
	if n := bytes.Count(p, []byte("{")); len(p) > 2*maxBoard || n > 1<<17 {
		return nil, oneLine(fmt.Errorf("%s: %w: its report has %d bytes and %d objects",
			address, tcp.ErrProtocol, len(p), n))
	}
	if err := json.Unmarshal(p, r); err != nil {
		return nil, oneLine(fmt.Errorf("%s: %w: its report: %w", address, tcp.ErrProtocol, err))
	}
	return r, nil
}

// DialServer connects to one server of blades alone, whose blades are numbered from 0. What they
// are is not compared with a catalog. Errors are those of Connect.
func DialServer(ctx context.Context, address BladeAddress, o Options) (rdma.Fabric, error) {
	if err := check([]BladeAddress{address}); err != nil {
		return nil, err
	}
	return fabricOf(ctx, []Server{{Address: address}}, o)
}
