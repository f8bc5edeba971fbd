package memory_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
)

// rewrite makes a catalog have these entries alone, in a change of its own.
func rewrite(t *testing.T, c layout.Catalog, entries []layout.Entry) {
	t.Helper()
	have, rev, err := c.Load()
	check(t, err)
	changes := entries
	for _, e := range have {
		if !containsKey(entries, e.Key) {
			changes = append(changes[:len(changes):len(changes)], layout.Entry{Key: e.Key})
		}
	}
	must(c.Apply(rev, changes))(t)
}

func containsKey(entries []layout.Entry, key string) bool {
	for _, e := range entries {
		if e.Key == key {
			return true
		}
	}
	return false
}

// copyOf is a copy of a catalog as it is, which has its revision.
func copyOf(t *testing.T, c layout.Catalog) *catalog.Mem {
	t.Helper()
	entries, rev, err := c.Load()
	check(t, err)
	m := &catalog.Mem{}
	for at := layout.Revision(0); at < rev; at++ {
		must(m.Apply(at, entries))(t)
	}
	return m
}

// behind fails the test unless an error says that a catalog is behind.
func behind(t *testing.T, what string, err error, have, seen layout.Revision) {
	t.Helper()
	e, ok := errors.AsType[*layout.BehindError](err)
	if !ok || !errors.Is(err, layout.ErrForeign) || e.Have != have || e.Seen < seen ||
		!strings.Contains(err.Error(), "Bring the newest back") {
		t.Errorf("%s: %v, want a catalog at revision %d that was seen at %d", what, err, have, seen)
	}
}

// TestCatalogGoesBackInUse: a process that has the database open meets an old copy of the catalog,
// of the same epoch. It refuses it, and does not go on when others have taken the copy to a later
// revision than it knows.
func TestCatalogGoesBackInUse(t *testing.T) {
	for name, do := range map[string]func(s *memory.Space) error{
		"follows":         func(s *memory.Space) error { return s.Follow() },
		"makes a table":   func(s *memory.Space) error { _, err := s.CreateTable("late", nil); return err },
		"begins an epoch": func(s *memory.Space) error { return s.AdvanceEpoch(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 2, 4, 1)
			s, _ := b.open()
			old := copyOf(t, b.cat)
			must(s.CreateTable("newest", nil))(t)
			newest := b.cat.Catalog
			seen := must(newest.Revision())(t)
			b.cat.Catalog = old
			behind(t, name, do(s), must(old.Revision())(t), seen)
			if l := must(layout.LoadLayout(old))(t); len(l.Tables) != 0 || l.Epoch != 1 {
				t.Errorf("the copy has %d tables, and epoch %d", len(l.Tables), l.Epoch)
			}
			for range 5 {
				rewrite(t, old, must(layout.LoadLayout(old))(t).Entries())
			}
			if err := do(s); !errors.Is(err, layout.ErrForeign) {
				t.Errorf("the copy has gone on to revision %d: %v", must(old.Revision())(t), err)
			}
		})
	}
}

// TestCatalogGoesBackAtRest: no process has the database open, and an old copy of its catalog
// is brought back, of the same epoch. The blades know better. The newest is used on, and so
// is a database whose blades have a damaged word, or were told of nothing as far as the
// catalog knows, too.
func TestCatalogGoesBackAtRest(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared=", shared), func(t *testing.T) {
			b := newBed(t, 2, 4, 1)
			b.opts.Shared = shared
			s, c := b.open()
			first := copyOf(t, b.cat)
			must(s.CreateTable("one", nil))(t)
			check(t, s.Tell(c))
			told := must(b.cat.Revision())(t)
			for blade := range rdma.BladeID(2) {
				if got := layout.ToldIn(b.peek(blade, 0, 128)); got != told {
					t.Errorf("blade %d was told of revision %d, and the catalog is at %d", blade, got, told)
				}
			}
			second := copyOf(t, b.cat)
			must(s.CreateTable("two", nil))(t)
			check(t, s.Close(c))
			newest := b.cat.Catalog
			last := must(newest.Revision())(t)
			for name, old := range map[string]*catalog.Mem{
				"before the blades were told": first, "before the database was closed": second,
			} {
				for _, readOnly := range []bool{false, true} {
					o := b.opts
					o.ReadOnly, o.Attach = readOnly, true
					at := must(old.Revision())(t)
					_, err := memory.Open(b.thread().Plain(), b.fabric, old, o)
					behind(t, name, err, at, last)
					if now := must(old.Revision())(t); now != at {
						t.Errorf("%s: it has changed the copy", name)
					}
				}
			}
			if l := must(layout.LoadLayout(newest))(t); len(l.Tables) != 2 {
				t.Errorf("%d tables", len(l.Tables))
			}
			for name, word := range map[string]uint64{"as it is": 0, "told of nothing": 1, "damaged": 2} {
				if word == 1 {
					unstamp(t, newest)
				}
				if word > 0 { // of both blades
					for blade := range rdma.BladeID(2) {
						b.poke(blade, layout.ToldOffset, binary.LittleEndian.AppendUint64(nil, (word-1)*0x5aa5))
					}
				}
				s, c := b.open()
				for blade := range rdma.BladeID(2) {
					if got := layout.ToldIn(b.peek(blade, 0, 128)); got < last {
						t.Errorf("%s: blade %d was told of revision %d at an opening, and the catalog was at %d",
							name, blade, got, last)
					}
				}
				check(t, s.Close(c))
			}
		})
	}
}

// unstamp makes a catalog that of a program that notes nothing of what blades were told.
func unstamp(t *testing.T, c layout.Catalog) {
	t.Helper()
	l := must(layout.LoadLayout(c))(t)
	for i := range l.Blades {
		l.Blades[i].Told = 0
	}
	rewrite(t, c, l.Entries())
}

// TestStampsFirst: of several processes the one that was registered first stamps the blades every
// three seconds. Another one does when that has not for five.
func TestStampsFirst(t *testing.T) {
	b := newSharedBed(t, 3, 6, 1)
	b.fabric.clock = new(int64)
	open := func() (*memory.Space, *rdma.Coro) {
		s, c, err := b.tryOpen(1e12)
		check(t, err)
		return s, c
	}
	first, fc := open()
	check(t, first.EndAlone())
	second, sc := open()
	tell := func(what string, s *memory.Space, c *rdma.Coro, stamps bool) {
		t.Helper()
		check(t, s.Follow())
		was := must(b.cat.Revision())(t)
		check(t, s.Tell(c))
		if now := must(b.cat.Revision())(t); (now != was) != stamps {
			t.Errorf("%s: the catalog was at revision %d, and is at %d", what, was, now)
		}
	}
	tell("the first process, when it has just seen a stamp", first, fc, false)
	tell("the second one, likewise", second, sc, false)
	*b.fabric.clock += 4e9
	tell("the second process, after 4 s", second, sc, false)
	tell("the first one, after 4 s", first, fc, true)
	tell("the second one then", second, sc, false)
	*b.fabric.clock += 6e9
	tell("the second process, after 6 s", second, sc, true)
}

// TestTellTogether: several processes tell the blades of what they know, and the latest revision
// stays.
func TestTellTogether(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	b.opts.Shared = true
	first, c := b.open()
	spaces, coros := []*memory.Space{first}, []*rdma.Coro{c}
	check(t, first.EndAlone())
	for range 2 {
		s, c := b.open()
		spaces, coros = append(spaces, s), append(coros, c)
	}
	var told sync.WaitGroup
	for i, s := range spaces {
		told.Go(func() {
			for k := range 20 {
				if _, err := s.CreateTable(fmt.Sprintf("%d/%d", i, k), nil); err != nil {
					t.Error(err)
				}
				if err := s.Tell(coros[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	told.Wait()
	last := must(b.cat.Revision())(t)
	for blade := range rdma.BladeID(2) {
		if got := layout.ToldIn(b.peek(blade, 0, 128)); got != last {
			t.Errorf("blade %d was told of revision %d, and the catalog is at %d", blade, got, last)
		}
	}
}

// TestToldWord: a word has its revision, or it is damaged.
func TestToldWord(t *testing.T) {
	for _, rev := range []layout.Revision{0, 1, 2, 1000, 1<<48 - 1} {
		word := layout.ToldWord(rev)
		if got, ok := layout.ParseTold(word); got != rev || !ok {
			t.Errorf("revision %d: %d, %v", rev, got, ok)
		}
		for bit := range 64 {
			if got, ok := layout.ParseTold(word ^ 1<<bit); ok {
				t.Errorf("revision %d with another bit %d: %d", rev, bit, got)
			}
		}
	}
}
