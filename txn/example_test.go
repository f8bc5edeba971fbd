package txn_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"txnode/txn"
)

type Account struct{ Balance int64 }

func deposit(ctx context.Context, name string, amount int64) (balance int64, err error) {
	db, err := txn.Open(ctx, txn.Options{}) // two memory blades in this process, a backup of every record
	if err != nil {
		return 0, err
	}
	defer db.Close(ctx)
	accounts, err := txn.CreateTable(db, "accounts", txn.String, txn.Plain[Account]())
	if err != nil {
		return 0, err
	}
	err = db.Update(ctx, func(tx *txn.Tx) error { // strictly serializable; again after a conflict
		a, err := accounts.GetForUpdate(tx, name) // one round trip reads and locks
		if err != nil && !errors.Is(err, txn.ErrNotFound) {
			return err
		}
		balance = a.Balance + amount
		return accounts.Put(tx, name, Account{balance})
	})
	return balance, err
}

// A few lines embed the engine: two memory blades in this process, everything
// replicated, strictly serializable transactions over a struct of the program's own.
func Example() {
	balance, err := deposit(context.Background(), "alice", 100)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("alice has", balance)
	// Output: alice has 100
}
