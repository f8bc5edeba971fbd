package race

import (
	"errors"
	"testing"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// TestLateInsert: the compare-and-swap of an insert comes to a sub-table after it was
// split, and its client stops at any verb from there on. The sub-table can be split again, and
// who undoes the insert finds the slot, before the block can be anybody else's.
func TestLateInsert(t *testing.T) {
	const groups = 16
	last := splitAtOf(t, groups)
	for copies := 1; copies <= 3; copies++ {
		late, before := 0, 0
		for n := 1; ; n++ {
			r := newRigOf(t, copies, last, groups)
			id, _ := r.moving(t, last+1)
			a, class, err := r.k[0].NewBlock(record.MakeTxID(1, 1<<20), key(id), nil)
			if err != nil {
				t.Fatal(err)
			}
			grow := func(splits uint64, from int) int {
				for i := from; ; i++ {
					if r.ix[1].splits.Load() >= splits {
						return i
					}
					if i == id {
						continue
					}
					if _, err := r.k[1].Insert(key(i), key(i)); err != nil {
						t.Fatalf("%d copies, stopped after %d verbs: key %d: %v", copies, n, i, err)
					}
				}
			}
			next := grow(1, last)
			r.f.Stop(0, n)
			if err := r.ix[0].Insert(r.k[0].C, &r.k[0].Query, a, class); err == nil {
				break
			}
			there := linked(t, r, a)
			if there {
				late++
			}
			first := func(owner uint64) bool { return owner == 1 }
			if n%2 == 0 || !there { // what others have done before anybody sees to it
				before++
				if err := r.ix[1].Recover(r.k[1].C, first); err != nil {
					t.Fatal(err)
				}
			}
			grow(4, next)
			if err := r.k[2].Resolve(key(id)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.ix[2].Resync(r.k[2].C, &r.k[2].Query, 0, a); err != nil {
				t.Fatal(err)
			}
			if err := r.ix[2].Remove(r.k[2].C, &r.k[2].Query, a); err != nil && !errors.Is(err, index.ErrChanged) {
				t.Fatal(err)
			}
			if linked(t, r, a) {
				t.Fatalf("%d copies, stopped after %d verbs: block %v of key %d is linked still", copies, n, a, id)
			}
			if err := r.ix[2].Recover(r.k[2].C, first); err != nil {
				t.Fatal(err)
			}
			if err := r.ix[2].Verify(r.k[2].C); err != nil {
				t.Fatalf("%d copies, stopped after %d verbs: %v", copies, n, err)
			}
		}
		if late == 0 || before == 0 {
			t.Errorf("%d copies: %d slots came late, %d times the index was recovered at once", copies, late, before)
		}
	}
}

// moving is the first key from id on that the first split moves, and that has room before; client 1
// has looked it up, and would put it at at.
func (r *rig) moving(t *testing.T, from int) (id int, at layout.Addr) {
	t.Helper()
	for id = from; id < from+1000; id++ {
		if record.Hash(7, key(id))&1 == 0 {
			continue
		}
		if err := r.k[0].Resolve(key(id)); err != nil {
			t.Fatal(err)
		}
		if at = r.ix[0].choose(r.k[0].C, &r.k[0].Query).at; at != 0 {
			return id, at
		}
	}
	t.Fatal("no key has room")
	return 0, 0
}

// linked reports whether any slot of the index leads to a block.
func linked(t *testing.T, r *rig, a layout.Addr) (yes bool) {
	t.Helper()
	err := r.ix[2].Walk(r.k[2].C, func(_ layout.Addr, b index.Candidate) error {
		yes = yes || b.Addr == a
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// TestLateInsertInTheWay: the compare-and-swap of an insert comes to a sub-table while that is
// being split, and its client stops, too; in the new sub-table the place has been taken.
// What the split cannot carry over is left to whoever undoes the insert, which is not before the
// index has been recovered.
func TestLateInsertInTheWay(t *testing.T) {
	stepwise(t)
	const groups = 16
	last := splitAtOf(t, groups)
	inTheWay := 0
	for n := 0; ; n += 3 {
		r := newRigOf(t, 2, last, groups)
		id, at := r.moving(t, last+1)
		a, class, err := r.k[0].NewBlock(record.MakeTxID(1, 1<<20), key(id), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.f.Stop(1, n)
		if _, err := r.k[1].Insert(key(last), key(last)); err == nil && r.f.Left(1) != 0 {
			break
		}
		first := record.Hash(7, key(id))
		o1, _ := r.ix[2].geo.place(first)
		for i, found := 10000, 0; i < 400_000 && found < 4; i++ { // others of the same buckets
			h := record.Hash(7, key(i))
			if p, _ := r.ix[2].geo.place(h); p == o1 && h&1 != 0 {
				found++
				if _, err := r.k[2].Insert(key(i), key(i)); err != nil && !errors.Is(err, index.ErrBusy) {
					t.Fatal(err)
				}
			}
		}
		r.f.Stop(0, 1)
		if err := r.ix[0].Insert(r.k[0].C, &r.k[0].Query, a, class); err == nil {
			t.Fatal("it was not stopped")
		}
		d, err := r.ix[2].readDirectory(r.k[2].C, nil)
		if err != nil {
			t.Fatal(err)
		}
		if to := d.entries[first&d.mask].Table(); linked(t, r, a) && to != d.entries[0].Table() {
			if p := r.m.Copies(t, r.k[2].C.Thread(), to+at-d.entries[0].Table(), 8)[0]; !Slot(word(p, 0)).Empty() {
				inTheWay++
			}
		}
		both := func(owner uint64) bool { return owner < 3 }
		if err := r.ix[2].Recover(r.k[2].C, both); err != nil {
			t.Fatalf("stopped after %d verbs: %v", n, err)
		}
		if err := r.k[2].Resolve(key(id)); err != nil {
			t.Fatal(err)
		}
		if err := r.ix[2].Remove(r.k[2].C, &r.k[2].Query, a); err != nil && !errors.Is(err, index.ErrChanged) {
			t.Fatal(err)
		}
		if err := r.ix[2].Verify(r.k[2].C); err != nil {
			t.Fatalf("stopped after %d verbs: %v", n, err)
		}
	}
	if inTheWay == 0 {
		t.Error("no slot was in the way of another one")
	}
}
