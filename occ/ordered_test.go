package occ_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
)

// ordered makes an ordered table with small nodes.
func (b *bed) ordered(tx *occ.Tx, id uint16, entries int) *occ.Table {
	b.t.Helper()
	g, err := blink.Geometry{MaxKey: 32, MaxEntries: entries}.Fit()
	must(b.t, err)
	t := &occ.Table{ID: id, Name: fmt.Sprintf("ordered%d", id)}
	root, err := tx.NewNodes(t, g.Class, tree.Empty)
	must(b.t, err)
	tr, err := tree.New(b.space, g, id, root)
	must(b.t, err)
	t.Ordered = tr
	return t
}

func key8(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// TestOrdered compares an ordered table with a map, through inserts, updates, deletes and lookups
// in random order, by small nodes, so that the tree grows and splits at all levels.
func TestOrdered(t *testing.T) {
	for _, f := range []int{0, 1} {
		for _, entries := range []int{2, 4, 0} {
			t.Run(fmt.Sprintf("f=%d/entries=%d", f, entries), func(t *testing.T) {
				b := newBed(t, f+1, f, occ.Options{})
				_, tx := b.session()
				_, other := b.session()
				b.table = b.ordered(tx, 2, entries)
				model := map[uint64]string{}
				r := rand.New(rand.NewPCG(1, uint64(entries)))
				for i := range 2000 {
					x := tx
					if i%3 == 0 {
						x = other
					}
					k := r.Uint64N(500)
					// records outgrow their blocks
					v := fmt.Sprintf("value %d%s", i, strings.Repeat("x", r.IntN(5)*r.IntN(100)))
					var err error
					switch r.IntN(4) {
					case 0, 1:
						err = b.do(x, put(string(key8(k)), v))
						model[k] = v
					case 2:
						err = b.do(x, del(string(key8(k))))
						delete(model, k)
					case 3:
						got, ok := b.value(x, string(key8(k)))
						if want, has := model[k]; ok != has || got != want {
							t.Fatalf("key %d: %q %v, want %q %v", k, got, ok, want, has)
						}
					}
					must(t, err)
					must(t, x.Posts(b.table))
				}
				for k := range uint64(500) {
					got, ok := b.value(tx, string(key8(k)))
					if want, has := model[k]; ok != has || got != want {
						t.Fatalf("key %d: %q %v, want %q %v", k, got, ok, want, has)
					}
				}
			})
		}
	}
}

// leaves counts the leaves of the table's index.
func (b *bed) leaves(tx *occ.Tx) (n int) {
	b.t.Helper()
	leaves := b.table.Ordered.(interface {
		Leaves(*rdma.Coro, func(layout.Addr, []byte) error) error
	})
	must(b.t, leaves.Leaves(tx.Coro(), func(layout.Addr, []byte) error {
		n++
		return nil
	}))
	return n
}

// TestOrderedShrinks: leaves whose records were deleted are merged into their left neighbours,
// at all levels, and what the table has stays. (Inner nodes of two entries would have no room
// for each other.) A queue, filled at one end and emptied at the other, keeps as many leaves
// as its records need.
func TestOrderedShrinks(t *testing.T) {
	for _, entries := range []int{4, 0} {
		t.Run(fmt.Sprintf("entries=%d", entries), func(t *testing.T) {
			b := newBed(t, 2, 1, occ.Options{ReclaimAfter: 1})
			s, tx := b.session()
			b.table = b.ordered(tx, 2, entries)
			const length, rounds = 20, 600
			for k := range uint64(rounds) {
				must(t, b.insert(tx, k))
				must(t, tx.Posts(b.table))
				if k >= length {
					must(t, b.do(tx, del(string(key8(k-length)))))
				}
				must(t, s.Maintain(tx.Coro()))
			}
			if n := b.leaves(tx); n > length {
				t.Errorf("a queue of %d has %d leaves", length, n)
			}
			must(t, tx.Begin())
			keys, _ := b.scanKeys(tx, index.Bound{}, index.Bound{End: true}, false, 0)
			must(t, tx.Commit())
			if len(keys) != length || keys[0] != rounds-length {
				t.Errorf("keys %d", keys)
			}
			for k := range uint64(rounds) {
				if _, ok := b.value(tx, string(key8(k))); ok != (k >= rounds-length) {
					t.Errorf("key %d: %v", k, ok)
				}
			}
			for k := range uint64(rounds) {
				must(t, b.do(tx, del(string(key8(k)))))
			}
			_, err := s.MakeRoom(tx.Coro())
			must(t, err)
			if n := b.leaves(tx); n > 2 {
				t.Errorf("an empty table has %d leaves", n)
			}
		})
	}
}

// TestOrderedVerbs counts what single operations cost, with cached inner nodes, on two blades
// with one backup each.
func TestOrderedVerbs(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{})
	_, tx := b.session()
	b.table = b.ordered(tx, 2, 0)
	for k := range uint64(300) {
		must(t, b.do(tx, put(string(key8(10*k)), "v")))
		must(t, tx.Posts(b.table))
	}
	for _, x := range []struct {
		name          string
		verbs, rounds uint64
		do            func() error
	}{
		{"read", 1, 1, func() error { return b.do(tx, get(string(key8(100)))) }},
		{"absent", 1, 1, func() error { return b.do(tx, get(string(key8(105)))) }},
		{"two absent", 2, 2, func() error { return b.do(tx, get(string(key8(106))), get(string(key8(107)))) }},
		{"insert that splits", 12, 3, func() error { return b.insert(tx, 1102) }},
		{"insert", 9, 2, func() error { return b.insert(tx, 1101) }},
		{"ten inserts", 27, 2, func() error {
			return b.insert(tx, 1111, 1112, 1113, 1114, 1115, 1116, 1117, 1118, 1119, 1121)
		}},
		{"insert, late", 9, 3, func() error { return b.do(tx, lazyPut(string(key8(1201)), "v")) }},
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

// total is verbs and round trips.
func total(tx *occ.Tx) [2]uint64 {
	var n [2]uint64
	for _, p := range tx.Phases() {
		n[0] += p.Total()
		n[1] += p.RoundTrips
	}
	return n
}

// insert inserts fresh keys in one transaction.
func (b *bed) insert(tx *occ.Tx, keys ...uint64) error {
	if err := tx.Begin(); err != nil {
		return err
	}
	n := make([]int, len(keys))
	for i, k := range keys {
		var err error
		if n[i], err = tx.Stage(b.table, key8(k), true); err != nil {
			return err
		}
		if err := tx.Insert(n[i], []byte("v")); err != nil {
			return err
		}
	}
	if err := tx.Execute(); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// scanKeys returns the keys, as numbers, that a walk finds, and how often it was tried.
func (b *bed) scanKeys(tx *occ.Tx, from, to index.Bound, down bool, limit int) (keys []uint64, values []string) {
	b.t.Helper()
	s, err := tx.Range(b.table, from, to, down, limit)
	must(b.t, err)
	defer s.Stop()
	for limit == 0 || len(keys) < limit {
		k, v, ok, err := s.Next()
		must(b.t, err)
		if !ok {
			break
		}
		keys, values = append(keys, binary.BigEndian.Uint64(k)), append(values, string(v))
	}
	return keys, values
}

func bounds(r *rand.Rand, most uint64) (from, to index.Bound) {
	from = index.Bound{Key: key8(r.Uint64N(most)), After: r.IntN(2) == 0}
	to = index.Bound{Key: key8(r.Uint64N(most)), After: r.IntN(2) == 0}
	if r.IntN(8) == 0 {
		from = index.Bound{}
	}
	if r.IntN(8) == 0 {
		to = index.Bound{End: true}
	}
	return from, to
}

// TestRange compares walks in both directions with a map, beside what their transaction
// itself has changed.
func TestRange(t *testing.T) {
	for _, entries := range []int{2, 4, 0} {
		t.Run(fmt.Sprintf("entries=%d", entries), func(t *testing.T) {
			const most = 300
			b := newBed(t, 2, 1, occ.Options{})
			_, tx := b.session()
			b.table = b.ordered(tx, 2, entries)
			committed := map[uint64]string{}
			r := rand.New(rand.NewPCG(7, uint64(entries)))
			for round := range 300 {
				must(t, tx.Begin())
				model := maps.Clone(committed)
				for i := range 1 + r.IntN(6) {
					k := r.Uint64N(most)
					n, err := tx.Stage(b.table, key8(k), r.IntN(2) == 0)
					must(t, err)
					if r.IntN(2) == 0 {
						must(t, tx.Execute())
					}
					if r.IntN(3) == 0 {
						must(t, tx.Delete(n))
						delete(model, k)
					} else {
						model[k] = fmt.Sprintf("%d.%d", round, i)
						must(t, tx.Put(n, []byte(model[k])))
					}
					if r.IntN(3) == 0 {
						b.compareRange(tx, model, r, most)
					}
				}
				b.compareRange(tx, model, r, most)
				if r.IntN(5) == 0 {
					must(t, tx.Rollback())
				} else {
					must(t, tx.Commit())
					committed = model
				}
				must(t, tx.Posts(b.table))
			}
		})
	}
}

func (b *bed) compareRange(tx *occ.Tx, model map[uint64]string, r *rand.Rand, most uint64) {
	b.t.Helper()
	from, to := bounds(r, most)
	down, limit := r.IntN(2) == 0, r.IntN(3)*r.IntN(10)
	var want []uint64
	for k := range model {
		p := string(key8(k))
		above := string(from.Key) < p || string(from.Key) == p && !from.After
		below := to.End || string(to.Key) > p || string(to.Key) == p && to.After
		if above && below {
			want = append(want, k)
		}
	}
	slices.Sort(want)
	if down {
		slices.Reverse(want)
	}
	if limit > 0 && len(want) > limit {
		want = want[:limit]
	}
	keys, values := b.scanKeys(tx, from, to, down, limit)
	if !slices.Equal(keys, want) {
		b.t.Fatalf("from %+v to %+v, down %v, limit %d: %d, want %d", from, to, down, limit, keys, want)
	}
	for i, k := range keys {
		if values[i] != model[k] {
			b.t.Fatalf("key %d: %q, want %q", k, values[i], model[k])
		}
	}
}

// TestRangePhantoms: what another transaction does between a walk and the commit of its transaction
// is a conflict if the walk would have met it.
func TestRangePhantoms(t *testing.T) {
	for _, x := range []struct {
		name     string
		other    func(b *bed, tx *occ.Tx) error
		conflict bool
	}{
		{"insert inside", func(b *bed, tx *occ.Tx) error { return b.insert(tx, 205) }, true},
		{"delete inside", func(b *bed, tx *occ.Tx) error { return b.do(tx, del(string(key8(200)))) }, true},
		{"update inside", func(b *bed, tx *occ.Tx) error { return b.do(tx, put(string(key8(200)), "w")) }, true},
		{"insert and delete inside", func(b *bed, tx *occ.Tx) error {
			return errors.Join(b.insert(tx, 205), b.do(tx, del(string(key8(205)))))
		}, true},
		{"far away", func(b *bed, tx *occ.Tx) error { return b.insert(tx, 5) }, false},
		{"update outside", func(b *bed, tx *occ.Tx) error { return b.do(tx, put(string(key8(10)), "w")) }, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBed(t, 2, 1, occ.Options{})
			_, tx := b.session()
			_, other := b.session()
			b.table = b.ordered(tx, 2, 4)
			for k := range uint64(50) {
				must(t, b.insert(tx, 10*k))
				must(t, tx.Posts(b.table))
			}
			must(t, tx.Begin())
			if keys, _ := b.scanKeys(tx, index.Bound{Key: key8(150)}, index.Bound{Key: key8(250)}, false,
				0); len(keys) != 10 {
				t.Fatal(keys)
			}
			n, err := tx.Stage(b.table, key8(490), true)
			must(t, err)
			must(t, tx.Put(n, []byte("x")))
			must(t, x.other(b, other))
			if err := tx.Commit(); errors.Is(err, occ.ErrConflict) != x.conflict {
				t.Fatalf("%v, a conflict: %v", err, x.conflict)
			}
		})
	}
}

// TestRangeVerbs counts what a walk over 100 records costs, of a table that was filled in order,
// and in another order; by its bounds, and by a limit.
func TestRangeVerbs(t *testing.T) {
	for _, x := range []struct {
		step          uint64 // from one key to the one that is inserted next
		verbs, rounds uint64 // at most
	}{{1, 16, 3}, {167, 206, 3}} {
		b := newBed(t, 2, 1, occ.Options{})
		_, tx := b.session()
		b.table = b.ordered(tx, 2, 0)
		for k := range uint64(400) {
			must(t, b.insert(tx, k*x.step%400))
			must(t, tx.Posts(b.table))
		}
		for _, limit := range []int{0, 100} {
			for i := range 2 { // the first fills the cache of inner nodes
				must(t, tx.Begin())
				before := total(tx)
				keys, _ := b.scanKeys(tx, index.Bound{Key: key8(100)}, index.Bound{Key: key8(uint64(200 + limit))},
					false, limit)
				must(t, tx.Commit())
				after := total(tx)
				if verbs, rounds := after[0]-before[0], after[1]-before[1]; len(keys) != 100 || i > 0 &&
					(verbs > x.verbs || rounds > x.rounds) {
					t.Errorf("step %d, limit %d: %d keys, %d verbs, %d round trips; want at most %d, %d",
						x.step, limit, len(keys), verbs, rounds, x.verbs, x.rounds)
				} else if i > 0 {
					t.Logf("step %d, limit %d: %d verbs, %d round trips", x.step, limit, verbs, rounds)
				}
			}
		}
	}
}
