package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// bereaved is a database of which a blade was lost: a copy of one segment, with two blocks, is
// being built, and copies of others.
type bereaved struct {
	*bed
	*testing.T
	s      *memory.Space
	c      *rdma.Coro
	k      *memory.Copier
	blocks [2]layout.Addr
	gone   uint32 // a coordinator that was
}

func newBereaved(t *testing.T) *bereaved {
	t.Helper()
	x := &bereaved{bed: newBed(t, 3, 20, 1), T: t}
	x.s, x.c = x.open()
	x.gone = must(x.s.NewCoordinator())(t).ID
	a := x.allocator(x.s, x.c)
	x.blocks[0], _ = fill(t, x.c, x.s, a)
	x.blocks[1], _ = fill(t, x.c, x.s, a)
	if x.blocks[0].Segment() != x.blocks[1].Segment() {
		t.Fatalf("blocks %v are of two segments", x.blocks)
	}
	lose(t, x.bed, x.s, x.s.View().At(x.blocks[0], 0).Blade)
	x.whole(false)
	x.k = x.s.NewCopier()
	return x
}

// whole demands that the copy of the blocks is a full one, or not.
func (x *bereaved) whole(want bool) {
	x.Helper()
	if v := x.s.View(); v.Written(x.blocks[0]) != 2 || (v.Copies(x.blocks[0]) == 2) != want {
		x.Errorf("%d copies, %d of them whole", v.Written(x.blocks[0]), v.Copies(x.blocks[0]))
	}
}

// guard sets the guard of a block on the primary.
func (x *bereaved) guard(a layout.Addr, guard uint64) {
	x.Helper()
	g := x.s.View().At(a, 0)
	g.Off += 56
	x.words(g, guard)
}

// guardOf returns the guard of a block on the primary.
func (x *bereaved) guardOf(a layout.Addr) uint64 {
	x.Helper()
	th := x.c.Thread()
	buf := must(th.Alloc(8))(x.T)
	defer th.Free(buf, 8)
	g := x.s.View().At(a, 0)
	g.Off += 56
	var b rdma.Batch
	b.Read(g, buf, 8)
	check(x.T, x.c.Do(&b))
	return th.Word(buf)
}

// words writes words to a blade.
func (x *bereaved) words(at rdma.RemoteAddr, words ...uint64) {
	x.Helper()
	th, n := x.c.Thread(), 8*len(words)
	buf := must(th.Alloc(n))(x.T)
	defer th.Free(buf, n)
	for i, w := range words {
		th.PutWord(buf+uint32(8*i), w)
	}
	var b rdma.Batch
	b.Write(at, buf, uint32(n))
	check(x.T, x.c.Do(&b))
}

// step has the copier do so many steps, or until it is idle.
func (x *bereaved) step(n int) (idle bool) {
	x.Helper()
	for ; n > 0 && !idle; n-- {
		var err error
		idle, err = x.k.Step(x.c)
		check(x.T, err)
	}
	return idle
}

// finish has the copier come to its end.
func (x *bereaved) finish() {
	x.Helper()
	for from := x.c.Thread().Now(); !x.step(1); {
		if x.c.Thread().Now()-from > 10e9 {
			x.Fatalf("it does not come to an end: %v", x.k.Stuck(x.c.Thread().Now()))
		}
	}
}

// patient is after how many steps the copier has asked whose locks there are.
const patient = 40

// TestCopierAwaitsTheLiving: somebody alive has locked a record for long, and has written the copy
// that is being built when he writes the primary. It is not copied before, and the copies of others
// do not wait for that.
func TestCopierAwaitsTheLiving(t *testing.T) {
	x := newBereaved(t)
	s, c, block := x.s, x.c, x.blocks[0]
	generation, _ := s.Unswept()
	check(t, s.Swept(generation))
	owner := uint64(must(s.NewCoordinator())(t).ID) << 40
	x.guard(block, owner|5)
	th, size := c.Thread(), layout.Class(3).Size()
	buf := must(th.Alloc(int(size)))(t)
	write := func(k int) {
		liveImage(th, buf, owner|4)
		var batch rdma.Batch
		batch.Write(s.View().At(block, k), buf, size)
		check(t, c.Do(&batch))
	}
	write(1)
	if r := s.Redundancy(); r.Missing < 2 {
		t.Fatalf("%+v", r)
	}
	for from := th.Now(); s.Redundancy().Missing > 1; {
		if x.step(1) || th.Now()-from > 60e9 {
			t.Fatalf("%+v", s.Redundancy())
		}
	}
	x.whole(false)
	for x.k.Stuck(th.Now()) == nil { // he is said to be in the way, as before
		x.step(1)
	}
	if err := x.k.Stuck(th.Now()); !errors.Is(err, memory.ErrStuck) {
		t.Error(err)
	}
	x.step(patient)
	x.whole(false)
	write(0)
	x.finish()
	x.whole(true)
	if r := s.Redundancy(); r.Missing != 0 || x.k.Stuck(th.Now()) != nil || len(x.k.Suspects()) != 0 {
		t.Errorf("%+v", r)
	}
	alike(t, c, s)
}

// TestCopierStuck: it is said of the block that has been locked for longest now, by one and the
// same.
func TestCopierStuck(t *testing.T) {
	for !copierStuck(t) && !t.Failed() {
	}
}

// copierStuck is TestCopierStuck; false: the copier had waited for longer than it has patience by
// itself, as it may on a busy machine, and what it said then is not known.
func copierStuck(t *testing.T) (known bool) {
	const stuck = 2e9
	x := newBereaved(t)
	owner, th := uint64(must(x.s.NewCoordinator())(t).ID)<<40, x.c.Thread()
	late := false
	var begun int64
	says := func(now int64, a layout.Addr) {
		t.Helper()
		if late = late || th.Now()-begun > stuck/2; late {
			return
		}
		switch err := x.k.Stuck(now); {
		case err == nil && a != 0, err != nil && a == 0:
			t.Errorf("%v, and not of block %v", err, a)
		case err != nil && !strings.Contains(err.Error(), fmt.Sprintf("block %v,", a)):
			t.Errorf("%v, and not block %v", err, a)
		}
	}
	begun = th.Now()
	says(begun+10*stuck, 0)
	x.guard(x.blocks[0], owner|5)
	x.guard(x.blocks[1], owner|5)
	x.step(patient)
	again := th.Now()
	x.guard(x.blocks[1], owner|7)
	x.step(patient)
	says(again+stuck, x.blocks[0])
	x.guard(x.blocks[0], 1<<40|2)
	x.step(patient)
	says(again+stuck, 0)
	says(th.Now()+stuck, x.blocks[1])
	x.whole(false)
	x.guard(x.blocks[1], 1<<40|2)
	x.finish()
	x.whole(true)
	if err := x.k.Stuck(th.Now() + 10*stuck); err != nil {
		t.Error(err)
	}
	alike(t, x.c, x.s)
	return !late
}

// TestCopierBesideJunk: a block is locked by nobody who ever was, or by somebody who is
// gone. It is copied, without the lock, unless a sweep is due that would unlock it: of who
// ever was alone it can.
func TestCopierBesideJunk(t *testing.T) {
	for _, who := range []string{"nobody", "never", "gone"} {
		for _, sweep := range []string{"due", "over", "over but for damage"} {
			t.Run(fmt.Sprintf("%s, a sweep is %s", who, sweep), func(t *testing.T) {
				x := newBereaved(t)
				owner := map[string]uint32{"nobody": 0, "never": x.s.Layout().NextCoordinator, "gone": x.gone}[who]
				x.guard(x.blocks[0], uint64(owner)<<40|5)
				generation, due := x.s.Unswept()
				if !due {
					t.Fatal("no sweep is due")
				}
				swept := func() {
					if sweep == "over but for damage" {
						check(t, x.s.SweptButDamage(generation))
					} else {
						check(t, x.s.Swept(generation))
					}
				}
				if sweep != "due" {
					swept()
				} else if who == "gone" {
					x.step(2 * patient)
					x.whole(false)
					swept()
				}
				x.finish()
				x.whole(true)
				if got := x.k.Suspects(); len(got) != 1 || got[0] != x.blocks[0] {
					t.Errorf("suspects: %v", got)
				}
				x.guard(x.blocks[0], 1<<40|2)
				alike(t, x.c, x.s)
			})
		}
	}
}

// TestCopierBesideUnlock: a block looks locked by somebody who is gone, since he has released it
// and closed just now, and the next one writes it while it is copied.
func TestCopierBesideUnlock(t *testing.T) {
	x := newBereaved(t)
	generation, _ := x.s.Unswept()
	check(t, x.s.Swept(generation))
	x.guard(x.blocks[0], uint64(x.gone)<<40|5)
	v := x.s.View()
	copied, other := v.At(x.blocks[0], 1), must(rdma.NewThread(x.inner, rdma.ThreadOptions{}))(t)
	x.fabric.before = func(w *rdma.WR) {
		if w.Op != rdma.OpWrite || w.Blade != copied.Blade || w.Off != copied.Off {
			return
		}
		x.fabric.before = nil
		size := layout.Class(3).Size()
		buf := must(other.Alloc(int(size)))(t)
		liveImage(other, buf, 9<<40|2)
		var b rdma.Batch
		b.Write(copied, buf, size)
		b.Write(v.At(x.blocks[0], 0), buf, size)
		check(t, other.Plain().Do(&b))
	}
	x.finish()
	if x.fabric.before != nil {
		t.Error("it was not copied")
	}
	check(t, other.Close())
	x.whole(true)
	alike(t, x.c, x.s)
}

// TestCopierUnwound: a panic, of a function on the same thread that its caller gets over, ends a
// step anywhere. Whoever takes the copier over leaves nothing out.
func TestCopierUnwound(t *testing.T) {
	for k, over := 0, false; !over; k++ {
		x := newBereaved(t)
		owner := uint64(must(x.s.NewCoordinator())(t).ID) << 40
		was := x.guardOf(x.blocks[0])
		x.guard(x.blocks[0], owner|5)
		x.step(8)
		x.guard(x.blocks[0], was)
		n, done := 0, false
		x.bed.fabric.before = func(*rdma.WR) {
			if n++; n == k+1 {
				panic("unwound")
			}
		}
		func() {
			defer func() { over = recover() == nil }()
			for !done {
				done = x.step(1)
			}
		}()
		x.bed.fabric.before = nil
		x.c = x.thread().Plain()
		x.finish()
		x.whole(true)
		alike(t, x.c, x.s)
		if t.Failed() {
			t.Fatalf("unwound at verb %d", k)
		}
	}
}

// TestCopierVerbs: small blocks that lie one behind the other are not copied one by one; one among
// them that is locked is left out, and copied when it is not any more.
func TestCopierVerbs(t *testing.T) {
	b := newBed(t, 3, 20, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	const n = 60 // neighbours
	size := layout.Class(3).Size()
	th := c.Thread()
	buf := must(th.Alloc(int(2 * size)))(t)
	defer th.Free(buf, int(2*size))
	var blocks []layout.Addr
	for range n {
		at := must(a.Alloc(c, 3))(t)
		liveImage(th, buf, 1<<40|2)
		var batch rdma.Batch
		for k := range s.View().Written(at) {
			batch.Write(s.View().At(at, k), buf, size)
		}
		check(t, c.Do(&batch))
		blocks = append(blocks, at)
	}
	lose(t, b, s, s.View().At(blocks[0], 0).Blade)
	x := &bereaved{bed: b, T: t, s: s, c: c, k: s.NewCopier()}
	locked := blocks[n/2]
	id := must(s.NewCoordinator())(t).ID
	v := s.View()
	if locked.Segment() != blocks[0].Segment() || v.Written(locked) != 2 || v.Copies(locked) != 1 {
		t.Fatal("it is in another segment")
	}
	before := c.Thread().Counters()
	x.guard(locked, uint64(id)<<40|5)
	x.step(8)
	verbs := c.Thread().Counters().Sub(&before)
	if total := verbs.Total(); total > n {
		t.Errorf("%d verbs for %d blocks", total, n)
	}
	x.guard(locked, 1<<40|2)
	x.finish()
	v = s.View()
	for _, at := range blocks {
		if v.Copies(at) != 2 {
			t.Fatalf("%v has %d copies", at, v.Copies(at))
		}
		var batch rdma.Batch
		batch.Read(v.At(at, 0), buf, size)
		batch.Read(v.At(at, 1), buf+size, size)
		check(t, c.Do(&batch))
		if !bytes.Equal(th.Bytes(buf, size), th.Bytes(buf+size, size)) {
			t.Errorf("the copy of %v differs", at)
		}
	}
}

// TestCopierBesideReserved: a copy of an index segment is made. A word of it changes all the
// time, and then it turns out that its extent is reserved: those are not copied, and the
// copier comes to its end.
func TestCopierBesideReserved(t *testing.T) {
	b := newBed(t, 3, 20, 1)
	s, c := b.open()
	a := must(s.AllocExtent(c, 1000))(t)
	lose(t, b, s, s.View().At(a, 0).Blade)
	k := s.NewCopier()
	at := s.View().At(a, 0)
	const most = 1000
	reads := 0
	b.fabric.before = func(w *rdma.WR) {
		if w.Op != rdma.OpRead || w.Blade != at.Blade || w.Off > at.Off || w.Off+uint64(w.Len) <= at.Off ||
			reads > most {
			return
		}
		if reads++; reads == 5 {
			check(t, s.ChangeReserved(func(l *layout.Layout, _ uint32) error {
				l.Reserve(layout.Reservation{Name: "x", Addr: a, Size: 1000})
				return nil
			}))
		}
		b.poke(at.Blade, at.Off, []byte{byte(reads), byte(reads >> 8), 1})
	}
	for range 1000 {
		if idle, err := k.Step(c); err != nil || idle {
			check(t, err)
			break
		}
	}
	if reads < 5 || reads > most/2 {
		t.Errorf("the word was read %d times", reads)
	}
	if r := s.Redundancy(); r.Building > 0 || r.Missing > 0 {
		t.Errorf("the copies are not there: %+v", r)
	}
}
