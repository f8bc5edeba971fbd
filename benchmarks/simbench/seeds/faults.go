package seeds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"txnode/history"
	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/sim"
	"txnode/txn"
)

// faultKinds are the faults that can be drawn.
var faultKinds = []sim.FaultKind{
	sim.FaultStop, sim.FaultLose, sim.FaultDrop, sim.FaultLate, sim.FaultDelay, sim.FaultTear, sim.FaultSlow,
	sim.FaultPartition, sim.FaultRestart,
	sim.FaultCatalog, sim.FaultKill, sim.FaultPause, sim.FaultTrouble, sim.FaultClock,
}

// FaultNames are the names of the faults that can be drawn.
func FaultNames() []string {
	var out []string
	for _, k := range faultKinds {
		out = append(out, k.String())
	}
	return out
}

// ParseFaultKinds reads names by commas; "all" is all of them, "" or "none" none.
func ParseFaultKinds(s string) ([]sim.FaultKind, error) {
	switch s {
	case "", "none":
		return nil, nil
	case "all":
		return faultKinds, nil
	}
	var out []sim.FaultKind
	for _, name := range strings.Split(s, ",") {
		i := slices.Index(FaultNames(), strings.TrimSpace(name))
		if i < 0 {
			return nil, fmt.Errorf("%w: fault %q; there are %s, and all",
				ErrUnknown, name, strings.Join(FaultNames(), ", "))
		}
		if !slices.Contains(out, faultKinds[i]) {
			out = append(out, faultKinds[i])
		}
	}
	return out, nil
}

// verbsPerTxn is about what a transaction posts, with what goes wrong on its way.
const verbsPerTxn = 24

// laterFaults draws a further round of faults: blades may be lost again, since all copies
// have been built. The one that never comes back is no more, and stays the only one.
func (p *plan) laterFaults(kinds []sim.FaultKind, seed uint64) []sim.Fault {
	list := p.drawFaults(kinds, seed)
	for i := range list {
		switch x := &list[i]; {
		case x.Kind != sim.FaultRestart:
		case !p.survive || p.gone >= 0 && p.blades-1 <= p.backups:
			x.Kind, x.X, x.Memory = sim.FaultSlow, 5, false
		case x.Blade == p.gone:
			x.Blade = (x.Blade + 1) % p.blades
		}
	}
	return list
}

// drawFaults draws the faults of a run. The threads of the workload have numbers
// from 1 on: 0 sets up.
func (p *plan) drawFaults(kinds []sim.FaultKind, seed uint64) []sim.Fault {
	r := rng(seed*0x9e3779b97f4a7c15 + 0xfa17)
	perThread := uint64(p.txns * p.coroutines)
	d := sim.FaultPlan{
		Threads: p.processes * p.threads, Blades: p.blades, Verbs: perThread * verbsPerTxn, N: 1 + int(r.n(4)),
		Kinds: slices.DeleteFunc(slices.Clone(kinds), func(k sim.FaultKind) bool {
			return k == sim.FaultCatalog || slices.Contains(processKinds, k)
		}),
		Span: p.span(),
	}
	list := []sim.Fault{} // not nil: it is a run with faults
	if len(d.Kinds) > 0 {
		list = d.Draw(seed)
	}
	lost := 0
	for i := range list {
		x := &list[i]
		switch x.Kind {
		case sim.FaultRestart:
			// At most f blades stop: for good, for long, or for so short that nobody notices.
			if lost++; lost > p.backups {
				x.Kind, x.X, x.Memory = sim.FaultSlow, 5, false
				break
			}
			x.Memory = r.chance(50)
			switch r.n(3) {
			case 0:
				x.For = 0
			case 1:
				x.For += d.Span
			}
		case sim.FaultSlow:
		case sim.FaultPartition:
			if x.Thread >= 0 {
				x.Thread = p.port(x.Thread)
			}
		default:
			x.Thread = p.port(x.Thread)
		}
	}
	if slices.Contains(kinds, sim.FaultCatalog) {
		list = append(list, outages(d, seed, len(d.Kinds) == 0)...)
	}
	return list
}

// outages draws when the catalog does not answer, beside other faults or alone. A seed draws the
// others as it did when there was no such fault.
func outages(d sim.FaultPlan, seed uint64, alone bool) []sim.Fault {
	r := rng(seed ^ 0xca7a)
	if !alone && r.chance(60) {
		return nil
	}
	d.Kinds, d.N = []sim.FaultKind{sim.FaultCatalog}, 1+int(r.n(3))
	list := d.Draw(seed ^ 0xca7a)
	for i := range list {
		list[i].For *= time.Duration(1 + r.n(5))
	}
	return list
}

// pending is a transaction whose outcome its client was not told.
type pending struct {
	id   uint64
	done func()
}

// run does the work, under the plan's faults. When there are any, they then end: either
// somebody who is alive brings everything into order, or everybody is killed and the
// database is opened again, which recovers it. Then every open question has its answer.
func (b *bench) run(work, reopen func(q *process) error) error {
	if b.faults == nil {
		return b.toil(nil, work, reopen)
	}
	for round := 0; ; round++ {
		faults := b.faults
		if b.round = round; round > 0 {
			faults = b.later[round-1]
		}
		if err := b.strike(faults, work, reopen); err != nil {
			return err
		}
		if round == len(b.later) {
			break
		}
	}
	for _, x := range b.open {
		if x.done != nil && b.committed(x.id) {
			x.done()
		}
	}
	return nil
}

// strike does the work under some faults.
func (b *bench) strike(faults []sim.Fault, work, reopen func(q *process) error) error {
	f := b.world.fabric
	b.answers = false // until the round is over
	err := b.toil(faults, work, reopen)
	if err := b.forgive(err); err != nil && !b.forgiven(err) {
		return err
	}
	b.siege.left, b.siege.down = 0, nil
	f.Heal()
	if b.gone >= 0 {
		if err := f.StopBlade(rdma.BladeID(b.gone)); err != nil {
			return err
		}
	}
	if b.survive && !b.extinct {
		return b.converge()
	}
	if !b.survive {
		f.StopAll()
	}
	if err := b.openDB(); err != nil {
		return err
	}
	if err := reopen(b.process); err != nil || !b.survive && b.processes == 1 {
		return err
	}
	return b.converge()
}

// toil runs the clients of all processes, under some faults.
func (b *bench) toil(faults []sim.Fault, work, reopen func(q *process) error) error {
	var all []*member
	if b.processes > 1 {
		var err error
		if all, err = b.muster(reopen); err != nil {
			return err
		}
	}
	if err := b.world.fabric.Inject(faults...); err != nil {
		return err
	}
	if b.processes == 1 {
		return work(b.process)
	}
	return b.everywhere(all, work, reopen)
}

// convergeNs is how long it may take, without faults, until nothing is left to do: a sweep has some
// hundreds of steps, one each time that a worker sees to maintenance.
const convergeNs = 5_000_000_000

// sweepNs is how much longer it may take for each segment: processes that take each other
// for dead leave many.
const sweepNs = 50_000_000

// converge has a worker do nothing but maintenance until all others are gone, and
// swept up after.
func (b *bench) converge() error {
	space := b.db.Space()
	if b.tended {
		b.seat.tended = b.db
		defer func() { b.seat.tended = nil }()
	}
	return b.db.Run(context.Background(), 1, 1, func(_ context.Context, _ int, w *txn.Worker) error {
		for start := w.Now(); ; w.Sleep(b.lease.Nanoseconds() / 2) {
			b.world.net.look(b.world.witness)
			err := w.Maintain()
			if err != nil && !b.forgiven(err) {
				return fmt.Errorf("maintenance: %w", err)
			}
			all, e := space.Coordinators()
			if e != nil {
				return e
			}
			_, unswept := space.Unswept()
			only := b.onlyOwn(space, len(all), w.Now(), start)
			if red := b.db.Redundancy(); err == nil && !unswept && only && b.alone() &&
				red.Missing == 0 && len(red.Down) == b.away() {
				b.answers = true
				b.cov.Outages, b.cov.Built, b.cov.Promoted = uint64(len(red.Outages)), 0, 0 // of all rounds
				for i := range red.Outages {
					b.cov.Built += uint64(red.Outages[i].Built)
					b.cov.Promoted += uint64(red.Outages[i].Primary)
				}
				return nil
			}
			if w.Now()-start > convergeNs+sweepNs*int64(b.db.Redundancy().Segments) {
				return fmt.Errorf("%d coordinators are left %v after the faults have ended, unswept: %v, "+
					"copies: %+v: %w",
					len(all), time.Duration(w.Now()-start), unswept, b.db.Redundancy(), errors.Join(errStuck, err))
			}
		}
	})
}

// onlyOwn reports whether of some coordinators all but that of the worker are gone. Where leases
// are renewed beside it, other sessions of its process are alive, too. The lease of one whose
// thread was stopped ends a term after that.
func (b *bench) onlyOwn(space *memory.Space, coordinators int, now, start int64) bool {
	if !b.tended {
		return coordinators == 1
	}
	if now-start <= 2*b.lease.Nanoseconds() || len(space.Expired(now)) > 0 {
		return false
	}
	return !slices.ContainsFunc(space.Layout().Coordinators, func(c layout.CoordinatorEntry) bool {
		return c.Recovering || c.Process != space.Process()
	})
}

// alone reports whether no other process is registered.
func (b *bench) alone() bool {
	return b.processes == 1 || len(b.db.Space().Layout().Processes) == 1
}

// away is how many blades never come back.
func (b *bench) away() int {
	if b.gone >= 0 {
		return 1
	}
	return 0
}

// errEnded ends a worker whose thread a fault has cut off.
var errEnded = errors.New("a fault has ended the worker")

// patienceNs is how long a transaction tries when there are faults: what stands in
// its way may be dead.
const patienceNs = 4_000_000

// stuck says that a transaction that began at start has been tried for too long.
func (b *bench) stuck(now, start int64) error {
	if b.faults != nil {
		b.besiege()
		if now-start > patienceNs {
			return errTired
		}
		return nil // one that waits for the dead in an index waits for seconds
	}
	if now > limitNs {
		return errStuck
	}
	return nil
}

// forgiven reports whether an error is one that a fault may cause.
func (b *bench) forgiven(err error) bool {
	if b.faults == nil || errors.Is(err, txn.ErrCorrupt) {
		return false
	}
	if b.durable && !b.survive && errors.Is(err, txn.ErrConflict) {
		return true // a checkpoint waits for somebody who has stopped, and whom nobody declares dead
	}
	for _, x := range []error{
		errEnded, errTired, txn.ErrCutOff, txn.ErrBroken, txn.ErrFenced, txn.ErrOutcomeUnknown,
		rdma.ErrVerb, rdma.ErrBladeDown, rdma.ErrStaleKey, index.ErrBusy, errNoAnswer,
	} {
		if errors.Is(err, x) {
			return true
		}
	}
	return false
}

// forgive ends a worker quietly on an error that a fault may cause, and is err otherwise.
func (b *bench) forgive(err error) error {
	if err == nil || !b.forgiven(err) {
		return err
	}
	return errEnded
}

// committed is the answer to the question what became of a transaction.
func (b *bench) committed(id uint64) bool {
	for _, t := range b.world.txns() {
		if t.ID == id && t.Outcome == history.Committed {
			return true // it was told, and its thread stopped before it listened
		}
	}
	o, err := b.db.Outcome(context.Background(), id)
	return err == nil && o == txn.Committed
}

// history is what was recorded, with an answer for every transaction of unknown
// outcome: the committed ones end now, the others never were.
func (b *bench) history() []history.Txn {
	txns := b.world.txns()
	out := txns[:0]
	last := b.world.fabric.Now() // bodies may have been ahead of it
	for _, t := range txns {
		last = max(last, t.Start, t.End)
	}
	for _, t := range txns {
		if t.Outcome == history.Unknown && b.faults != nil {
			if !b.committed(t.ID) {
				continue
			}
			t.Outcome, t.End = history.Committed, last
		}
		out = append(out, t)
	}
	return out
}
