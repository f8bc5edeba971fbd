package occ_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/occ"
)

// TestIndexFull: an index that may not grow any more refuses keys, with what to do,
// as often as it is asked, and everything else goes on.
func TestIndexFull(t *testing.T) {
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			b := newBed(t, 2, 1, occ.Options{Policy: p, ReclaimAfter: 1})
			_, ix, err := race.Create(b.ctl.Plain(), b.space, b.table.ID, race.Options{Groups: 2, MaxDepth: 2})
			must(t, err)
			b.table.Index = ix
			s, tx := b.session()
			n := 0
			for ; ; n++ {
				if err = b.do(tx, put(fmt.Sprint("key ", n), "v"), put("counter", fmt.Sprint(n))); err != nil {
					break
				}
			}
			if !errors.Is(err, index.ErrFull) || errors.Is(err, memory.ErrNoSpace) ||
				!strings.Contains(err.Error(), `"t"`) || n < 100 {
				t.Fatalf("after %d keys: %v", n, err)
			}
			for i := range 500 {
				if err := b.do(tx, put("counter", "too far"), put(fmt.Sprint("another ", i), "v"),
					put(fmt.Sprint("key ", n), "v")); err != nil && !errors.Is(err, index.ErrFull) {
					t.Fatal(err)
				}
			}
			if v, _ := b.value(tx, "counter"); v != fmt.Sprint(n-1) {
				t.Fatalf("the counter is %q after %d keys: part of a refused transaction shows", v, n)
			}
			for i := range n {
				if _, ok := b.value(tx, fmt.Sprint("key ", i)); !ok {
					t.Fatalf("key %d of %d is gone", i, n)
				}
				must(t, b.do(tx, del(fmt.Sprint("key ", i))))
			}
			for range n {
				must(t, s.Maintain(tx.Coro()))
			}
			for i := range n / 2 { // there is room again
				must(t, b.do(tx, put(fmt.Sprint("new ", i), "v")))
			}
		})
	}
}
