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
	host, err := cluster.Connect(ctx, "unix:///run/txnode/catalog,tcp://127.0.0.1:7000", cluster.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	db, err := txn.Open(ctx, txn.Options{Fabric: host.Fabric, Catalog: host.Catalog})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	log.Print(db.Tables())
}
