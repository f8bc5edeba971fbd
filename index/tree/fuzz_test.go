package tree_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/tree"
	"txnode/memory"
)

// images are what a fuzzer's bytes say: the value of the root's block, and then those of nodes, each behind its length. A
// byte says what else is done with a node.
type images struct {
	order  []memory.Addr
	values map[memory.Addr][]byte
	cached map[memory.Addr]bool
}

// rootAt is where the root's block is; the nodes follow.
const rootAt = memory.Addr(1<<memory.OffsetBits + memory.BlockAlign)

func parse(data []byte) images {
	m := images{values: map[memory.Addr][]byte{}, cached: map[memory.Addr]bool{}}
	for a := rootAt; len(data) >= 3 && len(m.order) < 16; a += memory.BlockAlign {
		n := min(int(binary.LittleEndian.Uint16(data)), len(data)-3)
		m.cached[a] = data[2] != 0
		m.values[a] = slices.Clone(data[3 : 3+n])
		m.order = append(m.order, a)
		data = data[3+n:]
	}
	return m
}

// flat is the inverse of parse.
func flat(values ...[]byte) (data []byte) {
	for i, v := range values {
		data = binary.LittleEndian.AppendUint16(data, uint16(len(v)))
		data = append(append(data, byte(i%2)), v...)
	}
	return data
}

// FuzzFollow gives a handle arbitrary bytes for what blocks hold and for what it has cached. Nothing panics, each call ends, and
// what is damaged is an error that says so.
func FuzzFollow(f *testing.F) {
	at := func(i int) memory.Addr { return rootAt + memory.Addr(i)*memory.BlockAlign }
	leaf, root := tree.Empty(at(1))
	f.Add(flat(root, leaf), []byte("key"), []byte("other"))
	f.Add(flat(blink.Root{Addr: at(1), Level: 1}.Append(nil), blink.AppendRoot(nil, 1, at(2), []byte("k"), at(1)), leaf), []byte("a"), []byte("z"))
	f.Add(flat(blink.Root{Addr: at(1), Level: 2}.Append(nil), blink.AppendRoot(nil, 2, at(2), []byte("k"), at(3)),
		blink.AppendRoot(nil, 1, at(4), []byte("c"), at(1)), blink.AppendRoot(nil, 1, at(2), []byte("k"), at(3)), leaf), []byte("m"), []byte{})
	w := filled(f, 12, 2)
	var all [][]byte
	for i := range w.next {
		all = append(all, w.blocks[memory.MakeAddr(1, uint32(i+1)*memory.BlockAlign)].value)
	}
	// The first node of a tree is at the first address, where the root's block is to be.
	all[0], all[1] = all[1], all[0]
	f.Add(flat(all...), []byte(number(3)), []byte(number(9)))
	f.Fuzz(func(t *testing.T, data, key, other []byte) {
		m := parse(data)
		h, err := tree.New(nil, geometry(t, 32, 0), table, rootAt)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range m.order {
			if m.cached[a] {
				h.Published(a, m.values[a])
			}
		}
		key, other = key[:min(len(key), 32)], other[:min(len(other), 32)]
		bounds := []index.Bound{{Key: key}, {Key: key, After: true}, {Key: other}, {}, {End: true}}
		ed := h.NewEditor()
		for _, a := range m.order {
			value := m.values[a]
			h.Low(value)
			h.High(value)
			h.Empty(value)
			_, bad := blink.Decode(value)
			if bad == nil { // as after Follow
				h.Entry(value, key)
			}
			for _, from := range bounds {
				for _, to := range bounds {
					for _, down := range []bool{false, true} {
						if bad == nil {
							if list, _, _ := h.Entries(nil, value, from, to, down, 3); len(list) > 3 {
								t.Fatalf("%d entries, of at most 3", len(list))
							}
						}
						if list := h.Ahead(nil, from, to, down, 3); len(list) > 3 {
							t.Fatalf("%d leaves, of at most 3", len(list))
						}
					}
				}
			}
			edits(t, h, ed, value, m, key)
		}
		for _, b := range bounds {
			for _, p := range []index.Place{{Bound: b}, {Bound: b, Below: true}, {Bound: b, Level: 1}, {Bound: b, Level: blink.MaxLevel}} {
				hop := h.Find(p)
				for hops := range 100 {
					p.Anew = hops > index.AnewAfter
					value, ok := m.values[hop.Addr]
					if !ok {
						hop = h.Astray(p)
						continue
					}
					next, here, err := h.Follow(p, hop.Addr, value)
					if err != nil && !errors.Is(err, index.ErrCorrupt) {
						t.Fatalf("an error that does not say damage: %v", err)
					}
					if here || err != nil {
						break
					}
					hop = next
				}
			}
		}
		for range 100 {
			if p, ok := h.Owed(); ok {
				h.Due(p, m.values[p.Child])
			}
		}
	})
}

// edits has an editor change a node in all ways. What it makes of it is sound, or it is an error.
func edits(t *testing.T, h *tree.Tree, ed index.Editor, value []byte, m images, key []byte) {
	t.Helper()
	sound := func(n int, err error) {
		if err != nil {
			if n != 0 {
				t.Fatalf("%d values beside %v", n, err)
			}
			return
		}
		for i := range n {
			var next memory.Addr
			if i+1 < n {
				next = memory.MakeAddr(7, uint32(i+1)*memory.BlockAlign)
			}
			node, err := blink.Decode(ed.Append(nil, i, next))
			if err == nil {
				err = node.Check(h.Geometry())
			}
			if i > 0 {
				ed.Post(i, next)
			}
			if err != nil {
				t.Fatalf("value %d of %x: %v", i, value, err)
			}
		}
	}
	for op := index.Link; op <= index.Unlink; op++ {
		sound(ed.Edit(value, []index.Change{{Op: op, Key: key, Addr: memory.MakeAddr(8, 64), Class: 1}}))
	}
	p := index.Post{Level: 1, Key: key, Child: memory.MakeAddr(8, 64)}
	sound(ed.EditPost(value, p))
	sound(ed.EditUnpost(value, p))
	for _, a := range m.order[:min(len(m.order), 4)] {
		if fits, err := ed.EditMerge(value, m.values[a], a); fits {
			sound(1, err)
		}
	}
	_, _, _ = h.Grow(value, p, memory.MakeAddr(8, 64))
}

// TestFlipped feeds handles trees of which some bits are not as they were.
func TestFlipped(t *testing.T) {
	w := filled(t, 40, 2)
	r := rand.New(rand.NewPCG(1, 1))
	runs := 20_000
	if testing.Short() {
		runs = 3000
	}
	for range runs {
		h := w.open(nil)
		for _, a := range slices.Sorted(maps.Keys(w.blocks)) {
			if r.IntN(3) > 0 {
				continue
			}
			bad := slices.Clone(w.blocks[a].value)
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
			h.Published(a, bad)
		}
		p := index.PlaceOf([]byte(number(r.IntN(82))))
		hop, steps := h.Find(p), 0
		for {
			b, ok := w.blocks[hop.Addr]
			if p.Anew = steps > index.AnewAfter; !ok {
				hop = h.Astray(p)
			} else if next, here, err := h.Follow(p, hop.Addr, b.value); err != nil {
				t.Fatal(err) // only what was cached is damaged
			} else if here {
				break
			} else {
				hop = next
			}
			if steps++; steps > 2*len(w.blocks) {
				t.Fatalf("the search for %+v does not end", p)
			}
		}
	}
}
