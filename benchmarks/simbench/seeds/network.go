package seeds

import (
	"fmt"
	"slices"
	"time"

	"txnode/history"
	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// Between several processes and the blades there may be a network: sim.Options.Remote. A blade that
// does not answer a process may then serve others, and processes have trouble of their own:
//
//	trouble      a process connects to nothing: no descriptors, no port, no name, no permission,
//	             an alert of TLS, an end of file in the greeting
//	partition    a process, or the witness, is cut off a blade, both ways or one
//	catalog      a process is cut off the catalog
//	pause        a process is stopped beyond its lease, and goes on
//	clock        clocks run apart, by as much as Options.ClockDrift allows
//
// A witness asks blades, unless the seed draws that there is none. Maintenance, the search
// for blades that are silent, and copies have bodies of their own (txn.DB.Tenders) in half of
// these runs: then threads that are no session's are in the middle of something when a
// process is stopped.
//
// Whatever of that happens, beside what every run must show:
//
//	no process is declared gone that has said within its term that it is alive
//	no blade is declared dead that the witness hears all the time, and that has not stopped

// networkKinds are the faults that a run has only if there is a network.
var networkKinds = []sim.FaultKind{sim.FaultTrouble, sim.FaultClock}

// networked reports whether a fault needs a network.
func networked(x sim.Fault) bool {
	return slices.Contains(networkKinds, x.Kind) || x.Kind == sim.FaultPartition && (x.Compute > 0 || x.Way != "")
}

// witness is the compute blade of the witness, counted from 1.
func (p *plan) witness() int { return p.processes + 1 }

// rounds are the faults of all rounds.
func (p *plan) rounds() [][]sim.Fault { return append([][]sim.Fault{p.faults}, p.later...) }

// drawNetwork decides whether there is a network, by a stream of its own: seeds without
// one stay as they are.
func (p *plan) drawNetwork(o *Options) {
	if p.processes == 1 {
		return
	}
	r := rng(p.seed ^ 0x4e7)
	kinds := slices.DeleteFunc(slices.Clone(o.Faults), func(k sim.FaultKind) bool {
		return !slices.Contains([]sim.FaultKind{
			sim.FaultTrouble, sim.FaultClock, sim.FaultPartition, sim.FaultCatalog, sim.FaultPause,
		}, k)
	})
	some := slices.ContainsFunc(kinds, func(k sim.FaultKind) bool { return slices.Contains(networkKinds, k) })
	only := !slices.ContainsFunc(o.Faults, func(k sim.FaultKind) bool { return !slices.Contains(networkKinds, k) })
	if often := r.chance(60); o.Only == nil && some && (often || only) {
		for round := range p.rounds() {
			list := &p.faults
			if round > 0 {
				list = &p.later[round-1]
			}
			*list = append(*list, p.networkFaults(kinds, rng(r.n(1<<62)), only)...)
		}
	}
	p.remote = slices.ContainsFunc(slices.Concat(p.rounds()...), networked)
	more := rng(p.seed ^ 0x717e55)
	witnessed, tended := more.chance(75), more.chance(50)
	p.witnessed, p.tended = p.remote && witnessed, p.remote && tended
}

// networkFaults draws those of a round. sure: at least one needs a network.
func (p *plan) networkFaults(kinds []sim.FaultKind, r rng, sure bool) (list []sim.Fault) {
	n, span := uint64(p.processes), uint64(p.span()) // positive
	for i := range 1 + r.n(5) {
		k := kinds[r.n(uint64(len(kinds)))]
		if sure && i == 0 {
			k = networkKinds[r.n(uint64(len(networkKinds)))]
			if !slices.Contains(kinds, k) {
				k = kinds[0]
			}
		}
		// Deadlines are parts of a term: what lasts ends on both sides of each.
		// small
		x := sim.Fault{Kind: k, Thread: -1, Compute: 1 + int(r.n(n)),
			At:  20*time.Microsecond + time.Duration(r.n(span)),
			For: time.Duration(1 + r.n(uint64(p.lease)*[]uint64{1, 2, 6}[r.n(3)]/2))}
		switch k {
		case sim.FaultTrouble:
			x.Why = sim.Whys[r.n(uint64(len(sim.Whys)))]
		case sim.FaultClock:
			x.At, x.For, x.X = 0, 0, float64(956+r.n(89))/1000
		case sim.FaultPartition:
			// small: one is the witness
			x.Compute = 1 + int(r.n(n+1))
			x.Blade, x.Way = int(r.n(uint64(p.blades))), []string{"", "there", "back"}[r.n(3)] // small
		}
		list = append(list, x)
	}
	return list
}

// network is what is known of members, whatever they know of each other.
type network struct {
	*plan
	f       *sim.Fabric
	fresh   bool // no witness has looked in this run
	asked   int64
	renewed map[uint32]renewal
	wrong   error // the first thing that must not be
}

// renewal is when a process has said last that it is alive, and which it is.
type renewal struct {
	at      int64
	compute int
}

// alive notes that a process has said that it is alive, or has registered.
func (n *network) alive(id uint32, compute int) {
	if n.renewed == nil {
		n.renewed = map[uint32]renewal{}
	}
	now := n.f.Now()
	for other, r := range n.renewed {
		if r.at > now { // its body is ahead of this one's, which hears of it from now on
			n.renewed[other] = renewal{now, r.compute}
		}
	}
	n.renewed[id] = renewal{now, compute}
}

// leastTerm is the shortest part of a term, by the clock of the fabric, in which others take a
// process for alive: their clocks may run faster.
func (n *network) leastTerm() int64 { return n.lease.Nanoseconds() * 10 / 11 }

// changed holds a change of the catalog against what is known of the members that it ends.
func (n *network) changed(was, is *layout.Layout, compute int) {
	for i := range is.Processes {
		if p := &is.Processes[i]; was.Process(p.ID) == nil {
			n.alive(p.ID, compute)
		}
	}
	for i := range was.Processes {
		p := &was.Processes[i]
		r, ok := n.renewed[p.ID]
		if p.Resigned() || is.Process(p.ID) != nil || !ok || r.compute == compute || n.f.Killed(r.compute) {
			continue
		}
		if ago := n.f.Now() - r.at; ago < n.leastTerm() {
			n.fault(fmt.Errorf("process %d was declared gone %v after it had said that it is alive, within "+
				"its term of %v", p.ID, time.Duration(ago), n.lease))
		}
	}
	for b := range was.Blades {
		if b < len(is.Blades) && was.Blades[b].State == layout.BladeUp && is.Blades[b].State == layout.BladeDown &&
			!was.Blades[b].Leaving && n.spotless(b) {
			n.fault(fmt.Errorf("blade %d was declared dead, which has not stopped, and which the witness hears "+
				"all the time", b))
		}
	}
}

func (n *network) fault(err error) {
	if n.wrong == nil {
		n.wrong = err
	}
}

// spotless reports whether nothing happens in the run to a blade, nor to the way of the witness to
// it.
func (n *network) spotless(b int) bool {
	return n.witnessed && n.siege.span == 0 &&
		!slices.ContainsFunc(slices.Concat(n.rounds()...), func(x sim.Fault) bool {
			return x.Blade == b && (x.Kind == sim.FaultRestart || x.Kind == sim.FaultPartition && x.Thread < 0 &&
				(x.Compute == 0 || x.Compute == n.witness()))
		})
}

// look is what the witness does from time to time, and if a member asks.
func (n *network) look(cat layout.Catalog) {
	if !n.witnessed {
		return
	}
	l, rev, err := layout.Load(cat)
	if err != nil || l == nil || !l.Formatted {
		return
	}
	now := n.f.Now()
	all := now >= n.asked
	found := map[rdma.BladeID]layout.Says{}
	for i, info := range n.f.Blades() {
		b := rdma.BladeID(i) // small
		if i >= len(l.Blades) || !all && !members.InQuestion(l, b) {
			continue
		}
		found[b] = layout.Hears
		if had := l.Blades[i].Incarnation; n.f.Reaches(n.witness(), b) != nil || had != 0 && info.Incarnation != had {
			found[b] = layout.Silent
		}
	}
	changes := members.Testify(l, found, !n.fresh)
	if len(changes) > 0 {
		if _, err = cat.Apply(rev, changes); err != nil {
			return // it looks again
		}
	}
	n.fresh = true
	if all {
		n.asked = now + n.lease.Nanoseconds()/4
	}
}

// attend is the body of the witness, until over.
func (n *network) attend(cat layout.Catalog, over func() bool) error {
	gate, err := n.f.NewPort(rdma.PortConfig{Index: n.processes * seatThreads, Policy: rdma.SharedQP, Arena: 64})
	if err != nil {
		return err
	}
	for !over() {
		n.look(cat)
		gate.Wait(gate.Now() + gateMaxNs)
	}
	return gate.Close()
}

// Now is the clock of the process.
func (s *seat) Now() int64 {
	if !s.remote() {
		return s.Fabric.Now()
	}
	return s.NowOn(s.slot + 1)
}

// remote reports whether there is a network between the process and the blades.
func (s *seat) remote() bool { return s.Caps().Remote }

// Grant adds a key to a blade that the process reaches.
func (s *seat) Grant(b rdma.BladeID) (rdma.Key, error) {
	if err := s.reaches(b); err != nil {
		return 0, err
	}
	return s.Fabric.Grant(b)
}

// Revoke ends keys of a blade that the process reaches.
func (s *seat) Revoke(b rdma.BladeID, before rdma.Key) error {
	if err := s.reaches(b); err != nil {
		return err
	}
	return s.Fabric.Revoke(b, before)
}

// Provision makes room on a blade that the process reaches.
func (s *seat) Provision(b rdma.BladeID, off, n uint64) error {
	if err := s.reaches(b); err != nil {
		return err
	}
	return s.Fabric.Provision(b, off, n)
}

func (s *seat) reaches(b rdma.BladeID) error {
	if !s.remote() {
		return nil
	}
	return s.Reaches(s.slot+1, b)
}

// Blades are the blades as they were when the process has reached them last.
func (s *seat) Blades() []rdma.BladeInfo {
	all := s.Fabric.Blades()
	if !s.remote() {
		return all
	}
	for i := range all {
		switch {
		case s.reaches(all[i].ID) == nil:
		case i < len(s.known):
			all[i] = s.known[i]
		default:
			all[i].Key, all[i].Incarnation = 0, 0
		}
	}
	s.known = slices.Clone(all)
	return all
}

// inTime is the history of a process by the clock of the fabric.
func (w *world) inTime(slot int, txns []history.Txn) []history.Txn {
	for i := 0; i < len(txns) && w.net.remote; i++ {
		txns[i].Start, txns[i].End = w.fabric.When(slot+1, txns[i].Start)-1, w.fabric.When(slot+1, txns[i].End)+1
	}
	return txns
}
