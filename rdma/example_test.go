package rdma_test

import (
	"fmt"
	"log"

	"txnode/rdma"
	"txnode/rdma/inproc"
)

// Two coroutines of one thread move money between two accounts on two blades,
// each account a word, with compare-and-swap. Both requests of a move go out
// under one doorbell each, and cost one round trip together.
func Example() {
	fabric, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 1 << 16}, {Size: 1 << 16}}})
	if err != nil {
		log.Fatal(err)
	}
	defer fabric.Close()
	thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{Techniques: rdma.AllTechniques})
	if err != nil {
		log.Fatal(err)
	}
	defer thread.Close()
	blades := fabric.Blades()
	a := rdma.RemoteAddr{Blade: 0, Key: blades[0].Key, Off: 64}
	b := rdma.RemoteAddr{Blade: 1, Key: blades[1].Key, Off: 128}

	thread.Run(2, func(c *rdma.Coro) {
		var batch rdma.Batch
		for range 10 {
			batch.Reset()
			batch.FAA(a, ^uint64(0)) // minus one
			batch.FAA(b, 1)
			if err := c.Do(&batch); err != nil {
				log.Fatal(err)
			}
			c.Yield()
		}
	})

	var batch rdma.Batch
	batch.Read(a, 0, 8)
	batch.Read(b, 8, 8)
	if err := thread.Plain().Do(&batch); err != nil {
		log.Fatal(err)
	}
	counters := thread.Counters()
	fmt.Println(int64(thread.Word(0)), int64(thread.Word(8)))
	fmt.Println(counters.Verbs[rdma.OpFAA], "FAAs,", counters.RoundTrips, "round trips")
	// Output:
	// -20 20
	// 40 FAAs, 21 round trips
}

// A batch that failed says which request, where and why. The queue pair is then
// in the error state until Thread.Reconnect.
func ExampleVerbError() {
	fabric, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 1 << 16}}})
	if err != nil {
		log.Fatal(err)
	}
	defer fabric.Close()
	thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer thread.Close()

	key := fabric.Blades()[0].Key
	var batch rdma.Batch
	batch.Write(rdma.RemoteAddr{Key: key, Off: 64}, 0, 64)
	batch.Read(rdma.RemoteAddr{Key: key, Off: 1<<16 - 8}, 0, 64)
	batch.Write(rdma.RemoteAddr{Key: key, Off: 128}, 0, 64)
	fmt.Println(thread.Plain().Do(&batch))
	for i := range batch.Len() {
		fmt.Printf("%v: %v\n", batch.WR(i).Op, batch.WR(i).Status)
	}
	// Output:
	// rdma: READ of 64 bytes at offset 0xfff8 of blade 0: past the end of the region (size 0x10000)
	// WRITE: ok
	// READ: past the end of the region
	// WRITE: queue pair in error state
}

// A retry loop: BeginOp and EndOp bound the operation, Backoff comes before each
// new attempt.
func ExampleCoro_Backoff() {
	fabric, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 1 << 16}}})
	if err != nil {
		log.Fatal(err)
	}
	defer fabric.Close()
	thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{Techniques: rdma.AllTechniques})
	if err != nil {
		log.Fatal(err)
	}
	defer thread.Close()
	counter := rdma.RemoteAddr{Key: fabric.Blades()[0].Key, Off: 64}

	thread.Run(8, func(c *rdma.Coro) {
		var batch rdma.Batch
		for range 100 {
			c.BeginOp()
			for expect := uint64(0); ; c.Backoff() {
				batch.Reset()
				i := batch.CAS(counter, expect, expect+1)
				if err := c.Do(&batch); err != nil {
					log.Fatal(err)
				}
				if batch.Result(i) == expect {
					break
				}
				expect = batch.Result(i)
			}
			c.EndOp()
		}
	})

	var batch rdma.Batch
	batch.Read(counter, 0, 8)
	if err := thread.Plain().Do(&batch); err != nil {
		log.Fatal(err)
	}
	fmt.Println(thread.Word(0))
	// Output: 800
}
