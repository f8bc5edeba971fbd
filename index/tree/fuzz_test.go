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
	"txnode/memory/layout"
)

// images are what a fuzzer's bytes say: the value of the root's block, and then those of nodes,
// each behind its length. A byte says what else is done with a node.
type images struct {
	order  []layout.Addr
	values map[layout.Addr][]byte
	cached map[layout.Addr]bool
}

// rootAt is where the root's block is; the nodes follow.
const rootAt = layout.Addr(1<<layout.OffsetBits + layout.BlockAlign)

func parse(data []byte) images {
	m := images{values: map[layout.Addr][]byte{}, cached: map[layout.Addr]bool{}}
	for a := rootAt; len(data) >= 3 && len(m.order) < 16; a += layout.BlockAlign {
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

// FuzzFollow gives a handle arbitrary bytes for what blocks hold and for what it has cached.
// Nothing panics, each call ends, and what is damaged is an error that says so.
func FuzzFollow(f *testing.F) {
	at := func(i int) layout.Addr { return rootAt + layout.Addr(i)*layout.BlockAlign }
	leaf, root := tree.Empty(at(1))
	f.Add(flat(root, leaf), []byte("key"), []byte("other"))
	f.Add(flat(blink.Root{Addr: at(1), Level: 1}.Append(nil), blink.AppendRoot(nil, 1, at(2), []byte("k"), at(1)),
		leaf), []byte("a"), []byte("z"))
	f.Add(flat(blink.Root{Addr: at(1), Level: 2}.Append(nil), blink.AppendRoot(nil, 2, at(2), []byte("k"), at(3)),
		blink.AppendRoot(nil, 1, at(4), []byte("c"), at(1)), blink.AppendRoot(nil, 1, at(2), []byte("k"), at(3)), leaf),
		[]byte("m"), []byte{})
	w := filled(f, 12, 2)
	var all [][]byte
	for i := range w.next {
		all = append(all, w.blocks[layout.MakeAddr(1, uint32(i+1)*layout.BlockAlign)].value)
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
				h.Published(index.Node{Addr: a, Body: m.values[a]})
			}
		}
		key, other = key[:min(len(key), 32)], other[:min(len(other), 32)]
		bounds := []index.Bound{{Key: key}, {Key: key, After: true}, {Key: other}, {}, {End: true}}
		ed := h.NewEditor()
		for _, a := range m.order {
			x := index.Node{Addr: a, Body: m.values[a]}
			_, bad := blink.Decode(x.Body)
			if bad == nil { // as after Follow
				h.Candidates(nil, key, []index.Node{x})
			}
			for _, from := range bounds {
				for _, to := range bounds {
					for _, down := range []bool{false, true} {
						if bad == nil {
							if list, _, _ := h.Entries(nil, x, from, to, down, 3); len(list) > 3 {
								t.Fatalf("%d entries, of at most 3", len(list))
							}
						}
						if list := h.Ahead(nil, from, to, down, 3); len(list) > 3 {
							t.Fatalf("%d leaves, of at most 3", len(list))
						}
					}
				}
			}
			edits(t, h, ed, x, m, key)
		}
		for _, b := range bounds {
			for _, p := range []index.Place{
				{Bound: b}, {Bound: b, Below: true}, {Bound: b, Level: 1}, {Bound: b, Level: blink.MaxLevel},
			} {
				hop := h.Find(p)
				for hops := range 100 {
					next, step, err := h.Follow(p, index.Node{Addr: hop.Addr, Body: m.values[hop.Addr]}, hops)
					if err != nil && !errors.Is(err, index.ErrCorrupt) {
						t.Fatalf("an error that does not say damage: %v", err)
					}
					if step == index.Here || err != nil {
						break
					}
					hop = next
				}
			}
		}
		for range 100 {
			if p, ok := h.Owed(); ok {
				_, _, _ = ed.Settle([]index.Node{{Addr: p.Child, Body: m.values[p.Child]}}, p)
			}
		}
	})
}

// edits has an editor change a node in all ways. What it makes of it is sound, or it is an error.
func edits(t *testing.T, h *tree.Tree, ed index.Editor, x index.Node, m images, key []byte) {
	t.Helper()
	sound := func(list []index.Edit, err error) {
		if err != nil {
			if len(list) != 0 {
				t.Fatalf("%d edits beside %v", len(list), err)
			}
			return
		}
		var at []layout.Addr
		for i, e := range list {
			if e.At == 0 {
				e.At = layout.MakeAddr(7, uint32(i+1)*layout.BlockAlign)
			}
			at = append(at, e.At)
		}
		ed.Posts(nil, at)
		for i, e := range list {
			if e.Free || e.At == rootAt {
				continue
			}
			node, err := blink.Decode(ed.Append(nil, i, at))
			if err == nil {
				err = node.Check(h.Geometry())
			}
			if err != nil {
				t.Fatalf("value %d of %x: %v", i, x.Body, err)
			}
		}
	}
	for op := index.Link; op <= index.Unlink; op++ {
		list, _, err := ed.Plan([]index.Node{x},
			[]index.Change{{Op: op, Key: key, Addr: layout.MakeAddr(8, 64), Class: 1}})
		sound(list, err)
	}
	for _, p := range []index.Post{
		{Level: 1, Key: key, Child: layout.MakeAddr(8, 64)}, {Level: 2, Key: key, Child: x.Addr},
		{Op: index.Merge, Key: key}, {Op: index.Merge, Level: 1, Key: key, Below: 1},
	} {
		for i := range min(len(m.order), 4) {
			have := []index.Node{x}
			for len(have) < 8 {
				list, needs, err := ed.Settle(have, p)
				sound(list, err)
				if len(needs) == 0 {
					break
				}
				for range needs { // whatever that is
					a := m.order[(i*len(have)+i)%len(m.order)]
					have = append(have, index.Node{Addr: a, Body: m.values[a]})
				}
			}
		}
	}
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
			h.Published(index.Node{Addr: a, Body: bad})
		}
		p := index.PlaceOf([]byte(number(r.IntN(82))))
		hop, steps := h.Find(p), 0
		for {
			next, step, err := h.Follow(p, w.read(hop.Addr), steps)
			if err != nil {
				t.Fatal(err) // only what was cached is damaged
			}
			if step == index.Here {
				break
			}
			hop = next
			if steps++; steps > 2*len(w.blocks) {
				t.Fatalf("the search for %+v does not end", p)
			}
		}
	}
}
