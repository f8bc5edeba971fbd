package txn_test

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/txn"
)

// staff is a table of numbers by numbers, with indexes of the values, and what it should have.
type staff struct {
	t       *testing.T
	r       *rand.Rand
	tab     *txn.Table[uint64, uint64]
	ordered *txn.OrderedTable[uint64, uint64] // nil: it is a hash table
	pay     *txn.Index[uint64, uint64, uint64]
	badge   *txn.Index[uint64, uint64, uint64]
	model   map[uint64]uint64
	loops   int // that may begin in loops of the transaction
	writes  int // that it may still make
}

// badges are the keys of a record in the unique index of a staff: two of them, or none.
func badges(k, v uint64) []uint64 {
	if v%5 == 0 {
		return nil
	}
	return []uint64{v<<20 | k, (v+staffPay/2)<<20 | k}
}

const (
	staffKeys = 200
	staffPay  = 1000
)

func newStaff(t *testing.T, db *txn.DB, ordered bool, r *rand.Rand) *staff {
	t.Helper()
	s := &staff{t: t, r: r, model: map[uint64]uint64{}}
	s.pay = txn.NewIndex("pay", txn.Uint64, func(_, v uint64) []uint64 { return []uint64{v} })
	s.badge = txn.NewUniqueIndex("badge", txn.Uint64, badges)
	var err error
	if ordered {
		if s.ordered, err = txn.CreateOrderedTable(db, "staff", txn.Uint64, txn.Plain[uint64](), s.pay,
			s.badge); err == nil {
			s.tab = s.ordered.Table
		}
	} else {
		s.tab, err = txn.CreateTable(db, "staff", txn.Uint64, txn.Plain[uint64](), s.pay, s.badge)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pair is what a loop gets at a step.
type pair struct{ a, b uint64 }

// loop returns a random loop, and what it should meet; sorted: in this order.
func (s *staff) loop(tx *txn.Tx) (what string, seq iter.Seq2[uint64, uint64], want []pair, sorted bool) {
	s.t.Helper()
	pairs := func(of func(k, v uint64) []pair, order func(x, y pair) int) {
		for k, v := range s.model {
			want = append(want, of(k, v)...)
		}
		slices.SortFunc(want, order)
		sorted = true
	}
	record := func(k, v uint64) []pair { return []pair{{k, v}} }
	byKey := func(x, y pair) int { return cmp.Compare(x.a, y.a) }
	kind := s.r.IntN(6)
	if kind == 0 || kind == 1 && s.ordered == nil {
		pairs(record, byKey)
		return "All", s.tab.All(tx), want, s.ordered != nil
	}
	var options []txn.RangeOption
	down, limit := s.r.IntN(2) == 0, s.r.IntN(2)*s.r.IntN(150)
	if down {
		options = append(options, txn.Descending())
	}
	if limit > 0 {
		options = append(options, txn.Limit(limit))
	}
	var from, to uint64
	bounds := func(most uint64) (a, b txn.Bound[uint64]) {
		from, to = 0, ^uint64(0)
		if s.r.IntN(2) == 0 {
			from, to = s.r.Uint64N(most), s.r.Uint64N(most)
			from, to = min(from, to), max(from, to)
		}
		return txn.Including(from), txn.Including(to)
	}
	// entries are those of an index, as it has them, with the records that they lead to.
	type entry struct{ i, k, v uint64 }
	entries := func(of func(k, v uint64) []uint64) (all []entry) {
		for k, v := range s.model {
			for _, i := range of(k, v) {
				all = append(all, entry{i, k, v})
			}
		}
		slices.SortFunc(all, func(x, y entry) int { return cmp.Or(cmp.Compare(x.i, y.i), cmp.Compare(x.k, y.k)) })
		return all
	}
	payOf := func(_, v uint64) []uint64 { return []uint64{v} }
	switch kind {
	case 1:
		a, b := bounds(staffKeys)
		what, seq = "Range", s.ordered.Range(tx, a, b, options...)
		pairs(func(k, v uint64) []pair {
			if k < from || k > to {
				return nil
			}
			return record(k, v)
		}, byKey)
	default:
		x, of, most := s.pay, payOf, uint64(staffPay)
		if kind >= 4 {
			x, of, most = s.badge, badges, 2*staffPay<<20
		}
		a, b := bounds(most)
		rows := kind%2 == 0
		for _, e := range entries(of) {
			switch {
			case e.i < from || e.i > to:
			case rows:
				want = append(want, pair{e.k, e.v})
			default:
				want = append(want, pair{e.i, e.k})
			}
		}
		if what, seq = "Index.Range", x.Range(tx, a, b, options...); rows {
			what, seq = "Index.Rows", x.Rows(tx, a, b, options...)
		}
	}
	if down {
		slices.Reverse(want)
	}
	if limit > 0 && len(want) > limit {
		want = want[:limit]
	}
	return fmt.Sprintf("%s of kind %d from %d to %d, down %v, limit %d", what, kind, from, to, down,
		limit), seq, want, true
}

// write changes a record, or some, in a random way: values, and so entries of indexes,
// go forward and back.
func (s *staff) write(tx *txn.Tx) {
	s.t.Helper()
	if s.writes--; s.writes < 0 {
		return
	}
	k, v := s.r.Uint64N(staffKeys), s.r.Uint64N(staffPay)
	_, has := s.model[k]
	var err error
	switch way := s.r.IntN(6); {
	case way == 0 && has:
		err = s.tab.Delete(tx, k)
		delete(s.model, k)
	case way == 1:
		if err = s.tab.Insert(tx, k, v); has && errors.Is(err, txn.ErrExists) {
			return
		}
		s.model[k] = v
	case way == 2:
		err = s.tab.Update(tx, k, func(was uint64, found bool) (uint64, txn.Change, error) {
			if found != has || was != s.model[k] {
				s.t.Errorf("Update gets %d, %v", was, found)
			}
			return v, txn.Store, nil
		})
		s.model[k] = v
	default:
		err = s.tab.Put(tx, k, v)
		s.model[k] = v
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// run runs a loop that writes, with others in it.
func (s *staff) run(tx *txn.Tx, depth int) {
	s.t.Helper()
	what, seq, want, sorted := s.loop(tx)
	leave := -1
	if s.r.IntN(5) == 0 {
		leave = s.r.IntN(100)
	}
	writes := s.r.IntN(3)
	var got []pair
	for a, b := range seq {
		got = append(got, pair{a, b})
		if len(got) > len(want) {
			break
		}
		switch {
		case writes == 1 && s.r.IntN(3) == 0:
			s.write(tx)
		case writes == 2 && s.r.IntN(40) == 0:
			for range 40 {
				s.write(tx)
			}
		}
		if depth < 2 && s.loops > 0 && s.r.IntN(60) == 0 {
			s.loops--
			s.run(tx, depth+1)
		}
		if len(got) == leave {
			return
		}
	}
	if err := tx.Err(); err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	if !sorted {
		slices.SortFunc(got, func(x, y pair) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b)) })
	}
	if !slices.Equal(got, want) {
		s.t.Fatalf("%s, in %d others: %d steps, want %d: %v, want %v", what, depth, len(got), len(want), got, want)
	}
}

// roomy are options for transactions of some thousand writes.
func roomy() txn.Options {
	return txn.Options{
		SegmentSize: 4 << 20, LogArea: 4 << 20, BladeSize: 128 << 20, Arena: 16 << 20,
		CacheBytes: 64 << 10, IndexGroups: 4, Workers: 2, Seed: 7,
	}
}

// TestLoopsThatWrite: loops of all kinds meet each record once, as it was at their first step,
// whatever they and the loops in them change.
func TestLoopsThatWrite(t *testing.T) {
	for _, p := range policies(t) {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,ordered=%v", p, ordered), func(t *testing.T) {
				o := roomy()
				o.Policy = p
				db := mustOpen(t, o)
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				s := newStaff(t, db, ordered, rand.New(rand.NewPCG(seed, 1)))
				rounds := 12
				if testing.Short() {
					rounds = 4
				}
				for range rounds {
					committed := maps.Clone(s.model)
					roll := errors.New("roll back")
					err := db.Update(t.Context(), func(tx *txn.Tx) error {
						s.model = maps.Clone(committed)
						if s.r.IntN(3) == 0 {
							tx.ValidateAtEnd()
						}
						s.loops, s.writes = 8, 700
						for range s.r.IntN(300) {
							s.write(tx)
						}
						for range 3 {
							s.run(tx, 0)
						}
						if s.r.IntN(4) == 0 {
							return roll
						}
						return nil
					})
					if errors.Is(err, roll) {
						s.model, err = committed, nil
					}
					if err == nil {
						err = db.View(t.Context(), func(tx *txn.Tx) error {
							for range 5 {
								what, seq, want, sorted := s.loop(tx)
								var got []pair
								for a, b := range seq {
									got = append(got, pair{a, b})
								}
								if !sorted {
									slices.SortFunc(got, func(x, y pair) int { return cmp.Compare(x.a, y.a) })
								}
								if !slices.Equal(got, want) {
									t.Errorf("%s, committed: %v, want %v", what, got, want)
								}
							}
							return nil
						})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				quiet(t, db)
			})
		}
	}
}

// valuesOf are the records of a table.
func valuesOf(t *testing.T, db *txn.DB, tab *txn.Table[uint64, uint64]) (all map[uint64]uint64) {
	t.Helper()
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		all = maps.Collect(tab.All(tx))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRaiseByIndex: a raise in a loop over the index of what is raised comes to each record once,
// of few records as of many, forward and back. So does one of several loops that take turns.
func TestRaiseByIndex(t *testing.T) {
	for _, n := range []uint64{txn.RowsAtOnce - 4, 3 * txn.RowsAtOnce} {
		for _, raise := range []int64{100, -100} {
			db := mustOpen(t, roomy())
			s := newStaff(t, db, false, nil)
			if err := db.Update(t.Context(), func(tx *txn.Tx) error {
				for k := range n {
					if err := s.tab.Put(tx, k, 200+k); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			raised := func(v uint64) uint64 { return uint64(int64(v) + raise) }
			steps := 0
			if err := db.Update(t.Context(), func(tx *txn.Tx) error {
				steps = 0
				first, stop := iter.Pull2(s.pay.Rows(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}))
				defer stop()
				for k, v := range s.pay.Rows(tx, txn.Bound[uint64]{}, txn.Excluding(uint64(staffPay)),
					txn.Descending()) {
					steps++
					if k, v, ok := first(); !ok || v != 200+k {
						return fmt.Errorf("the other loop gets %d of %d: %v", v, k, ok)
					}
					if err := s.tab.Put(tx, k, raised(v)); err != nil {
						return err
					}
				}
				if k, _, ok := first(); ok {
					return fmt.Errorf("the other loop gets %d, too", k)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if steps != int(n) {
				t.Errorf("%d steps over %d records", steps, n)
			}
			for k, v := range valuesOf(t, db, s.tab) {
				if v != raised(200+k) {
					t.Errorf("record %d of %d is %d", k, n, v)
				}
			}
		}
	}
}

// TestLockedInLoop: a loop gets the values of its first step also of records that were locked
// before it, and have been written since in the shortest way.
func TestLockedInLoop(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		db := mustOpen(t, tiny())
		tab := bytesTable(t, db, ordered)
		raw := tab.Raw()
		const n = 10
		rows := make([]txn.Row, n)
		for i := range rows {
			rows[i] = txn.Row{Table: raw, Key: val(uint64(i)), Mode: txn.ForUpdate}
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for i := range rows {
				if err := raw.Put(tx, rows[i].Key, []byte("old")); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		met := 0
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			if err := tx.Fetch(rows); err != nil {
				return err
			}
			met = 0
			for k, v := range raw.All(tx) {
				if met++; string(v) != "old" {
					t.Errorf("ordered %v: key %x is %q", ordered, k, v)
				}
				for i := range rows {
					if err := rows[i].Put(tx, []byte("new")); err != nil {
						return err
					}
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if met != n {
			t.Errorf("ordered %v: %d records", ordered, met)
		}
	}
}

// TestNestedLoops: each of several loops within each other gets a record as it was at the first
// step of that loop.
func TestNestedLoops(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		db := mustOpen(t, tiny())
		tab := bytesTable(t, db, ordered)
		const n = 4
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for i := range uint64(n) {
				if err := tab.Put(tx, val(i), []byte{0}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			written := byte(0)
			var loop func(depth int) error
			loop = func(depth int) error {
				first := written
				for k, v := range tab.All(tx) {
					if v[0] != first {
						t.Errorf("ordered %v, depth %d: key %x is %d, and was %d", ordered, depth, k, v[0], first)
					}
					written++
					for i := range uint64(n) {
						if err := tab.Put(tx, val(i), []byte{written}); err != nil {
							return err
						}
					}
					if depth < 3 {
						if err := loop(depth + 1); err != nil {
							return err
						}
					}
				}
				return nil
			}
			return loop(1)
		}); err != nil {
			t.Fatal(err)
		}
	}
}
