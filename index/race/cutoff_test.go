package race

import (
	"errors"
	"testing"

	"txnode/index/indextest"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestNoSplitCutOff: a client that does without the blade of some records begins no split of their
// sub-table, though it reaches the index itself. The split would stop when the records are read.
// Another client splits the sub-table without a recovery.
func TestNoSplitCutOff(t *testing.T) {
	const keys = 12
	r := newRigIn(t, indextest.MemoryOptions{Blades: 4, Copies: 2, SegmentSize: 16 << 10, Segments: 16}, 0, 2)
	r.next(t) // segments are on blades 0 and 1, and on 2 and 3, in turn
	for i := range keys {
		a, err := r.k[0].Insert(key(i), key(i))
		if err != nil {
			t.Fatal(err)
		}
		if b := r.m.View().Replicas(a)[0].Blade; b != 2 {
			t.Fatalf("the record of key %d is on blade %d, not on 2", i, b)
		}
	}
	r.next(t)
	r.k[0].C.Thread().Bar(rdma.BladeBit(2))
	if err := r.split(t, 0, 0); !errors.Is(err, rdma.ErrBarred) {
		t.Fatalf("a split without blade 2: %v", err)
	}
	if err := r.split(t, 1, 0); err != nil || r.ix[1].Events().Splits != 1 {
		t.Fatalf("another client has split %d sub-tables: %v", r.ix[1].Events().Splits, err)
	}
	for i := range keys {
		if v, err := r.k[1].Get(key(i)); err != nil || string(v) != string(key(i)) {
			t.Fatalf("key %d: %q, %v", i, v, err)
		}
	}
	if err := r.ix[1].Verify(r.k[1].C); err != nil {
		t.Error(err)
	}
}

// next has what is allocated next lie in another segment.
func (r *rig) next(t *testing.T) {
	t.Helper()
	at := func() layout.Addr {
		a, err := r.m.Alloc(layout.BlockAlign)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for s := at().Segment(); at().Segment() == s; {
	}
}
