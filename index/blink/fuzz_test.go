package blink_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"txnode/index/blink"
)

// FuzzNode: whatever the bytes are, nothing panics, and what Check accepts is canonical.
func FuzzNode(f *testing.F) {
	rows := fit(f, blink.Geometry{MaxKey: 32})
	for _, s := range samples(f) {
		f.Add(s.b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := blink.Decode(b)
		if err != nil {
			malformed(t, err)
			return
		}
		_ = use(t, rows, n)
	})
}

// FuzzApply takes the bytes for a list of changes of a level of small leaves: operation, length,
// key, and so on. It applies them one at a time, and again as lists, against a map.
func FuzzApply(f *testing.F) {
	for _, limit := range []byte{0, 2, 3} {
		f.Add(limit, []byte("\x02\x01a\x02\x02ab\x02\x03aba\x02\x01b\x03\x01a\x02\x02\x00\xff"))
		f.Add(limit,
			bytes.Repeat([]byte(
				"\x02\x30prefix-prefix-prefix-prefix-prefix-prefix-prefi\x00\x02\x08number-1\x02\x08number-2"), 3))
		f.Add(limit,
			[]byte("\x02\x02\x00\x00\x02\x02\x00\x01\x02\x02\x00\x02\x02\x02\x00\x03\x03\x02\x00\x00\x03\x02\x00\x01"))
	}
	f.Fuzz(func(t *testing.T, limit byte, script []byte) {
		script = script[:min(len(script), 256)]
		g := blink.Geometry{MaxKey: 64}
		if limit >= 2 {
			g.MaxEntries = int(limit)
		}
		g = fit(t, g)
		var b blink.Builder
		one, want := newLevel(t, g), map[string]blink.Change{}
		var batch []blink.Change
		for number := 1; len(script) >= 2; number++ {
			size := min(int(script[1])%64, len(script)-2)
			c := blink.Change{Op: blink.Op(script[0] % 4), Key: script[2 : 2+size]}
			script = script[2+size:]
			payloadFor(&c, number)
			one.step(t, &b, want, c)
			if i := one.find(c.Key); i > 0 && one.nodes[i].Count() == 0 {
				one.merge(t, &b, i)
			}
			c.Op = blink.Put
			batch = append(batch, c)
		}
		one.check(t, want)
		// All keys at once, and then the deletes of those that are not there in the end.
		last := map[string]blink.Change{}
		for _, c := range batch {
			last[string(c.Key)] = c
		}
		all := newLevel(t, g)
		all.list(t, &b, map[string]blink.Change{}, inOrder(last))
		all.check(t, last)
		for i := range all.nodes {
			var deletes []blink.Change
			for _, e := range contentsOf(all.nodes[i]).entries {
				if _, ok := want[string(e.Key)]; !ok {
					deletes = append(deletes, blink.Change{Op: blink.Delete, Key: e.Key})
					delete(last, string(e.Key))
				}
			}
			all.list(t, &b, map[string]blink.Change{}, deletes)
		}
		all.check(t, last)
	})
}

func inOrder(m map[string]blink.Change) []blink.Change {
	changes := slices.Collect(maps.Values(m))
	sortChanges(changes)
	return changes
}
