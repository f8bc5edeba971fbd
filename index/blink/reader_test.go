package blink_test

import (
	"bytes"
	"maps"
	"slices"

	"txnode/index/blink"
	"txnode/memory/layout"
)

// reader is a search or a scan that reads one node at a time, while the tree changes.
type reader struct {
	path
	// A search of one key, or a scan of [from, to), downwards if down.
	key      []byte
	scan     bool
	down     bool
	from, to blink.Bound
	restarts int

	result []string
	torn   bool
	leaves map[layout.Addr]int // the leaves that were read, and the changes that wrote them
	always map[string]bool     // keys that were there all the time
	ever   map[string]bool     // keys that were there at some time
}

// changed tells the reader of a change of a key beside it.
func (r *reader) changed(key string, found, now bool) {
	if found && !now {
		delete(r.always, key)
	}
	if now {
		r.ever[key] = true
	}
}

// read starts a reader, or goes one step on with one.
func (tr *tree) read(keys [][]byte) {
	tr.t.Helper()
	if len(tr.readers) < 4 {
		tr.readers = append(tr.readers, tr.newReader(keys))
		return
	}
	for range 6 {
		i := tr.r.IntN(len(tr.readers))
		r := tr.readers[i]
		n, place := tr.step(&r.path)
		done := false
		switch {
		case place == blink.NotHere:
			tr.counts["searches again"]++
			r.restarts++
			r.path = tr.start(r.target, false)
		case place != blink.Here:
		case r.scan:
			done = tr.collect(r, n)
		default:
			_, found := n.Search(r.key)
			if found != tr.has(r.key) {
				tr.t.Fatalf("search of %x: %v, the model says %v", r.key, found, tr.has(r.key))
			}
			tr.counts[map[bool]string{true: "searches found", false: "searches not found"}[found]]++
			done = true
		}
		if done {
			tr.readers = slices.Delete(tr.readers, i, i+1)
			return
		}
	}
}

func (tr *tree) newReader(keys [][]byte) *reader {
	r := &reader{
		key: keys[tr.r.IntN(len(keys))], leaves: map[layout.Addr]int{}, always: map[string]bool{},
		ever: map[string]bool{},
	}
	stale := tr.r.IntN(2) == 0
	if tr.r.IntN(3) == 0 {
		r.path = tr.start(keyTarget(0, r.key), stale)
		return r
	}
	r.scan, r.down = true, tr.r.IntN(2) == 0
	for {
		r.from, r.to = tr.bound(keys), tr.bound(keys)
		if r.from.Compare(r.to) < 0 {
			break
		}
	}
	for key := range tr.model {
		r.always[key], r.ever[key] = true, true
	}
	r.path = tr.start(target{bound: r.from}, stale)
	if r.down {
		r.path = tr.start(target{bound: r.to, below: true}, stale)
	}
	return r
}

// bound is one of the bounds that there are.
func (tr *tree) bound(keys [][]byte) blink.Bound {
	switch key := keys[tr.r.IntN(len(keys))]; tr.r.IntN(6) {
	case 0:
		return blink.Bound{}
	case 1:
		return blink.End()
	case 2, 3:
		return blink.After(key)
	default:
		return blink.Before(key)
	}
}

// collect takes what the scan finds in a leaf, and goes on to the next one; true when there is
// none.
func (tr *tree) collect(r *reader, n blink.Node) bool {
	tr.t.Helper()
	at := r.at
	from, to := r.from, r.to
	if r.down {
		to = r.bound
	} else {
		from = r.bound
	}
	var found []string
	for i := n.Rank(from); i < n.Rank(to); i++ {
		found = append(found, string(n.AppendKey(nil, i)))
	}
	if change, again := r.leaves[at]; again && change != tr.changed[at] {
		r.torn = true // it was read twice, and has changed in between
	}
	r.leaves[at] = tr.changed[at]
	if r.down {
		slices.Reverse(found)
		r.result = append(r.result, found...)
		if n.Above(r.from) != blink.NotHere {
			tr.finish(r)
			return true
		}
		// What is below the low fence is in a leaf that the parents know.
		r.path = tr.start(target{bound: blink.Before(bytes.Clone(n.Low())), below: true}, tr.r.IntN(2) == 0)
		return false
	}
	r.result = append(r.result, found...)
	if n.Below(r.to) != blink.GoRight {
		tr.finish(r)
		return true
	}
	high, _ := n.High()
	r.path.bound, r.path.at = blink.Before(bytes.Clone(high)), n.Right()
	return false
}

// finish checks a scan.
func (tr *tree) finish(r *reader) {
	tr.t.Helper()
	got := slices.Clone(r.result)
	if r.down {
		slices.Reverse(got)
	}
	in := func(key string) bool {
		b := blink.Before([]byte(key))
		return r.from.Compare(b) <= 0 && b.Compare(r.to) < 0
	}
	for i, key := range got {
		if i > 0 && got[i-1] >= key {
			tr.t.Fatalf("scan (down: %v): %x behind %x", r.down, key, got[i-1])
		}
		if !r.ever[key] || !in(key) {
			tr.t.Fatalf("scan (down: %v): %x was never there, or is outside", r.down, key)
		}
	}
	for key := range r.always {
		if in(key) && !slices.Contains(got, key) {
			tr.t.Fatalf("scan (down: %v): %x was there all the time, and is missing", r.down, key)
		}
	}
	for a, change := range r.leaves {
		if tr.changed[a] != change || r.torn {
			tr.counts["scans changed"]++
			return
		}
	}
	tr.counts["scans unchanged"]++
	var want []string
	for _, key := range slices.Sorted(maps.Keys(tr.model)) {
		if in(key) {
			want = append(want, key)
		}
	}
	if !slices.Equal(got, want) {
		tr.t.Fatalf("scan (down: %v) of unchanged leaves has %d keys, the model %d", r.down, len(got), len(want))
	}
}
