package exhaustive

import (
	"fmt"
	"testing"

	"txnode/rdma/steptest"
)

// grid is a case of two clients at once: the first goes on for a moves, the second for b;
// how says what happens then.
type grid struct{ a, b, how int }

func (g grid) String() string { return fmt.Sprintf("%d,%d,%d", g.a, g.b, g.how) }

// sample counts cases, of which every one of so many is tried.
type sample struct {
	stride      int
	weak        int // stride on a fabric without promises; 0: the same
	seen, tried int
	at          grid // that is tried, or was the last
}

// oneIn is a sample of one case in so many: usually, with -full, or with -short.
func oneIn(usually, withFull, withShort int) *sample {
	return &sample{stride: byRun(usually, withFull, withShort)}
}

// own is a sample for one kind of database: of -full it is a new one, since several are
// tried at once, otherwise it goes on from one to the next.
func (s *sample) own(c config) *sample {
	switch {
	case !*full:
		return s
	case s.weak > 0 && !c.promised():
		return &sample{stride: s.weak}
	}
	return &sample{stride: s.stride}
}

func (s *sample) next() bool {
	s.seen++
	if s.seen%s.stride != 0 {
		return false
	}
	s.tried++
	return true
}

// grids visits a sample of the cases with how below hows, of two clients that need about
// na and nb moves. visit says whether both had as many as the case has.
func (s *sample) grids(na, nb, hows int, visit func(g grid) (ok bool, err error)) error {
	if *caseFlag != "" {
		var g grid
		if _, err := fmt.Sscanf(*caseFlag, "%d,%d,%d", &g.a, &g.b, &g.how); err != nil {
			return fmt.Errorf("-case %q: %w", *caseFlag, err)
		}
		s.at = g
		_, err := visit(g)
		return err
	}
	for a := range na + 1 {
	rest:
		for b := range nb + 1 {
			for how := range hows {
				if !s.next() {
					continue
				}
				s.at = grid{a, b, how}
				ok, err := visit(s.at)
				if err != nil {
					return err
				}
				if !ok {
					s.tried--
					break rest
				}
			}
		}
	}
	return nil
}

// beside visits a sample of the cases of two clients that begin starts anew for each, of
// which the second may need more moves than alone, up to times as many, behind those of
// the first; end is what happens then.
func (s *sample) beside(w *world, times, hows int, begin func() (first, second *steptest.Client),
	end func(how int) error) error {
	first, _ := begin()
	na := w.advance(first, allMoves)
	_, second := begin()
	nb := w.advance(second, allMoves)
	return s.grids(na, times*nb, hows, func(g grid) (bool, error) {
		if first, second := begin(); !w.reach(g, first, second) {
			return false, nil
		}
		return true, end(g.how)
	})
}

// reach lets both clients go on for as many moves as the case has, one after the other,
// and reports whether they had so many.
func (w *world) reach(g grid, first, second *steptest.Client) bool {
	a, b := w.advance(first, g.a), w.advance(second, g.b)
	return a == g.a && b == g.b
}

// try runs a case of a test that tries a sample of two clients at once.
func (s *sample) try(t *testing.T, w *world, fn func() error) {
	t.Helper()
	before := s.tried
	defer func() { done.add(t, orders, s.tried-before) }()
	w.try(t, func() error {
		if err := guarded(fn); err != nil {
			return fmt.Errorf("%w\n%s", err, rerun(t, fmt.Sprintf("-case %v", s.at)))
		}
		return nil
	})
}

// inPairs tries a sample of what fn does with pairs of transactions that are in each
// other's way, on every kind of database.
func (s *sample) inPairs(t *testing.T, kinds []config, pairs [][2]txn, fn func(w *world, s *sample, x, y txn) error) {
	each(t, kinds, func(t *testing.T, c config) {
		s := s.own(c)
		w := newWorld(t, c, loadPairs)
		for _, p := range pairs {
			t.Run(p[0].name+"+"+p[1].name, func(t *testing.T) {
				s.try(t, w, func() error { return fn(w, s, p[0], p[1]) })
			})
		}
	})
}
