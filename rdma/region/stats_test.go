package region_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"txnode/rdma"
	"txnode/rdma/region"
)

// TestStats: what was provisioned counts once, in whatever order and pieces; keys and stops show.
func TestStats(t *testing.T) {
	s, _ := lane(t, false, false)
	if all := s.Stats(); len(all) != 2 || all[1] != (region.Stats{Size: 1 << 16}) {
		t.Errorf("%+v", all)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var bytes [1 << 16]bool
	for range 300 {
		off := rng.Uint64N(1 << 16)
		n := rng.Uint64N(min(1<<16-off, 1<<9) + 1)
		if err := s.Provision(0, off, n); err != nil {
			t.Fatal(err)
		}
		want := uint64(0)
		for i := range bytes {
			if uint64(i) >= off && uint64(i) < off+n {
				bytes[i] = true
			}
			if bytes[i] {
				want++
			}
		}
		if got := s.Stats()[0].Provisioned; got != want {
			t.Fatalf("[%d, +%d): %d bytes are provisioned, want %d", off, n, got, want)
		}
	}
	if err := s.Provision(0, 1<<15, 1<<16); !errors.Is(err, rdma.ErrNoMemory) {
		t.Errorf("past the end: %v", err)
	}
	k, err := s.Grant(1)
	if err = errors.Join(err, s.Revoke(1, k), s.StopBlade(1)); err != nil {
		t.Fatal(err)
	}
	if x := s.Stats()[1]; x.Grants != 1 || x.Revokes != 1 || !errors.Is(x.Err, rdma.ErrBladeDown) {
		t.Errorf("%+v", x)
	}
	if x := s.Stats()[0]; x.Grants != 0 || x.Revokes != 0 || x.Err != nil {
		t.Errorf("%+v", x)
	}
}
