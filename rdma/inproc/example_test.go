package inproc_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"txnode/rdma"
	"txnode/rdma/inproc"
)

// A blade that is a file has its data again when it is opened again.
func Example() {
	dir, err := os.MkdirTemp("", "blades")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	use := func(f func(c *rdma.Coro, t *rdma.Thread)) {
		fabric, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{
			{Size: 1 << 20, Path: filepath.Join(dir, "blade-0"), Key: 7},
		}})
		if err != nil {
			log.Fatal(err)
		}
		defer fabric.Close()
		// Disk space for what will be written: a full disk is an error here.
		if err := fabric.Provision(0, 0, 1<<16); err != nil {
			log.Fatal(err)
		}
		thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{})
		if err != nil {
			log.Fatal(err)
		}
		defer thread.Close()
		f(thread.Plain(), thread)
	}
	place := rdma.RemoteAddr{Blade: 0, Key: 7, Off: 4096}

	use(func(c *rdma.Coro, t *rdma.Thread) {
		copy(t.Bytes(0, 5), "hello")
		var b rdma.Batch
		b.Write(place, 0, 5)
		b.Flush(place, 5)
		if err := c.Do(&b); err != nil {
			log.Fatal(err)
		}
	})
	use(func(c *rdma.Coro, t *rdma.Thread) {
		var b rdma.Batch
		b.Read(place, 64, 5)
		if err := c.Do(&b); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", t.Bytes(64, 5))
	})
	// Output: hello
}
