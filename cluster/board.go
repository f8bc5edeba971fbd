package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"txnode/rdma/tcp"
	"txnode/txn"
)

// ProcessReport is what a process that has the database open says of itself. Open has it tell a daemon of the cluster each
// Options.Post, and Report has what a daemon was told.
//
// A process tells a daemon, and neither the catalog nor a port of its own: an entry of the catalog that changes each second would
// wake all that watch the catalog, and a port would need an address, a certificate and a way through firewalls in each program.
type ProcessReport struct {
	Life    uint64 `json:"life"`    // a number that no other opening has
	Process uint32 `json:"process"` // its number in the catalog
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	// At is when it was so, in nanoseconds since the process has opened the database.
	At int64 `json:"at"`
	// Time is when the process told it, by the clock of its host.
	Time time.Time `json:"time"`
	// Metrics are totals, of at most ReportedTables tables.
	Metrics txn.Metrics `json:"metrics"`
	// Closed: the process is about to end, and is to be forgotten.
	Closed bool `json:"closed,omitempty"`
	// Age is for how long the daemon has had it, in nanoseconds.
	Age time.Duration `json:"age"`
	// Ahead is how far the clock of the process is ahead of the daemon's, less what the report took on its way, in nanoseconds.
	Ahead time.Duration `json:"ahead"`
}

// ReportedTables is of how many tables ProcessReport.Metrics has figures at most: those with the most records read and written.
const ReportedTables = 128

const (
	maxPost   = 64 << 10 // bytes
	maxPosts  = 1024
	postLasts = 15 * time.Second
)

// board has the last report of each process, for postLasts. Its methods are safe for concurrent use.
type board struct {
	mu    sync.Mutex
	posts map[uint64]*post
}

type post struct {
	report ProcessReport
	at     time.Time
}

// put takes a report over.
func (b *board) put(p []byte, now time.Time) error {
	if len(p) > maxPost {
		return fmt.Errorf("a report of %d bytes, more than %d", len(p), maxPost)
	}
	x := &post{at: now}
	if err := json.Unmarshal(p, &x.report); err != nil {
		return errRequest
	}
	x.report.Ahead = 0
	if told := x.report.Time; !told.IsZero() {
		x.report.Ahead = told.Sub(now)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	if was, ok := b.posts[x.report.Life]; ok && was.report.Closed { // it comes late
		return nil
	}
	if b.posts == nil {
		b.posts = map[uint64]*post{}
	}
	if _, ok := b.posts[x.report.Life]; !ok && len(b.posts) >= maxPosts {
		return fmt.Errorf("%d processes report already", maxPosts)
	}
	b.posts[x.report.Life] = x
	return nil
}

// all returns the reports, by the processes' numbers.
func (b *board) all(now time.Time) (out []ProcessReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	for _, p := range b.posts {
		r := p.report
		if r.Closed {
			continue
		}
		r.Age = now.Sub(p.at)
		out = append(out, r)
	}
	slices.SortFunc(out, byProcess)
	return out
}

func byProcess(a, b ProcessReport) int {
	if a.Process != b.Process {
		return int(int64(a.Process) - int64(b.Process))
	}
	if a.Life < b.Life {
		return -1
	}
	return 1
}

// forget drops what is too old; b.mu is held.
func (b *board) forget(now time.Time) {
	for life, p := range b.posts {
		if now.Sub(p.at) > postLasts {
			delete(b.posts, life)
		}
	}
}

// onSockets reports whether an address is one of a daemon with sockets, which has a board.
func onSockets(address string) bool {
	_, _, shm := BladeAddress(address).shared()
	_, _, err := tcp.ParseAddress(address)
	return !shm && err == nil
}
