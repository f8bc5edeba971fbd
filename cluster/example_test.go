package cluster_test

import (
	"context"
	"log"
	"net"
	"os"
	"os/signal"

	"txnode/cluster"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// A process opens the database of a cluster by the address of its catalog. Before, once:
// txnode cluster init.
func Example() {
	ctx := context.Background()
	db, err := cluster.Open(ctx, "unix:///run/txnode/catalog", txn.Options{}, cluster.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	log.Print(db.Tables())
}

// A program that serves a blade itself has it take part in a cluster, as txnode serve --join does.
func ExampleAnnounce() {
	set, err := region.New(region.Config{Regions: []region.Options{{Size: 1 << 30}}})
	if err != nil {
		log.Fatal(err)
	}
	server, err := tcp.NewServer(set, tcp.ServerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", "/run/txnode/blade")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(l)
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt)
	defer end()
	err = cluster.Announce(ctx, "unix:///run/txnode/catalog", cluster.AnnounceOptions{
		Address:      "unix:/run/txnode/blade",
		Incarnations: []uint64{set.Blades()[0].Incarnation},
		Domain:       "rack 7",
		Report:       func(err error) { log.Print(err) },
	})
	log.Print(err) // nil: the program was interrupted, and the catalog knows it
}
