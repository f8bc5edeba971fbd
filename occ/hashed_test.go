package occ_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
)

// hashed makes a table with an index of hashes, and small nodes.
func (b *bed) hashed(tx *occ.Tx, id uint16, entries int) *occ.Table {
	b.t.Helper()
	t := &occ.Table{ID: id, Name: fmt.Sprintf("hashed%d", id), Hashed: true}
	root, err := tx.NewNodes(t, tree.LeafClass, tree.EmptyHashed)
	must(b.t, err)
	meta := layout.Table{ID: id, Root: root, Nodes: tree.LeafClass}
	t.Ordered, err = tree.Open(b.space, &meta, tree.Options{MaxEntries: entries, Leaves: 1 << 10})
	must(b.t, err)
	return t
}

// twins are keys of table 2 that its index cannot tell apart: key8 of both has the same hash.
var twins = [][2]uint64{
	{1140701, 4687180}, {2970820, 4204866}, {1838657, 5384813}, {1616253, 512000}, {96115, 4094769},
	{1493138, 4791504}, {2285132, 3460645}, {4545330, 1981575}, {250360, 5572875}, {4236004, 2747484},
}

func TestTwins(t *testing.T) {
	hash := func(n uint64) string { return string(index.AppendHash(nil, record.Hash(2, key8(n)))) }
	for _, x := range twins {
		if hash(x[0]) != hash(x[1]) {
			t.Errorf("%d and %d have different hashes", x[0], x[1])
		}
	}
}

// TestHashed compares a table with an index of hashes with a map, through inserts, updates, deletes,
// lookups and walks in random order, by small nodes. Among its keys are some with the same hash.
func TestHashed(t *testing.T) {
	for _, f := range []int{0, 1} {
		for _, entries := range []int{2, 4, 0} {
			t.Run(fmt.Sprintf("f=%d/entries=%d", f, entries), func(t *testing.T) {
				b := newBed(t, f+1, f, occ.Options{ReclaimAfter: 8})
				s, tx := b.session()
				_, other := b.session()
				b.table = b.hashed(tx, 2, entries)
				model := map[uint64]string{}
				r := rand.New(rand.NewPCG(1, uint64(entries)))
				draw := func() uint64 {
					if k := r.IntN(500); k < 3*len(twins) {
						return twins[k/3][r.IntN(2)]
					}
					return r.Uint64N(400)
				}
				look := func(x *occ.Tx, k uint64) {
					t.Helper()
					got, ok := b.value(x, string(key8(k)))
					if want, has := model[k]; ok != has || got != want {
						t.Fatalf("key %d: %q %v, want %q %v", k, got, ok, want, has)
					}
				}
				for i := range 3000 {
					x := tx
					if i%3 == 0 {
						x = other
					}
					if i%7 == 0 {
						b.eng.ForgetAddresses()
					}
					k := draw()
					// records outgrow their blocks
					v := fmt.Sprintf("value %d%s", i, strings.Repeat("x", r.IntN(5)*r.IntN(100)))
					switch r.IntN(5) {
					case 0:
						must(t, b.do(x, put(string(key8(k)), v)))
						model[k] = v
					case 1:
						must(t, b.do(x, lazyPut(string(key8(k)), v)))
						model[k] = v
					case 2:
						must(t, b.do(x, del(string(key8(k)))))
						delete(model, k)
					case 3: // both twins at once
						y := twins[r.IntN(len(twins))]
						must(t, b.do(x, put(string(key8(y[0])), v), lazyPut(string(key8(y[1])), v+"'")))
						model[y[0]], model[y[1]] = v, v+"'"
					default:
						look(x, k)
					}
					must(t, x.Posts(b.table))
					if i%50 == 0 {
						must(t, s.Maintain(tx.Coro()))
					}
					if i%500 == 0 {
						b.walks(tx, model)
					}
				}
				for k := range uint64(400) {
					look(tx, k)
				}
				for _, x := range twins {
					look(tx, x[0])
					look(other, x[1])
				}
				for k := range model {
					must(t, b.do(tx, del(string(key8(k)))))
					delete(model, k)
				}
				_, err := s.MakeRoom(tx.Coro())
				must(t, err)
				b.walks(tx, model)
				// Two halves below inner nodes of few entries, which have no room for each other, stay.
				if n := b.leaves(tx); entries == 0 && n > 4 {
					t.Errorf("an empty table has %d leaves", n)
				}
			})
		}
	}
}

// walks compares a walk over all of the table with the model, in a transaction that has inserted keys,
// deleted one and written one before.
func (b *bed) walks(tx *occ.Tx, model map[uint64]string) {
	b.t.Helper()
	want := map[uint64]string{}
	for k, v := range model {
		want[k] = v
	}
	must(b.t, tx.Begin())
	ops := []op{}
	for _, x := range twins {
		ops = append(ops, put(string(key8(x[1])), "own"))
		want[x[1]] = "own"
	}
	for k := range model {
		if k != twins[0][1] && len(want) == len(model) {
			ops = append(ops, del(string(key8(k))))
			delete(want, k)
			break
		}
	}
	must(b.t, b.apply(tx, ops...))
	s, err := tx.Scan(b.table)
	must(b.t, err)
	got := map[uint64]string{}
	for {
		k, v, ok, err := s.Next()
		must(b.t, err)
		if !ok {
			break
		}
		n := binary.BigEndian.Uint64(k)
		if _, twice := got[n]; twice {
			b.t.Fatalf("key %d comes twice", n)
		}
		got[n] = string(v)
	}
	must(b.t, tx.Rollback())
	for k, v := range want {
		if got[k] != v {
			b.t.Fatalf("the walk has %q for key %d, want %q", got[k], k, v)
		}
	}
	if len(got) != len(want) {
		b.t.Fatalf("the walk has %d records, want %d", len(got), len(want))
	}
}

// TestHashedVerbs counts what single operations cost, with what is cached of the index, on two
// blades with one backup each.
func TestHashedVerbs(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{})
	_, tx := b.session()
	b.table = b.hashed(tx, 2, 0)
	for k := range uint64(300) {
		must(t, b.do(tx, put(string(key8(10*k)), "v")))
		must(t, tx.Posts(b.table))
	}
	must(t, b.do(tx, put(string(key8(twins[0][0])), "v"), put(string(key8(twins[2][0])), "v")))
	for _, x := range []struct {
		name          string
		verbs, rounds uint64
		do            func() error
	}{
		{"read", 1, 1, func() error { return b.do(tx, get(string(key8(100)))) }},
		{"absent", 1, 1, func() error { return b.do(tx, get(string(key8(105)))) }},
		{"absent, another key has its hash", 3, 3, func() error { return b.do(tx, get(string(key8(twins[0][1])))) }},
		{"insert", 9, 2, func() error { return b.insert(tx, 1101) }},
		{"insert, late", 9, 3, func() error { return b.do(tx, lazyPut(string(key8(1201)), "v")) }},
		{"insert, another key has its hash", 10, 3, func() error { return b.insert(tx, twins[2][1]) }},
	} {
		must(t, tx.Posts(b.table))
		before := total(tx)
		must(t, x.do())
		after := total(tx)
		if v, r := after[0]-before[0], after[1]-before[1]; v != x.verbs || r != x.rounds {
			t.Errorf("%s: %d verbs, %d round trips; want %d, %d", x.name, v, r, x.verbs, x.rounds)
		}
	}
}
