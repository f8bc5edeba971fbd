package rdmatest_test

import (
	"fmt"
	"log"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// A completed WRITE need not be visible yet; on this fabric a READ behind it
// makes it so. Time is virtual: a round trip takes as long as the options say.
func Example() {
	fabric := rdmatest.New(rdmatest.Options{Blades: 1, Size: 4096, LatencyNs: 3000, SpreadNs: 1_000_000})
	thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{Arena: 4096})
	if err != nil {
		log.Fatal(err)
	}
	defer thread.Close()
	place := rdma.RemoteAddr{Blade: 0, Key: 1000, Off: 64}

	fabric.Run(1, func(int) {
		c := thread.Plain()
		var b rdma.Batch
		thread.PutWord(0, 7)
		b.Write(place, 0, 8)
		if err := c.Do(&b); err != nil {
			log.Fatal(err)
		}
		fmt.Println("after", fabric.Now(), "ns:", fabric.Memory(0)[64])
		if err := c.Fence(rdma.FencePair, 0, &b); err != nil {
			log.Fatal(err)
		}
		fmt.Println("after a fence:", fabric.Memory(0)[64])
	})
	// Output:
	// after 3010 ns: 0
	// after a fence: 7
}
