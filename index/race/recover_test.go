package race

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

func key(i int) []byte { return fmt.Appendf(nil, "key %d", i) }

// rig is an index on a stepwise fabric with three handles: that of client 1, on
// thread 0, which will be stopped, and those of clients 2 and 3.
type rig struct {
	m      *indextest.Memory
	f      *indextest.Stepwise
	ix     [3]*Index
	k      [3]*indextest.Client
	stable int
}

func newRig(t *testing.T, copies int, keys int) *rig {
	return newRigOf(t, copies, keys, 2)
}

// newRigOf is newRig with so many groups in a sub-table.
func newRigOf(t *testing.T, copies, keys int, groups uint32) *rig {
	t.Helper()
	return newRigIn(t, indextest.MemoryOptions{Copies: copies, SegmentSize: 64 << 10, Segments: 16}, keys, groups)
}

// newRigIn is newRigOf in such a memory.
func newRigIn(t *testing.T, o indextest.MemoryOptions, keys int, groups uint32) *rig {
	t.Helper()
	r := &rig{stable: keys}
	o.Fabric = indextest.NewStepwise
	r.m = indextest.NewMemory(t, o)
	r.f = r.m.Fabric.(*indextest.Stepwise)
	var c [3]*rdma.Coro
	for i := range c {
		c[i] = r.m.Thread(t).Plain()
	}
	root, ix, err := Create(c[0], r.m, 7, Options{Groups: groups, MaxDepth: 6})
	if err != nil {
		t.Fatal(err)
	}
	r.ix[0] = ix
	for i := 1; i < len(c); i++ {
		if r.ix[i], err = Open(c[i], r.m, root, 7); err != nil {
			t.Fatal(err)
		}
		r.ix[i].SetOwner(uint64(i + 1))
	}
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

// soundAfter checks that all keys but those excepted are there, once, before a recovery and
// after it, and that the index grows then. n is the verb at which it all began.
func (r *rig) soundAfter(t *testing.T, n int, except ...int) {
	t.Helper()
	r.found(t, except...)
	r.recovered(t, 1)
	r.found(t, except...)
	r.linkedOnce(t, n)
	r.grows(t, 1)
	if t.Failed() {
		t.Fatalf("verb %d", n)
	}
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

// recovered has client i recover from those before it, and checks that nothing is
// left to be done.
func (r *rig) recovered(t *testing.T, i int) {
	t.Helper()
	if err := r.ix[i].Recover(r.k[i].C, func(owner uint64) bool { return owner <= uint64(i) }); err != nil {
		t.Fatal(err)
	}
	if err := r.ix[i].Verify(r.k[i].C); err != nil {
		t.Fatal(err)
	}
}

// grows checks that client i can insert and that the index goes on growing.
func (r *rig) grows(t *testing.T, i int) {
	t.Helper()
	for n := range 60 {
		if _, err := r.k[i].Insert(key(1000+n), key(1000+n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.ix[i].Verify(r.k[i].C); err != nil {
		t.Fatal(err)
	}
}

// splitAt is the number of keys whose last insert splits the first sub-table.
func splitAt(t *testing.T) int {
	t.Helper()
	return splitAtOf(t, 2)
}

// splitAtOf is splitAt with so many groups in a sub-table.
func splitAtOf(t *testing.T, groups uint32) int {
	t.Helper()
	r := newRigOf(t, 1, 0, groups)
	for i := 0; ; i++ {
		if _, err := r.k[0].Insert(key(i), key(i)); err != nil {
			t.Fatal(err)
		}
		if r.ix[0].splits.Load() > 0 {
			return i
		}
	}
}

// partAt is the number of keys whose last insert makes the first part of the directory beside the
// root.
func partAt(t *testing.T) int {
	t.Helper()
	r := newRig(t, 1, 0)
	for i := 0; ; i++ {
		if _, err := r.k[0].Insert(key(i), key(i)); err != nil {
			t.Fatal(err)
		}
		if r.ix[0].dir.Load().depth > rootBits {
			return i
		}
	}
}

// TestRecover stops a client at every verb of an insert that splits, of a remove
// and of a move. Others find every other key at once, and after Recover there is
// no trace but the dead transaction's own block.
func TestRecover(t *testing.T) {
	last, part := splitAt(t), partAt(t)
	insert := func(i int) func(k *indextest.Client) error {
		return func(k *indextest.Client) error { _, err := k.Insert(key(i), key(i)); return err }
	}
	ops := []struct {
		name string
		do   func(k *indextest.Client) error
		key  int // whose fate is open
		keys int // before
	}{
		{"insert", insert(last), last, last},
		{"insert that makes a part", insert(part), part, part},
		{"delete", func(k *indextest.Client) error { return k.Delete(key(3)) }, 3, last},
		{"move", func(k *indextest.Client) error { return k.Move(key(3)) }, 3, last},
	}
	step := 1
	if testing.Short() {
		step = 3
	}
	for _, op := range ops {
		for copies := 1; copies <= 3; copies++ {
			t.Run(fmt.Sprintf("%s/copies=%d", op.name, copies), func(t *testing.T) {
				for n := 0; ; n += step {
					r := newRig(t, copies, op.keys)
					r.f.Stop(0, n)
					err := op.do(r.k[0])
					if err == nil && r.f.Left(0) != 0 {
						if n < 6 {
							t.Fatalf("%d verbs did all", n)
						}
						r.recovered(t, 1)
						return
					}
					r.found(t, op.key)
					r.recovered(t, 1)
					r.found(t, op.key)
					r.grows(t, 1)
				}
			})
		}
	}
}

// TestRecoverRecovery stops a client within a split, stops the one that recovers
// at some verb, and has a third one recover from both.
func TestRecoverRecovery(t *testing.T) {
	last := splitAt(t)
	rng := rand.New(rand.NewPCG(11, 12))
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	both := 0
	for range rounds {
		n, m := rng.IntN(400), rng.IntN(300)
		r := newRig(t, 2, last)
		r.f.Stop(0, n)
		_, first := r.k[0].Insert(key(last), key(last))
		r.f.Stop(1, m)
		second := r.ix[1].Recover(r.k[1].C, func(owner uint64) bool { return owner == 1 })
		if first != nil && second != nil {
			both++
		}
		for i := range last {
			if v, err := r.k[2].Get(key(i)); err != nil || string(v) != string(key(i)) {
				t.Fatalf("verbs %d, %d: key %d: %q, %v", n, m, i, v, err)
			}
		}
		r.recovered(t, 2)
		r.grows(t, 2)
		if t.Failed() {
			t.Fatalf("stopped after verbs %d and %d", n, m)
		}
	}
	if both < rounds/4 {
		t.Errorf("both clients were stopped in %d of %d rounds", both, rounds)
	}
}

// TestRecoverWaitsTogether: whatever verb of a split its client died at, and on however many
// copies, what is left is given time together: everybody waits for who recovers.
func TestRecoverWaitsTogether(t *testing.T) {
	last := splitAt(t)
	longest, clock := int64(0), int64(0)
	for i := range levelPauses {
		clock += 1000 << min(i, 7) // between half of a pause and one and a half
	}
	for n := 0; ; n++ {
		r := newRig(t, 3, last)
		r.f.Stop(0, n)
		_, err := r.k[0].Insert(key(last), key(last))
		if err == nil && r.f.Left(0) != 0 {
			break
		}
		begun := r.f.Now()
		r.recovered(t, 1)
		longest = max(longest, r.f.Now()-begun)
	}
	if longest < clock/2 || longest > 2*clock {
		t.Errorf("the longest recovery has waited for %d ns, but differences are waited for %d ns, once",
			longest, clock)
	}
}

// TestRecoverGivesUp: a client that recovers from a dead one, and is alive, meets a lock
// that a third one holds for too long, and gives up. What it had taken over is not its
// own any more: the third one, who is told of the first one's death alone, finishes all.
func TestRecoverGivesUp(t *testing.T) {
	last := splitAt(t)
	gaveUp := 0
	for n := 0; ; n += 3 {
		r := newRig(t, 2, last)
		r.f.Stop(0, n)
		_, err := r.k[0].Insert(key(last), key(last))
		if err == nil && r.f.Left(0) != 0 {
			break
		}
		c, ix := r.k[2].C, r.ix[2]
		s := ix.get()
		cas := func(was, to uint64) bool {
			t.Helper()
			steps := []step{{addr: ix.root + dirLockOff, old: was, new: to}}
			if err := ix.primary(c, s, r.m.View(), steps); err != nil {
				t.Fatal(err)
			}
			return steps[0].ok()
		}
		held := cas(0, ix.lockWord(c))
		first := func(owner uint64) bool { return owner == 1 }
		switch err := r.ix[1].Recover(r.k[1].C, first); {
		case err == nil:
		case held && errors.Is(err, index.ErrBusy):
			gaveUp++
		default:
			t.Fatalf("stopped after %d verbs: %v", n, err)
		}
		if held && !cas(ix.lockWord(c), 0) {
			t.Fatal("somebody has taken the lock of a client that is alive")
		}
		ix.put(s)
		if err := ix.Recover(c, first); err != nil {
			t.Fatalf("stopped after %d verbs: %v", n, err)
		}
		if err := ix.Verify(c); err != nil {
			t.Fatalf("stopped after %d verbs: %v", n, err)
		}
		r.grows(t, 2)
	}
	if gaveUp == 0 {
		t.Error("nobody has given up")
	}
}

// TestHalfLock: a client that is alive takes a lock whose word on a copy does not follow,
// since somebody has died before he had cleared it there. It gives up, and what it has on
// the primary is nobody's: else all would wait for it, as long as it is alive.
func TestHalfLock(t *testing.T) {
	const dead = 9
	last := splitAt(t)
	for _, directory := range []bool{false, true} {
		r := newRig(t, 2, last)
		ix, c := r.ix[1], r.k[1].C
		d, err := ix.readDirectory(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		at := d.entries[record.Hash(7, key(last))&d.mask].Table() + tableLockOff
		if directory {
			at = ix.root + dirLockOff
		}
		th := c.Thread()
		buf, err := th.Alloc(16)
		if err != nil {
			t.Fatal(err)
		}
		th.PutWord(buf, dead<<16)
		var b rdma.Batch
		b.Write(r.m.View().At(at, 1), buf, 8)
		if err := c.Do(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := r.k[1].Insert(key(last), key(last)); !errors.Is(err, index.ErrBusy) {
			t.Fatalf("directory %v: %v", directory, err)
		}
		b.Reset()
		b.Read(r.m.View().At(at, 0), buf+8, 8)
		if err := c.Do(&b); err != nil {
			t.Fatal(err)
		}
		if w := th.Word(buf + 8); ownerOf(w) != Nobody {
			t.Errorf("directory %v: the lock is that of %#x", directory, ownerOf(w))
		}
		th.Free(buf, 16)
		if err := r.ix[2].Recover(r.k[2].C, func(owner uint64) bool { return owner == dead }); err != nil {
			t.Fatalf("directory %v: %v", directory, err)
		}
		if err := r.ix[2].Verify(r.k[2].C); err != nil {
			t.Fatalf("directory %v: %v", directory, err)
		}
		r.grows(t, 2)
	}
}

// TestHalfAbandoned: a client that is alive gives a split up, and its verbs fail when it has let
// go of the old sub-table, and not of the new one. Who takes the split over waits until that
// client is recovered.
func TestHalfAbandoned(t *testing.T) {
	last := splitAt(t)
	busy := 0
	for n := 0; ; n++ {
		r := newRig(t, 2, last)
		r.f.Stop(0, n)
		_, err := r.k[0].Insert(key(last), key(last))
		if err == nil && r.f.Left(0) != 0 {
			break
		}
		c, ix := r.k[1].C, r.ix[1]
		d, err := ix.readDirectory(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		var child layout.Addr // the new one, which the client still has
		s := ix.get()
		for _, i := range d.tables() {
			at := d.entries[i].Table() + tableLockOff
			w, err := ix.holder(c, s, at)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case w != 1:
				continue
			case d.entries[i].Filling():
				child = d.entries[i].Table()
				continue
			}
			poke(t, r.m, c, at, Nobody<<16|1)
		}
		ix.put(s)
		switch err := ix.Recover(c, func(uint64) bool { return false }); {
		case errors.Is(err, index.ErrBusy):
			busy++
		case err != nil:
			t.Fatalf("stopped after %d verbs: %v", n, err)
		}
		if d, err = ix.readDirectory(c, nil); err != nil {
			t.Fatal(err)
		}
		for _, e := range d.entries {
			if e.Table() == child && !e.Filling() {
				t.Fatalf("stopped after %d verbs: the split of a living client has been finished", n)
			}
		}
		r.soundAfter(t, n, last)
	}
	if busy == 0 {
		t.Error("no split was given up by half")
	}
}

// stepwise leaves a test out of the short run, which is the race detector's: one goroutine runs its
// schedules, step by step, and it has many.
func stepwise(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("one goroutine, step by step")
	}
}
