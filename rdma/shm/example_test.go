//go:build linux

package shm_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"txnode/rdma"
	"txnode/rdma/region"
	"txnode/rdma/shm"
)

// One process has a blade, and another one, here the same, maps it and writes to it.
func Example() {
	dir, err := os.MkdirTemp("", "blades")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	server, err := shm.NewServer(dir, shm.ServerOptions{Name: "a", Blades: []region.Options{{Size: 1 << 20}}})
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve() }()

	fabric, err := shm.Dial(context.Background(), dir, shm.Options{})
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

	for _, end := range []func() error{thread.Close, fabric.Close, server.Close, func() error { return <-served }} {
		if err := end(); err != nil {
			log.Fatal(err)
		}
	}
	// Output: hello
}
