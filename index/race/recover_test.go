package race

import (
	"fmt"
	"testing"

	"txnode/index/indextest"
	"txnode/rdma"
)

func key(i int) []byte { return fmt.Appendf(nil, "key %d", i) }

// rig is an index on a stepwise fabric with two handles: that of client 1, on
// thread 0, which will be stopped, and that of client 2.
type rig struct {
	m      *indextest.Memory
	f      *indextest.Stepwise
	ix     [2]*Index
	k      [2]*indextest.Client
	stable int
}

func newRig(t *testing.T, copies int, keys int) *rig {
	t.Helper()
	r := &rig{stable: keys}
	r.m = indextest.NewMemory(t, indextest.MemoryOptions{Fabric: indextest.NewStepwise, Copies: copies, SegmentSize: 64 << 10, Segments: 16})
	r.f = r.m.Fabric.(*indextest.Stepwise)
	c := [2]*rdma.Coro{r.m.Thread(t).Plain(), r.m.Thread(t).Plain()}
	root, ix, err := Create(c[0], r.m, 7, Options{Groups: 2, MaxDepth: 6})
	if err != nil {
		t.Fatal(err)
	}
	r.ix[0] = ix
	if r.ix[1], err = Open(c[1], r.m, root, 7); err != nil {
		t.Fatal(err)
	}
	r.ix[1].SetOwner(2)
	for i := range r.k {
		r.ix[i].stall = 1_000_000
		if r.k[i], err = r.m.NewClient(c[i], r.ix[i], 7); err != nil {
			t.Fatal(err)
		}
	}
	for i := range keys {
		if _, err := r.k[0].Insert(key(i), key(i)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// found checks that client 2 finds all keys but those excepted, and no others.
func (r *rig) found(t *testing.T, except ...int) {
	t.Helper()
	skip := map[int]bool{}
	for _, i := range except {
		skip[i] = true
	}
	for i := range r.stable {
		if v, err := r.k[1].Get(key(i)); !skip[i] && (err != nil || string(v) != string(key(i))) {
			t.Fatalf("key %d: %q, %v", i, v, err)
		}
	}
	if v, err := r.k[1].Get(key(-1)); v != nil || err != nil {
		t.Fatalf("a key that does not exist: %q, %v", v, err)
	}
}

// recovered has client 2 recover from client 1, and checks that nothing is left
// to be done and that the index goes on growing.
func (r *rig) recovered(t *testing.T) {
	t.Helper()
	if err := r.ix[1].Recover(r.k[1].C, func(owner uint64) bool { return owner == 1 }); err != nil {
		t.Fatal(err)
	}
	if err := r.ix[1].Verify(r.k[1].C); err != nil {
		t.Fatal(err)
	}
}

// splitAt is the number of keys whose last insert splits the first sub-table.
func splitAt(t *testing.T) int {
	t.Helper()
	r := newRig(t, 1, 0)
	for i := 0; ; i++ {
		if _, err := r.k[0].Insert(key(i), key(i)); err != nil {
			t.Fatal(err)
		}
		if r.ix[0].splits.Load() > 0 {
			return i
		}
	}
}

// TestRecover stops a client at every verb of an insert that splits, of a remove
// and of a move. Others find every other key at once, and after Recover there is
// no trace but the dead transaction's own block.
func TestRecover(t *testing.T) {
	last := splitAt(t)
	ops := []struct {
		name string
		do   func(k *indextest.Client) error
		key  int // whose fate is open
	}{
		{"insert", func(k *indextest.Client) error { _, err := k.Insert(key(last), key(last)); return err }, last},
		{"delete", func(k *indextest.Client) error { return k.Delete(key(3)) }, 3},
		{"move", func(k *indextest.Client) error { return k.Move(key(3)) }, 3},
	}
	for _, op := range ops {
		for copies := 1; copies <= 3; copies++ {
			t.Run(fmt.Sprintf("%s/copies=%d", op.name, copies), func(t *testing.T) {
				for n := 0; ; n++ {
					r := newRig(t, copies, last)
					r.f.Stop(0, n)
					err := op.do(r.k[0])
					if err == nil && r.f.Left(0) != 0 {
						if n < 6 {
							t.Fatalf("%d verbs did all", n)
						}
						r.recovered(t)
						return
					}
					r.found(t, op.key)
					r.recovered(t)
					r.found(t, op.key)
					for i := range 60 {
						if _, err := r.k[1].Insert(key(1000+i), key(1000+i)); err != nil {
							t.Fatalf("after verb %d: %v", n, err)
						}
					}
					if err := r.ix[1].Verify(r.k[1].C); err != nil {
						t.Fatalf("after verb %d: %v", n, err)
					}
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}
