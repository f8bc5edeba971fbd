package sim

import (
	"fmt"
	"math"
	"strings"

	"txnode/rdma"
)

// Program is what the program around the verbs costs, and how its scheduler
// wakes coroutines, where that is not what package rdma does. The zero value
// costs nothing and wakes a coroutine as soon as its requests have completed. It
// stands for programs that were measured elsewhere and do not run here: the
// engine runs its own code, on time that this value charges.
//
// With Force set, the coroutines of a port are scheduled as SMART's task pool
// does (smart-framework, include/smart/task.h and smart/initiator.cpp): one queue
// of the ready ones, in which a poller and the thread's main routine always are;
// a coroutine that waits wants everything completed that its thread had posted
// when it began to wait, on all blades; it is looked at when a request of its own
// has completed, and when that was too early, because another coroutine's request
// to another blade is still under way, not again until every Force switches all
// are looked at.
type Program struct {
	Name string

	// processor time of each transaction, beside its requests; charged by who runs them, with
	// Fabric.Work
	TxnNs float64
	// of each time that a coroutine waited and goes on, with Force: what the framework and its user
	// do between two waits, beside requests and polls
	WaitNs float64

	// Its data, where that is not what package rdma sees: a READ of a lookup in the
	// index counts Bucket bytes on the wire and in memory, a READ or WRITE of a whole
	// record Item; and of the READs of records a share of Cold are lookups, of keys that
	// their thread uses for the first time. 0: as they are. To look through a bucket takes
	// ScanNs of processor time.
	Item, Bucket int
	Cold         float64
	ScanNs       float64

	// A cache line that every thread of the program writes now and then, as a shared
	// counter: who takes it, with Fabric.TakeLine, waits LineNs, and it is on its way for
	// LineHoldNs of them, so that others that want it wait for their turn. 0: there is none.
	LineNs, LineHoldNs float64

	PerRecord bool // a Post rings a doorbell for each record, and for each release of one: see group.apart

	Force    int     // switches after which all that wait are looked at; 0: package rdma schedules
	YieldNs  float64 // from one coroutine to the next
	PollNs   float64 // a poll of a completion queue that finds nothing
	Queues   bool    // a completion queue for each blade, polled one after the other
	PollMost int     // completions that a poll takes, at most
	// Resync: a coroutine that has posted READs of 8 bytes, versions, beside WRITEs, its log,
	// waits once more when all that has completed, for what its thread has posted until then.
	Resync bool
	// Spins: a coroutine that waits for time to pass, as Fabric.Spin announces, yields until it has
	// passed. So it has its turn whenever the others have theirs, and its thread is always active.
	Spins bool
	// CreditWakes: a poll that finds completions wakes the coroutine that has
	// waited longest, because credits have come back.
	CreditWakes bool
}

// SMARTDTX is the program of figures 10 and 11, with SMART's techniques or, as
// FORD+, without, but for what depends on the workload: TxnNs, Item, Bucket, Cold and
// ScanNs. Completions bring back credits, and wake a coroutine, also where nothing limits
// the credits. docs/simulator-fit.md says where the values are from; none is fitted to
// those figures.
func SMARTDTX(t rdma.Techniques) Program {
	return Program{
		Name:      "smart-dtx",
		WaitNs:    580,
		PerRecord: true,
		Force:     1024, YieldNs: 20, PollNs: 15, PollMost: 16,
		Queues: !t.Doorbells, CreditWakes: true, Spins: true,
	}
}

// Engine is this project's engine: 357 ns a SmallBank transaction on one thread of
// the in-process fabric, less 152 for its verbs (docs/performance.md). Package rdma
// schedules; the profile charges for requests, completions and switches.
func Engine() Program { return Program{Name: "txnode", TxnNs: 205} }

// Validate lists everything that cannot be.
func (p *Program) Validate() error {
	var bad []string
	for _, c := range p.Constants() {
		if !(c.Value >= 0 && c.Value < 1e9) {
			bad = append(bad, fmt.Sprintf("%s is %v", c.Name, c.Value))
		}
	}
	if p.Force > 0 && (p.YieldNs <= 0 || p.PollMost <= 0) {
		bad = append(bad, "Force without YieldNs and PollMost: time would stand still")
	}
	if p.Spins && p.Force == 0 {
		bad = append(bad, "Spins without Force: package rdma schedules")
	}
	if p.LineHoldNs > p.LineNs {
		bad = append(bad, "LineHoldNs is above LineNs")
	}
	if p.Cold > 1 || p.Bucket > 1<<20 || p.Item > 1<<20 {
		bad = append(bad, "Cold is above 1, or Item or Bucket above a MiB")
	}
	if bad != nil {
		return fmt.Errorf("%w: program %q: %s", ErrOptions, p.Name, strings.Join(bad, "; "))
	}
	return nil
}

// Constants lists the numbers, in the order of the type.
func (p *Program) Constants() []Constant {
	return []Constant{
		{"TxnNs", p.TxnNs}, {"WaitNs", p.WaitNs}, {"Force", float64(p.Force)}, {"YieldNs", p.YieldNs},
		{"PollNs", p.PollNs},
		{"PollMost", float64(p.PollMost)}, {"Item", float64(p.Item)}, {"Bucket", float64(p.Bucket)}, {"Cold", p.Cold},
		{"ScanNs", p.ScanNs},
		{"LineNs", p.LineNs}, {"LineHoldNs", p.LineHoldNs},
	}
}

// counts is how many bytes a request counts for, with Bucket set.
func (p *port) counts(w *rdma.WR) uint32 {
	prog := &p.f.opt.Program
	// a record of these workloads; nothing else but a log record may have such a length
	whole := w.Len == 64 || w.Len == 128
	switch {
	case w.Op == rdma.OpRead && w.Flags&rdma.FlagLookup != 0:
		return uint32(prog.Bucket)
	case w.Op == rdma.OpRead && whole:
		if prog.Cold > 0 && float64(p.rand()>>11)/(1<<53) < prog.Cold {
			return uint32(prog.Bucket)
		}
		return uint32(prog.Item)
	case w.Op == rdma.OpWrite && whole:
		return uint32(prog.Item)
	}
	return w.Len
}

// Work consumes processor time of the body that calls: ns on an idle machine, and
// as much more as all processor time takes with the threads that are active.
func (f *Fabric) Work(ns float64) {
	p := f.proc()
	if ns <= 0 || p.yield == nil {
		return
	}
	slow := 1.0
	if len(p.ports) > 0 {
		slow = p.ports[0].c.slow
	}
	p.clock += int64(math.Round(float64(ns*1000) * slow))
}

// Spin says that n more coroutines of the calling body's thread spin until their time has come, or
// fewer with a negative n. Without Program.Spins they sleep, and it does nothing.
func (f *Fabric) Spin(n int) {
	p := f.proc()
	if !f.opt.Program.Spins || p.yield == nil {
		return
	}
	p.spinning += n
}

// TakeLine waits for the line that all threads of the program write, in the order of
// virtual time. It is no matter of the processor that waits, so it takes as long with
// many active threads as with few.
func (f *Fabric) TakeLine() {
	p := f.proc()
	if f.opt.Program.LineNs <= 0 || p.yield == nil {
		return
	}
	p.sync()
	from := max(p.clock, f.line)
	f.line = from + ps(f.opt.Program.LineHoldNs)
	p.clock = from + ps(f.opt.Program.LineNs)
}

// tasks schedules the coroutines of a port as Program says.
type tasks struct {
	posted, acked []uint64 // requests, by blade
	all           []task   // by number of the coroutine
	ready         taskRing
	waiting       taskRing // in the order in which they began to wait; some have been woken since
	held          int      // groups that completed, and nobody was told
	switches      int      // since all were looked at
}

// task is a coroutine that has posted.
type task struct {
	want    []uint64 // what must have been acknowledged, by blade
	held    []*group // completed, and not told
	waits   bool
	turn    uint32 // of waiting: tells its present entry in tasks.waiting from older ones
	running bool   // in tasks.ready
	wrote   bool   // has posted a WRITE since it was told of completions
	again   bool   // waits once more: Resync
}

// The two that are always ready.
const (
	taskMain   = -1
	taskPoller = -2
)

func newTasks(blades int) *tasks {
	s := &tasks{posted: make([]uint64, blades), acked: make([]uint64, blades)}
	s.ready.push(taskMain, 0)
	s.ready.push(taskPoller, 0)
	return s
}

// post notes that a coroutine has posted, and will wait sooner or later for all
// that its thread has posted up to now.
func (s *tasks) post(coro int, wrs []rdma.WR) {
	for coro >= len(s.all) {
		s.all = append(s.all, task{want: make([]uint64, len(s.posted))})
	}
	t := &s.all[coro]
	copy(t.want, s.posted)
	t.again = t.again || t.wrote && versions(wrs)
	t.wrote = t.wrote || wrote(wrs)
	if !t.waits && !t.running {
		s.wait(coro)
	}
}

// versions says that what was posted reads versions, for validation.
func versions(wrs []rdma.WR) bool {
	return len(wrs) > 0 && wrs[len(wrs)-1].Op == rdma.OpRead && wrs[len(wrs)-1].Len == 8
}

// wrote says that what was posted begins with a WRITE.
func wrote(wrs []rdma.WR) bool { return len(wrs) > 0 && wrs[0].Op == rdma.OpWrite }

func (s *tasks) wait(coro int) {
	t := &s.all[coro]
	t.waits = true
	t.turn++
	s.waiting.push(coro, t.turn)
}

func (s *tasks) wake(coro int) {
	t := &s.all[coro]
	t.waits, t.running = false, true
	s.ready.push(coro, 0)
}

// wakeOldest wakes the coroutine that has waited longest; false if none waits.
func (s *tasks) wakeOldest() bool {
	for s.waiting.n > 0 {
		coro, turn := s.waiting.pop()
		if t := &s.all[coro]; t.waits && t.turn == turn {
			s.wake(coro)
			return true
		}
	}
	return false
}

// idle says that only the two that are always ready are.
func (s *tasks) idle() bool { return s.ready.n == 2 }

func (s *tasks) done(t *task) bool {
	for i, n := range t.want {
		if s.acked[i] < n {
			return false
		}
	}
	return true
}

// turn lets the tasks have their turns, each once at most, until one has been told
// of its completions: it goes on now.
func (p *port) turn(pr *proc) bool {
	s, prog := p.tasks, &p.f.opt.Program
	told := false
	for range s.ready.n {
		if s.switches++; s.switches > prog.Force {
			s.switches = 0
			for s.wakeOldest() {
			}
		}
		pr.clock += p.c.yield
		coro, _ := s.ready.pop()
		switch {
		case coro == taskMain:
			pr.clock += p.c.yield * int64(pr.spinning)
			s.switches += pr.spinning
			s.ready.push(coro, 0)
		case coro == taskPoller:
			told = p.pollTasks(pr)
			s.ready.push(coro, 0)
		default:
			t := &s.all[coro]
			t.running = false
			if !s.done(t) {
				s.wait(coro)
				continue
			}
			if t.again && prog.Resync {
				t.again = false
				pr.clock += p.noisy(p.c.wait)
				if copy(t.want, s.posted); !s.done(t) {
					s.wait(coro)
					continue
				}
			}
			if told = len(t.held) > 0; told {
				pr.clock += p.noisy(p.c.wait)
			}
			p.tell(pr, t)
		}
		if told {
			return true
		}
	}
	return false
}

// pollTasks polls the completion queues; true if it has told somebody who does not
// take part in the scheduling.
func (p *port) pollTasks(pr *proc) (told bool) {
	s, prog := p.tasks, &p.f.opt.Program
	queues := 1
	if prog.Queues {
		queues = len(p.qps)
	}
	pr.clock += p.c.poll * int64(queues)
	pr.sync()
	n := p.cq.n // one queue in the model: of several, each gives as much at most
	if most := prog.PollMost * queues; n > most {
		n = most
	}
	acked := n > 0
	for range n {
		g := p.cq.pop()
		pr.clock += p.c.reap
		p.take(g)
		i := int(g.q.blade.id)
		s.acked[i] += uint64(len(g.verbs))
		if g.coro < 0 || g.coro >= len(s.all) {
			p.deliver(pr, g)
			told = true
			continue
		}
		t := &s.all[g.coro]
		t.held = append(t.held, g)
		s.held++
		if t.waits && s.acked[i] >= t.want[i] {
			s.wake(g.coro)
		}
	}
	if acked && prog.CreditWakes {
		s.wakeOldest()
	}
	return told
}

// tell hands a coroutine its completions.
func (p *port) tell(pr *proc, t *task) {
	for i, g := range t.held {
		t.held[i] = nil
		if scan := p.f.opt.Program.ScanNs; scan > 0 {
			for k := range g.verbs {
				if int(g.verbs[k].size) == p.f.opt.Program.Bucket {
					pr.clock += int64(float64(ps(scan)) * p.c.slow)
				}
			}
		}
		p.deliver(pr, g)
	}
	s := p.tasks
	s.held -= len(t.held)
	t.held = t.held[:0]
	t.wrote, t.again = false, false
}

// waitTasks is Wait for a port whose coroutines are scheduled by a Program.
func (p *port) waitTasks(pr *proc, end int64) {
	s, prog := p.tasks, &p.f.opt.Program
	turns := 2 + pr.spinning
	round := p.c.yield*int64(turns) + p.c.poll
	if prog.Queues {
		round += p.c.poll * int64(len(p.qps)-1)
	}
	for !p.turn(pr) && pr.clock < end {
		if !s.idle() || p.cq.n > 0 {
			continue
		}
		// None is ready but main, poller and those that spin: they take turns until something
		// completes, or all are looked at.
		if p.out+s.held == 0 {
			if p.active && pr.spinning == 0 && end-pr.clock > p.f.idle {
				p.deactivate()
			}
			pr.await(p, end)
			return
		}
		rounds := int64(max(prog.Force-s.switches, 0) / turns)
		from := pr.clock
		pr.await(p, min(end, from+(rounds+1)*round))
		s.switches += int((pr.clock-from)/round) * turns
	}
}

// taskRing is a queue of tasks.
type taskRing struct {
	buf     []taskEntry
	head, n int
}

type taskEntry struct {
	coro int
	turn uint32
}

func (r *taskRing) push(coro int, turn uint32) {
	if r.n == len(r.buf) {
		grown := make([]taskEntry, max(16, 2*len(r.buf)))
		for i := range r.n {
			grown[i] = r.buf[(r.head+i)&(len(r.buf)-1)]
		}
		r.buf, r.head = grown, 0
	}
	r.buf[(r.head+r.n)&(len(r.buf)-1)] = taskEntry{coro, turn}
	r.n++
}

func (r *taskRing) pop() (coro int, turn uint32) {
	e := r.buf[r.head]
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return e.coro, e.turn
}
