package memory_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestSilentCatalog: the catalog is asked, in a change or to load it, and is silent. Whatever needs
// no answer goes on meanwhile: what is asked of coordinators, leases and segments, and blocks and
// extents for which there is room.
func TestSilentCatalog(t *testing.T) {
	for name, silence := range map[string]func(c *cat, hang func()){
		"a change":   func(c *cat, hang func()) { c.applying = hang },
		"the layout": func(c *cat, hang func()) { c.loaded = hang },
	} {
		t.Run(name, func(t *testing.T) {
			b := newSharedBed(t, 2, 20, 1)
			s, c := b.join(0)
			others := b.cat
			b.cat = &cat{Catalog: others.Catalog}
			other, _ := b.join(0)
			k := class(1 << 10)
			p := newProcess(t, b, s, c, k)
			extent := must(s.NewExtent(c, 100))(t)
			p.has = append(p.has, must(p.a.Alloc(c, k))(t))
			p.a.Used(p.has[0])
			check(t, p.a.Maintain(c))
			fresh := b.allocator(s, c)
			fresh.Serve(p.id)
			former := b.allocator(s, c)
			p.has = append(p.has, must(former.Alloc(c, k))(t))
			former.Used(p.has[1])
			check(t, former.Close(c)) // the others of its blocks are there to be taken

			asked, answer, done := make(chan struct{}), make(chan struct{}), make(chan error)
			check(t, other.AdvanceEpoch(nil)) // there is something to be loaded
			check(t, s.Follow())
			must(other.CreateTable("another", nil))(t)
			first := true
			silence(others, func() {
				if first {
					first = false
					close(asked)
					<-answer
				}
			})
			go func() {
				_, err := s.CreateTable("new", nil)
				done <- err
			}()
			<-asked
			if s.Locked() {
				t.Error("the lock is held while the catalog is asked")
			}
			if state := s.Lease(p.id, 0); state != memory.LeaseLive || !s.Registered(p.id) {
				t.Errorf("the lease of the session is %v", state)
			}
			if x, _, err := s.Coordinator(p.id); err != nil || x.ID != p.id {
				t.Errorf("the coordinator is %v, %v", x.ID, err)
			}
			s.Prolong(1<<40, p.id)
			if s.Current() != s.View() || len(must(s.Tables())(t)) != 0 || s.Redundancy().Lost != 0 {
				t.Error("what the layout says is not what it was")
			}
			for range memory.ChunkBlocks(k) / 2 {
				p.has = append(p.has, must(fresh.Alloc(c, k))(t))
				fresh.Used(p.has[len(p.has)-1])
			}
			if done := must(s.FreeExtent(extent))(t); !done {
				t.Error("the extent was not freed")
			}
			must(s.NewExtent(c, 100))(t)
			if l := s.Layout(); len(l.Tables) != 0 {
				t.Errorf("%d tables before the catalog has answered", len(l.Tables))
			}

			close(answer)
			check(t, <-done)
			check(t, s.Follow())
			if l := agree(t, b, s, other); len(l.Tables) != 2 {
				t.Errorf("%d tables", len(l.Tables))
			}
			seen := map[layout.Addr]bool{}
			for _, x := range p.has {
				if seen[x] {
					t.Errorf("%v was handed out twice", x)
				}
				seen[x] = true
			}
		})
	}
}

// TestWithdrawnMeanwhile: while the catalog is asked for memory behind more of a segment, the
// segment is withdrawn, since all of its blocks were freed. No block of it is handed out.
func TestWithdrawnMeanwhile(t *testing.T) {
	b := newBed(t, 1, 8, 0)
	s, c := b.open()
	a := b.allocator(s, c)
	k := class(8 << 10)
	var has []layout.Addr
	all, left := map[layout.Addr]bool{}, false
	b.cat.applying = func() {
		if n, _ := count(s.Layout(), k); n == 0 || left || len(has) == 0 {
			return
		}
		before := s.Layout().Segments[has[0].Segment()]
		for _, x := range has {
			a.Hold(x)
			a.Free(x, k)
		}
		whole, withdrawn := s.WithdrawBeside(k, func() {})
		if left = withdrawn > 0; !left || before.Backed == 0 {
			t.Fatalf("%d segments are whole, and %d withdrawn, of one of which %d parts have memory",
				whole, withdrawn, before.Backed)
		}
	}
	for range 3 * testSegment / k.Size() {
		x, err := a.Alloc(c, k)
		if errors.Is(err, memory.ErrNoSpace) {
			break
		}
		check(t, err)
		if left && s.Leaves(x) || all[x] && !left {
			t.Fatalf("%v was handed out, of a segment that is withdrawn, or twice", x)
		}
		a.Used(x)
		if !left {
			has = append(has, x)
		}
		all[x] = true
	}
	if !left {
		t.Error("no segment was withdrawn")
	}
	check(t, s.Layout().Validate())
}
