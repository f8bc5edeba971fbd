package exhaustive

import (
	"flag"
	"fmt"
	"testing"
)

var caseFlag = flag.String("case", "", "of the tests of two clients at once: this case alone, three numbers; -run selects the pair")

// grid is a case of two clients at once: the first goes on for a moves, the second for b;
// how says what happens then.
type grid struct{ a, b, how int }

func (g grid) String() string { return fmt.Sprintf("%d,%d,%d", g.a, g.b, g.how) }

// sample counts cases, of which every one of so many is tried.
type sample struct{ stride, seen, tried int }

// own is a sample for one kind of database: of -full it is a new one, since several are
// tried at once, otherwise it goes on from one to the next.
func (s *sample) own() *sample {
	if *full {
		return &sample{stride: s.stride}
	}
	return s
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
				g := grid{a, b, how}
				ok, err := visit(g)
				if err != nil {
					return fmt.Errorf("%w\n-case %v", err, g)
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

// try runs a case of a test that tries a sample of two clients at once.
func (s *sample) try(t *testing.T, w *world, fn func() error) {
	t.Helper()
	before := s.tried
	defer func() { done.add(t, orders, s.tried-before) }()
	w.try(t, func() error {
		if err := fn(); err != nil {
			return fmt.Errorf("%w\nof %s", err, t.Name())
		}
		return nil
	})
}
