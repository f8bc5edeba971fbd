package indextest

import (
	"math/rand/v2"
	"testing"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// disorderly is a fabric that takes all the freedom of the contract, repeatably,
// and on which clients stall now and then, between any two of their verbs.
func disorderly(tb testing.TB, blades int, size, seed uint64) rdma.Fabric {
	return &stalling{seed: seed, Fabric: rdmatest.New(rdmatest.Options{
		Blades: blades, Size: size, Seed: seed,
		LatencyNs: 1000, SpreadNs: int64(200 << (seed % 6)),
		Caps: rdma.Caps{MaskedCAS: true, Placed: seed%2 == 0, OrderedLine: seed%3 == 0, MaxBatch: 64},
	})}
}

// stalling is a fabric whose ports wait before they post, sometimes for long.
type stalling struct {
	rdma.Fabric
	seed uint64
}

func (f *stalling) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	p, err := f.Fabric.NewPort(cfg)
	if err != nil {
		return nil, err
	}
	return &stallingPort{Port: p, rng: rand.New(rand.NewPCG(f.seed, 1+uint64(cfg.Index)))}, nil
}

type stallingPort struct {
	rdma.Port
	rng *rand.Rand
}

func (p *stallingPort) Post(b *rdma.Batch, first int) {
	if p.rng.IntN(32) == 0 {
		for until := p.Now() + p.rng.Int64N(1000<<p.rng.IntN(8)); p.Now() < until; {
			p.Wait(until)
		}
	}
	p.Port.Post(b, first)
}
