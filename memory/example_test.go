package memory_test

import (
	"fmt"
	"log"

	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/rdma"
)

// A block is taken from an allocator, written to every replica with one doorbell
// per blade, and read from the primary.
func Example() {
	db, err := embedded.Open(embedded.Options{Blades: 3, Replicas: 2, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	thread, err := rdma.NewThread(db.Fabric(), rdma.ThreadOptions{Techniques: rdma.AllTechniques})
	if err != nil {
		log.Fatal(err)
	}
	defer thread.Close()
	c := thread.Plain()
	alloc, err := db.Space().NewAllocator(thread)
	if err != nil {
		log.Fatal(err)
	}
	defer alloc.Close(c)

	class, _ := layout.ClassOf(100)
	block, err := alloc.Alloc(c, class)
	if err != nil {
		log.Fatal(err)
	}
	buf, err := thread.Alloc(64)
	if err != nil {
		log.Fatal(err)
	}
	copy(thread.Bytes(buf, 64), "on every replica")
	view := db.Space().View() // one view for one transaction
	var b rdma.Batch
	for i := range view.Copies(block) {
		b.Write(view.At(block, i), buf, 64)
	}
	if err := c.Do(&b); err != nil {
		log.Fatal(err)
	}
	clear(thread.Bytes(buf, 64))
	b.Reset()
	b.Read(view.At(block, 0), buf, 64)
	if err := c.Do(&b); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v, %d bytes, at %v and %v: %s\n", block, class.Size(), view.At(block, 0), view.At(block, 1),
		thread.Bytes(buf, 16))
	// Output:
	// seg 1 +0x0, 128 bytes, at blade 0 +0x10000 and blade 1 +0x10000: on every replica
}
