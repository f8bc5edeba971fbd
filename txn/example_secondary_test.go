package txn_test

import (
	"context"
	"errors"
	"fmt"

	"txnode/txn"
)

// A secondary index finds records by something else than their keys. It is kept by every write, in
// the same transaction.
func ExampleIndex() {
	type user struct{ Name, City string }
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Blades: 2, BladeSize: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close(ctx)
	byName := txn.NewUniqueIndex("by_name", txn.String, func(_ uint64, u user) []string { return []string{u.Name} })
	byCity := txn.NewIndex("by_city", txn.String, func(_ uint64, u user) []string { return []string{u.City} })
	users, err := txn.CreateTable(db, "users", txn.Uint64, txn.JSON[user](), byName, byCity)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = db.Update(ctx, func(tx *txn.Tx) error {
		return errors.Join(
			users.Insert(tx, 1, user{"ada", "London"}),
			users.Insert(tx, 2, user{"alan", "London"}),
			users.Insert(tx, 3, user{"grace", "New York"}))
	})
	fmt.Println(err)
	err = db.View(ctx, func(tx *txn.Tx) error {
		for id, u := range byCity.Rows(tx, txn.Including("London"), txn.Including("London")) {
			fmt.Println(id, u.Name)
		}
		id, _, found, err := byName.Lookup(tx, "grace")
		fmt.Println(id, found)
		return err
	})
	fmt.Println(err)
	err = db.Update(ctx, func(tx *txn.Tx) error { return users.Put(tx, 4, user{"ada", "Paris"}) })
	fmt.Println(errors.Is(err, txn.ErrUnique))
	// Output:
	// <nil>
	// 1 ada
	// 2 alan
	// 3 true
	// <nil>
	// true
}
