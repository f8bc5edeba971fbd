package seeds

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/sim"
	"txnode/txn"
)

// rng draws what a seed decides.
type rng uint64

func (r *rng) n(n uint64) uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) % n
}

func (r *rng) chance(percent uint64) bool { return r.n(100) < percent }

// plan is what a seed decides before anything runs.
type plan struct {
	seed                uint64
	work                *work
	policy              occ.Policy
	techniques          rdma.Techniques
	qp                  rdma.QPPolicy
	blades, backups     int
	remote              bool // there is a network: see network.go
	witnessed, tended   bool // likewise
	changes             bool // tables are made and dropped: see changes.go
	processes           int  // that have the database open at once
	compute             int  // compute blades: with several processes, one for each
	threads, coroutines int  // threads of all compute blades, or of each process, if there are several
	readBackups         bool
	ordered             bool   // the workload's table is
	entries             int    // of a node of its index: few, so that the tree is high; 0: as many as have room
	groups              uint32 // of a sub-table: few, so that tables resize
	leaves              bool   // hash tables have leaves, not slots
	grow                bool   // rows are added beside the workload, so that its table resizes
	profile             sim.Profile
	freedom             sim.Freedom
	placed, unordered   bool
	noMaskedCAS         bool
	durable             bool   // txn.DurabilityPower
	txns                int    // per worker
	logArea             uint32 // bytes: the small ones wrap
	reclaimAfter        int    // deletes of a session before their blocks are freed
	faults              []sim.Fault
	survive             bool          // whoever is not stopped goes on, and recovers the dead
	lease               time.Duration // of coordinators, then
	gone                int           // the blade that never comes back; -1: none
	siege               siege
	later               [][]sim.Fault // rounds of faults after that: when all is in order again, the work goes on
}

// String tells the plan, for a report.
func (p *plan) String() string {
	yes := func(b bool, s string) string {
		if b {
			return s
		}
		return ""
	}
	list := func(s ...string) string {
		var out []string
		for _, x := range s {
			if x != "" {
				out = append(out, x)
			}
		}
		if out == nil {
			return "none"
		}
		return strings.Join(out, ",")
	}
	t := p.techniques
	several := ""
	if p.processes > 1 {
		several = fmt.Sprintf(" processes=%d", p.processes)
	}
	return fmt.Sprintf("%s policy=%v f=%d blades=%d compute=%d threads=%d coroutines=%d txns=%d groups=%d log=%d "+
		"reclaim=%d grow=%v read-backups=%v "+
		"techniques=%s qp=%s machine=%s freedom=%v caps=%s",
		p.work.name, p.policy, p.backups, p.blades, p.compute, p.threads, p.coroutines, p.txns, p.groups, p.logArea,
		p.reclaimAfter, p.grow, p.readBackups,
		list(yes(t.Doorbells, "doorbells"), yes(t.Throttle, "throttle"), yes(t.Backoff, "backoff"),
			yes(t.DynLimit, "limit"), yes(t.CoroLimit, "coroutines")),
		qpNames[p.qp], p.profile.Name, p.freedom,
		list(yes(p.placed, "placed"), yes(!p.unordered, "ordered-line"), yes(!p.noMaskedCAS, "masked-cas"))) + several +
		yes(p.durable, " durability=power") +
		yes(p.remote, " network") + yes(p.witnessed, " witness") + yes(p.tended, " tended") +
		yes(p.changes, " changes") + yes(p.ordered, " ordered") +
		yes(p.leaves, " leaves") + yes(p.hasNodes(), fmt.Sprintf(" entries=%d", p.entries)) + p.faultText()
}

// faultText is the faults as expressions.
func (p *plan) faultText() string {
	s := ""
	if p.survive {
		s = " lease=" + p.lease.String()
	}
	if p.gone >= 0 {
		s += fmt.Sprintf(" gone=%d", p.gone)
	}
	if p.siege.on() {
		s += fmt.Sprintf(" siege=%d", p.siege.left)
	}
	for _, round := range p.rounds() {
		for i, x := range round {
			s += map[bool]string{true: " faults=", false: ";"}[i == 0] + x.String()
		}
	}
	return s
}

var qpNames = map[rdma.QPPolicy]string{
	rdma.PerThreadDoorbell: "doorbell", rdma.PerThreadQP: "thread", rdma.MultiplexedQP: "multiplexed",
	rdma.SharedQP: "shared",
}

// txnsPerSeed is about how many transactions a run has: few, so that many seeds
// can be looked at, and those that fail be understood.
const txnsPerSeed = 240

// draw decides a plan. What the options name is taken instead of what is drawn.
func draw(seed uint64, o *Options) (*plan, error) {
	r := rng(seed*0x9e3779b97f4a7c15 + 0x5eed)
	p := &plan{
		seed: seed, work: pick(&r), gone: -1,
		policy: occ.Policy(r.n(2)), backups: int(r.n(3)),
		compute: 1 + int(r.n(3)), coroutines: 1 + int(r.n(4)),
		readBackups: r.chance(25), groups: 4 << r.n(3), grow: r.chance(40),
		profile: connectX6(), freedom: sim.FreedomHostile,
		placed: r.chance(30), unordered: r.chance(30), noMaskedCAS: r.chance(20),
	}
	p.threads = max(2, p.compute) + int(r.n(3))
	p.blades = p.backups + 1 + int(r.n(2))
	p.qp = []rdma.QPPolicy{rdma.PerThreadDoorbell, rdma.PerThreadQP, rdma.MultiplexedQP, rdma.SharedQP}[r.n(4)]
	p.techniques = rdma.Techniques{
		Doorbells: r.chance(50), Throttle: r.chance(30), Backoff: r.chance(60), DynLimit: r.chance(40),
		CoroLimit: r.chance(40),
	}
	switch r.n(4) {
	case 0:
		p.profile = sim.Ideal()
	case 1:
		p.profile = roce25()
	}
	p.profile.NoMaskedCAS = p.noMaskedCAS
	switch r.n(8) {
	case 0:
		p.freedom = sim.FreedomMild
	case 1:
		p.freedom = sim.FreedomNone
	}
	// By a stream of their own, so that seeds keep what they draw otherwise.
	more := rng(seed ^ 0x10609)
	p.logArea = []uint32{largeLog, largeLog, middleLog, smallLog}[more.n(4)]
	p.reclaimAfter = []int{0, 0, 1, 8}[more.n(4)]
	flushes := rng(seed ^ 0xd15c)
	switch p.durable = flushes.chance(40) && p.policy == occ.PolicyDefault; o.Durability {
	case "":
	case txn.DurabilityPower.String():
		p.durable, p.policy = true, occ.PolicyDefault
	case txn.DurabilityProcess.String():
		p.durable = false
	default:
		return nil, fmt.Errorf("%w: durability %q; there are %v and %v",
			ErrUnknown, o.Durability, txn.DurabilityProcess, txn.DurabilityPower)
	}
	if err := p.drawProcesses(o); err != nil {
		return nil, err
	}
	p.txns = max(txnsPerSeed/(p.processes*p.clients()), 8)
	if o.Workload != "" {
		w, err := lookup(o.Workload)
		if err != nil {
			return nil, err
		}
		p.work = w
	}
	if p.work.bulk {
		p.logArea = max(p.logArea, middleLog)
	}
	switch {
	case o.Only != nil:
		p.faults = o.Only
		for _, x := range p.faults {
			if x.Blade >= p.blades || x.Thread > p.port(p.processes*p.threads-1) {
				return nil, fmt.Errorf("%w: %v: seed %d draws blades 0 to %d, and threads 1 to %d beside 0, "+
					"which sets up", ErrUnknown, x, seed, p.blades-1, p.threads)
			}
			if (slices.Contains(processKinds, x.Kind) || networked(x)) && p.processes == 1 || x.Compute > p.processes &&
				!(networked(x) && x.Compute == p.witness()) {
				return nil, fmt.Errorf("%w: %v: the run has %d processes: say how many there are",
					ErrUnknown, x, p.processes)
			}
		}
	case o.Faults != nil:
		p.faults = p.drawFaults(o.Faults, p.seed)
	}
	if p.faults != nil {
		r := rng(seed ^ 0x5a7e)
		p.survive, p.lease = r.chance(60), []time.Duration{
			300 * time.Microsecond, time.Millisecond, 5 * time.Millisecond,
		}[r.n(3)]
		for i := range p.faults {
			if x := &p.faults[i]; x.Kind == sim.FaultRestart {
				p.survive = true // only who is at work can see to a blade that is lost
				if x.For == 0 && p.blades > p.backups+1 {
					p.gone = x.Blade
				}
			}
		}
	}
	if o.Faults != nil && o.Only == nil {
		if r := rng(seed ^ 0xe7a5); r.chance(30) {
			for range 1 + r.n(2) {
				p.later = append(p.later, p.laterFaults(o.Faults, r.n(math.MaxUint64)))
			}
		}
	}
	if o.Only == nil && o.Faults != nil {
		p.strikeProcesses(o.Faults)
	}
	p.drawNetwork(o)
	p.siege.draw(p, o)
	if o.Only == nil {
		p.spare()
	}
	p.drawLeaves()
	p.drawOrder(o.Workload == "")
	p.drawChanges()
	return p, nil
}

// hasNodes reports whether the workload's table is ordered or has indexes: then a thread that has
// committed may have a change of nodes to make.
func (p *plan) hasNodes() bool { return p.ordered || p.leaves || p.work.order == indexes }

// drawLeaves decides, by a stream of its own, whether hash tables have leaves.
func (p *plan) drawLeaves() {
	r := rng(p.seed ^ 0x1eaf)
	if p.leaves = r.chance(50); p.leaves {
		p.logArea = max(p.logArea, middleLog)
		if p.work.order == ownTables { // loaded by transactions of 64 records, each perhaps in a leaf of its own
			p.logArea = largeLog
		}
		p.entries = []int{2, 3, 4, 4, 8, 0}[r.n(6)]
	}
}

// drawOrder decides whether the workload's table is ordered, by a stream of its own: seeds without
// one stay as they are. workload: it draws one that needs such a table, or indexes, too. A siege
// has one only if its workload is named.
func (p *plan) drawOrder(workload bool) {
	if workload && p.siege.span > 0 {
		return
	}
	r := rng(p.seed ^ 0xe14a)
	if list := worksFor(ranges); workload && r.chance(30) {
		p.work = list[r.n(uint64(len(list)))]
	}
	more := rng(p.seed ^ 0x5ec0)
	if list := worksFor(indexes); workload && more.chance(12) {
		p.work = list[more.n(uint64(len(list)))]
	}
	kind := p.work.order
	if p.ordered = kind == ranges || kind != ownTables && r.chance(25); !p.ordered && kind != indexes {
		return
	}
	p.logArea = max(p.logArea, middleLog)
	if kind == ranges || kind == indexes {
		p.txns = max(p.txns/3, 8) // loops take long, and are in each other's way
	}
	p.entries = []int{2, 3, 4, 4, 8, 0}[r.n(6)]
	p.reclaimAfter = []int{1, 1, 2, 8, 0}[r.n(5)]
}
