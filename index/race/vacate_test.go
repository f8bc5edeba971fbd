package race

import (
	"errors"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// hollowOut frees the blocks of keys on all copies, as when their placeholders were on a
// blade that was lost, and returns them.
func (r *rig) hollowOut(t *testing.T, keys ...int) []memory.Addr {
	t.Helper()
	var out []memory.Addr
	c := r.k[1].C
	for _, i := range keys {
		a, _, err := r.k[1].Find(key(i))
		if err != nil || a == 0 {
			t.Fatal(a, err)
		}
		out = append(out, a)
		buf, err := c.Thread().Alloc(record.LineSize)
		if err != nil {
			t.Fatal(err)
		}
		clear(c.Thread().Bytes(buf, record.LineSize))
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
		c.Thread().Free(buf, record.LineSize)
	}
	return out
}

// slots lists where slots lead, and fails if one is marked, or not the same on all copies.
func (r *rig) slots(t *testing.T) map[memory.Addr]bool {
	t.Helper()
	out := map[memory.Addr]bool{}
	err := r.ix[2].walk(r.k[2].C, func(at memory.Addr, b *Bucket) error {
		for j, x := range b.Slots {
			if x.Empty() {
				continue
			}
			if x.Moving() {
				t.Errorf("slot at %v is marked: %v", at+memory.Addr(8*j), x)
			}
			out[x.Addr()] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// scour runs a Scourer of client i to its end.
func (r *rig) scour(i int) (emptied int, err error) {
	x := r.ix[i].Scour()
	for {
		if done, err := x.Step(r.k[i].C); done || err != nil {
			return x.Emptied, err
		}
	}
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
		vacate := func(i int, a memory.Addr) bool {
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
		r.ix[0].SetVacant(func(_ *rdma.Coro, blocks []memory.Addr) ([]bool, error) { return make([]bool, len(blocks)), nil })
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

// TestVacateStopped stops a client at every verb of what it does about slots that lead to
// free blocks. Others find every key, Recover leaves no mark and no lock, and somebody
// else finishes it.
func TestVacateStopped(t *testing.T) {
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
			r.ix[0].SetVacant(func(_ *rdma.Coro, blocks []memory.Addr) ([]bool, error) { return make([]bool, len(blocks)), nil })
		}
		_, err := r.k[0].Insert(key(last), key(last))
		if may && err != nil || !may && !errors.Is(err, index.ErrBusy) {
			t.Fatalf("may be emptied: %v: %v", may, err)
		}
		if may != (r.ix[0].splits.Load() > 0) {
			t.Fatalf("may be emptied: %v; splits: %d", may, r.ix[0].splits.Load())
		}
		left := map[memory.Addr]bool{}
		if err := r.ix[0].Walk(r.k[0].C, func(_ memory.Addr, b index.Candidate) error { left[b.Addr] = true; return nil }); err != nil {
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
