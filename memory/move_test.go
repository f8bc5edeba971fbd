package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// movers makes steps of moving copies until there is nothing to move, as package txn does,
// and returns how many.
func movers(c *rdma.Coro, s *memory.Space) (steps int, err error) {
	claimed := func(change func(*layout.Layout) error) error {
		cs, err := s.Coordinators()
		if err != nil || len(cs) == 0 {
			return errors.Join(err, s.AdvanceEpoch(change))
		}
		var ids []uint32
		for _, x := range cs {
			ids = append(ids, x.ID)
		}
		claim, err := s.Claim(memory.ClaimOptions{Steal: true, Change: change}, ids...)
		if err != nil {
			return err
		}
		return claim.Forget()
	}
	k := s.NewCopier()
	for ; ; steps++ {
		for idle := false; !idle; {
			if idle, err = k.Step(c); err != nil {
				return steps, err
			}
			if r := s.Redundancy(); r.Missing > 0 && len(r.Down) == 0 && s.Backups() < 2 {
				return steps, fmt.Errorf("copies are missing while others move: %+v", r)
			}
		}
		if s.CanBuild() > 0 {
			if _, err := s.Build(); err != nil {
				return steps, err
			}
			continue
		}
		if n, primaries := s.Unsettled(); n > 0 {
			if !primaries {
				err = s.AdvanceEpoch(s.Settle(false))
			} else if err = s.AdvanceEpoch(s.Settle(false)); errors.Is(err, layout.ErrLayout) {
				err = claimed(s.Settle(true))
			} else {
				err = fmt.Errorf("primaries are dropped without a claim: %w", err)
			}
			if err != nil {
				return steps, err
			}
			continue
		}
		if all := s.Emptied(); len(all) > 0 {
			if err := claimed(s.Retire(all[0])); err != nil {
				return steps, err
			}
			continue
		}
		more, err := s.Reclaim(c)
		if err != nil || !more {
			return steps, err
		}
	}
}

// stored is what test segments have in them.
type stored struct {
	block, words layout.Addr
	image, word  []byte
}

func storeSome(t *testing.T, c *rdma.Coro, s *memory.Space, a *memory.Allocator, n int) (out []stored) {
	t.Helper()
	for range n {
		x := stored{}
		x.block, x.words = fill(t, c, s, a)
		v := s.View()
		x.image, x.word = bytes.Clone(read(t, c, v.At(x.block, 0), int(layout.Class(3).Size()))),
			bytes.Clone(read(t, c, v.At(x.words, 0), 4096))
		out = append(out, x)
	}
	return out
}

// kept fails unless all is there that was stored, on as many copies as there are to be, that are
// the same, and every place of a blade that stays is in use or can be used.
func kept(t *testing.T, c *rdma.Coro, s *memory.Space, all []stored) {
	t.Helper()
	v, l := s.View(), s.Layout()
	check(t, l.Validate())
	for _, x := range all {
		if !bytes.Equal(read(t, c, v.At(x.block, 0), len(x.image)), x.image) ||
			!bytes.Equal(read(t, c, v.At(x.words, 0), len(x.word)), x.word) {
			t.Errorf("%v or %v is not what was stored", x.block, x.words)
		}
	}
	alike(t, c, s)
	r := s.Redundancy()
	if r.Missing+r.Building+r.Moving+r.Lost > 0 || len(r.Leaving) > 0 || len(r.Down) > 0 {
		t.Errorf("%+v", r)
	}
	for id := range l.Segments {
		if p := l.Segments[id].Placement; l.Segments[id].Kind != layout.KindLog && id > 0 && int(p.N) != l.Backups+1 {
			t.Errorf("segment %d has %d copies", id, p.N)
		}
	}
	taken := make([]int, len(l.Blades))
	for id := range l.Segments {
		for _, r := range l.Segments[id].Placement.Replicas[:l.Segments[id].Placement.N] {
			taken[r.Blade]++
		}
	}
	for b, room := range s.Room() {
		if x := l.Blades[b]; x.State == layout.BladeUp {
			if want := (x.Size-layout.HeaderArea)/testSegment - uint64(taken[b]); room.Free != want*testSegment {
				t.Errorf("blade %d has room for %d segments; want %d", b, room.Free/testSegment, want)
			}
		}
	}
}

// TestMove: a blade is drained, its place is filled again, copies are spread over all, and
// everything is there, at any number of copies, with sessions and without.
func TestMove(t *testing.T) {
	raced.Skip(t)
	for _, x := range []struct{ blades, f int }{{2, 0}, {3, 1}, {4, 1}, {4, 2}} {
		t.Run(fmt.Sprintf("%d blades, f=%d", x.blades, x.f), func(t *testing.T) {
			b := newBed(t, x.blades, 40, x.f)
			s, c := b.open()
			a := b.allocator(s, c)
			all := storeSome(t, c, s, a, 8)
			for blade := range rdma.BladeID(x.blades) {
				coord := must(s.NewCoordinator())(t)
				check(t, s.Drain(blade))
				check(t, s.Drain(blade)) // it leaves already
				all = append(all, storeSome(t, c, s, a, 2)...)
				if v := s.View(); v.Stays(blade) || !v.Up(blade) || v.StayingBlades() != x.blades-1 {
					t.Errorf("blade %d stays: %v; %d do", blade, v.Stays(blade), v.StayingBlades())
				}
				if n, _ := s.Unsettled(); n > 0 && x.f < 2 {
					t.Errorf("%d copies can be dropped before others are complete", n)
				}
				must(movers(c, s))(t)
				kept(t, c, s, all)
				if l := s.Layout(); !l.Vacant(blade) || l.Held(blade) > 0 || s.View().Up(blade) {
					t.Errorf("blade %d: %+v", blade, l.Blades[blade])
				}
				if _, _, err := s.Coordinator(coord.ID); !errors.Is(err, memory.ErrNoCoordinator) {
					t.Errorf("a session has outlived that primaries have moved: %v", err)
				}
				check(t, s.Admit(c, blade, nil))
				if s.View().Up(blade) {
					t.Error("a blade whose place is vacant was taken in")
				}
				check(t, s.Stay(blade))
				check(t, s.Admit(c, blade, nil))
				for {
					if n := must(s.Spread())(t); n == 0 {
						break
					}
					must(movers(c, s))(t)
				}
				kept(t, c, s, all)
				l := s.Layout()
				least, most := 1<<30, 0
				for o := range l.Blades {
					n := l.Held(rdma.BladeID(o))
					least, most = min(least, n), max(most, n)
				}
				if most > least+1 && x.f < 2 || l.Held(blade) == 0 {
					t.Errorf("a blade has copies of %d segments, and one of %d", least, most)
				}
				all = append(all, storeSome(t, c, s, a, 2)...)
			}
			check(t, a.Close(c))
			check(t, s.Close(c))
			s, c = b.open()
			for _, x := range all {
				if !bytes.Equal(read(t, c, s.View().At(x.block, 0), len(x.image)), x.image) {
					t.Errorf("%v is not what was stored", x.block)
				}
			}
		})
	}
}

// TestDrainRefused: a blade that the others cannot do without stays.
func TestDrainRefused(t *testing.T) {
	s, _ := newBed(t, 2, 4, 1).open()
	epoch := s.View().Epoch
	if err := s.Drain(0); !errors.Is(err, layout.ErrLayout) {
		t.Errorf("with one blade left for two copies: %v", err)
	}
	if err := s.Drain(2); !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("blade 2 of 2: %v", err)
	}
	b := newBed(t, 3, 4, 1)
	full, c := b.open()
	a := b.allocator(full, c)
	for {
		if _, err := a.Alloc(c, 30); err != nil {
			break
		}
	}
	if err := full.Drain(1); !errors.Is(err, memory.ErrNoSpace) {
		t.Errorf("without room: %v", err)
	}
	if s.View().Epoch != epoch || len(full.Redundancy().Leaving) > 0 {
		t.Error("what was refused has changed something")
	}
}

// TestCrashWhileMoving stops a process at each change of the catalog while it drains a blade, has
// another one take the place, and spreads copies; and at verbs in between. The next process goes
// on, and everything is there.
func TestCrashWhileMoving(t *testing.T) {
	raced.Skip(t)
	for _, f := range []int{0, 1, 2} {
		for _, verbs := range []bool{false, true} {
			t.Run(fmt.Sprintf("f=%d, verbs %v", f, verbs), func(t *testing.T) {
				step := 1
				if verbs {
					if step = 37; testing.Short() {
						step = 331
					}
				}
				total := -1
				for k := 0; total < 0 || k <= total; k += step {
					b := newBed(t, f+2, 40, f)
					s, c := b.open()
					a := b.allocator(s, c)
					all := storeSome(t, c, s, a, 3)
					st := &stop{left: k}
					if b.cat.stop = st; verbs {
						b.fabric.stop = st
					}
					err := func() error {
						if _, err := s.NewCoordinator(); err != nil {
							return err
						}
						if err := s.Drain(0); err != nil {
							return err
						}
						if _, err := movers(c, s); err != nil {
							return err
						}
						if err := s.Stay(0); err != nil {
							return err
						}
						if err := s.Admit(c, 0, nil); err != nil {
							return err
						}
						if _, err := s.Spread(); err != nil {
							return err
						}
						_, err := movers(c, s)
						return err
					}()
					if err == nil && total < 0 {
						total = st.taken
					}
					if err != nil && st.left > 0 {
						t.Fatalf("crash at step %d: %v", k, err)
					}
					b.crash()
					s, c = b.open()
					if cs := must(s.Coordinators())(t); len(cs) > 0 {
						check(t, must(s.Claim(memory.ClaimOptions{Steal: true}, cs[0].ID))(t).Forget())
					}
					for _, blade := range s.Redundancy().Down {
						check(t, s.Admit(c, blade, nil))
					}
					must(movers(c, s))(t)
					if err := s.Drain(1); err != nil && !errors.Is(err, layout.ErrLayout) { // blade 0 may be gone
						t.Fatal(err)
					}
					for more := true; more; { // places of before the crash, too
						must(movers(c, s))(t)
						more = must(s.Reclaim(c))(t)
					}
					if kept(t, c, s, all); t.Failed() {
						t.Fatalf("crash at step %d", k)
					}
				}
				if total < 10 {
					t.Errorf("only %d steps", total)
				}
				t.Logf("%d steps", total)
			})
		}
	}
}
