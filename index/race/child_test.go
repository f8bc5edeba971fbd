package race

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// extents is a memory that hands out again at once the extent that was given back last, and says
// so when one is given back that nobody has.
type extents struct {
	*indextest.Memory
	t    *testing.T
	used map[layout.Addr]bool
	free []layout.Addr
}

// withExtents has all handles of a rig take their sub-tables from an extents.
func (r *rig) withExtents(t *testing.T) *extents {
	m := &extents{Memory: r.m, t: t, used: map[layout.Addr]bool{}}
	for i := range r.ix {
		r.ix[i].space = m
	}
	return m
}

func (m *extents) NewExtent(c *rdma.Coro, size uint32) (memory.Extent, error) {
	var a layout.Addr
	if n := len(m.free); n > 0 {
		a, m.free = m.free[n-1], m.free[:n-1]
		m.write(c, a, make([]byte, size))
	} else {
		x, err := m.Memory.NewExtent(c, size)
		if err != nil {
			return memory.Extent{}, err
		}
		a = x.Addr
	}
	m.used[a] = true
	return memory.Extent{Addr: a, Size: size}, nil
}

// write writes all copies.
func (m *extents) write(c *rdma.Coro, a layout.Addr, p []byte) {
	m.t.Helper()
	buf, err := c.Thread().Alloc(len(p))
	if err != nil {
		m.t.Fatal(err)
	}
	defer c.Thread().Free(buf, len(p))
	copy(c.Thread().Bytes(buf, uint32(len(p))), p)
	var b rdma.Batch
	for k := range m.View().Copies(a) {
		b.Write(m.View().At(a, k), buf, uint32(len(p)))
	}
	if err := c.Do(&b); err != nil && !errors.Is(err, rdma.ErrVerb) {
		m.t.Fatal(err)
	}
}

func (m *extents) FreeExtent(x memory.Extent) (bool, error) {
	m.t.Helper()
	a := x.Addr
	if !m.used[a] {
		m.t.Errorf("extent %v is given back by somebody who does not have it", a)
		return false, errors.New("there is no such extent")
	}
	delete(m.used, a)
	m.free = append(m.free, a)
	return true, nil
}

// childBack is a rig of two sub-tables, of which the first names a child that was taken back:
// client 1 was about to split it, found the directory locked, and gave up, or died, and client 2
// recovered the index; and client 3, who recovers from nobody, is so slow that its
// compare-and-swap, with which it makes a copy equal, comes when that is done. Then the primary is
// lost. It returns the child, and the key that was to be inserted. n is the verb of client 1 before
// which client 3 has looked; it is sought from there on.
func childBack(t *testing.T, died bool, n *int) (r *rig, m *extents, to layout.Addr, last int) {
	t.Helper()
	first := splitAt(t)
	probe := newRig(t, 1, first+1)
	for last = first + 1; probe.ix[0].splits.Load() == 1; last++ {
		if even(last) && put(probe, 0, last) != nil {
			t.Fatal("no split")
		}
	}
	last--
	for ; ; *n++ {
		r = newRig(t, 2, first+1)
		for i := first + 1; i < last; i++ {
			if even(i) && put(r, 0, i) != nil {
				t.Fatal("an insert has failed")
			}
		}
		m = r.withExtents(t)
		ix, c := r.ix[1], r.k[1].C
		s := ix.get()
		lock := ix.root + dirLockOff
		if !died {
			if ok, err := ix.one(c, s, r.m.View(), lock, 0, ix.lockWord(c)); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		verbs := r.turnLate(*n, 1, func() {
			if died {
				r.f.Stop(0, *n)
			}
			if err := put(r, 0, last); !died && !errors.Is(err, index.ErrBusy) {
				t.Fatalf("verb %d: %v", *n, err)
			}
			if died {
				if err := ix.Recover(c, func(owner uint64) bool { return owner == 1 }); err != nil {
					t.Fatalf("verb %d: %v", *n, err)
				}
			}
		})
		if !died {
			if err := ix.unlock(c, s, lock); err != nil {
				t.Fatal(err)
			}
		}
		ix.put(s)
		if verbs <= *n {
			t.Fatal("no child came back")
		}
		d, err := ix.readDirectory(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.m.Lose(0)
		if died && *n > 300 {
			t.Fatal("no child came back")
		}
		if to = layout.Addr(word(r.m.Copies(t, c.Thread(), d.entries[0].Table()+tableChildOff, 8)[0], 0)); to != 0 {
			if !slices.Contains(m.free, to) {
				t.Fatalf("the sub-table at %v was not taken back", to)
			}
			return r, m, to, last
		}
	}
}

// even tells whether a key is of the first one of two sub-tables.
func even(i int) bool { return record.Hash(7, key(i))&1 == 0 }

// turnLate has client 1 do something, and client 3 recover the index from nobody, before verb n of
// that. Both are slow: compare-and-swap number late of client 3 comes when client 1 is done. It is
// its last one. It returns how many verbs client 1 needed.
func (r *rig) turnLate(n, late int, do func()) (verbs int) {
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		r.f.Before(2, func(w *rdma.WR) {
			if w.Op != rdma.OpCAS {
				return
			}
			if late--; late == 0 {
				r.f.Before(2, nil)
				r.f.Stop(2, 1)
				yield(struct{}{})
			}
		})
		_ = r.ix[2].Recover(r.k[2].C, func(uint64) bool { return false })
	})
	defer stop()
	r.f.Before(0, func(*rdma.WR) {
		if verbs == n {
			next()
		}
		verbs++
	})
	do()
	r.f.Before(0, nil)
	next()
	r.f.Before(2, nil)
	r.f.Stop(2, -1)
	return verbs
}

// TestChildBack: a sub-table names a child that was taken back, and that is free, or somebody
// else's. Clients that want to split it meet that before anybody recovers the index, and may
// be stopped at any verb; the child is not given back once more, and its memory is nobody's
// but his who has it.
func TestChildBack(t *testing.T) {
	stepwise(t)
	for _, mode := range []string{"free", "used", "sub-table", "recovered", "recovered, used"} {
		t.Run(mode, func(t *testing.T) {
			mode, died := strings.CutPrefix(mode, "recovered")
			mode = strings.TrimPrefix(mode, ", ")
			for n, verb := 0, 0; ; n++ {
				r, m, to, last := childBack(t, died, &verb)
				ix, c := r.ix[2], r.k[2].C
				var kept []byte
				switch mode {
				case "used":
					if a, err := m.NewExtent(c, ix.size); a.Addr != to || err != nil {
						t.Fatal(a, err)
					}
					kept = slices.Repeat([]byte{0xa5}, int(ix.size))
					m.write(c, to, kept)
				case "sub-table":
					for i := 5000; ix.splits.Load() == 0; i++ {
						if !even(i) && put(r, 2, i) != nil {
							t.Fatal("no split")
						}
					}
					if !m.used[to] {
						t.Fatal("the child is not another one's child now")
					}
				}
				r.f.Stop(1, n)
				err := put(r, 1, last)
				done := r.f.Left(1) != 0
				r.f.Stop(1, -1)
				if done && err != nil && !errors.Is(err, index.ErrBusy) {
					t.Fatal(err)
				}
				if err := ix.Recover(c, func(owner uint64) bool { return owner <= 2 }); err != nil {
					t.Fatalf("stopped after %d verbs: %v", n, err)
				}
				if err := ix.Verify(c); err != nil {
					t.Fatalf("stopped after %d verbs: %v", n, err)
				}
				if mode == "used" && (!m.used[to] || !slices.Equal(r.m.Copies(t, c.Thread(), to, ix.size)[0], kept)) {
					t.Errorf("stopped after %d verbs: %v is not its owner's any more", n, to)
				}
				r.found(t)
				r.grows(t, 2)
				if t.Failed() || done {
					return
				}
			}
		})
	}
}

// TestChildBackBusy: as long as nobody recovers the index, who needs room in such a sub-table is
// told at once, every time, that it is busy; nothing else is in anybody's way, no lock and no
// memory is kept, and who recovers it, some time, has it go on.
func TestChildBackBusy(t *testing.T) {
	r, m, to, last := childBack(t, false, new(int))
	// else the next split would have it, and find it named
	if a, err := m.NewExtent(r.k[1].C, r.ix[1].size); err != nil || a.Addr != to {
		t.Fatal(a, err)
	}
	had := len(m.used)
	d, err := r.ix[1].readDirectory(r.k[1].C, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		k := i % 2
		begun := r.f.Now()
		if err := put(r, k, last); !errors.Is(err, index.ErrBusy) {
			t.Fatalf("client %d: %v", k+1, err)
		}
		if took := r.f.Now() - begun; took > r.ix[k].stall/2 {
			t.Errorf("client %d has waited for %d ns for nobody", k+1, took)
		}
		for _, at := range []layout.Addr{r.ix[1].root + dirLockOff, d.entries[0].Table() + tableLockOff} {
			if w := word(r.m.Copies(t, r.k[1].C.Thread(), at, 8)[0], 0); w != 0 {
				t.Fatalf("the lock at %v is that of %#x", at, ownerOf(w))
			}
		}
	}
	if len(m.used) != had {
		t.Errorf("%d extents more are in use", len(m.used)-had)
	}
	r.found(t)
	for i := 5000; r.ix[2].splits.Load() == 0; i++ { // the other sub-table
		if !even(i) && put(r, 2, i) != nil {
			t.Fatal("no split")
		}
	}
	if err := r.k[1].Delete(key(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.k[2].Insert(key(2), key(2)); err != nil {
		t.Fatal(err)
	}
	r.recovered(t, 2)
	r.found(t)
	r.grows(t, 2)
}
