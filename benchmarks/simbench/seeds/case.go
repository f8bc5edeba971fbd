package seeds

import (
	"fmt"

	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/sim"
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

// kase is what a seed decides before anything runs.
type kase struct {
	seed                uint64
	work                *work
	policy              occ.Policy
	techniques          rdma.Techniques
	qp                  rdma.QPPolicy
	blades, backups     int
	threads, coroutines int
	readBackups         bool
	groups              uint32 // of a sub-table: few, so that tables resize
	profile             sim.Profile
	freedom             sim.Freedom
	placed, unordered   bool
	noMaskedCAS         bool
	txns                int // per worker
}

// String tells the case, for a report.
func (k *kase) String() string {
	return fmt.Sprintf("%s, policy %v, f=%d on %d blades, %d threads x %d coroutines x %d transactions, techniques %+v, %s, freedom %v, placed %v, ordered lines %v, masked CAS %v, read backups %v, %d groups",
		k.work.name, k.policy, k.backups, k.blades, k.threads, k.coroutines, k.txns, k.techniques, k.profile.Name, k.freedom, k.placed, !k.unordered, !k.noMaskedCAS, k.readBackups, k.groups)
}

// draw decides a case. A workload that is named is taken instead of the one drawn.
func draw(seed uint64, workload string) (*kase, error) {
	r := rng(seed*0x9e3779b97f4a7c15 + 0x5eed)
	k := &kase{
		seed: seed, work: &works[r.n(uint64(len(works)))],
		policy: occ.Policy(r.n(2)), backups: int(r.n(3)),
		threads: 2 + int(r.n(3)), coroutines: 1 + int(r.n(4)),
		readBackups: r.chance(25), groups: 4 << r.n(3),
		profile: sim.ConnectX6(), freedom: sim.FreedomHostile,
		placed: r.chance(30), unordered: r.chance(30), noMaskedCAS: r.chance(20),
	}
	k.blades = k.backups + 1 + int(r.n(2))
	k.qp = []rdma.QPPolicy{rdma.PerThreadDoorbell, rdma.PerThreadQP, rdma.MultiplexedQP, rdma.SharedQP}[r.n(4)]
	k.techniques = rdma.Techniques{
		Doorbells: r.chance(50), Throttle: r.chance(30), Backoff: r.chance(60), DynLimit: r.chance(40), CoroLimit: r.chance(40),
	}
	switch r.n(4) {
	case 0:
		k.profile = sim.Ideal()
	case 1:
		k.profile = sim.RoCE25()
	}
	k.profile.NoMaskedCAS = k.noMaskedCAS
	if r.chance(20) {
		k.freedom = sim.FreedomMild
	}
	k.txns = max(240/(k.threads*k.coroutines), 8)
	if workload != "" {
		w, err := lookup(workload)
		if err != nil {
			return nil, err
		}
		k.work = w
	}
	return k, nil
}
