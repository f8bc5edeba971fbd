package race

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// lossy is a client that is stopped in the middle of a split, others that work on, and blades
// that are lost, with what had come to them alone.
type lossy struct {
	*rig
	t    *testing.T
	fate map[int]fate // of keys
	work int          // how often somebody has worked on
}

// fate is what becomes of a key.
type fate uint8

const (
	absent fate = iota
	there
	open // its client was stopped, or has given up
)

// lossyRig is a rig, with each extent in a segment of its own, whose first client is stopped
// after n verbs of an insert that splits a sub-table. done: it was not.
func lossyRig(t *testing.T, copies, n, last int) (r *lossy, done bool) {
	t.Helper()
	r = &lossy{t: t, rig: newRigIn(t, indextest.MemoryOptions{Copies: copies, SegmentSize: 1 << 10, Segments: 256},
		last, 2), fate: map[int]fate{}}
	for i := range last {
		r.fate[i] = there
	}
	r.f.Stop(0, n)
	err := r.insert(r.k[0], last)
	r.fate[last] = open
	return r, err == nil && r.f.Left(0) != 0
}

func (r *lossy) insert(k *indextest.Client, i int) error {
	_, err := k.Insert(key(i), key(i))
	return err
}

// goOn has client number k delete keys, and insert others into their blocks. It has seen
// the directory, as somebody does whose key is in another sub-table that was split.
func (r *lossy) goOn(k int) {
	r.t.Helper()
	if _, err := r.ix[k].refresh(r.k[k].C, r.ix[k].dir.Load()); err != nil {
		r.t.Fatal(err)
	}
	r.work++
	for n, i := range slices.Sorted(maps.Keys(r.fate)) {
		if n%3 != r.work%3 || r.fate[i] != there {
			continue
		}
		if r.fate[i] = absent; r.k[k].Delete(key(i)) != nil {
			r.fate[i] = open
		}
		if j := 1000*r.work + i; n%9 != 0 {
			if r.fate[j] = there; r.insert(r.k[k], j) != nil {
				r.fate[j] = open
			}
		}
	}
}

// look checks that client number k finds what is there, and nothing else.
func (r *lossy) look(k int) {
	r.t.Helper()
	for _, i := range slices.Sorted(maps.Keys(r.fate)) {
		f := r.fate[i]
		if f == open {
			continue
		}
		if v, err := r.k[k].Get(key(i)); err != nil || (v != nil) != (f == there) {
			r.t.Fatalf("client %d: key %d, fate %d: %q, %v", k+1, i, f, v, err)
		}
	}
}

// recover has a client of its own recover from all others, which is stopped after so many
// verbs; negative: not.
func (r *lossy) recover(stop int) {
	r.t.Helper()
	th := r.m.Thread(r.t)
	ix, err := Open(th.Plain(), r.m, r.ix[0].Root(), 7)
	if err != nil {
		r.t.Fatal(err)
	}
	me := uint64(th.Index() + 1)
	ix.SetOwner(me)
	r.f.Stop(th.Index(), stop)
	err = ix.Recover(th.Plain(), func(owner uint64) bool { return owner < me })
	if r.f.Left(th.Index()) == 0 && errors.Is(err, rdma.ErrVerb) {
		return
	}
	if r.f.Stop(th.Index(), -1); err == nil {
		err = ix.Verify(th.Plain())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// end has the index recovered, and used by clients whose handles are older.
func (r *lossy) end() {
	r.t.Helper()
	r.recover(-1)
	for k := 2; k > 0; k-- {
		r.look(k)
	}
	for k := 2; k > 0; k-- {
		for i := range 60 {
			if err := r.insert(r.k[k], 10000*k+i); err != nil {
				r.t.Fatalf("client %d: insert %d: %v", k+1, i, err)
			}
		}
	}
	r.recover(-1)
}

// TestBladeLostInSplit stops a client at every verb of an insert that splits a sub-table, has
// another one work on, and then loses a blade. The index is recovered; clients whose
// handles were opened before the split, and such that have seen what is gone, find every
// key, before that and after, and can go on.
func TestBladeLostInSplit(t *testing.T) {
	stepwise(t)
	for copies := 2; copies <= 3; copies++ {
		for blade := range rdma.BladeID(3) {
			t.Run(fmt.Sprintf("copies=%d/blade=%d", copies, blade), func(t *testing.T) {
				bladeLostInSplit(t, copies, blade, splitAt(t))
			})
		}
		t.Run(fmt.Sprintf("copies=%d/part", copies), func(t *testing.T) {
			if testing.Short() {
				t.Skip("takes time")
			}
			for blade := range rdma.BladeID(3) {
				bladeLostInSplit(t, copies, blade, partAt(t))
			}
		})
	}
}

func bladeLostInSplit(t *testing.T, copies int, blade rdma.BladeID, last int) {
	done := false
	for n := 0; !done && !t.Failed(); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var r *lossy
			r, done = lossyRig(t, copies, n, last)
			r.goOn(1)
			r.m.Lose(blade)
			r.look(2)
			r.look(1)
			if n%2 == 0 {
				r.goOn(2)
				r.look(1)
			}
			r.end()
		})
	}
}

// TestBladesLostInSplit is the same with two blades, of three copies, and with a recoverer that
// is stopped between the losses.
func TestBladesLostInSplit(t *testing.T) {
	lasts := [2]int{splitAt(t), partAt(t)}
	rng := rand.New(rand.NewPCG(13, 14))
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	for i := range rounds {
		n, m, work := rng.IntN(500), rng.IntN(600), rng.IntN(8)
		last := lasts[0]
		if i%8 == 0 {
			last = lasts[1]
		}
		one := rdma.BladeID(rng.IntN(3))
		two := (one + 1 + rdma.BladeID(rng.IntN(2))) % 3
		t.Run(fmt.Sprintf("%d/stop=%d,%d/blades=%d,%d/work=%d", i, n, m, one, two, work), func(t *testing.T) {
			r, _ := lossyRig(t, 3, n, last)
			r.goOn(1)
			r.m.Lose(one)
			if work&1 != 0 {
				r.goOn(2)
			}
			if work&2 != 0 {
				r.recover(m)
			}
			if work&4 != 0 {
				r.goOn(1)
			}
			r.m.Lose(two)
			r.look(2)
			r.look(1)
			r.end()
		})
	}
}

// TestMarkOnCopyAhead: of three copies the first is lost, and the last has the header of a split
// that the second one does not know. A mark that is made now is not there before that
// copy has been brought back: it could be the next one to count.
func TestMarkOnCopyAhead(t *testing.T) {
	r := newRig(t, 3, 0)
	r.m.Lose(0)
	ix, c := r.ix[1], r.k[1].C
	v := r.m.View()
	d, err := ix.readDirectory(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := d.entries[0].Table() + tableHeader + headerOff
	before, after := MakeHeader(7, 0, 0), MakeHeader(7, 1, 0)
	s := ix.get()
	s.batch.Reset()
	last := v.Copies(at) - 1
	s.batch.CAS(v.At(at, last), uint64(before), uint64(after))
	if err := c.Do(&s.batch); err != nil || s.batch.Result(0) != uint64(before) || last < 1 {
		t.Fatal(err, s.batch.Result(0), last)
	}
	m := []mark{{addr: at, bits: SpillBit(3), have: before}}
	if ok, err := ix.mark(c, s, v, m); ok || !errors.Is(err, index.ErrBusy) {
		t.Errorf("copy %d does not have the mark: %v, %v", last, ok, err)
	}
	if err := ix.Recover(c, func(uint64) bool { return false }); err != nil {
		t.Fatal(err)
	}
	m = []mark{{addr: at, bits: SpillBit(3), have: before}}
	if ok, err := ix.mark(c, s, v, m); !ok || err != nil {
		t.Errorf("after the recovery: %v, %v", ok, err)
	}
	for k, p := range r.m.Copies(t, c.Thread(), at, 8) {
		if h := Header(word(p, 0)); !m[0].good(h) || h.Base() != before {
			t.Errorf("copy %d: %v", k, h)
		}
	}
}

// TestMarkOnCopyInBuilding: a client has made a mark on the primary, and stops before it has
// brought it to the copy that is being built, which becomes a full one then. Whoever relies
// on the mark has seen to that.
func TestMarkOnCopyInBuilding(t *testing.T) {
	for copies := 2; copies <= 3; copies++ {
		r := newRig(t, copies, 0)
		r.m.Build()
		ix, c := r.ix[1], r.k[1].C
		v := r.m.View()
		d, err := ix.readDirectory(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		at := d.entries[0].Table() + tableHeader + headerOff
		before := MakeHeader(7, 0, 0)
		s := ix.get()
		s.batch.Reset()
		for k := range v.Copies(at) {
			s.batch.CAS(v.At(at, k), uint64(before), uint64(before|SpillBit(3)))
		}
		if err := c.Do(&s.batch); err != nil || s.batch.Result(0) != uint64(before) || v.Written(at) != copies {
			t.Fatal(err, s.batch.Result(0))
		}
		m := []mark{{addr: at, bits: SpillBit(3), have: before | SpillBit(3)}}
		if ok, err := ix.mark(c, s, v, m); !ok || err != nil {
			t.Fatal(ok, err)
		}
		s.batch.Reset()
		s.batch.CAS(v.At(at, copies-1), uint64(before|SpillBit(3)), uint64(before|SpillBit(3)))
		if err := c.Do(&s.batch); err != nil {
			t.Fatal(err)
		}
		if h := Header(s.batch.Result(0)); !h.Spills(3) {
			t.Errorf("%d copies: the one that is being built has %v", copies, h)
		}
	}
}

// TestBusyBesideBuilding: a backup of a slot does not follow, since somebody has died who was
// changing it; so who changes the slot gives up, without a failed verb. A copy that is being
// built has the change all the same: when the index is recovered, all copies are equal.
func TestBusyBesideBuilding(t *testing.T) {
	for name, change := range map[string]func(k *indextest.Client) error{
		"delete": func(k *indextest.Client) error { return k.Delete(key(1)) },
		"move":   func(k *indextest.Client) error { return k.Move(key(1)) },
	} {
		r := newRig(t, 3, 4)
		r.m.Build()
		c, s, v := r.k[1].C, r.ix[1].get(), r.m.View()
		if _, _, err := r.k[1].Find(key(1)); err != nil {
			t.Fatal(err)
		}
		at := r.ix[1].matches(c, s, &r.k[1].Query)[0].at
		copies := func() (p [3]uint64) {
			s.batch.Reset()
			for k := range p {
				s.batch.CAS(v.At(at, k), ^uint64(0), 0)
			}
			if err := c.Do(&s.batch); err != nil || v.Copies(at) != 2 || v.Written(at) != 3 {
				t.Fatal(err)
			}
			for k := range p {
				p[k] = s.batch.Result(k)
			}
			return p
		}
		was := copies()[0]
		s.batch.Reset()
		s.batch.CAS(v.At(at, 1), was, was|uint64(slotMoving))
		if err := c.Do(&s.batch); err != nil {
			t.Fatal(err)
		}
		if err := change(r.k[1]); !errors.Is(err, index.ErrBusy) {
			t.Fatalf("%s: %v", name, err)
		}
		if err := r.ix[2].Recover(r.k[2].C, func(uint64) bool { return false }); err != nil {
			t.Fatal(err)
		}
		if p := copies(); p[0] == was || p[1] != p[0] || p[2] != p[0] {
			t.Errorf("%s: the slot was %#x, and is %#x", name, was, p)
		}
	}
}

// TestCarriedSlotBack stops a client at every verb of an insert that splits a sub-table. Then the
// slots that it has cleared are there again, as on a copy to which that had not come before it
// became the primary, and meanwhile the keys were deleted, and their blocks are free, or other
// keys', or the same keys' again. The split is finished, and nothing is linked twice.
func TestCarriedSlotBack(t *testing.T) {
	stepwise(t)
	last := splitAt(t)
	for _, mode := range []string{"free", "others", "again", "again in another place"} {
		t.Run(mode, func(t *testing.T) {
			back := 0
			var seen []byte
			for n := 0; ; n++ {
				r := &lossy{t: t, rig: newRig(t, 2, last), fate: map[int]fate{last: open}}
				blocks := map[layout.Addr]int{}
				for i := range last {
					a, _, err := r.k[1].Find(key(i))
					if err != nil || a == 0 {
						t.Fatal(a, err)
					}
					blocks[a] = i
				}
				d, err := r.ix[1].readDirectory(r.k[1].C, nil)
				if err != nil {
					t.Fatal(err)
				}
				old := d.entries[0].Table()
				before := r.m.Copies(t, r.k[1].C.Thread(), old, r.ix[1].size)[0]
				r.f.Stop(0, n)
				if err := r.insert(r.k[0], last); err == nil && r.f.Left(0) != 0 {
					break
				}
				after := r.m.Copies(t, r.k[1].C.Thread(), old, r.ix[1].size)[0]
				if d, err = r.ix[1].readDirectory(r.k[1].C, nil); err != nil {
					t.Fatal(err)
				}
				if !d.entries[len(d.entries)-1].Filling() || string(after) == string(seen) {
					continue
				}
				seen = after
				n := r.putBack(t, mode, old, before, after, blocks)
				if n == 0 {
					continue
				}
				back += n
				r.recover(-1)
				r.look(1)
				r.linkedOnce(t, n)
				r.end()
				if t.Failed() {
					return
				}
			}
			if back < 100 {
				t.Errorf("%d slots were put back", back)
			}
		})
	}
}

// put has a client of a rig insert a key.
func put(r *rig, k, i int) error {
	_, err := r.k[k].Insert(key(i), key(i))
	return err
}

// TestPlaceUsedBefore: a split has published its new sub-table, and changed headers of the old
// one; keys have come to the new one and gone. Then the headers are lost with a blade, and a
// key is inserted into the old one. Whoever finishes the split has marked its slot, and dies,
// and so does the blade that has its placeholder, when its transaction is not decided: who
// comes next does not take it for a slot that was carried, and empty it.
func TestPlaceUsedBefore(t *testing.T) {
	last := splitAt(t)
	var r *rig
	var old, to layout.Addr
	for n := 0; to == 0; n++ {
		r = newRig(t, 2, last)
		r.f.Stop(0, n)
		if put(r, 0, last) == nil && r.f.Left(0) != 0 {
			t.Fatal("there was no split")
		}
		d, err := r.ix[1].readDirectory(r.k[1].C, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e := d.entries[len(d.entries)-1]; e.Filling() {
			old, to = d.entries[0].Table(), e.Table()
		}
	}
	c, s, v := r.k[1].C, r.ix[1].get(), r.m.View()
	set := func(at layout.Addr, was, x uint64) {
		t.Helper()
		if ok, err := r.ix[1].one(c, s, v, at, was, x); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	for i := range last { // so that there is room
		if err := r.k[1].Delete(key(i)); err != nil {
			t.Fatal(err)
		}
	}
	lines := r.m.Copies(t, c.Thread(), old, r.ix[1].size)[0]
	for o := tableHeader; o < len(lines); o += 8 {
		switch x := word(lines, o); {
		case o%lineSize == headerOff && Header(x).Base() != MakeHeader(7, 0, 0):
			t.Fatalf("header %v", Header(x))
		case o%lineSize < headerOff-8 && Slot(x).Empty(): // the last of each line was not used
			set(to+layout.Addr(o), 0, trace(c))
		}
	}
	if _, err := r.ix[1].refresh(c, r.ix[1].dir.Load()); err != nil { // as in a new epoch
		t.Fatal(err)
	}
	i, err := 1000, index.ErrBusy
	for ; errors.Is(err, index.ErrBusy) && i < 1100; i++ { // others need room that only the split makes
		if record.Hash(7, key(i))&1 != 0 {
			err = put(r, 1, i)
		}
	}
	if i--; err != nil {
		t.Fatal(err)
	}
	block := r.hollowOut(t, i)[0]
	if err := r.k[1].Resolve(key(i)); err != nil {
		t.Fatal(err)
	}
	for _, x := range r.ix[1].matches(c, s, &r.k[1].Query) {
		if x.value.Addr() == block {
			set(x.at, uint64(x.value), uint64(x.value|slotMoving))
		}
	}
	r.ix[2].SetVacant(func(_ *rdma.Coro, blocks []layout.Addr) ([]bool, error) {
		return make([]bool, len(blocks)), nil
	})
	if err := r.ix[2].Recover(r.k[2].C, func(owner uint64) bool { return owner == 1 }); err != nil &&
		!errors.Is(err, index.ErrBusy) {
		t.Fatal(err)
	}
	left := false
	if err := r.ix[1].Walk(c, func(_ layout.Addr, b index.Candidate) error {
		left = left || b.Addr == block
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !left {
		t.Error("the slot is gone")
	}
}

// putBack puts those slots of a sub-table back, marked, that were in use before and have
// been cleared, and whose keys are deleted now. It returns how many.
func (r *lossy) putBack(t *testing.T, mode string, table layout.Addr, before, after []byte,
	blocks map[layout.Addr]int) int {
	t.Helper()
	for i := range blocks {
		r.fate[blocks[i]] = there
	}
	lost := map[int]int{} // the key of what was at a place
	for o := tableHeader; o < len(before); o += 8 {
		if x := Slot(word(before, o)); o%lineSize != headerOff && !x.Empty() && Slot(word(after, o)).Empty() {
			lost[o] = blocks[x.Addr()]
		}
	}
	insert := func(i int) {
		if r.fate[i] = there; r.insert(r.k[1], i) != nil { // it needs room that only the split makes
			r.fate[i] = open
		}
	}
	for _, o := range slices.Sorted(maps.Keys(lost)) {
		i := lost[o]
		if err := r.k[1].Delete(key(i)); err != nil {
			t.Fatal(err)
		}
		r.fate[i] = absent
		switch mode {
		case "others":
			insert(2000 + i)
		case "again":
			insert(i)
		case "again in another place":
			insert(3000 + i) // where the key was, perhaps
			insert(i)
		}
	}
	s := r.ix[1].get()
	defer r.ix[1].put(s)
	n := 0
	for o := range lost {
		// There may be something else now, which would have to be lost.
		x := word(before, o) | uint64(slotMoving)
		if ok, err := r.ix[1].one(r.k[1].C, s, r.m.View(), table+layout.Addr(o), word(after, o), x); err != nil {
			t.Fatal(err)
		} else if ok {
			n++
		}
	}
	return n
}

// TestClearedOnBackupsFirst stops a client at every verb of an insert that splits a sub-table: what
// it has cleared on a copy of the old one is cleared on all copies behind that.
func TestClearedOnBackupsFirst(t *testing.T) {
	last := splitAt(t)
	ahead := 0 // copies that were, of the one before them
	for n := 0; ; n++ {
		r := &lossy{t: t, rig: newRig(t, 3, last), fate: map[int]fate{}}
		c := r.k[1].C
		d, err := r.ix[1].readDirectory(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		old := d.entries[0].Table()
		before := r.m.Copies(t, c.Thread(), old, r.ix[1].size)[0]
		r.f.Stop(0, n)
		if err := r.insert(r.k[0], last); err == nil && r.f.Left(0) != 0 {
			break
		}
		after := r.m.Copies(t, c.Thread(), old, r.ix[1].size)
		for o := tableHeader; o < len(before); o += 8 {
			if o%lineSize == headerOff || Slot(word(before, o)).Empty() {
				continue
			}
			for k := 1; k < len(after); k++ {
				a, b := Slot(word(after[k-1], o)).Empty(), Slot(word(after[k], o)).Empty()
				if a && !b {
					t.Fatalf("stopped after %d verbs: slot +%#x is cleared on copy %d, and not on copy %d",
						n, o, k-1, k)
				}
				if b && !a {
					ahead++
				}
			}
		}
	}
	if ahead == 0 {
		t.Error("no client was stopped between two copies")
	}
}
