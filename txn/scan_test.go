package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"txnode/memory/record"
	"txnode/txn"
)

// listed is what a loop over a table has met. A key that comes twice is an error.
func listed(t testing.TB, tx *txn.Tx, tab *txn.Table[uint64, []byte]) map[uint64][]byte {
	t.Helper()
	got := map[uint64][]byte{}
	for k, v := range tab.All(tx) {
		if _, ok := got[k]; ok {
			t.Errorf("key %d comes twice", k)
		}
		got[k] = bytes.Clone(v)
	}
	return got
}

// TestAll lists tables of all sizes, with values of all sizes.
func TestAll(t *testing.T) {
	for _, p := range policies(t) {
		for _, n := range []uint64{0, 1, 5, 63, 700, 3000} {
			t.Run(fmt.Sprint(p, "/", n), func(t *testing.T) {
				o := tiny()
				o.Policy = p
				db := mustOpen(t, o)
				other := table(t, db, "other")
				fill(t, db, other, 10, val(7))
				tab := table(t, db, "t")
				want := map[uint64][]byte{}
				for k := range n {
					size := k % 50
					if k%301 == 7 {
						size = 5000 + k
					}
					want[k] = bytes.Repeat([]byte{byte(k)}, int(size))
				}
				for k, v := range want {
					if err := db.Update(t.Context(),
						func(tx *txn.Tx) error { return tab.Insert(tx, k, v) }); err != nil {
						t.Fatal(err)
					}
				}
				if err := db.View(t.Context(), func(tx *txn.Tx) error {
					same(t, "all", listed(t, tx, tab), want)
					keys := map[uint64]bool{}
					for k := range tab.Keys(tx) {
						keys[k] = true
					}
					if len(keys) != len(want) {
						t.Errorf("%d keys", len(keys))
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if err := db.View(t.Context(), func(tx *txn.Tx) error {
					tx.ValidateAtEnd()
					same(t, "validated at the end", listed(t, tx, tab), want)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				quiet(t, db)
			})
		}
	}
}

// TestAllOwn: a loop meets what its transaction has inserted, changed and deleted before it, and
// nothing of what it does in it; all of that is committed.
func TestAllOwn(t *testing.T) {
	for _, p := range policies(t) {
		t.Run(p.String(), func(t *testing.T) {
			o := tiny()
			o.Policy = p
			db := mustOpen(t, o)
			tab := table(t, db, "t")
			const n = 500
			fill(t, db, tab, n, val(1))
			want := map[uint64][]byte{}
			if err := db.Update(t.Context(), func(tx *txn.Tx) error {
				clear(want)
				for k := range uint64(n) {
					want[k] = val(1)
				}
				do := func(err error) {
					if err != nil {
						t.Error(err)
					}
				}
				do(tab.Delete(tx, 3))
				delete(want, 3)
				do(tab.Insert(tx, n+1, val(2)))
				want[n+1] = val(2)
				do(tab.Put(tx, 4, val(3))) // blind
				want[4] = val(3)
				do(tab.Put(tx, n+2, val(4))) // blind, absent
				want[n+2] = val(4)
				_, err := tab.Get(tx, 5)
				do(err)
				_, err = tab.GetForUpdate(tx, 6)
				do(err)
				do(tab.Put(tx, 7, bytes.Repeat([]byte{9}, 300))) // moves
				want[7] = bytes.Repeat([]byte{9}, 300)
				_, err = tab.Get(tx, 8)
				do(err)
				do(tab.Delete(tx, 8))
				do(tab.Insert(tx, 8, val(5)))
				want[8] = val(5)
				do(tab.Stage(tx, 9, txn.ForUpdate))
				do(tab.Insert(tx, n+3, val(1)))
				do(tab.Delete(tx, n+3))
				same(t, "before the loop", listed(t, tx, tab), want)
				same(t, "once more", listed(t, tx, tab), want)

				met, first := map[uint64][]byte{}, maps.Clone(want)
				var late uint64 = 1000
				for k, v := range tab.All(tx) {
					if _, ok := met[k]; ok {
						t.Errorf("key %d comes twice", k)
					}
					met[k] = bytes.Clone(v)
					if _, ok := want[k]; !ok {
						continue // the loop has deleted it
					}
					switch {
					case k%5 == 0 && k < n:
						do(tab.Delete(tx, k))
						delete(want, k)
					case k%5 == 1 && k < n:
						do(tab.Put(tx, k, val(6)))
						want[k] = val(6)
					case k%5 == 2 && len(met) < 50:
						do(tab.Insert(tx, late, val(7)))
						want[late] = val(7)
						late++
					}
					if len(met) == 20 { // some that were not met yet
						for k := range uint64(n) {
							if _, ok := met[k]; !ok && k%7 == 0 {
								if _, ok := want[k]; ok {
									do(tab.Delete(tx, k))
									delete(want, k)
								}
							} else if !ok && k%7 == 1 {
								do(tab.Put(tx, k, val(8)))
								want[k] = val(8)
							}
						}
					}
				}
				same(t, "met by the loop", met, first)
				same(t, "after the loop", listed(t, tx, tab), want)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := db.View(t.Context(), func(tx *txn.Tx) error {
				same(t, "committed", listed(t, tx, tab), want)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			quiet(t, db)
		})
	}
}

// TestAllGrows: the index splits under the inserts of the transaction that has listed it.
func TestAllGrows(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	fill(t, db, tab, 50, val(1))
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		n := len(listed(t, tx, tab))
		for k := range uint64(300) {
			if err := tab.Insert(tx, 1000+k, val(uint64(n))); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		if n := len(listed(t, tx, tab)); n != 350 {
			t.Errorf("%d records", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	quiet(t, db)
}

// TestAllBreak: a loop that is left depends on what it has got, and on nothing else; loops may be
// nested, and a loop may be in DB.Begin.
func TestAllBreak(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	fill(t, db, tab, 300, val(1))
	for _, got := range []bool{false, true} {
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		mine := map[uint64]bool{}
		for k := range tab.All(tx) {
			if mine[k] = true; len(mine) == 3 {
				break
			}
		}
		change := uint64(0)
		for mine[change] != got {
			change++
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			if err := tab.Put(tx, 1000+change, nil); err != nil { // a key that was not there
				return err
			}
			return tab.Put(tx, change, val(2))
		}); err != nil {
			t.Fatal(err)
		}
		if err := tab.Put(tx, 2000, val(1)); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); got != errors.Is(err, txn.ErrConflict) || !got && err != nil {
			t.Errorf("with a change of a record that it has got, %v: %v", got, err)
		}
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		pairs := 0
		for range tab.All(tx) {
			n := 0
			for range tab.Keys(tx) {
				if n++; n == 4 {
					break
				}
			}
			if pairs += n; pairs == 40 {
				break
			}
		}
		if pairs != 40 {
			t.Errorf("%d pairs", pairs)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	quiet(t, db)
}

// TestAllConflicts: after a whole loop every change of the table is a conflict, and those of other
// tables are none.
func TestAllConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(tx *txn.Tx, tab, other *txn.Table[uint64, []byte]) error
		conflict bool
	}{
		"nothing": {func(*txn.Tx, *txn.Table[uint64, []byte], *txn.Table[uint64, []byte]) error {
			return nil
		}, false},
		"insert": {func(tx *txn.Tx, tab, _ *txn.Table[uint64, []byte]) error {
			return tab.Insert(tx, 500, nil)
		}, true},
		"many inserts": {func(tx *txn.Tx, tab, _ *txn.Table[uint64, []byte]) error {
			return insertMany(tx, tab)
		}, true},
		"delete": {func(tx *txn.Tx, tab, _ *txn.Table[uint64, []byte]) error {
			return tab.Delete(tx, 1)
		}, true},
		"update": {func(tx *txn.Tx, tab, _ *txn.Table[uint64, []byte]) error {
			return tab.Put(tx, 1, nil)
		}, true},
		"move": {func(tx *txn.Tx, tab, _ *txn.Table[uint64, []byte]) error {
			return tab.Put(tx, 1, make([]byte, 999))
		}, true},
		"re-insert": {func(tx *txn.Tx, tab, _ *txn.Table[uint64, []byte]) error {
			return tab.Insert(tx, 41, nil)
		}, true},
		"insert, other": {func(tx *txn.Tx, _, other *txn.Table[uint64, []byte]) error {
			return other.Insert(tx, 500, nil)
		}, false},
		"inserts, other": {func(tx *txn.Tx, _, other *txn.Table[uint64, []byte]) error {
			return insertMany(tx, other)
		}, false},
	} {
		for _, p := range policies(t) {
			for _, writes := range []bool{false, true} {
				t.Run(fmt.Sprint(name, "/", p, "/writes=", writes), func(t *testing.T) {
					o := tiny()
					o.Policy = p
					db := mustOpen(t, o)
					tab, other := table(t, db, "t"), table(t, db, "other")
					fill(t, db, tab, 42, val(1))
					fill(t, db, other, 10, val(1))
					if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, 41) }); err != nil {
						t.Fatal(err)
					}
					tx, err := db.Begin(t.Context(), !writes)
					if err != nil {
						t.Fatal(err)
					}
					defer tx.Rollback()
					if n := len(listed(t, tx, tab)); n != 41 {
						t.Errorf("%d records", n)
					}
					if err := db.Update(t.Context(),
						func(tx *txn.Tx) error { return c.change(tx, tab, other) }); err != nil {
						t.Fatal(err)
					}
					if writes {
						_ = other.Put(tx, 3, val(2))
						_ = tab.Insert(tx, 3000, val(2)) // may meet the conflict already
					}
					want := writes && c.conflict
					err = tx.Commit()
					if !writes {
						// It has been validated when the loop ended, unless that was
						// left to the commit.
						want = c.conflict && p == txn.PolicyFORD
					}
					if errors.Is(err, txn.ErrConflict) != want || !want && err != nil {
						t.Errorf("commit: %v", err)
					}
					quiet(t, db)
				})
			}
		}
	}
}

func insertMany(tx *txn.Tx, tab *txn.Table[uint64, []byte]) error {
	for k := range uint64(200) {
		if err := tab.Insert(tx, 10_000+k, nil); err != nil {
			return err
		}
	}
	return nil
}

// TestAllErrors: what ends a loop is what the transaction returns, and Tx.Err tells it.
func TestAllErrors(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	fill(t, db, tab, 2000, val(1))
	foreign := table(t, mustOpen(t, tiny()), "t")
	bare := create(t, db, "bare", txn.Key[uint64]{Name: "own", Append: txn.Uint64.Append}, txn.Text())
	text := create(t, db, "text", txn.Uint64, txn.Text())
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return text.Put(tx, 12, "no JSON") }); err != nil {
		t.Fatal(err)
	}
	broken := txn.Text()
	broken.Decode = func(p []byte) (string, error) { return "", fmt.Errorf("cannot decode %q", p) }
	values := create(t, db, "text", txn.Uint64, broken)
	wrong := create(t, db, "wrong", txn.String, txn.Text())
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return wrong.Put(tx, "abc", "") }); err != nil {
		t.Fatal(err)
	}
	badKey := txn.Uint64
	badKey.Name = "string"
	keys := create(t, db, "wrong", badKey, txn.Text())

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var kept *txn.Tx
	for name, c := range map[string]struct {
		loop  func(tx *txn.Tx) int
		want  error
		texts []string
	}{
		"no Decode": {
			func(tx *txn.Tx) int { return count(bare.All(tx)) }, txn.ErrNoDecode, []string{`"bare"`, `"own"`},
		},
		"another database": {func(tx *txn.Tx) int { return count(foreign.All(tx)) }, txn.ErrOtherDatabase, nil},
		"value": {
			func(tx *txn.Tx) int { return count(values.All(tx)) }, nil,
			[]string{`table "text": value of key 12 cannot be decoded: cannot decode "no JSON"`},
		},
		"key": {
			func(tx *txn.Tx) int { return count(keys.All(tx)) }, txn.ErrCorrupt,
			[]string{`table "wrong": key 0x616263 cannot be decoded`},
		},
		"context": {func(tx *txn.Tx) int {
			n := 0
			for range tab.All(tx) {
				if n++; n == 100 {
					cancel()
				}
			}
			return min(n, 100) - 100 // so far it has come
		}, context.Canceled, nil},
		"managed": {func(tx *txn.Tx) int {
			n := 0
			for range tab.All(tx) {
				if n++; n == 3 {
					_ = tx.Rollback()
				}
			}
			return n - 3
		}, txn.ErrManaged, nil},
	} {
		t.Run(name, func(t *testing.T) {
			on := t.Context()
			if name == "context" {
				on = ctx
			}
			err := db.View(on, func(tx *txn.Tx) error {
				kept = tx
				if n := c.loop(tx); n != 0 {
					t.Errorf("the loop goes on for %d", n)
				}
				if tx.Err() == nil || c.want != nil && !errors.Is(tx.Err(), c.want) {
					t.Errorf("Tx.Err: %v", tx.Err())
				}
				return nil
			})
			if c.want == nil {
				c.want = err
			}
			says(t, "View", err, c.want, c.texts...)
		})
	}
	if n := count(tab.All(kept)); n != 0 || !errors.Is(kept.Err(), txn.ErrTxDone) {
		t.Errorf("after the end: %d records, %v", n, kept.Err())
	}
	quiet(t, db)
}

func count[K, V any](seq func(func(K, V) bool)) (n int) {
	for range seq {
		n++
	}
	return n
}

// TestAllTooLarge: a table of which there is more than the arena can stand for, and what to do.
func TestAllTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("many records")
	}
	o := tiny()
	o.Arena, o.BladeSize, o.SegmentSize = 1<<20, 64<<20, 1<<20
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 66_000, nil)
	err := db.View(t.Context(), func(tx *txn.Tx) error {
		count(tab.All(tx))
		return nil
	})
	says(t, "View", err, txn.ErrTooLarge,
		`scan of 1048592 bytes is too large: the limit is 1048576; `+
			`a scan counts 16 bytes of Arena for each record of table "t": raise Arena`)
	var large *txn.TooLargeError
	if !errors.As(err, &large) {
		t.Errorf("%T", err)
	}
}

// TestAllRaw lists a table of bytes, in a database that is read only.
func TestAllRaw(t *testing.T) {
	o := tiny()
	o.Dir = t.TempDir()
	db := mustOpen(t, o)
	raw, err := txn.CreateRawTable(db, "t")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "1", "b": "", string(make([]byte, record.MaxKey)): "long"}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		for k, v := range want {
			if err := raw.Put(tx, []byte(k), []byte(v)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.ReadOnly = true
	db = mustOpen(t, o)
	if raw, err = txn.OpenRawTable(db, "t"); err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		got := map[string]string{}
		for k, v := range raw.All(tx) {
			got[string(k)] = string(v)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%q", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestScanSum: transfers beside loops over all accounts, of which new ones are opened and empty
// ones closed: every loop gets the same sum, also one whose transaction does not commit.
func TestScanSum(t *testing.T) {
	const accounts, start = 12, 1000
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "bank")
		fill(t, db, tab, accounts, val(start))
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for i := range perWorker(s, 1500) {
				if r.n(4) == 0 {
					if err := w.View(ctx, func(tx *txn.Tx) error {
						var total uint64
						for _, v := range tab.All(tx) {
							total += num(v)
						}
						if tx.Err() == nil && total != start*accounts {
							return fmt.Errorf("the accounts hold %d", total)
						}
						return nil
					}); err != nil {
						return err
					}
					continue
				}
				fresh := uint64(1000 + id*10_000 + i)
				from, to := r.n(accounts), r.n(accounts)
				err := w.Update(ctx, func(tx *txn.Tx) error {
					x, err := tab.GetForUpdate(tx, from)
					if errors.Is(err, txn.ErrNotFound) {
						return tab.Put(tx, fresh, val(0))
					}
					if err != nil || from == to {
						return err
					}
					y, _, err := tab.Lookup(tx, to)
					if err != nil {
						return err
					}
					if r.n(3) == 0 { // closes one account, opens another
						if err := tab.Delete(tx, from); err != nil {
							return err
						}
						return tab.Insert(tx, fresh, x)
					}
					amount, has := min(num(x), r.n(50)), uint64(0)
					if len(y) > 0 {
						has = num(y)
					}
					if err := tab.Put(tx, from, val(num(x)-amount)); err != nil {
						return err
					}
					return tab.Put(tx, to, append(val(has+amount), make([]byte, r.n(100))...))
				})
				if err != nil && !errors.Is(err, txn.ErrConflict) {
					return err
				}
			}
			return nil
		})
	})
}

// TestScanPhantoms: each transaction counts the records and inserts one with that number. If two
// have the same, one has missed the other's.
func TestScanPhantoms(t *testing.T) {
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "numbers")
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for i := range min(perWorker(s, 400), 40) {
				key := uint64(id)<<20 | uint64(i)
				atEnd, early := r.n(3) == 0, r.n(3) == 0
				err := w.Update(ctx, func(tx *txn.Tx) error {
					if atEnd {
						tx.ValidateAtEnd()
					}
					if early { // its own record is one that it does not count
						if err := tab.Insert(tx, key, nil); err != nil {
							return err
						}
					}
					n := uint64(count(tab.All(tx)))
					if early {
						return tab.Put(tx, key, val(n-1))
					}
					return tab.Insert(tx, key, val(n))
				})
				if err != nil && !errors.Is(err, txn.ErrConflict) {
					return err
				}
			}
			return nil
		})
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			seen := map[uint64]bool{}
			for k, v := range tab.All(tx) {
				if seen[num(v)] {
					return fmt.Errorf("key %x is the second with number %d", k, num(v))
				}
				seen[num(v)] = true
			}
			for n := range uint64(len(seen)) {
				if !seen[n] {
					return fmt.Errorf("nobody has number %d of %d", n, len(seen))
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestScanPairs: records come and go in pairs, the second one first in every other transaction: a
// loop gets both, or none, while the table grows and shrinks.
func TestScanPairs(t *testing.T) {
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "pairs")
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for range perWorker(s, 1200) {
				k, what := r.n(40)*2, r.n(3)
				if what == 0 {
					if err := w.View(ctx, func(tx *txn.Tx) error {
						half := map[uint64]int{}
						for k := range tab.Keys(tx) {
							half[k/2]++
						}
						for p, n := range half {
							if tx.Err() == nil && n != 2 {
								return fmt.Errorf("%d records of pair %d", n, p)
							}
						}
						return nil
					}); err != nil && !errors.Is(err, txn.ErrConflict) {
						return err
					}
					continue
				}
				a, b := k, k+1
				if r.n(2) == 0 {
					a, b = b, a
				}
				err := w.Update(ctx, func(tx *txn.Tx) error {
					has, err := tab.Has(tx, a)
					if err != nil {
						return err
					}
					if has {
						return errors.Join(tab.Delete(tx, a), tab.Delete(tx, b))
					}
					return errors.Join(tab.Put(tx, a, make([]byte, r.n(200))), tab.Put(tx, b, nil))
				})
				if err != nil && !errors.Is(err, txn.ErrConflict) {
					return err
				}
			}
			return nil
		})
	})
}

// TestScanRaise: each transaction adds one to every record that it lists. None is lost, and all are
// equal at every moment.
func TestScanRaise(t *testing.T) {
	const rows = 9
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "rows")
		fill(t, db, tab, rows, val(0))
		done := make([]uint64, s.threads*s.coroutines)
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for range min(perWorker(s, 600), 60) {
				how := r.n(3)
				err := w.Update(ctx, func(tx *txn.Tx) error {
					if how == 0 {
						tx.ValidateAtEnd()
					}
					values := map[uint64]uint64{}
					for k, v := range tab.All(tx) {
						if how == 1 { // in the loop
							if err := tab.Put(tx, k, val(num(v)+1)); err != nil {
								return err
							}
						}
						values[k] = num(v)
					}
					for k, v := range values {
						if v != values[0] && how != 0 && tx.Err() == nil {
							return fmt.Errorf("record %d is %d, and record 0 is %d", k, v, values[0])
						}
						if how != 1 {
							if err := tab.Put(tx, k, val(v+1)); err != nil {
								return err
							}
						}
					}
					return nil
				})
				if err == nil {
					done[id]++
				} else if !errors.Is(err, txn.ErrConflict) {
					return err
				}
			}
			return nil
		})
		total := uint64(0)
		for _, n := range done {
			total += n
		}
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			for k, v := range tab.All(tx) {
				if num(v) != total {
					return fmt.Errorf("record %d is %d after %d transactions", k, num(v), total)
				}
			}
			return tx.Err()
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAllLockedLater: a record that has changed since it was listed is a conflict, even if the
// transaction writes and locks it afterwards.
func TestAllLockedLater(t *testing.T) {
	for _, p := range policies(t) {
		for _, change := range []bool{false, true} {
			o := tiny()
			o.Policy = p
			db := mustOpen(t, o)
			tab := table(t, db, "t")
			fill(t, db, tab, 20, val(1))
			tx, err := db.Begin(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			n := len(listed(t, tx, tab))
			if change {
				if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7, val(2)) }); err != nil {
					t.Fatal(err)
				}
			}
			if err := tab.Put(tx, 7, val(uint64(n))); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); errors.Is(err, txn.ErrConflict) != change || !change && err != nil {
				t.Errorf("%v, changed %v: %v", p, change, err)
			}
			quiet(t, db)
		}
	}
}
