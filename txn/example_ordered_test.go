package txn_test

import (
	"context"
	"fmt"
	"time"

	"txnode/txn"
)

// An ordered table has ranges: in both directions, with bounds, and as strictly serializable as
// reads of single keys.
func ExampleOrderedTable_Range() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	readings := must(txn.CreateOrderedTable(db, "readings", txn.Int64, txn.Plain[float64]()))
	ok(db.Update(ctx, func(tx *txn.Tx) error {
		for second := range int64(10) {
			if err := readings.Put(tx, second*10, 20+float64(second)/2); err != nil {
				return err
			}
		}
		return nil
	}))
	ok(db.View(ctx, func(tx *txn.Tx) error {
		for second, degrees := range readings.Range(tx, txn.Including[int64](20), txn.Excluding[int64](50)) {
			fmt.Println(second, degrees)
		}
		for second := range readings.RangeKeys(tx, txn.Bound[int64]{}, txn.Bound[int64]{},
			txn.Descending(), txn.Limit(2)) {
			fmt.Println("late:", second)
		}
		second, degrees, found, err := readings.First(tx, txn.Excluding[int64](75), txn.Bound[int64]{})
		fmt.Println("after 75:", second, degrees, found)
		return err
	}))
	// Output:
	// 20 21
	// 30 21.5
	// 40 22
	// late: 90
	// late: 80
	// after 75: 80 24 true
}

// A prefix is the first parts of a tuple, or the beginning of a text.
func ExampleOrderedTable_Prefix() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	posts := must(txn.CreateOrderedTable(db, "posts", txn.Tuple2Key(txn.String, txn.Desc(txn.Uint64)), txn.Text()))
	ok(db.Update(ctx, func(tx *txn.Tx) error {
		for n, user := range []string{"ann", "ben", "ann", "anna", "ann"} {
			if err := posts.Put(tx, txn.T2(user, uint64(n)), fmt.Sprint("post ", n)); err != nil {
				return err
			}
		}
		return nil
	}))
	ok(db.View(ctx, func(tx *txn.Tx) error {
		for key, text := range posts.Prefix(tx, txn.T2("ann", uint64(0)), txn.Parts(1)) { // the newest first, by Desc
			fmt.Println(key.A, text)
		}
		return nil
	}))
	// Output:
	// ann post 4
	// ann post 2
	// ann post 0
}

// A list of pages, each of which is a transaction of its own, goes on behind the last key
// of the page before.
func Example_paging() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	users := must(txn.CreateOrderedTable(db, "users", txn.String, txn.Text()))
	ok(db.Update(ctx, func(tx *txn.Tx) error {
		for _, name := range []string{"eve", "bob", "dan", "ada", "cyd"} {
			if err := users.Insert(tx, name, name+"@example.org"); err != nil {
				return err
			}
		}
		return nil
	}))

	const perPage = 2
	page := func(after txn.Bound[string]) (names []string, err error) {
		err = db.View(ctx, func(tx *txn.Tx) error {
			names = nil // of an attempt before this one
			for name := range users.RangeKeys(tx, after, txn.Bound[string]{}, txn.Limit(perPage)) {
				names = append(names, name)
			}
			return nil
		})
		return names, err
	}
	for after := (txn.Bound[string]{}); ; {
		names := must(page(after))
		fmt.Println(names)
		if len(names) < perPage {
			break
		}
		after = txn.Excluding(names[len(names)-1])
	}
	// Output:
	// [ada bob]
	// [cyd dan]
	// [eve]
}

// What expires is found by an index of its own, in the order of time, that the same transactions
// keep. A sweep reads what is due, and nothing else.
func Example_expiry() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	type session struct {
		User    string
		Expires time.Time
	}
	sessions := must(txn.CreateTable(db, "sessions", txn.String, txn.JSON[session]()))
	expiries := must(txn.CreateOrderedTable(db, "session expiries", txn.Tuple2Key(txn.Time, txn.String),
		txn.Plain[struct{}]()))

	// set stores a session under a token, or extends it.
	set := func(token, user string, expires time.Time) error {
		return db.Update(ctx, func(tx *txn.Tx) error {
			old, found, err := sessions.Lookup(tx, token)
			if err != nil {
				return err
			}
			if found {
				if err := expiries.Delete(tx, txn.T2(old.Expires, token)); err != nil {
					return err
				}
			}
			if err := expiries.Put(tx, txn.T2(expires, token), struct{}{}); err != nil {
				return err
			}
			return sessions.Put(tx, token, session{user, expires})
		})
	}
	// sweep deletes some sessions that have expired.
	sweep := func(now time.Time) (n int, err error) {
		err = db.Update(ctx, func(tx *txn.Tx) error {
			n = 0
			due := txn.Excluding(txn.T2(now, "")) // every token of an earlier time is less
			for key := range expiries.RangeKeys(tx, txn.Bound[txn.Tuple2[time.Time, string]]{}, due, txn.Limit(100)) {
				if err := expiries.Delete(tx, key); err != nil {
					return err
				}
				if err := sessions.Delete(tx, key.B); err != nil {
					return err
				}
				n++
			}
			return nil
		})
		return n, err
	}

	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for i, user := range []string{"ann", "ben", "cyd"} {
		ok(set(fmt.Sprint("token ", i), user, noon.Add(time.Duration(i)*time.Hour)))
	}
	ok(set("token 0", "ann", noon.Add(9*time.Hour))) // it is in use, and lives longer
	fmt.Println(must(sweep(noon.Add(90*time.Minute))), "expired")
	ok(db.View(ctx, func(tx *txn.Tx) error {
		for key := range expiries.Keys(tx) {
			s, err := sessions.Get(tx, key.B)
			if err != nil {
				return err
			}
			fmt.Println(key.B, s.User, s.Expires.Format(time.TimeOnly))
		}
		return nil
	}))
	// Output:
	// 1 expired
	// token 2 cyd 14:00:00
	// token 0 ann 21:00:00
}
