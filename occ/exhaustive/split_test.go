package exhaustive

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/rdma/steptest"
	"txnode/verify"
)

// TestStopsInSplit stops an insert that splits a sub-table of the index everywhere.
func TestStopsInSplit(t *testing.T) {
	// What an insert does with the index is the same of both policies.
	each(t, those(configs(), config.promised, config.byDefault), func(t *testing.T, c config) {
		c.groups = 2
		n := splitAt(t, c)
		var keys []string
		w := newWorld(t, c, func(s *client) error {
			for i := range n {
				keys = append(keys, k(numbered(i)))
				if err := s.do(insert(numbered(i), "v")); err != nil || s.told[i] != nil {
					return errors.Join(err, s.told[i])
				}
			}
			return nil
		})
		keys = append(keys, k(numbered(n)))
		// Memory of a sub-table that nobody has come to see stays allocated (see memory.AllocExtent),
		// and its word need not be on all copies.
		w.pardon = func(f verify.Finding) bool {
			words := f.Kind == verify.KindReplica && w.space.Layout().Segments[f.Addr.Segment()].Kind == memory.KindIndex &&
				f.Addr.Offset() < memory.FirstExtent(segment)
			return words || f.Kind == verify.KindOrphan && strings.HasPrefix(f.What, "no index uses the extent")
		}
		w.look(keys)
		defer w.f.End()
		s := &stops{world: w, keys: keys, ops: []op{insert(numbered(n), "new")}, grain: steptest.Verbs, stride: 12 * c.stride(), bare: true}
		if *full {
			s.stride = []int{0, 12, 60}[c.backups]
		}
		s.allOrOne(t, s.all, s.one)
		t.Logf("%d findings about memory of sub-tables that nobody has seen", w.pardoned)
	})
}

// splitAt is how many keys there are when the insert of one more splits the index.
func splitAt(t *testing.T, c config) (n int) {
	w := newWorld(t, c, func(*client) error { return nil })
	w.restart()
	s := w.client()
	for ; ; n++ {
		if err := s.do(insert(numbered(n), "v")); err != nil || s.told[n] != nil {
			t.Fatal(err, s.told[n])
		}
		if w.walk(); w.summary.Tables[0].SubTables > 1 {
			return n
		}
	}
}

func numbered(i int) string { return fmt.Sprintf("key%d", i) }
