package cluster_test

import (
	"context"
	"log"

	"txnode/cluster"
	"txnode/txn"
)

// A process opens the database of a cluster by the address of its catalog. Before, once: txnode cluster init.
func Example() {
	ctx := context.Background()
	db, err := cluster.Open(ctx, "unix:///run/txnode/catalog", txn.Options{}, cluster.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	log.Print(db.Tables())
}
