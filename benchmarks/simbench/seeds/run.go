package seeds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/zap"

	"txnode/benchmarks/engine"
	"txnode/check"
	"txnode/history"
	"txnode/memory/catalog"
	"txnode/rdma/sim"
	"txnode/txn"
)

// Options of a run. The zero value takes everything from the seed.
type Options struct {
	// Workload instead of the one that the seed draws.
	Workload string
	// Faults are the kinds of faults that the seed draws from; nil: there are none.
	Faults []sim.FaultKind
	// Only are faults to be injected instead of those that the seed draws.
	Only []sim.Fault
	// Durability, "process" or "power", instead of what the seed draws. Power has PolicyDefault.
	Durability string
	// Siege has blades stop one after the other while the work goes on, also where the seed
	// does not draw that.
	Siege bool
	// Processes that have the database open at once, up to 8, instead of what the seed draws, which
	// is one unless all other options leave it what there is; 0: what it draws.
	Processes int
	// Trace gets a line for each effect and each completion; nil: none.
	Trace io.Writer
	// Record collects every verb, for a trace in Chrome's format; nil: none.
	Record *sim.Recording
	// History gets the history that is checked, before it is, and of the workload
	// list-append also what it has appended and read; nil: it is not asked for.
	History func(txns []history.Txn, lists []check.ListTxn)
	// Canceled tells whether nobody wants to know any more; nil: never.
	Canceled func() bool
}

// Result is what a run did.
type Result struct {
	Seed      uint64
	Case      string // what the seed has drawn
	Txns      int    // recorded
	Verbs     uint64
	VirtualNs int64
	TraceHash uint64
	Coverage  Coverage
}

// Violation is something that must not happen, and how to see it again.
type Violation struct { //nolint:errname // what is found is called so everywhere
	Seed    uint64
	Options Options
	Case    string
	Faults  []sim.Fault // injected, beside a siege; nil: none, or those that Options.Faults draws, in several rounds
	Err     error
}

// Error tells seed, case and command.
func (v *Violation) Error() string {
	return fmt.Sprintf("seed %d: %v\n\tcase: %s\n\tagain: %s", v.Seed, v.Err, v.Case, v.Replay())
}

// Unwrap returns what was violated.
func (v *Violation) Unwrap() error { return v.Err }

// Replay is the command that runs the seed again.
func (v *Violation) Replay() string {
	w := ""
	if v.Options.Workload != "" {
		w += " --workload " + v.Options.Workload
	}
	switch {
	case v.Faults == nil && v.Options.Faults != nil:
		var list []string
		for _, k := range v.Options.Faults {
			list = append(list, k.String())
		}
		w += " --faults " + strings.Join(list, ",")
	case len(v.Faults) > 0:
		var list []string
		for _, x := range v.Faults {
			list = append(list, x.String())
		}
		w += " --only '" + strings.Join(list, ";") + "'"
	}
	if v.Options.Durability != "" {
		w += " --durability " + v.Options.Durability
	}
	if v.Options.Processes > 1 {
		w += fmt.Sprintf(" --processes %d", v.Options.Processes)
	}
	if v.Options.Siege {
		w += " --siege"
	}
	return fmt.Sprintf("txnode sim seeds --from %d --seeds 1%s --trace trace.txt", v.Seed, w)
}

// ErrUnknown is a workload, a durability or a fault that there is not.
var ErrUnknown = errors.New("seeds: no such thing")

// errStuck: the run does not come to an end.
var errStuck = errors.New("no end in sight: a transaction still conflicts after the whole run should be over")

// limitNs is the virtual time within which a run has to end; it takes some 10 ms.
const limitNs = 3_000_000_000

// errEndless: whatever goes wrong, somebody gives up before.
var errEndless = fmt.Errorf("the run does not come to an end: %v of virtual time have passed", time.Duration(endNs))

// endNs is the virtual time after which a run is ended by force. Who waits in vain for
// others gives up after five seconds; where nobody declares them dead, every coroutine of a
// thread may have to wait so long, one after another, and once more when it rejoins.
const endNs = 120_000_000_000

// Run runs a seed. The error is a *Violation, or says what is wrong with the options.
func Run(seed uint64, o Options) (Result, error) {
	p, err := draw(seed, &o)
	if err != nil {
		return Result{}, err
	}
	r := Result{Seed: seed, Case: p.String()}
	if err := p.run(&r, &o); err != nil {
		if errors.Is(err, context.Canceled) {
			return r, context.Canceled
		}
		v := &Violation{seed, o, r.Case, p.faults, err}
		v.Options.Siege, v.Options.Processes = p.siege.span > 0, p.processes
		if p.later != nil {
			v.Faults = nil
		}
		return r, v
	}
	return r, nil
}

// giveBack is so short that segments go back within a run, which takes some 10 ms.
const giveBack = 200 * time.Microsecond

// Sizes: small, so that segments fill, logs wrap and tables grow.
const (
	bladeSize   = 1 << 30
	segmentSize = 256 << 10
	largeLog    = 64 << 10
	middleLog   = 16 << 10
	smallLog    = 4 << 10
	arena       = 4 << 20
	cacheBytes  = 64 << 10
)

func (p *plan) run(r *Result, o *Options) (err error) {
	defer func() {
		if x := recover(); x != nil {
			e, ok := x.(error)
			if d := (*sim.DeadlockError)(nil); ok && (errors.As(e, &d) || errors.Is(e, context.Canceled) ||
				errors.Is(e, errEndless)) {
				err = e
				return
			}
			err = fmt.Errorf("panic: %v\n%s", x, debug.Stack())
		}
	}()
	so := p.fabric(o)
	var f *sim.Fabric
	so.Interrupt = func() error {
		switch {
		case f.Now() > endNs:
			return errEndless
		case o.Canceled != nil && o.Canceled():
			return context.Canceled
		}
		return nil
	}
	if f, err = sim.New(so); err != nil {
		return err
	}
	defer func() {
		s := f.Stats()
		r.Verbs, r.VirtualNs, r.TraceHash = s.Verbs, f.Now(), f.TraceHash()
		err = errors.Join(err, f.Close())
	}()
	b := &bench{plan: p, rng: rng(p.seed), world: &world{fabric: f, net: &network{plan: p, f: f}}}
	b.world.plug(p.processes)
	if err := b.openDB(); err != nil {
		return err
	}
	defer func() {
		b.cov.Txns, b.cov.Verbs = uint64(r.Txns), f.Stats().Verbs
		r.Coverage = b.cov
	}()
	b.sides = newSides()
	if err = p.work.run(b); err == nil {
		err = b.wholeSide()
	}
	txns := b.history()
	r.Txns = len(txns)
	if o.History != nil {
		o.History(append(txns, b.world.failed()...), b.lists)
	}
	if err == nil && len(txns) == 0 {
		err = errors.New("nothing was recorded")
	}
	// What was read decides, not what went wrong after it.
	// Inserts that a recovery has undone leave an absence with a version of its own.
	if e := check.Check(append(txns, b.world.failed()...),
		check.Options{FromEmpty: true, Placeholders: b.faults != nil}).Err(); e != nil {
		err = errors.Join(e, err)
	}
	if err == nil {
		err = b.compare(txns)
	}
	err = errors.Join(err, b.world.net.wrong)
	if d := b.damage.Load(); d != nil {
		err = errors.Join(err, *d)
	}
	if err != nil {
		return errors.Join(err, b.abandon(err))
	}
	return b.close()
}

// workerWait is real time, in which nothing happens in virtual time: a body that waits does so in
// vain.
const workerWait = time.Millisecond

// world is what outlives a database handle.
type world struct {
	fabric   *sim.Fabric
	catalog  catalog.Mem
	handles  []*unreliable       // of the catalog, by slot of a process
	recorder []*history.Recorder // by slot of a process, whose clocks they have
	net      *network
	witness  *unreliable // its handle of the catalog
}

// txns is what was recorded.
func (w *world) txns() (out []history.Txn) {
	for slot, r := range w.recorder {
		out = append(out, w.inTime(slot, r.Txns())...)
	}
	return out
}

// failed is history.Recorder.Failed of all processes.
func (w *world) failed() (out []history.Txn) {
	for slot, r := range w.recorder {
		out = append(out, w.inTime(slot, r.Failed())...)
	}
	return out
}

// plug makes a handle of the catalog for each process.
func (w *world) plug(processes int) {
	for slot := range processes {
		h := &unreliable{Mem: &w.catalog, f: w.fabric}
		if processes > 1 {
			h.compute = slot + 1
		}
		if w.net.remote {
			h.net = w.net
		}
		w.handles, w.recorder = append(w.handles, h), append(w.recorder, &history.Recorder{})
	}
	w.witness = &unreliable{Mem: &w.catalog, f: w.fabric, compute: w.net.witness()}
}

// openDB opens the database, or opens it again. Of several processes it is another one each time.
func (b *bench) openDB() error {
	if b.process == nil || b.processes > 1 {
		b.process = b.newProcess(b.opened % b.processes)
		b.opened++
		b.extinct = false
	}
	return b.openOn(b.process)
}

// openOn opens the database in a process.
func (b *bench) openOn(q *process) error {
	lease := time.Duration(-1) // only opening the database declares sessions dead
	if b.survive || b.processes > 1 {
		lease = b.lease
	}
	durability := txn.DurabilityProcess
	if b.durable {
		durability = txn.DurabilityPower
	}
	b.world.net.look(b.world.witness)
	store, err := engine.Open(context.Background(), txn.Options{
		LeaseTerm: lease, Durability: durability, Shared: b.processes > 1,
		Fabric: q.fabric(b.world), Catalog: b.world.handles[q.slot], Backups: &b.backups, Policy: b.policy,
		Techniques: &b.techniques, QPPolicy: b.qp,
		GiveBack: giveBack, ReadBackups: b.readBackups, Workers: 1, Retries: math.MaxInt32, Arena: arena,
		CacheBytes: cacheBytes, LogArea: b.logArea, ReclaimAfter: b.reclaimAfter,
		SegmentSize: segmentSize, IndexGroups: b.groups, LeafIndex: b.leaves, NodeEntries: b.entries, Seed: b.seed,
		History: b.world.recorder[q.slot], Logger: zap.New(damageCore{b}),
		WorkerWait: workerWait,
	})
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	q.store, q.db = store, store.DB()
	// Thread 0 is that of the pool, whatever the workload does: the others are 1 and up.
	return q.db.View(context.Background(), func(*txn.Tx) error { return nil })
}

// abandon gives the database up after an error, and says what stands in the way of
// one who waits in vain.
func (b *bench) abandon(err error) error {
	b.world.fabric.Heal()
	b.world.fabric.StopAll()
	if !errors.Is(err, errStuck) {
		return nil
	}
	b.world.fabric.Settle()
	_, _, found := audit(b.world.fabric, &b.world.catalog, nil, true)
	return found
}

// fabric makes the options of the simulated fabric.
func (p *plan) fabric(o *Options) sim.Options {
	so := sim.Options{
		Profile: p.profile, Seed: p.seed, Freedom: p.freedom, Placed: p.placed, UnorderedLines: p.unordered,
		Durable: p.durable, Remote: p.remote,
		ThreadsPerBlade: (p.threads + p.compute) / p.compute, // one more: who sets up
		Trace:           o.Trace, Record: o.Record,
	}
	if p.processes > 1 {
		so.ThreadsPerBlade = seatThreads
	}
	for range p.blades {
		so.Blades = append(so.Blades, sim.BladeOptions{Size: bladeSize, Key: 1})
	}
	return so
}
