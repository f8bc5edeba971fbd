package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/internal/raced"
	"txnode/txn"
)

// oddKeys are keys of all lengths that matter, of bytes at both ends, many of which
// begin with others.
func oddKeys(most int) (keys [][]byte) {
	for _, n := range []int{1, 2, 7, 8, 9, 31, 32, 33, 100, 1023, 1024} {
		if n > most {
			continue
		}
		for _, b := range []byte{0, 'k', 0xfe, 0xff} {
			for _, last := range []byte{0, 1, 'k', 0xff} {
				k := bytes.Repeat([]byte{b}, n)
				k[n-1] = last
				keys = append(keys, k)
			}
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// end is one end of a range: before a key, behind it, or none.
type end struct {
	key       []byte // nil: none
	inclusive bool
}

func (e end) bound() txn.Bound[[]byte] {
	switch {
	case e.key == nil:
		return txn.Bound[[]byte]{}
	case e.inclusive:
		return txn.Including(e.key)
	}
	return txn.Excluding(e.key)
}

// anEnd is one of any kind.
func anEnd(r *rand.Rand, keys [][]byte) end {
	if r.IntN(5) == 0 {
		return end{}
	}
	k := keys[r.IntN(len(keys))]
	if r.IntN(4) == 0 { // no key of the table
		k = append(bytes.Clone(k), byte(r.IntN(256)))
	}
	return end{k, r.IntN(2) == 0}
}

// between lists the keys of a model between two ends.
func between(model map[string]string, from, to end) (keys []string) {
	for _, k := range slices.Sorted(maps.Keys(model)) {
		f, u := strings.Compare(k, string(from.key)), strings.Compare(k, string(to.key))
		if (from.key == nil || f > 0 || f == 0 && from.inclusive) &&
			(to.key == nil || u < 0 || u == 0 && to.inclusive) {
			keys = append(keys, k)
		}
	}
	return keys
}

// TestOrderedModel compares ordered tables with a sorted map: keys of all lengths, all kinds of
// bounds, both directions, limits, prefixes, and pages, inside of transactions that insert,
// change, move and delete what they range over, and in later ones; and all of it again when the
// table was opened anew.
func TestOrderedModel(t *testing.T) {
	raced.Skip(t)
	rounds := 150
	if testing.Short() {
		rounds = 50
	}
	for f := range 3 {
		for _, most := range []int{40, 1024} {
			t.Run(fmt.Sprintf("f=%d/keys to %d", f, most), func(t *testing.T) {
				o := tiny()
				o.Blades, o.Backups, o.BladeSize, o.Arena = 3, txn.F(f), 64<<20, 4<<20
				db := mustOpen(t, o)
				tab, err := txn.CreateOrderedTable(db, "t", atMost(txn.BytesKey, most), txn.Text())
				if err != nil {
					t.Fatal(err)
				}
				keys := oddKeys(most)
				committed := map[string]string{}
				r := rand.New(rand.NewPCG(uint64(f), uint64(most)))
				roll := errors.New("roll back")
				for round := range rounds {
					rolled := r.IntN(6) == 0
					seed := r.Uint64()
					var model map[string]string
					err := db.Update(t.Context(), func(tx *txn.Tx) error {
						r := rand.New(rand.NewPCG(seed, 1)) // each attempt does the same
						model = maps.Clone(committed)
						for i := range 1 + r.IntN(8) {
							k := keys[r.IntN(len(keys))]
							v := fmt.Sprint(round, ".", i, strings.Repeat("x", r.IntN(3)*r.IntN(400)))
							_, there := model[string(k)]
							var err error
							switch r.IntN(4) {
							case 0:
								if err = tab.Delete(tx, k); there != (err == nil) || err != nil &&
									!errors.Is(err, txn.ErrNotFound) {
									return fmt.Errorf("delete of %x, there %v: %w", k, there, err)
								}
								delete(model, string(k))
								err = nil
							case 1:
								if err = tab.Insert(tx, k, v); there == (err == nil) || err != nil &&
									!errors.Is(err, txn.ErrExists) {
									return fmt.Errorf("insert of %x, there %v: %w", k, there, err)
								}
								if !there {
									model[string(k)] = v
								}
								err = nil
							default:
								err = tab.Put(tx, k, v)
								model[string(k)] = v
							}
							if err != nil {
								return err
							}
							if r.IntN(4) == 0 {
								if err := compareModel(tx, tab, model, keys, r); err != nil {
									return err
								}
							}
						}
						if err := compareModel(tx, tab, model, keys, r); err != nil {
							return err
						}
						if rolled {
							return roll
						}
						return nil
					})
					if rolled && errors.Is(err, roll) {
						err = nil
					} else if err == nil {
						committed = model
					}
					if err != nil {
						t.Fatal(err)
					}
					if err := db.View(t.Context(),
						func(tx *txn.Tx) error { return compareModel(tx, tab, committed, keys, r) }); err != nil {
						t.Fatal(err)
					}
					if round == rounds/2 {
						if tab, err = txn.OpenOrderedTable(db, "t", atMost(txn.BytesKey, most),
							txn.Text()); err != nil {
							t.Fatal(err)
						}
					}
				}
				comparePages(t, db, tab, committed, r)
			})
		}
	}
}

// compareModel compares some ranges, a prefix, and single keys with a model.
func compareModel(tx *txn.Tx, tab *txn.OrderedTable[[]byte, string], model map[string]string, keys [][]byte,
	r *rand.Rand) error {
	low, high := anEnd(r, keys), anEnd(r, keys)
	want, from, to := between(model, low, high), low.bound(), high.bound()
	down, limit := r.IntN(2) == 0, r.IntN(2)*r.IntN(12)
	var options []txn.RangeOption
	if n, err := tab.Count(tx, from, to); err != nil || n != len(want) {
		return fmt.Errorf("count from %v to %v: %d, want %d: %w", from, to, n, len(want), err)
	}
	if down {
		slices.Reverse(want)
		options = append(options, txn.Descending())
	}
	if limit > 0 {
		want = want[:min(len(want), limit)]
		options = append(options, txn.Limit(limit))
	}
	i := 0
	for k, v := range tab.Range(tx, from, to, options...) {
		if i == len(want) || string(k) != want[i] || v != model[want[i]] {
			return fmt.Errorf("from %v to %v, down %v, limit %d: record %d is %x, %.20q, of %x",
				from, to, down, limit, i, k, v, want)
		}
		i++
	}
	if err := tx.Err(); err != nil {
		return err
	}
	if i != len(want) {
		return fmt.Errorf("from %v to %v, down %v, limit %d: %d records of %x", from, to, down, limit, i, want)
	}
	p := keys[r.IntN(len(keys))]
	p = p[:1+r.IntN(len(p))]
	n := 0
	for k := range tab.Prefix(tx, p) {
		if _, ok := model[string(k)]; !ok || !bytes.HasPrefix(k, p) {
			return fmt.Errorf("prefix %x: %x", p, k)
		}
		n++
	}
	for k := range model {
		if strings.HasPrefix(k, string(p)) {
			n--
		}
	}
	if n != 0 {
		return fmt.Errorf("prefix %x: %d too many", p, n)
	}
	k := keys[r.IntN(len(keys))]
	v, found, err := tab.Lookup(tx, k)
	if want, ok := model[string(k)]; err != nil || found != ok || v != want {
		return fmt.Errorf("key %x: %.20q, %v, want %.20q, %v: %w", k, v, found, want, ok, err)
	}
	return tx.Err()
}

// comparePages reads all in pages, each by a transaction of its own that goes on behind the last
// key.
func comparePages(t *testing.T, db *txn.DB, tab *txn.OrderedTable[[]byte, string],
	model map[string]string, r *rand.Rand) {
	t.Helper()
	for _, down := range []bool{false, true} {
		var got []string
		var last []byte
		for {
			var from, to txn.Bound[[]byte]
			options := []txn.RangeOption{txn.Limit(1 + r.IntN(7))}
			if down {
				options = append(options, txn.Descending())
			}
			if last != nil && down {
				to = txn.Excluding(last)
			} else if last != nil {
				from = txn.Excluding(last)
			}
			var page []string
			if err := db.View(t.Context(), func(tx *txn.Tx) error {
				page = nil
				for k := range tab.RangeKeys(tx, from, to, options...) {
					page = append(page, string(k))
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			got, last = append(got, page...), []byte(page[len(page)-1])
		}
		want := slices.Sorted(maps.Keys(model))
		if down {
			slices.Reverse(want)
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages, down %v: %x, want %x", down, got, want)
		}
	}
}

// TestRangeBesideChurn: while others insert and delete keys, and move records, a range returns each
// key once and in order, all of those that are there throughout, and none that never was. Leaves
// have a handful of entries, so that they split and merge all the time.
func TestRangeBesideChurn(t *testing.T) {
	const keys = 60
	key := func(k uint64) string { return fmt.Sprintf("%04d%s", k, strings.Repeat("-", 180)) }
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab, err := txn.CreateOrderedTable(db, "churn", atMost(txn.String, 200), txn.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for k := uint64(0); k < keys; k += 3 { // these stay
				if err := tab.Put(tx, key(k), nil); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for range perWorker(s, 1200) {
				k, size, what := r.n(keys), r.n(400), r.n(6)
				if what > 3 && k%3 == 1 {
					k-- // a key that stays is moved
				}
				var err error
				switch {
				case what > 3 && k%3 == 0:
					err = w.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, key(k), make([]byte, size)) })
				case what > 1:
					err = w.Update(ctx, func(tx *txn.Tx) error {
						if k -= k % 3; what == 2 {
							return tab.Put(tx, key(k+1), make([]byte, size))
						}
						return tab.Delete(tx, key(k+1))
					})
				default:
					from, to := r.n(keys), r.n(keys)
					err = w.View(ctx, func(tx *txn.Tx) error {
						return besideChurn(tx, tab, key, min(from, to), max(from, to), what == 1)
					})
				}
				if err != nil && !errors.Is(err, txn.ErrNotFound) && !errors.Is(err, txn.ErrConflict) {
					return err
				}
			}
			return nil
		})
	})
}

// besideChurn checks a range of TestRangeBesideChurn.
func besideChurn(tx *txn.Tx, tab *txn.OrderedTable[string, []byte], key func(uint64) string, from,
	to uint64, down bool) error {
	var options []txn.RangeOption
	if down {
		options = append(options, txn.Descending())
	}
	var got []string
	for k := range tab.RangeKeys(tx, txn.Including(key(from)), txn.Excluding(key(to)), options...) {
		got = append(got, k)
	}
	if err := tx.Err(); err != nil {
		return err
	}
	if down {
		slices.Reverse(got)
	}
	next := 0
	for k := from; k < to; k++ {
		there := next < len(got) && got[next] == key(k)
		if there {
			next++
		}
		if k%3 == 0 && !there || k%3 == 2 && there {
			return fmt.Errorf("from %d to %d, down %v: key %d is there: %v: %.4s", from, to, down, k, there, got)
		}
	}
	if next != len(got) {
		return fmt.Errorf("from %d to %d, down %v: a key comes twice, out of order, or from nowhere: %.4s",
			from, to, down, got)
	}
	return nil
}
