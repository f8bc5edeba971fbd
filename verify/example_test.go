package verify_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/txn"
	"txnode/verify"
)

// A database in a directory is checked after it was closed.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "verify")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := txn.Open(ctx, txn.Options{Dir: dir, BladeSize: 16 << 20, SegmentSize: 1 << 20, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	accounts, err := txn.CreateTable(db, "accounts", txn.Uint64, txn.Text())
	if err != nil {
		log.Fatal(err)
	}
	err = db.Update(ctx, func(tx *txn.Tx) error { return accounts.Put(tx, 42, "one hundred") })
	if err != nil {
		log.Fatal(err)
	}
	if err := db.Close(ctx); err != nil {
		log.Fatal(err)
	}

	host, err := embedded.Connect(embedded.Options{Dir: dir, ReadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	stored, err := layout.LoadLayout(host.Catalog)
	if err != nil {
		log.Fatal(err)
	}
	v, err := verify.Attach(host.Fabric, stored)
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()
	sum, err := v.Check(ctx, verify.Options{Report: func(f verify.Finding) error {
		fmt.Println(f)
		return nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("table %s: %d records; %d findings\n", sum.Tables[0].Name, sum.Tables[0].Records, sum.Findings)
	// Output: table accounts: 1 records; 0 findings
}
