package remote_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"txnode/memory/catalog"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
)

// One process has a catalog and serves it, and another one, here the same, uses it.
func Example() {
	dir, err := os.MkdirTemp("", "catalog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")

	service := remote.NewService(&catalog.Mem{})
	server, err := tcp.NewServer(nil, tcp.ServerOptions{Services: map[string]tcp.Service{remote.ServiceName: service}})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()

	ctx := context.Background()
	c, err := remote.Dial(ctx, "unix:"+socket, tcp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_, rev, err := c.Load()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Apply(rev, []layout.Entry{{Key: "a", Value: []byte("1")}}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Await(ctx, rev); err != nil { // at once: it has changed
		log.Fatal(err)
	}
	entries, _, err := c.Load()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s=%s\n", entries[0].Key, entries[0].Value)

	for _, end := range []func() error{c.Close, func() error { return server.Shutdown(ctx) }, func() error {
		return <-served
	}} {
		if err := end(); err != nil {
			log.Fatal(err)
		}
	}
	// Output: a=1
}
