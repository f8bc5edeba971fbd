package memory

import (
	"slices"
	"testing"

	"txnode/memory/layout"
)

// TestOpeningHears: an opening knows that a process lives when its count of signs has moved, or when
// it has registered since. A count that a catalog has lost, as in a restart, is no sign, and a silent
// process ends with its term.
func TestOpeningHears(t *testing.T) {
	const term = 100
	l := &layout.Layout{Processes: []layout.ProcessEntry{{ID: 1, Until: 7, Term: term}}}
	signs := func(count uint64) []layout.Beat { return []layout.Beat{{Member: 1, Count: count}} }
	for _, x := range []struct {
		what  string
		later []layout.Beat
		at    int64
		alive bool
		sure  bool
	}{
		{"silent", signs(3), 50, true, false},
		{"silent for a term", signs(3), term + 1, false, true},
		{"a sign", signs(4), 50, true, true},
		{"a restarted catalog", nil, 50, true, false},
		{"a restarted catalog, for more than the term", nil, term + 1, true, false},
	} {
		var o opening
		if ids, sure := o.alive(l, signs(3)); !slices.Equal(ids, []uint32{1}) || sure {
			t.Errorf("%s: at first: %v, sure %v", x.what, ids, sure)
		}
		o.waited = x.at
		if ids, sure := o.alive(l, x.later); (len(ids) > 0) != x.alive || sure != x.sure {
			t.Errorf("%s: %v, sure %v", x.what, ids, sure)
		}
	}
	var o opening
	o.alive(&layout.Layout{}, nil)
	if ids, sure := o.alive(l, signs(1)); len(ids) != 1 || !sure {
		t.Errorf("registered since: %v, sure %v", ids, sure)
	}
}
