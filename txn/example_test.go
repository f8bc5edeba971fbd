package txn_test

import (
	"context"
	"fmt"

	"txnode/txn"
)

type Account struct{ Balance int64 }

// A few lines embed the engine: two memory blades in this process, everything
// replicated, strictly serializable transactions over a struct of the program's own.
func Example() {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{})
	if err != nil {
		panic(err)
	}
	defer db.Close(ctx)
	accounts, err := txn.CreateTable(db, "accounts", txn.String, txn.Plain[Account]())
	if err != nil {
		panic(err)
	}
	err = db.Update(ctx, func(tx *txn.Tx) error {
		if err := accounts.Put(tx, "alice", Account{Balance: 70}); err != nil {
			return err
		}
		return accounts.Put(tx, "bob", Account{Balance: 30})
	})
	if err != nil {
		panic(err)
	}
	err = db.View(ctx, func(tx *txn.Tx) error {
		a, err := accounts.Get(tx, "alice")
		fmt.Println("alice has", a.Balance)
		return err
	})
	if err != nil {
		panic(err)
	}
	// Output: alice has 70
}

// Stage announces keys, so that one round trip fetches and locks them all.
func ExampleTable_Stage() {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{})
	if err != nil {
		panic(err)
	}
	defer db.Close(ctx)
	stock, err := txn.CreateTable(db, "stock", txn.Uint64, txn.Plain[int64]())
	if err != nil {
		panic(err)
	}
	move := func(tx *txn.Tx) error {
		for _, k := range []uint64{1, 2} {
			if err := stock.Stage(tx, k, txn.ForUpdate); err != nil {
				return err
			}
		}
		a, err := stock.Get(tx, 1)
		if err != nil {
			return err
		}
		b, err := stock.Get(tx, 2)
		if err != nil {
			return err
		}
		if err := stock.Put(tx, 1, a-1); err != nil {
			return err
		}
		return stock.Put(tx, 2, b+1)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error {
		if err := stock.Insert(tx, 1, 10); err != nil {
			return err
		}
		return stock.Insert(tx, 2, 0)
	}); err != nil {
		panic(err)
	}
	if err := db.Update(ctx, move); err != nil {
		panic(err)
	}
	_ = db.View(ctx, func(tx *txn.Tx) error {
		a, _ := stock.Get(tx, 1)
		b, _ := stock.Get(tx, 2)
		fmt.Println(a, b)
		return nil
	})
	// Output: 9 1
}
