package race

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// slotOf returns where the slot of a key is, and what it holds.
func (r *rig) slotOf(t *testing.T, i int) (layout.Addr, Slot) {
	t.Helper()
	a, _, err := r.k[1].Find(key(i))
	if err != nil || a == 0 {
		t.Fatal(a, err)
	}
	s := r.ix[1].get()
	defer r.ix[1].put(s)
	own, n := ownSlot(r.ix[1].matches(r.k[1].C, s, &r.k[1].Query), a)
	if n != 1 {
		t.Fatalf("key %d has %d slots", i, n)
	}
	return own.at, own.value
}

// set sets a word of all copies.
func (r *rig) set(t *testing.T, at layout.Addr, to uint64) {
	t.Helper()
	c, s := r.k[1].C, r.ix[1].get()
	defer r.ix[1].put(s)
	if ok, err := r.ix[1].one(c, s, r.m.View(), at, word(r.m.Copies(t, c.Thread(), at, 8)[0], 0), to); !ok ||
		err != nil {
		t.Fatal(ok, err)
	}
}

// empty is the first or the last empty slot of the buckets of the key that was looked up last,
// other than at; 0: there is none.
func (r *rig) empty(t *testing.T, at layout.Addr, first bool) (found layout.Addr) {
	t.Helper()
	q := &r.k[1].Query
	for i := range queryLines {
		for j := range slotsPerLine {
			a := slotAddr(q, i, j)
			if a != at && Slot(word(r.m.Copies(t, r.k[1].C.Thread(), a, 8)[0], 0)).Empty() {
				if found = a; first {
					return a
				}
			}
		}
	}
	return found
}

// split has client k split the sub-table of a key, however full it is.
func (r *rig) split(t *testing.T, k, i int) error {
	t.Helper()
	if err := r.k[k].Resolve(key(i)); err != nil {
		return err
	}
	s := r.ix[k].get()
	defer r.ix[k].put(s)
	return r.ix[k].grow(r.k[k].C, s, &r.k[k].Query, &waiting{})
}

// TestStaleTwin: a marked slot is back, and its key was inserted once more, into the same block and
// in another place of its buckets. Then somebody splits the sub-table, and marks that one, too, and
// stops at any verb, and so does who finishes the split. One of the two goes, and not both.
func TestStaleTwin(t *testing.T) {
	stepwise(t)
	rng := rand.New(rand.NewPCG(15, 16))
	for i := range 8 {
		for _, first := range []bool{true, false} {
			n := 0
			for done := false; !done && !t.Failed(); n++ {
				m := rng.IntN(300)
				t.Run(fmt.Sprintf("key=%d/first=%v/verbs=%d,%d", i, first, n, m), func(t *testing.T) {
					r := newRig(t, 2, 20)
					at, x := r.slotOf(t, i)
					back := r.empty(t, at, first)
					if back == 0 {
						t.Fatal("there is no empty slot")
					}
					r.set(t, back, uint64(x|slotMoving))
					r.f.Stop(0, n)
					done = r.split(t, 0, i) == nil && r.f.Left(0) != 0
					r.found(t)
					r.f.Stop(1, m)
					if err := r.ix[1].Recover(r.k[1].C, func(owner uint64) bool { return owner == 1 }); err != nil &&
						r.f.Left(1) != 0 {
						t.Fatal(err)
					}
					r.f.Stop(1, -1)
					r.found(t)
					r.recovered(t, 2)
					r.found(t)
					r.linkedOnce(t, n)
					r.grows(t, 2)
				})
			}
			if n < 100 {
				t.Errorf("key %d: %d verbs did all", i, n)
			}
		}
	}
}

// TestStaleSlotOfInsert: a marked slot is back that leads to the block of an insert that is under
// way, of the same key, in the sub-table or in the one from which that was split. Whoever recovers
// the index at any verb of that, or beside it, the key has one slot in the end, and can be deleted.
func TestStaleSlotOfInsert(t *testing.T) {
	i := 0
	for even(i) { // one that moves
		i++
	}
	for _, late := range []bool{false, true} {
		begin := func(t *testing.T) (r *rig, at layout.Addr, x Slot) {
			r = newRig(t, 2, 20)
			at, x = r.slotOf(t, i)
			if late {
				if r.split(t, 0, i) != nil || r.ix[0].splits.Load() == 0 {
					t.Fatal("no split")
				}
				if a, _ := r.slotOf(t, i); a == at {
					t.Fatal("the key has not moved")
				}
			}
			if err := r.k[0].Delete(key(i)); err != nil {
				t.Fatal(err)
			}
			if !late {
				if at = r.empty(t, at, true); at == 0 {
					t.Fatal("no empty slot")
				}
			}
			return r, at, x
		}
		const looked = 2 // verbs of the insert
		verbs := 1
		for n := 0; n < verbs && !t.Failed(); n++ {
			t.Run(fmt.Sprintf("late=%v/verb=%d", late, n), func(t *testing.T) {
				r, at, x := begin(t)
				verbs = -looked
				r.f.Before(0, func(*rdma.WR) {
					if verbs == 0 {
						r.set(t, at, uint64(x|slotMoving))
					}
					if verbs == n {
						r.recoverAll(t)
					}
					verbs++
				})
				r.insertStale(t, i, x)
			})
		}
		if verbs < 5 {
			t.Errorf("%d verbs did all", verbs)
		}
		for seed := range uint64(200) {
			t.Run(fmt.Sprintf("late=%v/seed=%d", late, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 17))
				r, at, x := begin(t)
				next, stop := iter.Pull(func(yield func(int) bool) {
					r.f.Before(2, func(*rdma.WR) { yield(0) })
					r.recoverAll(t)
				})
				defer stop()
				verbs := -looked
				pace := 1 + rng.IntN(40)
				r.f.Before(0, func(*rdma.WR) {
					if verbs == 0 {
						r.set(t, at, uint64(x|slotMoving))
					}
					if verbs++; verbs > 0 {
						for range rng.IntN(pace) {
							next()
						}
					}
				})
				_, err := r.k[0].Insert(key(i), key(i))
				r.f.Before(0, nil)
				for more := true; more; {
					_, more = next()
				}
				r.f.Before(2, nil)
				r.insertedStale(t, i, x, err)
			})
		}
	}
}

// recoverAll has client 3 recover the index from nobody.
func (r *rig) recoverAll(t *testing.T) {
	t.Helper()
	if err := r.ix[2].Recover(r.k[2].C, func(uint64) bool { return false }); err != nil {
		t.Fatal(err)
	}
}

// insertStale has client 1 insert a key, to whose block a stale slot x leads.
func (r *rig) insertStale(t *testing.T, i int, x Slot) {
	t.Helper()
	_, err := r.k[0].Insert(key(i), key(i))
	r.f.Before(0, nil)
	r.insertedStale(t, i, x, err)
}

// insertedStale looks at what has become of that.
func (r *rig) insertedStale(t *testing.T, i int, x Slot, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, index.ErrBusy) {
		t.Fatal(err)
	}
	r.recoverAll(t)
	a := x.Addr()
	if err != nil { // it is undone
		if err := r.k[0].Resolve(key(i)); err != nil {
			t.Fatal(err)
		}
		if err := r.ix[0].Remove(r.k[0].C, &r.k[0].Query, a); err != nil && !errors.Is(err, index.ErrChanged) {
			t.Fatal(err)
		}
		r.overwrite(t, a, make([]byte, record.LineSize))
		r.m.FreeBlock(a, x.Class())
	} else if b, _ := r.slotOf(t, i); b == 0 {
		t.Fatal("the key is not there")
	}
	r.found(t, i)
	r.recoverAll(t)
	r.linkedOnce(t, 0)
	if err := r.ix[2].Verify(r.k[2].C); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		if err := r.k[1].Delete(key(i)); err != nil {
			t.Fatal(err)
		}
	}
	if linked(t, r, a) {
		t.Fatal("a slot leads to the free block")
	}
	r.grows(t, 2)
}

// TestStaleTwins: both slots are marked, and nobody has the locks of their sub-tables, which
// are one, or that of the key and the one from which it was split. The one that lookups of
// the key meet stays.
func TestStaleTwins(t *testing.T) {
	for i := range 20 {
		for _, mode := range []string{"first", "last", "late"} {
			r := newRig(t, 2, 20)
			back, _ := r.slotOf(t, i)
			if mode == "late" {
				if even(i) {
					continue
				}
				if err := r.split(t, 0, i); err != nil {
					t.Fatal(err)
				}
			}
			at, x := r.slotOf(t, i)
			if mode != "late" {
				if back = r.empty(t, at, mode == "first"); back == 0 {
					continue
				}
			}
			r.set(t, at, uint64(x|slotMoving))
			r.set(t, back, uint64(x|slotMoving))
			r.recoverAll(t)
			r.found(t)
			r.linkedOnce(t, 0)
			if err := r.ix[2].Verify(r.k[2].C); err != nil {
				t.Fatalf("key %d, %s: %v", i, mode, err)
			}
		}
	}
}

// TestMarkLost stops a client at every verb of a split. The marks of slots that it has set in the
// new sub-table are lost, as on a copy of the old one from which a slow recoverer has taken one off
// that he had set there himself (force), and which is the primary now. The split is finished.
func TestMarkLost(t *testing.T) {
	lost := 0
	for n := 0; ; n++ {
		r := newRig(t, 2, 20)
		r.f.Stop(0, n)
		if r.split(t, 0, 1) == nil && r.f.Left(0) != 0 {
			break
		}
		c := r.k[1].C
		d, err := r.ix[1].readDirectory(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		old, e := d.entries[0].Table(), d.entries[len(d.entries)-1]
		if !e.Filling() {
			continue
		}
		from, to := r.m.Copies(t, c.Thread(), old, r.ix[1].size), r.m.Copies(t, c.Thread(), e.Table(), r.ix[1].size)
		was := lost
		for o := tableHeader; o < len(from[0]); o += 8 {
			x := Slot(word(from[0], o))
			if o%lineSize == headerOff || x.Empty() || !x.Moving() || word(from[1], o) != uint64(x) {
				continue
			}
			if y := uint64(x &^ slotMoving); word(to[0], o) == y && word(to[1], o) == y {
				r.set(t, old+layout.Addr(o), y)
				lost++
			}
		}
		if lost == was {
			continue
		}
		r.soundAfter(t, n)
	}
	if lost == 0 {
		t.Error("no mark was lost")
	}
}
