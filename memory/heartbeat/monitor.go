package heartbeat

import (
	"context"
	"errors"
	"slices"

	"txnode/channel"
	"txnode/memory"
	"txnode/memory/channelhost"
	"txnode/rdma"
)

// Options of a Monitor. All times are in nanoseconds of the fabric's clock.
type Options struct {
	// Term is how long this process may be silent until others declare it dead, and they until it does, unless they ask for more; more than 0.
	Term int64
	// Longest is the most that Term is raised to after false alarms; less than Term: Term.
	Longest int64
}

// Stats are what a Monitor has met.
type Stats struct {
	// Turns that have written and read the table.
	Turns uint64
	// Late is how many looks came more than half a term after the one before.
	Late uint64
	// Silent is how many processes were found silent.
	Silent uint64
	// Ended is how often the registration of this process was ended by others: a false alarm, by its heartbeats or its lease.
	Ended uint64
	// Term is that of this process now.
	Term int64
	// Longest is the longest that a process was watched silent for that moved after all.
	Longest int64
}

// Monitor is the heartbeat of one process, and what it knows of those of others. It belongs to one thread.
type Monitor struct {
	space *memory.Space
	opts  Options

	host   *host
	member *channel.Member // nil: it has not joined
	table  *channel.SST[row]
	retry  int64 // when to join again
	pause  int64

	process uint32 // as which it counts
	count   uint64
	seen    map[uint32]sighting
	looked  int64 // after the last look; 0: there is none
	silent  []uint32
	stats   Stats
}

// row is what a process says of itself.
type row struct {
	Process uint64
	Count   uint64
	Term    int64 // how long it may be silent
}

// sighting is the last count that a process was seen to have.
type sighting struct {
	count  uint64
	silent int64 // for how long it was watched not to move
	moved  bool  // it was another one before
	term   int64
}

// Limits.
const (
	Rows     = 64      // processes that can have heartbeats
	Arena    = 1 << 18 // bytes that a thread must have for a monitor
	maxPause = 1_000_000_000
)

// New makes the monitor of a process that has joined a shared database. It does nothing before the first Turn.
func New(s *memory.Space, o Options) *Monitor {
	o.Longest = max(o.Longest, o.Term)
	return &Monitor{space: s, opts: o, host: &host{Host: channelhost.Hasty(s)}, seen: map[uint32]sighting{}, stats: Stats{Term: o.Term}}
}

// Every is how long to wait between two turns.
func (m *Monitor) Every() int64 { return max(m.opts.Term/4, 1) }

// Stats are those up to the last turn.
func (m *Monitor) Stats() Stats { return m.stats }

// host is that of the database, for objects that users cannot name. A verb without an answer moves no epoch: it may take effect late,
// and put an earlier count in the place of one that is not the newest. A member that joins again because its table is gone keeps its
// number, so that the catalog does not fill with numbers.
type host struct {
	channel.Host
	id channel.MemberID
}

const prefix = ".engine/"

func (h *host) Enroll(c *rdma.Coro, name string) (id channel.MemberID, err error) {
	if h.id != 0 && h.Refresh(c) == nil {
		return h.id, nil
	}
	h.id, err = h.Host.Enroll(c, name)
	return h.id, err
}

func (h *host) Declare(c *rdma.Coro, name string, s channel.Spec) (channel.Place, error) {
	return h.Host.Declare(c, prefix+name, s)
}

func (h *host) Forget(c *rdma.Coro, name string, incarnation uint32) error {
	return h.Host.Forget(c, prefix+name, incarnation)
}

func (h *host) Valid(name string, p channel.Place) error { return h.Host.Valid(prefix+name, p) }

func (h *host) Fence(c *rdma.Coro, id channel.MemberID) error {
	if id == 0 {
		return nil
	}
	return h.Host.Fence(c, id)
}

// Turn counts on, looks at all, and tells the space which processes are silent. changed: others than before. After an error, which
// says why there are no heartbeats just now, terms begin again; call it again as ever. Errors of a process that ends are of no interest.
func (m *Monitor) Turn(ctx context.Context, c *rdma.Coro) (changed bool, err error) {
	if err := m.join(ctx, c); err != nil || m.table == nil {
		return m.judge(false), err
	}
	if p := m.space.Process(); p != m.process { // joining registers it anew
		if m.process != 0 {
			m.stats.Ended++
			m.stats.Term = min(2*m.stats.Term, m.opts.Longest)
		}
		m.process = p
		m.space.Beat(0, 0) // it has not been seen
	}
	m.count++
	began, silence := c.Thread().Now(), watched(m.stats.Term)
	if !m.space.Beats() {
		m.space.Beat(began, silence) // if this is seen at all
	}
	err = m.member.Beat(c)
	if err == nil {
		err = m.table.Store(c, row{uint64(m.process), m.count, m.stats.Term})
	}
	if err == nil {
		m.space.Beat(began, silence)
	}
	began = c.Thread().Now()
	if err == nil {
		err = m.table.Look(c)
	}
	if err != nil {
		m.drop()
		if errors.Is(err, channel.ErrFenced) {
			err = nil // it was taken for dead, and joins anew
		}
		return m.judge(false), err
	}
	m.stats.Turns++
	m.note(began)
	m.looked = c.Thread().Now()
	return m.judge(true), nil
}

// note takes over what a look has found that began at a time.
func (m *Monitor) note(began int64) {
	gap := int64(0)
	if m.looked != 0 {
		gap = max(began-m.looked, 0)
	}
	if gap > m.opts.Term/2 {
		m.stats.Late++
		gap = m.opts.Term / 2
	}
	for _, r := range m.table.Rows() {
		id := uint32(r.Value.Process)
		x, known := m.seen[id]
		x.term = max(r.Value.Term, m.opts.Term)
		if known && x.count == r.Value.Count {
			x.silent += gap
		} else {
			m.stats.Longest = max(m.stats.Longest, x.silent)
			x = sighting{count: r.Value.Count, moved: known, term: x.term}
		}
		m.seen[id] = x
	}
}

// watched is for how long a process is watched silent that may be silent for a term.
func watched(term int64) int64 { return term + term/8 }

// judge tells the space which processes are silent, if the table can be read, else that none is.
func (m *Monitor) judge(read bool) (changed bool) {
	var silent []uint32
	for id, x := range m.seen {
		switch {
		case !m.space.IsProcess(id):
			delete(m.seen, id)
		case !read:
			x.silent = 0
			m.seen[id] = x
		case x.term > m.opts.Longest: // its lease counts
		case id != m.process && x.moved && x.silent > watched(x.term):
			silent = append(silent, id)
		}
	}
	slices.Sort(silent)
	for _, id := range silent {
		if !slices.Contains(m.silent, id) {
			m.stats.Silent++
			changed = true
		}
	}
	if len(silent)+len(m.silent) > 0 {
		m.space.Silence(silent...)
	}
	m.silent = silent
	return changed
}

// join joins, unless it has, or has failed to a short time ago.
func (m *Monitor) join(ctx context.Context, c *rdma.Coro) (err error) {
	now := c.Thread().Now()
	if m.table != nil || now < m.retry {
		return nil
	}
	defer func() {
		if err != nil {
			m.drop()
			m.pause = min(max(2*m.pause, m.opts.Term), maxPause)
			m.retry = c.Thread().Now() + m.pause
		}
	}()
	identity := channel.Identity{Name: "heartbeat", Term: m.opts.Longest, Slots: Rows}
	if m.member, err = channel.Join(ctx, c, m.host, identity); err != nil {
		return err
	}
	m.table, err = channel.OpenSST(ctx, c, m.member.Scope("heartbeat"), "rows", channel.Plain[row]("heartbeat.1"), Rows)
	if err == nil {
		m.pause = 0
	}
	return err
}

// drop gives up what it has joined.
func (m *Monitor) drop() {
	if m.table != nil {
		m.table.Close()
	}
	if m.member != nil {
		m.member.Close()
	}
	m.table, m.member, m.looked = nil, nil, 0
}

// Leave ends the heartbeat: others do not judge this process by it any more. It is not used after that.
func (m *Monitor) Leave(c *rdma.Coro) error {
	var err error
	if m.table != nil {
		err = m.table.Leave(c)
	}
	if m.member != nil && err == nil {
		err = m.member.Leave(c)
	}
	if err == nil {
		m.space.Beat(0, 0)
	}
	m.drop()
	m.judge(false)
	return err
}
