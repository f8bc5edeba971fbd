package txn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"txnode/txn"
)

// inMemory opens a database in memory for an example.
func inMemory(ctx context.Context) *txn.DB {
	db, err := txn.Open(ctx, txn.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return db
}

// must is for what does not fail in an example.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// ok is must without a value.
func ok(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A database in a directory has its tables again when it is opened again. One process
// at a time has it open.
func ExampleOpen() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "bank"))
	defer os.RemoveAll(dir)
	for run := 1; run <= 2; run++ {
		db := must(txn.Open(ctx, txn.Options{Dir: dir}))
		visits := must(txn.CreateTable(db, "visits", txn.String, txn.Plain[uint64]()))
		ok(db.Update(ctx, func(tx *txn.Tx) error {
			n, err := visits.GetForUpdate(tx, "home")
			if err != nil && !errors.Is(err, txn.ErrNotFound) {
				return err
			}
			fmt.Println("visit", n+1)
			return visits.Put(tx, "home", n+1)
		}))
		_, err := txn.Open(ctx, txn.Options{Dir: dir})
		fmt.Println("opened twice:", errors.Is(err, txn.ErrLocked))
		ok(db.Close(ctx))
	}
	// Output:
	// visit 1
	// opened twice: true
	// visit 2
	// opened twice: true
}

// Options that are wrong come back with every fault at once.
func ExampleOptions_Validate() {
	err := txn.Options{Blades: 2, Backups: txn.F(2), ReadOnly: true}.Validate()
	fmt.Println(errors.Is(err, txn.ErrOptions))
	fmt.Println(err)
	// Output:
	// true
	// txn: wrong options: Backups is 2: more blades than backups are needed, there are 2
	// ReadOnly needs Dir
}

// A table of structs of fixed size under numbers.
func ExampleTable() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	type Item struct {
		Price int64
		Stock uint32
		Kind  [4]byte
	}
	items := must(txn.CreateTable(db, "items", txn.Uint64, txn.Plain[Item]()))
	ok(db.Update(ctx, func(tx *txn.Tx) error {
		if err := items.Insert(tx, 7, Item{Price: 250, Stock: 3, Kind: [4]byte{'b', 'o', 'o', 'k'}}); err != nil {
			return err // ErrExists, if there is an item 7
		}
		return items.Put(tx, 8, Item{Price: 99}) // whether there is an item 8 or not
	}))
	ok(db.Update(ctx, func(tx *txn.Tx) error {
		item, err := items.GetForUpdate(tx, 7)
		if err != nil {
			return err
		}
		item.Stock--
		if err := items.Put(tx, 7, item); err != nil {
			return err
		}
		return items.Delete(tx, 8) // ErrNotFound, if there is none
	}))
	ok(db.View(ctx, func(tx *txn.Tx) error {
		item, err := items.Get(tx, 7)
		if err != nil {
			return err
		}
		there, err := items.Has(tx, 8)
		fmt.Printf("%d of %s at %d; item 8: %v\n", item.Stock, item.Kind, item.Price, there)
		return err
	}))
	// Output: 2 of book at 250; item 8: false
}

// Stage announces keys, of any tables: the next Get fetches all of them in one round
// trip.
func ExampleTable_StageAll() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	stock := must(txn.CreateTable(db, "stock", txn.Uint64, txn.Plain[int64]()))
	ok(db.Update(ctx, func(tx *txn.Tx) error {
		for k := range uint64(10) {
			if err := stock.Put(tx, k, int64(k*k)); err != nil {
				return err
			}
		}
		return nil
	}))
	worker := must(db.NewWorker()) // one worker of our own, to count what it does
	defer worker.Close()
	sum := func(stage bool, keys ...uint64) (sum int64, roundTrips uint64) {
		before := worker.Metrics().Verbs
		ok(worker.View(ctx, func(tx *txn.Tx) error {
			sum = 0
			if stage {
				if err := stock.StageAll(tx, txn.ForRead, keys...); err != nil {
					return err
				}
			}
			for _, k := range keys {
				n, err := stock.Get(tx, k)
				if err != nil {
					return err
				}
				sum += n
			}
			return nil
		}))
		cost := worker.Metrics().Verbs.Sub(&before)
		return sum, cost.RoundTrips
	}
	sum(true, 1, 3, 5, 7)               // where the records are is in the cache now
	fmt.Println(sum(false, 1, 3, 5, 7)) // one to read each; from the second on one to validate all before it
	fmt.Println(sum(true, 1, 3, 5, 7))  // one to read them all, one to validate them together
	// Output:
	// 84 7
	// 84 2
}

var errFunds = errors.New("not enough money")

// A transfer reads and locks both accounts in one round trip and commits in another.
// The function's own error rolls back and comes through.
func ExampleDB_Update() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	accounts := must(txn.CreateTable(db, "accounts", txn.String, txn.Plain[Account]()))
	ok(db.Update(ctx, func(tx *txn.Tx) error { return accounts.Put(tx, "alice", Account{100}) }))
	ok(db.Update(ctx, func(tx *txn.Tx) error { return accounts.Put(tx, "bob", Account{0}) }))

	transfer := func(from, to string, amount int64) error {
		if from == to {
			return nil // b below would be an account from which nothing was taken
		}
		return db.Update(ctx, func(tx *txn.Tx) error {
			if err := accounts.StageAll(tx, txn.ForUpdate, from, to); err != nil {
				return err
			}
			a, err := accounts.Get(tx, from)
			if err != nil {
				return err
			}
			b, err := accounts.Get(tx, to)
			if err != nil {
				return err
			}
			if a.Balance < amount {
				return errFunds // rolls back
			}
			if err := accounts.Put(tx, from, Account{a.Balance - amount}); err != nil {
				return err
			}
			return accounts.Put(tx, to, Account{b.Balance + amount})
		})
	}
	fmt.Println(transfer("alice", "bob", 70))
	fmt.Println(transfer("alice", "bob", 70))
	fmt.Println(transfer("bob", "bob", 70))
	ok(db.View(ctx, func(tx *txn.Tx) error {
		b, err := accounts.Get(tx, "bob")
		fmt.Println("bob has", b.Balance)
		return err
	}))
	// Output:
	// <nil>
	// not enough money
	// <nil>
	// bob has 70
}

// What an error is, errors.Is tells; for some, errors.As tells more.
func Example_errors() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	notes := must(txn.CreateTable(db, "notes", txn.String, txn.Text()))
	err := db.Update(ctx, func(tx *txn.Tx) error { return notes.Put(tx, "long", string(make([]byte, 2<<20))) })
	var tooLarge *txn.TooLargeError
	switch {
	case errors.As(err, &tooLarge):
		fmt.Printf("%s of %d bytes, and %d are possible\n", tooLarge.What, tooLarge.Got, tooLarge.Limit)
	case errors.Is(err, txn.ErrConflict): // others were in the way a thousand times: nothing has happened
	case errors.Is(err, txn.ErrNoSpace): // the blades are full: nothing has happened
	case errors.Is(err, txn.ErrOutcomeUnknown): // the fabric failed during the commit
	}
	err = db.View(ctx, func(tx *txn.Tx) error {
		_, err := notes.Get(tx, "short")
		return err
	})
	fmt.Println(errors.Is(err, txn.ErrNotFound))
	_, err = txn.CreateTable(db, "notes", txn.Uint64, txn.Text())
	fmt.Println(errors.Is(err, txn.ErrTableType))
	// Output:
	// value of 2097152 bytes, and 1048576 are possible
	// true
	// true
}

// Begin is for code that cannot put its transaction into one function. Conflicts are
// then its own to retry; a deferred Rollback does nothing after a Commit.
func ExampleDB_Begin() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	jobs := must(txn.CreateTable(db, "jobs", txn.Uint64, txn.Text()))
	take := func(id uint64, who string) error {
		tx, err := db.Begin(ctx, false)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := jobs.Insert(tx, id, who); err != nil {
			return err // ErrConflict, if somebody is taking it just now
		}
		return tx.Commit()
	}
	for _, who := range []string{"ann", "ben"} {
		err := take(1, who)
		for errors.Is(err, txn.ErrConflict) {
			err = take(1, who)
		}
		fmt.Println(who, err)
	}
	// Output:
	// ann <nil>
	// ben txn: key exists already: table "jobs", key 1
}

// A key of one's own: any encoding in which different keys have different bytes.
func ExampleKey() {
	type Seat struct {
		Flight uint32
		Row    uint8
	}
	key := txn.Key[Seat]{Name: "seat", Append: func(dst []byte, k Seat) []byte {
		return append(binary.BigEndian.AppendUint32(dst, k.Flight), k.Row)
	}}
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	type Passenger struct {
		Name string
		Meal string `json:",omitempty"`
	}
	seats := must(txn.CreateTable(db, "seats", key, txn.JSON[Passenger]()))
	ok(db.Update(ctx, func(tx *txn.Tx) error {
		return seats.Insert(tx, Seat{Flight: 714, Row: 12}, Passenger{Name: "Tryphon"})
	}))
	ok(db.View(ctx, func(tx *txn.Tx) error {
		p, err := seats.Get(tx, Seat{714, 12})
		fmt.Println(p.Name)
		return err
	}))
	// Output: Tryphon
}

// Bytes under bytes, for programs that encode by themselves. What Get returns is the
// engine's memory: copy what outlives the function.
func ExampleRawTable() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	blobs := must(txn.CreateRawTable(db, "blobs"))
	ok(db.Update(ctx, func(tx *txn.Tx) error { return blobs.Put(tx, []byte("k"), []byte("some bytes")) }))
	var kept []byte
	ok(db.View(ctx, func(tx *txn.Tx) error {
		v, err := blobs.Get(tx, []byte("k"))
		kept = append(kept[:0], v...)
		return err
	}))
	fmt.Printf("%s\n", kept)
	// Output: some bytes
}

// Two threads of four coroutines each run transactions without end; here each runs
// 100. A coroutine waits for its own verbs while the others of its thread go on.
func ExampleDB_Run() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	counters := must(txn.CreateTable(db, "counters", txn.Uint64, txn.Plain[int64]()))
	ok(db.Run(ctx, 2, 4, func(ctx context.Context, id int, w *txn.Worker) error {
		for range 100 {
			err := w.Update(ctx, func(tx *txn.Tx) error {
				n, err := counters.GetForUpdate(tx, 0)
				if err != nil && !errors.Is(err, txn.ErrNotFound) {
					return err
				}
				return counters.Put(tx, 0, n+1)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	ok(db.View(ctx, func(tx *txn.Tx) error {
		n, err := counters.Get(tx, 0)
		fmt.Println(n, "increments,", db.Metrics().Committed >= 800)
		return err
	}))
	// Output: 800 increments, true
}

// The read, change and write that most programs need, in one call.
func ExampleTable_Update() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	words := must(txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]("count")))
	ok(db.Update(ctx, func(tx *txn.Tx) error {
		for _, w := range []string{"to", "be", "or", "not", "to", "be"} {
			err := words.Update(tx, w, func(n uint64, found bool) (uint64, txn.Change, error) {
				return n + 1, txn.Store, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	ok(db.View(ctx, func(tx *txn.Tx) error {
		n, found, err := words.Lookup(tx, "be")
		if err != nil {
			return err
		}
		fmt.Println(n, found)
		n, found, err = words.Lookup(tx, "question")
		fmt.Println(n, found)
		return err
	}))
	// Output:
	// 2 true
	// 0 false
}

// A key of several parts, the second one in descending order, and a struct of one's own for it.
func ExampleTuple2Key() {
	type Post struct {
		Author string
		At     time.Time
	}
	key := txn.KeyAs("post", txn.Tuple2Key(txn.String, txn.Desc(txn.Time)),
		func(p Post) txn.Tuple2[string, time.Time] { return txn.T2(p.Author, p.At) },
		func(t txn.Tuple2[string, time.Time]) Post { return Post{t.A, t.B} })
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	posts := must(txn.CreateTable(db, "posts", key, txn.Text()))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ok(db.Update(ctx, func(tx *txn.Tx) error { return posts.Insert(tx, Post{"ann", at}, "hello") }))
	err := db.Update(ctx, func(tx *txn.Tx) error { return posts.Insert(tx, Post{"ann", at}, "again") })
	fmt.Println(err)

	older, newer := key.Append(nil, Post{"ann", at}), key.Append(nil, Post{"ann", at.Add(time.Hour)})
	fmt.Println("the newer one comes first:", bytes.Compare(newer, older) < 0)
	// Output:
	// txn: key exists already: table "posts", key ("ann", 2026-01-02T03:04:05Z)
	// the newer one comes first: true
}

// A loop over a table is part of its transaction: the sum is of one moment, whatever other
// transactions do. An error of the loop is the error of View.
func ExampleTable_All() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	accounts := must(txn.CreateTable(db, "accounts", txn.String, txn.Plain[int64]("cents")))
	ok(db.Update(ctx, func(tx *txn.Tx) error {
		return errors.Join(accounts.Put(tx, "ann", 300), accounts.Put(tx, "ben", 50), accounts.Put(tx, "cid", -20))
	}))
	var sum int64
	ok(db.View(ctx, func(tx *txn.Tx) error {
		sum = 0 // the function may run again
		for _, cents := range accounts.All(tx) {
			sum += cents
		}
		return nil
	}))
	fmt.Println(sum)

	ok(db.Update(ctx, func(tx *txn.Tx) error {
		for name, cents := range accounts.All(tx) {
			if cents < 0 {
				if err := accounts.Delete(tx, name); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	ok(db.View(ctx, func(tx *txn.Tx) error {
		_, found, err := accounts.Lookup(tx, "cid")
		fmt.Println("cid:", found)
		return err
	}))
	// Output:
	// 330
	// cid: false
}

// Any number of records, each batch in a transaction of its own.
func ExampleTable_Load() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	squares := must(txn.CreateTable(db, "squares", txn.Uint64, txn.Plain[uint64]("square")))
	n := must(squares.Load(ctx, func(yield func(k, v uint64) bool) {
		for k := uint64(0); k < 10_000 && yield(k, k*k); k++ {
		}
	}, txn.LoadOptions{Progress: func(n uint64) {
		if n == 10_000 {
			fmt.Println("done")
		}
	}}))
	st := must(squares.Stats(ctx))
	fmt.Println(n, st.Rows, st.Bytes)
	// Output:
	// done
	// 10000 10000 160000
}
