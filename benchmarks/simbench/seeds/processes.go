package seeds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"txnode/benchmarks/engine"
	"txnode/memory"
	"txnode/rdma"
	"txnode/rdma/sim"
	"txnode/txn"
)

// Several processes have the database of a run open at once (txn.Options.Shared). Each has a
// compute blade of its own, with its RNIC, its connections and its handle of the catalog, and all
// that a txn.DB keeps. They share the blades of memory and the virtual clock.
//
// All of them run in one sim.Fabric.Run. Each has a body that leads it, and one for each of its
// threads. The leader opens the database, if the process joins in the middle, runs the clients, and
// closes the database. Its txn.DB.Run calls Fabric.Run, which does not nest: that of the seat hands
// the bodies of threads to those that wait for them.
//
//	round begins   one process has the database open; others open it, some of them later
//	work           processes are killed, paused, cut off from the catalog; some have less to do,
//	               and close the database
//	round ends     the process that was there first goes on, or one that is still there takes its
//	               place, or, if there is
//	               none, a new process opens the database

// process is a compute process: its handle of the database, and the tables that it has opened.
type process struct {
	slot  int   // its compute blade, from 0
	seat  *seat // nil: it is the only one
	store *engine.Store
	db    *txn.DB
	t     *rows
	o     *orderedRows // t, if it is ordered
	side  *side        // see changes.go; nil: it has not opened that table

	byGroup, byCode *byNumber // its indexes, if the workload has them

	// it has been there until its outcomes that were unknown were answered: it closed the database,
	// or is alone with it
	answers bool
}

// seatThreads is how many threads can connect from the compute blade of a process, those included
// that wait for a turn.
const seatThreads = 64

// Numbers of threads on the compute blade of a process.
const (
	seatGates = seatThreads - 24 // of those that wait for a turn: the leader, and behind it the threads
	// those of which package txn has numbers from txnControl on: two, and before these the next
	seatControl = seatThreads - 2
	seatTenders = 2
	txnControl  = 1 << 16
)

// seat is the fabric as a process has it.
type seat struct {
	*sim.Fabric
	slot   int
	known  []rdma.BladeInfo // if there is a network
	tended *txn.DB          // it sees to what is left by bodies of their own, outside of rounds, too; nil: workers do
	in     *member          // nil: no round is in progress, or the process takes no part
}

// NewPort connects a thread from the process's compute blade.
func (s *seat) NewPort(c rdma.PortConfig) (rdma.Port, error) {
	switch {
	case c.Index >= txnControl && c.Index-txnControl < seatThreads-seatControl:
		c.Index += seatControl - txnControl
	case c.Index > txnControl && c.Index-txnControl < seatThreads-seatControl+seatTenders:
		c.Index = seatThreads - 1 - (c.Index - txnControl)
	case c.Index >= seatGates:
		return nil, fmt.Errorf("seeds: process %d has no room for thread %d", s.slot+1, c.Index)
	}
	c.Index += s.slot * seatThreads
	return s.Fabric.NewPort(c)
}

// Seed is another one for each process.
func (s *seat) Seed() uint64 { return s.Fabric.Seed() + uint64(s.slot)<<32 } // from 0

// Run runs threads of the process. In a round they have bodies already.
func (s *seat) Run(n int, fn func(i int)) {
	m := s.in
	if m == nil {
		s.beside(n, fn)
		return
	}
	m.job, m.begun, m.left = fn, make([]bool, n), n
	m.wait(m.gate, func() bool { return m.left == 0 })
	m.job = nil
}

// beside runs threads of the process, and its tenders if there are any: what has failed in its own
// name it alone can finish, by them.
func (s *seat) beside(n int, fn func(i int)) {
	left := n
	var all []func() error
	if s.tended != nil {
		all = s.tended.Tenders(func() bool { return left == 0 })
	}
	s.Fabric.Run(n+len(all), func(i int) {
		if i >= n {
			_ = all[i-n]() // it has no thread: then what is left is not seen to
			return
		}
		defer func() { left-- }()
		fn(i)
	})
}

// member is a process in a round.
type member struct {
	*process
	b      *bench
	gate   rdma.Port // of the leader
	joins  int64     // when it opens the database, by the virtual clock; 0: it has done so
	share  int       // of the transactions that clients have to run, in percent
	leaves bool      // it does not close the database
	first  bool      // it has had it open before the round
	opened bool      // it has it open
	ready  bool      // and the table of the workload

	job   func(i int) // a thread's body; nil: there is nothing to do
	begun []bool      // by thread: it has begun with the job
	left  int         // of the job, how many bodies have not ended

	settled  bool // its tenders are to end, and its changes of tables
	tending  int  // of these bodies, how many have not
	over     bool // the leader has ended, or was stopped
	finished bool // the leader has come to the end of its work
	stays    bool // and has not closed the database
	err      error
}

// Bounds on how long a body sleeps between two looks whether it is its turn, in nanoseconds.
const (
	gateMinNs = 2_000
	gateMaxNs = 100_000
)

// wait has a body sleep until it is its turn.
func (m *member) wait(gate rdma.Port, turn func() bool) {
	for d := int64(gateMinNs); !turn(); d = min(2*d, gateMaxNs) {
		gate.Wait(gate.Now() + d)
	}
}

// open makes the port with which a body waits: the leader's has number 0.
func (m *member) open(k int) (rdma.Port, error) {
	return m.seat.Fabric.NewPort(rdma.PortConfig{
		Index: m.slot*seatThreads + seatGates + k, Policy: rdma.SharedQP, Arena: 64,
	})
}

// serve is the body of a thread.
func (m *member) serve(k int) {
	gate, err := m.open(1 + k)
	if err != nil {
		m.err = errors.Join(m.err, err)
		return
	}
	due := func() bool { return m.job != nil && k < len(m.begun) && !m.begun[k] }
	for {
		m.wait(gate, func() bool { return m.over || due() })
		if !due() {
			break
		}
		m.begun[k] = true
		func() {
			defer func() { m.left-- }() // also when the thread is stopped
			m.job(k)
		}()
	}
	m.err = errors.Join(m.err, gate.Close())
}

// tenders is how many bodies a process has that are not for sessions: txn.DB.Tenders.
const tenders = 3

// tend is the body of such a one, as soon as the process has opened the database, until
// it is to be closed.
func (m *member) tend(k int) {
	gate, err := m.open(1 + m.b.threads + k)
	if err != nil {
		m.err = errors.Join(m.err, err)
		return
	}
	m.tending++
	defer func() { m.tending-- }() // also when the thread is stopped
	over := func() bool { return m.over || m.settled }
	for m.wait(gate, func() bool { return m.opened || over() }); !over(); gate.Wait(gate.Now() + gateMaxNs) {
		_ = m.db.Tenders(over)[k]() // it has no thread: as long as the process has trouble
	}
	m.err = errors.Join(m.err, gate.Close())
}

// lead is the body of the leader.
func (m *member) lead(keeper *member, work, reopen func(q *process) error) {
	defer func() { m.over = true }()
	gate, err := m.open(0)
	if err != nil {
		m.err = errors.Join(m.err, err)
		return
	}
	m.gate = gate
	if err := m.through(keeper, work, reopen); err != nil && !m.b.forgiven(err) {
		m.err = errors.Join(m.err, fmt.Errorf("process %d: %w", m.slot+1, err))
	}
	m.err = errors.Join(m.err, gate.Close())
}

// through is what the leader does.
func (m *member) through(keeper *member, work, reopen func(q *process) error) error {
	b := m.b
	m.opened = m.joins == 0
	if m.joins > 0 {
		m.gate.Wait(m.joins)
		if err := b.openOn(m.process); err != nil {
			if b.faults != nil && errors.Is(err, memory.ErrShared) {
				return nil // it would have to wait for longer
			}
			return err
		}
		m.opened = true
		b.cov.Joined++
		if err := reopen(m.process); err != nil {
			return err
		}
	}
	m.ready = true
	err := b.forgive(work(m.process))
	m.settled = true
	if err != nil && !errors.Is(err, errEnded) {
		return err
	}
	if m.slot == 0 && m != keeper {
		// The database is not left alone while blades may be lost that no process has declared
		// dead.
		m.wait(m.gate, func() bool { return keeper.finished || keeper.gone() })
	}
	m.finished = true
	if m == keeper || keeper.gone() || m.leaves {
		m.stays = true
		return nil
	}
	m.wait(m.gate, func() bool { return m.tending == 0 })
	err = m.db.Close(context.Background())
	if err == nil {
		b.cov.Closed++
		m.answers = true
		return nil
	}
	if b.faults != nil {
		return nil // threads were stopped, or the catalog did not answer: its registration expires
	}
	return fmt.Errorf("closing: %w", err)
}

// gone reports whether the process is dead, or will not come to its end.
func (m *member) gone() bool {
	return m.over && !m.finished || m.seat.Killed(m.slot+1)
}

// newProcess is one that has not opened the database.
func (b *bench) newProcess(slot int) *process {
	q := &process{slot: slot}
	if b.processes > 1 {
		q.seat = &seat{Fabric: b.world.fabric, slot: slot}
	}
	return q
}

// fabric is the fabric as the process has it.
func (q *process) fabric(w *world) rdma.Fabric {
	if q.seat == nil {
		return w.fabric
	}
	return q.seat
}

// muster has the processes of a round ready. Some of them have opened the database when it returns.
func (b *bench) muster(reopen func(q *process) error) (all []*member, err error) {
	r := rng(b.seed ^ 0x9a75e ^ uint64(b.round)<<40) // from 0
	for slot := range b.processes {
		m := &member{process: b.process, b: b, share: 100, first: slot == b.slot}
		late, least := r.chance(35), r.chance(30)
		span, share, leaves := r.n(uint64(b.span())), 10+int(r.n(80)), r.chance(20) // small
		if all = append(all, m); m.first {
			m.seat.in = m
			continue
		}
		m.process = b.newProcess(slot)
		m.leaves = leaves && b.faults != nil && slot > 0
		if least {
			m.share = share
		}
		if late {
			m.joins = 1 + int64(span) // small
		} else if err = b.openOn(m.process); err == nil {
			err = reopen(m.process)
		}
		if err != nil {
			return nil, err
		}
		m.seat.in = m
	}
	now := b.world.fabric.Now()
	for _, m := range all {
		if m.joins > 0 {
			m.joins += now
		}
	}
	return all, nil
}

// everywhere runs the clients of all processes. The process of the bench is then one that has the
// database open, if any has.
func (b *bench) everywhere(all []*member, work, reopen func(q *process) error) error {
	keeper := all[b.slot]
	each := 1 + b.threads
	if b.tended {
		each += tenders
	}
	if b.changes {
		each++
	}
	b.members = all
	n := len(all) * each
	if b.witnessed {
		n++
	}
	b.world.fabric.Run(n, func(i int) {
		if i == len(all)*each {
			if err := b.world.net.attend(b.world.witness,
				func() bool { return !slices.ContainsFunc(all, func(m *member) bool { return !m.over }) }); err != nil {
				keeper.err = errors.Join(keeper.err, err)
			}
			return
		}
		switch m, k := all[i/each], i%each; {
		case b.changes && k == each-1:
			m.change(k, keeper)
		case k > b.threads:
			m.tend(k - b.threads - 1)
		case k > 0:
			m.serve(k - 1)
		default:
			m.lead(keeper, work, reopen)
		}
	})
	b.members = nil
	heirs := append([]*member{keeper}, all...)
	switch i := slices.IndexFunc(heirs, func(m *member) bool { return m.stays && !m.gone() }); {
	case i < 0:
		b.extinct = true
		b.cov.Extinct++
	case i > 0:
		b.process = heirs[i].process
		b.cov.Succeeded++
	}
	var err error
	for _, m := range all {
		err = errors.Join(err, m.err)
		m.seat.in = nil
		if m.db == nil {
			continue
		}
		for _, x := range m.db.Redundancy().Outages {
			if x.Decided == 0 && x.Noticed == x.Promoted {
				b.cov.Foreign++
			}
		}
	}
	return err
}

// ownShare is how many of n transactions the clients of a process run.
func (b *bench) ownShare(q *process, n int) int {
	if q.seat == nil || q.seat.in == nil {
		return n
	}
	return max(n*q.seat.in.share/100, 1)
}

// clients is how many clients a process has.
func (p *plan) clients() int { return p.threads * p.coroutines }

// span is about how long the clients take.
func (p *plan) span() time.Duration {
	return time.Duration(p.txns*p.coroutines) * 10 * time.Microsecond
}

// port is the number of a thread of the workload, counted over all processes, as faults have it. 0
// of a process sets up.
func (p *plan) port(k int) int {
	if p.processes == 1 {
		return k + 1
	}
	return k/p.threads*seatThreads + 1 + k%p.threads
}

// mostProcesses bounds the processes of a run.
const mostProcesses = 8

// drawProcesses decides how many processes there are, by a stream of its own: seeds with one stay
// as they are. What an option names has one, unless Options.Processes says otherwise.
func (p *plan) drawProcesses(o *Options) error {
	r := rng(p.seed ^ 0x9c0ce5)
	several, n := r.chance(12), 2+int(r.n(3))           // small
	threads, coroutines := 1+int(r.n(2)), 1+int(r.n(3)) // small
	p.processes = 1
	switch {
	case o.Processes < 0 || o.Processes > mostProcesses:
		return fmt.Errorf("%w: %d processes: from 1 to %d are possible, and 0 for what the seed draws",
			ErrUnknown, o.Processes, mostProcesses)
	case o.Processes > 0:
		p.processes = o.Processes
	case several && o.Only == nil && o.Workload == "" && o.Durability == "" && !o.Siege:
		p.processes = n
	}
	if p.processes == 1 {
		return nil
	}
	if o.Durability == txn.DurabilityPower.String() {
		return fmt.Errorf("%w: durability power with several processes", ErrUnknown)
	}
	p.compute, p.threads, p.coroutines, p.durable, p.lease = p.processes, threads, coroutines, false, time.Second
	return nil
}

// processKinds are the faults that hit compute blades alone.
var processKinds = []sim.FaultKind{sim.FaultKill, sim.FaultPause, sim.FaultTrouble, sim.FaultClock}

// strikeProcesses draws the faults of processes, beside those of each round.
func (p *plan) strikeProcesses(kinds []sim.FaultKind) {
	if p.processes == 1 {
		return
	}
	for round := range 1 + len(p.later) {
		list := &p.faults
		if round > 0 {
			list = &p.later[round-1]
		}
		*list = append(*list, p.processFaults(kinds, rng(p.seed^0x6b111^uint64(round)<<40))...) // from 0
	}
}

func (p *plan) processFaults(kinds []sim.FaultKind, r rng) (list []sim.Fault) {
	n, span := uint64(p.processes), uint64(p.span()) // positive
	when := func() time.Duration { return time.Duration(1 + r.n(span)) }
	kill, all, killed := r.chance(65), r.chance(25), 1+r.n(n)
	at, next := when(), r.n(n)
	for i := range killed {
		if c := int(next+i)%p.processes + 1; kill && slices.Contains(kinds, sim.FaultKill) { // small
			list = append(list, sim.Fault{Kind: sim.FaultKill, Thread: -1, Compute: c, At: at})
		}
		if !all {
			at = when()
		}
	}
	for range r.n(3) {
		c, from, length := 1+int(r.n(n)), when(), time.Duration(1+r.n(uint64(4*p.lease))) // small
		if slices.Contains(kinds, sim.FaultPause) {
			list = append(list, sim.Fault{Kind: sim.FaultPause, Thread: -1, Compute: c, At: from, For: length})
		}
	}
	for range r.n(2) {
		c, from, length := 1+int(r.n(n)), when(), time.Duration(1+r.n(uint64(2*p.lease))) // small
		if slices.Contains(kinds, sim.FaultCatalog) {
			list = append(list, sim.Fault{Kind: sim.FaultCatalog, Thread: -1, Compute: c, At: from, For: length})
		}
	}
	return list
}

// spare keeps the first process alive where blades are lost: a blade that has begun anew is
// declared dead by a process that has met it before.
func (p *plan) spare() {
	rounds := append([][]sim.Fault{p.faults}, p.later...)
	stops := func(x sim.Fault) bool { return x.Kind == sim.FaultRestart }
	if !p.siege.on() && !slices.ContainsFunc(rounds, func(l []sim.Fault) bool {
		return slices.ContainsFunc(l, stops)
	}) {
		return
	}
	first := func(x sim.Fault) bool { return x.Kind == sim.FaultKill && x.Compute == 1 }
	p.faults = slices.DeleteFunc(p.faults, first)
	for i := range p.later {
		p.later[i] = slices.DeleteFunc(p.later[i], first)
	}
}
