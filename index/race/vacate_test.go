package race

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// hollowOut frees the blocks of keys on all copies, as when their placeholders were on a
// blade that was lost, and returns them.
func (r *rig) hollowOut(t *testing.T, keys ...int) []layout.Addr {
	t.Helper()
	var out []layout.Addr
	for _, i := range keys {
		a, _, err := r.k[1].Find(key(i))
		if err != nil || a == 0 {
			t.Fatal(a, err)
		}
		out = append(out, a)
		r.overwrite(t, a, make([]byte, record.LineSize))
	}
	return out
}

// overwrite writes the first line of a block on all copies.
func (r *rig) overwrite(t *testing.T, a layout.Addr, line []byte) {
	t.Helper()
	c := r.k[1].C
	buf, err := c.Thread().Alloc(record.LineSize)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Thread().Free(buf, record.LineSize)
	copy(c.Thread().Bytes(buf, record.LineSize), line)
	var b rdma.Batch
	v := r.m.View()
	for k := range v.Written(a) {
		b.Write(v.At(a, k), buf, record.LineSize)
	}
	if err := c.Do(&b); err != nil {
		t.Fatal(err)
	}
	if err := c.Fence(rdma.FenceThread, 0, &b); err != nil {
		t.Fatal(err)
	}
}

// slots lists where slots lead, and fails if one is marked, or not the same on all copies.
func (r *rig) slots(t *testing.T) map[layout.Addr]bool {
	t.Helper()
	out := map[layout.Addr]bool{}
	err := r.ix[2].walk(r.k[2].C, func(at layout.Addr, b *Bucket) error {
		for j, x := range b.Slots {
			if x.Empty() {
				continue
			}
			if x.Moving() {
				t.Errorf("slot at %v is marked: %v", at+layout.Addr(8*j), x)
			}
			out[x.Addr()] = true
		}
		return nil
	}, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// linkedOnce checks that no two slots lead to the same block, after a client was stopped after n
// verbs.
func (r *rig) linkedOnce(t *testing.T, n int) {
	t.Helper()
	linked := map[layout.Addr]bool{}
	if err := r.ix[2].Walk(r.k[2].C, func(_ layout.Addr, b index.Candidate) error {
		if linked[b.Addr] {
			t.Errorf("stopped after %d verbs: block %v is linked twice", n, b.Addr)
		}
		linked[b.Addr] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// scour runs a Scourer of client i to its end.
func (r *rig) scour(i int) (emptied int, err error) {
	x := r.ix[i].Scour(nil)
	for {
		if done, err := x.Step(r.k[i].C); done || err != nil {
			return x.Emptied, err
		}
	}
}

// TestHalfLockOfVacate is TestHalfLock for who empties a slot that leads to a free block.
func TestHalfLockOfVacate(t *testing.T) {
	const dead = 9
	r := newRig(t, 2, 8)
	block := r.hollowOut(t, 2)[0]
	k := r.k[1]
	if err := k.Resolve(key(2)); err != nil {
		t.Fatal(err)
	}
	th := k.C.Thread()
	buf, err := th.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	at := layout.Addr(k.Query.State[stFirst]) + tableLockOff
	th.PutWord(buf, dead<<16)
	var b rdma.Batch
	b.Write(r.m.View().At(at, 1), buf, 8)
	if err := k.C.Do(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ix[1].Vacate(k.C, &k.Query, block); !errors.Is(err, index.ErrBusy) {
		t.Fatalf("the lock is on the primary alone: %v", err)
	}
	b.Reset()
	b.Read(r.m.View().At(at, 0), buf, 8)
	if err := k.C.Do(&b); err != nil {
		t.Fatal(err)
	}
	if w := th.Word(buf); ownerOf(w) != Nobody {
		t.Errorf("the lock is that of %#x", ownerOf(w))
	}
	th.Free(buf, 8)
	if err := r.ix[2].Recover(r.k[2].C, func(owner uint64) bool { return owner == dead }); err != nil {
		t.Fatal(err)
	}
	if n, err := r.scour(2); err != nil || n != 1 {
		t.Errorf("%d slots were emptied: %v", n, err)
	}
	r.grows(t, 2)
}

// TestVacate: a slot that leads to a free block is emptied, by who meets it or by who
// looks for such slots, and others are not; nor is one of which it is said that
// somebody may have the block.
func TestVacate(t *testing.T) {
	for copies := 1; copies <= 3; copies++ {
		r := newRig(t, copies, 8)
		live, _, err := r.k[1].Find(key(1))
		if err != nil {
			t.Fatal(err)
		}
		hollow := r.hollowOut(t, 2, 3, 5)
		vacate := func(i int, a layout.Addr) bool {
			t.Helper()
			if err := r.k[0].Resolve(key(i)); err != nil {
				t.Fatal(err)
			}
			done, err := r.ix[0].Vacate(r.k[0].C, &r.k[0].Query, a)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		if vacate(1, live) || vacate(1, hollow[0]) {
			t.Error("a slot was emptied that leads to a record, or that is another key's")
		}
		r.ix[0].SetVacant(func(_ *rdma.Coro, blocks []layout.Addr) ([]bool, error) {
			return make([]bool, len(blocks)), nil
		})
		if vacate(2, hollow[0]) {
			t.Error("a slot was emptied although somebody may have the block")
		}
		r.ix[0].SetVacant(nil)
		if !vacate(2, hollow[0]) || vacate(2, hollow[0]) {
			t.Error("a slot that leads to a free block is to be emptied, once")
		}
		if n, err := r.scour(1); n != 2 || err != nil {
			t.Errorf("%d slots were emptied, want 2: %v", n, err)
		}
		if left := r.slots(t); len(left) != 5 || left[hollow[1]] || left[hollow[2]] {
			t.Errorf("slots that are left: %v", left)
		}
		r.found(t, 2, 3, 5)
		for _, i := range []int{2, 3, 5} {
			if _, err := r.k[0].Insert(key(i), key(i)); err != nil {
				t.Errorf("key %d: %v", i, err)
			}
		}
		r.found(t)
		if err := r.ix[2].Verify(r.k[2].C); err != nil {
			t.Error(err)
		}
	}
}

// TestVacateLinkedAgain: a slot led to a free block when it was looked at. Before it is to
// be emptied, the block has got a record of the same key, and the slot leads to it as
// before. The slot stays.
func TestVacateLinkedAgain(t *testing.T) {
	for copies := 1; copies <= 3; copies++ {
		r := newRig(t, copies, 8)
		_, img, err := r.k[1].Find(key(2))
		if err != nil {
			t.Fatal(err)
		}
		img = slices.Clone(img[:record.LineSize])
		block := r.hollowOut(t, 2)[0]
		c := r.k[1].C
		x := r.ix[1].Scour(nil)
		x.table, x.off = r.ix[1].dir.Load().entries[0].Table(), tableHeader
		s := r.ix[1].get()
		slots, _, err := x.read(c, s, r.ix[1].size-tableHeader)
		if err != nil {
			t.Fatal(err)
		}
		slots = slices.DeleteFunc(slots, func(h hollow) bool { return h.value.Addr() != block })
		if len(slots) != 1 {
			t.Fatalf("%d slots lead to the block", len(slots))
		}
		r.overwrite(t, block, img)
		if emptied, locked, err := r.ix[1].vacateIn(c, s, x.table, slots); len(emptied) > 0 || locked || err != nil {
			t.Errorf("%d copies: emptied %v, locked %v: %v", copies, emptied, locked, err)
		}
		r.ix[1].put(s)
		if !r.slots(t)[block] {
			t.Errorf("%d copies: no slot leads to the record", copies)
		}
		r.found(t)
		if err := r.ix[2].Verify(r.k[2].C); err != nil {
			t.Error(err)
		}
	}
}

// TestVacateStopped stops a client at every verb of what it does about slots that lead to
// free blocks. Others find every key, Recover leaves no mark and no lock, and somebody
// else finishes it.
func TestVacateStopped(t *testing.T) {
	stepwise(t)
	for copies := 1; copies <= 3; copies++ {
		t.Run(fmt.Sprintf("copies=%d", copies), func(t *testing.T) {
			for n := 0; ; n++ {
				r := newRig(t, copies, 8)
				hollow := r.hollowOut(t, 2, 5)
				r.f.Stop(0, n)
				emptied, err := r.scour(0)
				done := err == nil && r.f.Left(0) != 0
				r.found(t, 2, 5)
				if err := r.ix[1].Recover(r.k[1].C, func(owner uint64) bool { return owner == 1 }); err != nil {
					t.Fatal(err)
				}
				r.slots(t)
				rest, err := r.scour(1)
				if err != nil || emptied+rest > 2 || done && emptied != 2 {
					t.Errorf("stopped after %d verbs: %d slots were emptied, then %d, %v", n, emptied, rest, err)
				}
				if left := r.slots(t); len(left) != 6 || left[hollow[0]] || left[hollow[1]] {
					t.Errorf("stopped after %d verbs: slots that are left: %v", n, left)
				}
				r.found(t, 2, 5)
				if err := r.ix[2].Verify(r.k[2].C); err != nil {
					t.Errorf("stopped after %d verbs: %v", n, err)
				}
				r.grows(t, 1)
				if done || t.Failed() {
					if n < 6 {
						t.Errorf("%d verbs did all", n)
					}
					return
				}
			}
		})
	}
}

// TestVacateInSplit: a split empties the slots of its sub-table that lead to free blocks,
// and moves the others. If somebody may have such a block, it is not finished before that is
// decided: nobody knows where the key belongs that the block may get.
func TestVacateInSplit(t *testing.T) {
	last := splitAt(t)
	for _, may := range []bool{true, false} {
		r := newRig(t, 2, last)
		hollow := r.hollowOut(t, 0, 1, 2, 3)
		if !may {
			r.ix[0].SetVacant(func(_ *rdma.Coro, blocks []layout.Addr) ([]bool, error) {
				return make([]bool, len(blocks)), nil
			})
		}
		_, err := r.k[0].Insert(key(last), key(last))
		if may && err != nil || !may && !errors.Is(err, index.ErrBusy) {
			t.Fatalf("may be emptied: %v: %v", may, err)
		}
		if may != (r.ix[0].splits.Load() > 0) {
			t.Fatalf("may be emptied: %v; splits: %d", may, r.ix[0].splits.Load())
		}
		left := map[layout.Addr]bool{}
		if err := r.ix[0].Walk(r.k[0].C,
			func(_ layout.Addr, b index.Candidate) error { left[b.Addr] = true; return nil }); err != nil {
			t.Fatal(err)
		}
		for _, a := range hollow {
			if left[a] == may {
				t.Errorf("may be emptied: %v; the slot of %v is there: %v", may, a, left[a])
			}
		}
		r.found(t, 0, 1, 2, 3)
		if err := r.ix[1].Recover(r.k[1].C, func(uint64) bool { return false }); err != nil {
			t.Fatal(err)
		}
		if left = r.slots(t); left[hollow[0]] || left[hollow[3]] {
			t.Errorf("slots that are left: %v", left)
		}
		r.found(t, 0, 1, 2, 3)
	}
}

// TestVacatedSlotBack stops a client at every verb of what it does about slots that lead to
// free blocks. Then slots that it has emptied are there again, as on a copy to which that had
// not come before it became the primary, and meanwhile their blocks are free still, or
// other keys', or the same keys' again. Recover leaves no slot to another key's block; nor does
// it when it comes, too, before it is decided whether somebody has these blocks: then they are
// other keys' only afterwards, perhaps when somebody has met the slots and emptied them, or they
// get the records that the slots lead to.
func TestVacatedSlotBack(t *testing.T) {
	for _, mode := range []string{"free", "others", "again", "undecided", "met", "records"} {
		t.Run(mode, func(t *testing.T) {
			back := 0
			for n := 0; ; n++ {
				r := newRig(t, 2, 8)
				c := r.k[1].C
				keyOf, images := map[layout.Addr]int{}, map[layout.Addr]record.Image{}
				for _, i := range []int{2, 5} {
					_, img, err := r.k[1].Find(key(i))
					if err != nil {
						t.Fatal(err)
					}
					img = slices.Clone(img[:record.LineSize])
					a := r.hollowOut(t, i)[0]
					keyOf[a], images[a] = i, img
				}
				slots := map[layout.Addr]Slot{} // by where they are
				if err := r.ix[1].walk(c, func(at layout.Addr, b *Bucket) error {
					for j, x := range b.Slots {
						if keyOf[x.Addr()] != 0 {
							slots[at+layout.Addr(8*j)] = x
						}
					}
					return nil
				}, func() error { return nil }); err != nil {
					t.Fatal(err)
				}
				r.f.Stop(0, n)
				if _, err := r.scour(0); err == nil && r.f.Left(0) != 0 {
					break
				}
				word := func(at layout.Addr) uint64 { return word(r.m.Copies(t, c.Thread(), at, 8)[0], 0) }
				d, err := r.ix[1].readDirectory(c, nil)
				if err != nil {
					t.Fatal(err)
				}
				maps.DeleteFunc(slots, func(at layout.Addr, _ Slot) bool { return !Slot(word(at)).Empty() })
				if len(slots) == 0 || word(d.entries[0].Table()+tableLockOff) == 0 {
					continue
				}
				s := r.ix[1].get()
				set := func(at layout.Addr, to Slot) {
					if _, err := r.ix[1].one(c, s, r.m.View(), at, word(at), uint64(to)); err != nil {
						t.Fatal(err)
					}
				}
				var keys []int
				dead := func(owner uint64) bool { return owner == 1 }
				if mode == "undecided" || mode == "met" || mode == "records" {
					for at, x := range slots {
						set(at, x|slotMoving)
						back++
					}
					r.ix[1].SetVacant(func(_ *rdma.Coro, blocks []layout.Addr) ([]bool, error) {
						return make([]bool, len(blocks)), nil
					})
					if err := r.ix[1].Recover(c, dead); err != nil {
						t.Fatal(err)
					}
					r.ix[1].SetVacant(nil)
					if mode == "met" {
						if n, err := r.scour(2); n != 2 || err != nil {
							t.Errorf("%d slots were emptied: %v", n, err)
						}
					}
				}
				for at, x := range slots {
					if mode == "records" {
						keys = append(keys, keyOf[x.Addr()])
						r.overwrite(t, x.Addr(), images[x.Addr()])
						continue
					}
					r.m.FreeBlock(x.Addr(), x.Class())
					if mode == "again" { // in another place
						keys = append(keys, keyOf[x.Addr()])
						set(at, x^1<<fpShift)
					} else {
						keys = append(keys, 2000+len(keys))
					}
				}
				slices.Reverse(keys) // the block that was freed last is used first
				for _, k := range keys {
					if mode == "free" || mode == "records" {
						break
					}
					if _, err := r.k[1].Insert(key(k), key(k)); err != nil {
						t.Fatal(err)
					}
				}
				for at, x := range slots {
					if mode == "again" || mode != "records" && Slot(word(at)).Empty() {
						set(at, x|slotMoving)
						back++
					}
				}
				r.ix[1].put(s)
				if err := r.ix[1].Recover(c, dead); err != nil {
					t.Fatal(err)
				}
				r.slots(t)
				r.found(t, 2, 5)
				r.linkedOnce(t, n)
				for at, x := range slots {
					if mode == "free" && Slot(word(at)) == x {
						t.Errorf("stopped after %d verbs: a slot leads to %v, which nobody has", n, x.Addr())
					}
				}
				for _, k := range keys {
					if v, err := r.k[2].Get(key(k)); err != nil || mode != "free" && string(v) != string(key(k)) {
						t.Errorf("stopped after %d verbs: key %d: %q, %v", n, k, v, err)
					}
				}
				if _, err := r.scour(2); err != nil { // what had not been emptied
					t.Fatal(err)
				}
				r.grows(t, 1)
				if t.Failed() {
					return
				}
			}
			if back == 0 {
				t.Error("no slot was put back")
			}
		})
	}
}

// TestVacatedLateSlotBack: as TestVacatedSlotBack, of the slot of an insert that came to a
// sub-table after it was split. Its key was inserted once more, into the same block, and
// the slot of that is in the new sub-table.
func TestVacatedLateSlotBack(t *testing.T) {
	stepwise(t)
	const groups = 16
	last := splitAtOf(t, groups)
	back := 0
	for n := 0; ; n++ {
		r := newRigOf(t, 2, last, groups)
		id, at := r.moving(t, last+1)
		a, class, err := r.k[0].NewBlock(record.MakeTxID(1, 1<<20), key(id), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := last; r.ix[1].splits.Load() == 0; i++ {
			if i != id && put(r, 1, i) != nil {
				t.Fatal("no split")
			}
		}
		r.f.Stop(0, 1)
		if err := r.ix[0].Insert(r.k[0].C, &r.k[0].Query, a, class); err == nil {
			t.Fatal("it was not stopped")
		}
		c := r.k[2].C
		word := func(at layout.Addr) uint64 { return word(r.m.Copies(t, c.Thread(), at, 8)[0], 0) }
		x := Slot(word(at))
		if x.Addr() != a {
			t.Fatalf("%v: %v", at, x)
		}
		r.overwrite(t, a, make([]byte, record.LineSize))
		// The recoverer of client 1 has made the copies equal.
		if err := r.ix[1].Recover(r.k[1].C, func(owner uint64) bool { return owner == 1 }); err != nil {
			t.Fatal(err)
		}
		r.f.Stop(1, n)
		if _, err := r.scour(1); err == nil && r.f.Left(1) != 0 {
			break
		}
		d, err := r.ix[2].readDirectory(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		old := d.entries[0].Table()
		if !Slot(word(at)).Empty() || word(old+tableLockOff) == 0 {
			continue
		}
		back++
		r.m.FreeBlock(a, class)
		if b, err := r.k[2].Insert(key(id), key(id)); err != nil || b != a {
			t.Fatal(b, err)
		}
		if ok, err := r.ix[2].one(c, r.ix[2].get(), r.m.View(), at, word(at), uint64(x|slotMoving)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := r.ix[2].Recover(c, func(owner uint64) bool { return owner <= 2 }); err != nil {
			t.Fatal(err)
		}
		r.linkedOnce(t, n)
		if err := r.ix[2].Verify(c); err != nil {
			t.Errorf("stopped after %d verbs: %v", n, err)
		}
		if v, err := r.k[2].Get(key(id)); err != nil || string(v) != string(key(id)) {
			t.Errorf("stopped after %d verbs: %q, %v", n, v, err)
		}
	}
	if back == 0 {
		t.Error("no slot was put back")
	}
}
