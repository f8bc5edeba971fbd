package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"txnode/index/race"
	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn"
)

// spaceOptions are a database of few, small segments.
func spaceOptions(p occ.Policy, segments uint64) txn.Options {
	o := tiny()
	o.Policy, o.BladeSize = p, layout.HeaderArea+segments<<18
	o.BladeSize = (o.BladeSize + 1<<16 - 1) &^ (1<<16 - 1)
	return o
}

// times is how often something is repeated: n times, or less with -short.
func times(n int) int {
	if testing.Short() {
		return n / 20
	}
	return n
}

func eachPolicy(t *testing.T, fn func(t *testing.T, p occ.Policy)) {
	for _, p := range policies(t) {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			fn(t, p)
		})
	}
}

// full demands that an error says that the blades are full, and what to do.
func full(t testing.TB, what string, err error) {
	t.Helper()
	says(t, what, err, txn.ErrNoSpace, "BladeSize")
	var e *memory.NoSpaceError
	if !errors.As(err, &e) || len(e.Free) != 2 || e.Need != 256<<10 {
		t.Errorf("%s: %+v", what, e)
	}
}

// TestFull fills a database by inserts, and then goes on with it: what is there can
// be read, changed and deleted; what is deleted makes room; a failure, however often
// it comes, takes nothing away.
func TestFull(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		db := mustOpen(t, spaceOptions(p, 14))
		tab := table(t, db, "t")
		const size = 1000
		value := func(k uint64) []byte { return bytes.Repeat([]byte{byte(k)}, size) }
		insert := func(k uint64) error {
			return db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, k, value(k)) })
		}
		n := uint64(0)
		var err error
		for ; err == nil; n++ {
			err = insert(n)
		}
		n--
		full(t, "insert", err)
		if n < 200 {
			t.Fatalf("%d keys have filled the database", n)
		}
		want := map[uint64][]byte{}
		for k := range n {
			want[k] = value(k)
		}
		same(t, "when full", contents(t, db, tab, n+10), want)
		quiet(t, db)

		// Many failures, each with a part that would have succeeded.
		for i := range uint64(times(2000)) {
			err := db.Update(t.Context(), func(tx *txn.Tx) error {
				if err := tab.Put(tx, i%n, value(i+1)); err != nil {
					return err
				}
				for j := range uint64(3) {
					if err := tab.Put(tx, n+100+3*i+j, value(1)); err != nil {
						return err
					}
				}
				return nil
			})
			if !errors.Is(err, txn.ErrNoSpace) {
				t.Fatalf("failure %d: %v", i, err)
			}
		}
		same(t, "after failures", contents(t, db, tab, n+10), want)
		quiet(t, db)

		// Updates need no room; deletes make some, for any worker.
		for k := range n {
			if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, value(k+7)) }); err != nil {
				t.Fatalf("update of %d: %v", k, err)
			}
			want[k] = value(k + 7)
		}
		const gone = 50
		w := newWorker(t, db)
		for k := range uint64(gone) {
			if err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, k) }); err != nil {
				t.Fatal(err)
			}
			delete(want, k)
		}
		for i := range uint64(gone) {
			k := n + i
			if err := insert(k); err != nil {
				t.Fatalf("insert %d after %d deletes: %v", i, gone, err)
			}
			want[k] = value(k)
		}
		same(t, "in the room of deleted records", contents(t, db, tab, n+gone+10), want)
		full(t, "one more", insert(1<<40))
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		full(t, "Insert in a transaction of Begin", tab.Insert(tx, 1<<40, value(1)))
		full(t, "its Commit", tx.Commit())
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		quiet(t, db)
	})
}

// TestFullByGrowth fills a database by values that grow out of their blocks.
func TestFullByGrowth(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		o := spaceOptions(p, 16)
		o.GiveBack = -1 // else there is always room for records that are larger now
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 64, val(1))
		want := map[uint64][]byte{}
		for k := range uint64(64) {
			want[k] = val(1)
		}
		var err error
		grow := func(k uint64, size int) error {
			v := bytes.Repeat([]byte{byte(size)}, size)
			err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, v) })
			if err == nil {
				want[k] = v
			}
			return err
		}
	filling:
		for size := 100; ; size += size / 3 {
			for k := range uint64(64) {
				if err = grow(k, min(size, 20000)); err != nil {
					break filling
				}
			}
		}
		full(t, "growth", err)
		same(t, "when full", contents(t, db, tab, 64), want)
		quiet(t, db)
		for range times(2000) { // several records that move, of which the last has no room
			err := db.Update(t.Context(), func(tx *txn.Tx) error {
				for k := range uint64(4) {
					if err := tab.Put(tx, k, make([]byte, 50<<10>>2)); err != nil {
						return err
					}
				}
				return tab.Put(tx, 1000, val(1))
			})
			if err == nil {
				for k := range uint64(4) {
					want[k] = make([]byte, 50<<10>>2)
				}
				want[1000] = val(1)
			} else if !errors.Is(err, txn.ErrNoSpace) {
				t.Fatal(err)
			}
		}
		delete(want, 1000)
		same(t, "after failures", contents(t, db, tab, 64), want)
		for k := range uint64(64) { // smaller ones fit their blocks
			if err := grow(k, 10); err != nil {
				t.Fatal(err)
			}
		}
		same(t, "small again", contents(t, db, tab, 64), want)
		quiet(t, db)
	})
}

// TestFullBySplits: inserts of which the index can not grow any more.
func TestFullBySplits(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		o := spaceOptions(p, 10)
		o.IndexGroups = 200 // 38 KiB: six in a segment
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		var err error
		n := uint64(0)
		insert := func(k uint64) error {
			return db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, k, nil) })
		}
		for ; err == nil; n++ {
			err = insert(n)
		}
		n--
		full(t, "insert", err)
		for k := range uint64(times(1000)) {
			_ = insert(n + k) // some find a slot
		}
		if got := contents(t, db, tab, n); uint64(len(got)) != n {
			t.Errorf("%d of %d keys are left", len(got), n)
		}
		for k := range uint64(100) {
			if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, k) }); err != nil {
				t.Fatal(err)
			}
		}
		quiet(t, db)
	})
}

// TestFullByWorkers: a pool that finds no space for another worker shares those that
// it has.
func TestFullByWorkers(t *testing.T) {
	o := spaceOptions(occ.PolicyDefault, 6)
	o.LogArea, o.Workers = 256<<10, 8
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 1, val(0))
	const goroutines, each = 8, 50
	errs := make(chan error, goroutines)
	for range goroutines {
		go func() {
			for range each {
				if err := db.Update(context.Background(), func(tx *txn.Tx) error {
					p, err := tab.GetForUpdate(tx, 0)
					if err != nil {
						return err
					}
					return tab.Put(tx, 0, val(num(p)+1))
				}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range goroutines {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if p := contents(t, db, tab, 1)[0]; num(p) != goroutines*each {
		t.Errorf("%d increments of %d", num(p), goroutines*each)
	}
	var own []*txn.Worker
	for range 8 {
		w, err := db.NewWorker()
		if err != nil {
			full(t, "NewWorker", err)
			break
		}
		own = append(own, w)
	}
	if len(own) == 8 {
		t.Error("there is room for any number of workers")
	}
	for _, w := range own {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	full(t, "Run", db.Run(ctx, 8, 1, func(ctx context.Context, _ int, _ *txn.Worker) error {
		<-ctx.Done() // until one of them could not be made
		return nil
	}))
	quiet(t, db)
}

// TestFullBesideLeft: a pool that has no worker, and no space for one, shares nothing with what a
// call of the database's own has left to a goroutine. It makes a worker when there is space again.
func TestFullBesideLeft(t *testing.T) {
	o := spaceOptions(occ.PolicyDefault, 6)
	o.LogArea, o.Workers = 256<<10, 8
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	put := func(tx *txn.Tx) error { return tab.Put(tx, 0, val(0)) }
	var own []*txn.Worker
	for {
		w, err := db.NewWorker()
		if err == nil {
			err = w.Update(t.Context(), put)
			own = append(own, w)
		}
		if err != nil {
			full(t, "NewWorker", err)
			break
		}
	}
	end := db.Leave()
	full(t, "Update", db.Update(t.Context(), put))
	end()
	for _, w := range own {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := db.Update(t.Context(), put); err != nil {
		t.Errorf("there is space for a worker: %v", err)
	}
}

// TestFullOfTables: tables are made until there is no room for another.
func TestFullOfTables(t *testing.T) {
	o := spaceOptions(occ.PolicyDefault, 8)
	o.IndexGroups = race.DefaultGroups
	db := mustOpen(t, o)
	contents(t, db, table(t, db, "table 0"), 1) // there is a worker
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = txn.CreateTable(db, fmt.Sprint("table ", n), txn.Uint64, txn.Bytes())
	}
	full(t, "CreateTable", err)
	for range 100 {
		if _, err := txn.CreateTable(db, "another", txn.Uint64, txn.Bytes()); !errors.Is(err, txn.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	if tab, err := txn.OpenTable(db, "table 0", txn.Uint64, txn.Bytes()); err != nil {
		t.Error(err)
	} else if got := contents(t, db, tab, 3); len(got) != 0 {
		t.Error(got)
	}
}

// TestTransactionTooLarge: transactions that fit neither arena nor log fail with what
// is missing, every time alike, and those that fit go on.
func TestTransactionTooLarge(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		o := tiny()
		o.Policy, o.LogArea, o.BladeSize = p, 256<<10, 32<<20
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 400, make([]byte, 2000))
		tooLarge := func(what, remedy string, fn func(tx *txn.Tx) error) {
			t.Helper()
			for range times(200) {
				err := db.Update(t.Context(), fn)
				var e *occ.TooLargeError
				if !errors.As(err, &e) || e.Got <= e.Limit {
					t.Fatalf("%s: %v", what, err)
				}
				says(t, what, err, txn.ErrTooLarge, remedy)
			}
			if err := db.Update(t.Context(),
				func(tx *txn.Tx) error { return tab.Put(tx, 1, make([]byte, 2001)) }); err != nil {
				t.Fatalf("after %s: %v", what, err)
			}
		}
		tooLarge("reading more than the arena holds", "Arena", func(tx *txn.Tx) error {
			for k := range uint64(400) {
				_ = tab.Stage(tx, k, txn.ForRead)
			}
			_, err := tab.Get(tx, 0)
			return err
		})
		tooLarge("locking more than the arena holds", "Arena", func(tx *txn.Tx) error {
			for k := range uint64(400) {
				if _, err := tab.GetForUpdate(tx, k); err != nil {
					return err
				}
			}
			return nil
		})
		tooLarge("writing more than the log holds", "LogArea", func(tx *txn.Tx) error {
			for k := range uint64(200) {
				if err := tab.Put(tx, k, make([]byte, 2000)); err != nil {
					return err
				}
			}
			return nil
		})
		tooLarge("inserting more than the log holds", "LogArea", func(tx *txn.Tx) error {
			for k := range uint64(200) {
				if err := tab.Insert(tx, 1000+k, make([]byte, 2000)); err != nil {
					return err
				}
			}
			return nil
		})
		got := contents(t, db, tab, 100)
		if len(got) != 100 || len(got[1]) != 2001 || len(got[2]) != 2000 {
			t.Errorf("%d keys, of %d and %d bytes", len(got), len(got[1]), len(got[2]))
		}
		quiet(t, db)
	})
}

// TestArenaShared: the coroutines of a thread share its arena; when that is too
// small for all of them at once, transactions fail with the reason, and locks are
// released.
func TestArenaShared(t *testing.T) {
	o := tiny()
	o.LogArea, o.BladeSize = 256<<10, 32<<20
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 64, make([]byte, 4000))
	err := db.Run(t.Context(), 2, 10, func(ctx context.Context, id int, w *txn.Worker) error {
		r := rng(id)
		for i := range 30 {
			n := 1 + int(r.n(40))
			err := w.Update(ctx, func(tx *txn.Tx) error {
				for range n {
					if _, err := tab.GetForUpdate(tx, r.n(64)); err != nil {
						return err
					}
				}
				w.Sleep(1000)
				return tab.Put(tx, 1000+uint64(id)*1000+uint64(i), val(1))
			})
			if err != nil && !errors.Is(err, txn.ErrTooLarge) && !errors.Is(err, txn.ErrConflict) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = db.Run(t.Context(), 1, 64, func(context.Context, int, *txn.Worker) error { return nil })
	if err == nil {
		t.Error("64 coroutines fit an arena of 1 MiB")
	}
	quiet(t, db)
}

// TestSplitInFullArena: the index splits and doubles in the middle of transactions
// that have left next to nothing of the arena. Each either commits or is too large,
// and the index goes on.
func TestSplitInFullArena(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		o := tiny()
		o.Policy, o.LogArea, o.BladeSize, o.IndexGroups = p, 256<<10, 64<<20, 50
		db := mustOpen(t, o)
		big, tab := table(t, db, "big"), table(t, db, "t")
		fill(t, db, big, 400, make([]byte, 1900))
		want := map[uint64][]byte{}
		committed, refused := 0, 0
		const each = 10
		read := func(tx *txn.Tx, n uint64) error {
			for k := range n {
				if err := big.Stage(tx, k, txn.ForRead); err != nil {
					return err
				}
			}
			_, err := big.Get(tx, 0)
			return err
		}
		most := uint64(400)
		for db.View(t.Context(), func(tx *txn.Tx) error { return read(tx, most) }) != nil {
			most--
		}
		for i := range uint64(600) {
			n := most - i%9
			long := i%3 == 0
			err := db.Update(t.Context(), func(tx *txn.Tx) error {
				if err := read(tx, n); err != nil {
					return err
				}
				for j := range uint64(each) {
					if err := tab.Insert(tx, each*i+j, val(i)); err != nil {
						return err
					}
				}
				if long { // a record that moves
					return big.Put(tx, i%400, make([]byte, 1900+i))
				}
				return nil
			})
			switch {
			case err == nil:
				committed++
				for j := range uint64(each) {
					want[each*i+j] = val(i)
				}
			case errors.Is(err, txn.ErrTooLarge):
				refused++
			default:
				t.Fatalf("%d records and an insert: %v", n, err)
			}
		}
		if committed < 50 || refused < 50 {
			t.Errorf("%d have committed, %d were refused", committed, refused)
		}
		same(t, "in the end", contents(t, db, tab, 600*each), want)
		for k := range uint64(500) {
			if err := db.Update(t.Context(),
				func(tx *txn.Tx) error { return tab.Insert(tx, 100_000+k, val(k)) }); err != nil {
				t.Fatal(err)
			}
		}
		quiet(t, db)
	})
}

// TestLogIsShared: the coroutines of a thread write records that nearly fill the log,
// on a fabric where that takes time: they wait for each other, and all get through.
func TestLogIsShared(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		s := setting{
			policy: p, backups: 1, threads: 2, coroutines: 6,
			caps: &rdma.Caps{MaskedCAS: true, OrderedLine: true}, seed: 5,
		}
		db := open(t, s, nil)
		tab := table(t, db, "t")
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for i := range times(60) {
				k, size := uint64(id), 1+int(r.n(28<<10))
				if i%4 == 0 {
					k = 100 // of all
				}
				if err := w.Update(ctx, func(tx *txn.Tx) error {
					if err := tab.Put(tx, k+1000, val(uint64(i))); err != nil {
						return err
					}
					return tab.Put(tx, k, bytes.Repeat([]byte{byte(i)}, size))
				}); err != nil {
					return err
				}
			}
			return nil
		})
		for k, v := range contents(t, db, tab, 101) {
			if len(v) == 0 || len(bytes.Trim(v, string(v[:1]))) != 0 {
				t.Errorf("key %d has %d bytes, not all alike", k, len(v))
			}
		}
		quiet(t, db)
	})
}

// TestDefaultLimits: what README and Options say of how much fits a transaction by default.
func TestDefaultLimits(t *testing.T) {
	raced.Skip(t)
	db, err := txn.Open(t.Context(), txn.Options{BladeSize: 256 << 20, SegmentSize: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.Background()) }()
	tab, err := txn.CreateRawTable(db, "t")
	if err != nil {
		t.Fatal(err)
	}
	put := func(of string, n, size int) error {
		value := make([]byte, size)
		return db.Update(t.Context(), func(tx *txn.Tx) error {
			for i := range n {
				key := fmt.Appendf(nil, "%s %d", of, i)
				if size > 100 {
					if _, err := tab.GetForUpdate(tx, key); err != nil && !errors.Is(err, txn.ErrNotFound) {
						return err
					}
				}
				if err := tab.Put(tx, key, value); err != nil {
					return err
				}
			}
			return nil
		})
	}
	const large = 1 << 20
	for n := 0; n < 40_000; n += 5_000 {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for i := n; i < n+5_000; i++ {
				if err := tab.Put(tx, fmt.Appendf(nil, "old %d", i), []byte("small")); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		for _, c := range []struct {
			of   string
			n    int
			size int
		}{{"old", 40_000, 8}, {"large", 2, large}} {
			if err := put(c.of, c.n, c.size); err != nil {
				t.Errorf("%d values of %d bytes: %v", c.n, c.size, err)
			}
		}
	}
	if err := put("new", 6_500, 8); err != nil {
		t.Errorf("new keys: %v", err)
	}
	if err := put("many new", 8_000, 8); !errors.Is(err, txn.ErrTooLarge) {
		t.Errorf("many new keys: %v; it says that there may be 6,500", err)
	}
	for i := range 5 {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			return tab.Put(tx, fmt.Appendf(nil, "large %d", i), make([]byte, large))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		for i := range 5 {
			if _, err := tab.Get(tx, fmt.Appendf(nil, "large %d", i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Errorf("five values that are read: %v", err)
	}
}
