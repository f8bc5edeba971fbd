package tcp_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"txnode/rdma"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
)

// One process serves a blade on a unix socket, and another one, here the same, writes to it.
func Example() {
	dir, err := os.MkdirTemp("", "blade")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	set, err := region.New(region.Config{Regions: []region.Options{{Size: 1 << 20, Key: 7}}})
	if err != nil {
		log.Fatal(err)
	}
	server, err := tcp.NewServer(set, tcp.ServerOptions{}) // for this user, and root
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()

	ctx := context.Background()
	fabric, err := tcp.Dial(ctx, []string{"unix:" + filepath.Join(dir, "socket")}, tcp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	place := rdma.RemoteAddr{Blade: 0, Key: fabric.Blades()[0].Key, Off: 4096}
	copy(thread.Bytes(0, 5), "hello")
	var b rdma.Batch
	b.Write(place, 0, 5)
	b.Read(place, 64, 5)
	if err := thread.Plain().Do(&b); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", thread.Bytes(64, 5))

	for _, end := range []func() error{
		thread.Close, fabric.Close, func() error { return server.Shutdown(ctx) },
		func() error { return <-served }, set.Close,
	} {
		if err := end(); err != nil {
			log.Fatal(err)
		}
	}
	// Output: hello
}
