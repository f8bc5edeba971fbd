package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"txnode/rdma/tcp"
	"txnode/txn"
)

// ProcessReport is what a process that has the database open says of itself. Open has it tell a
// daemon of the cluster each Options.Post, and Report has what a daemon was told.
//
// A process tells a daemon, and neither the catalog nor a port of its own: an entry of the catalog
// that changes each second would wake all that watch the catalog, and a port would need an address,
// a certificate and a way through firewalls in each program.
type ProcessReport struct {
	Life    uint64 `json:"life"`    // a number that no other opening has
	Process uint32 `json:"process"` // its number in the catalog
	Epoch   uint32 `json:"epoch"`   // that it knows; 0: it is of an earlier release, which does not tell
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
	// Ahead is how far the clock of the process is ahead of the daemon's, less what the report took
	// on its way, in nanoseconds.
	Ahead time.Duration `json:"ahead"`
	// Age is for how long the daemon has had it, in nanoseconds. It is the last field: see noAge.
	Age time.Duration `json:"age"`
}

// ReportedTables is of how many tables ProcessReport.Metrics has figures at most: those with the
// most records read and written.
const ReportedTables = 128

// Bounds of what a daemon remembers of processes, which any client can tell it.
const (
	maxPost    = 64 << 10             // bytes of a report
	maxPosts   = 1024                 // reports
	maxBoard   = 8 << 20              // bytes of all reports
	maxObjects = ReportedTables + 256 // of JSON in a report, so that few bytes do not become many
	postLasts  = 15 * time.Second
	replyLasts = 250 * time.Millisecond
)

// board has the last report of each process, for postLasts, as JSON. Its methods are safe
// for concurrent use.
type board struct {
	mu    sync.Mutex
	posts map[uint64]*post
	size  int    // bytes of all texts
	last  []byte // reply, of which others may have the bytes
	at    time.Time
}

// post is a report.
type post struct {
	process uint32
	life    uint64
	closed  bool
	text    []byte // JSON, but for the end: the age
	at      time.Time
	build   txn.CopyMetrics
}

// put takes a report over.
func (b *board) put(p []byte, now time.Time) error {
	if len(p) > maxPost || bytes.Count(p, []byte("{")) > maxObjects {
		return fmt.Errorf("a report of %d bytes, or of more than %d tables: %d bytes are possible",
			len(p), ReportedTables, maxPost)
	}
	b.mu.Lock()
	defer b.mu.Unlock() // one is decoded at a time: that takes more memory than its bytes
	var r ProcessReport
	if err := json.Unmarshal(p, &r); err != nil {
		return errRequest
	}
	r.Age, r.Ahead = 0, 0
	if told := r.Time; !told.IsZero() {
		r.Ahead = told.Sub(now)
	}
	text, err := json.Marshal(&r)
	if err != nil || len(text) > 2*maxPost {
		return errRequest
	}
	text = bytes.TrimSuffix(text, []byte(noAge))
	b.forget(now)
	was := b.posts[r.Life]
	if was != nil && was.closed { // it comes late
		return nil
	}
	size := b.size + len(text)
	if was != nil {
		size -= len(was.text)
	}
	switch {
	case was == nil && len(b.posts) >= maxPosts:
		return fmt.Errorf("%d processes report already", maxPosts)
	case size > maxBoard:
		return fmt.Errorf("the reports of %d processes have %d bytes already", len(b.posts), b.size)
	}
	if b.posts == nil {
		b.posts = map[uint64]*post{}
	}
	b.posts[r.Life] = &post{r.Process, r.Life, r.Closed, text, now, r.Metrics.Copies}
	b.size = size
	return nil
}

// noAge is how the JSON of a ProcessReport ends whose age is 0: it is its last field.
const noAge = `"age":0}`

// reply returns the JSON of a report with those of the processes, by the processes' numbers. It
// must not be changed: many questions at a time have the same one if it is large.
func (b *board) reply(now time.Time, report func() Report) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if since := now.Sub(b.at); len(b.last) > maxPost && since >= 0 && since < replyLasts {
		return b.last, nil
	}
	b.forget(now)
	text, err := json.Marshal(report())
	if err != nil {
		return nil, err
	}
	text, with := text[:len(text)-1], `,"processes":[`
	text = slices.Grow(text, b.size+40*len(b.posts)+len(with)+1)
	for _, p := range slices.SortedFunc(maps.Values(b.posts), func(x, y *post) int {
		return cmp.Or(cmp.Compare(x.process, y.process), cmp.Compare(x.life, y.life))
	}) {
		if !p.closed {
			text = append(append(text, with...), p.text...)
			text, with = fmt.Appendf(text, `"age":%d}`, now.Sub(p.at)), ","
		}
	}
	if with == "," {
		text = append(text, ']')
	}
	text = append(text, '}')
	b.last, b.at = text, now
	return b.last, nil
}

// build is how far the process is that builds copies, of those that have told.
func (b *board) build(now time.Time) (m txn.CopyMetrics) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	for _, p := range b.posts {
		if p.build.Total > m.Total {
			m = p.build
		}
	}
	return m
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
			b.size -= len(p.text)
			delete(b.posts, life)
		}
	}
}

// onSockets reports whether an address is one of a daemon with sockets, which has a board.
func onSockets(address string) bool {
	_, _, shm := BladeAddress(address).shared()
	_, _, err := tcp.ParseAddress(controlOf(address))
	return !shm && err == nil
}
