package heartbeat_test

import (
	"context"
	"fmt"
	"log"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/heartbeat"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// One process finds another one silent, and takes over from it. Its lease would have lasted for an hour.
func Example() {
	fabric := rdmatest.New(rdmatest.Options{Blades: 1, Size: 8 << 20})
	ctx, cat := context.Background(), &catalog.Mem{}
	var spaces []*memory.Space
	var beats []*heartbeat.Monitor
	var coros []*rdma.Coro
	for i := range 2 {
		thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{Index: i, Arena: heartbeat.Arena})
		if err != nil {
			log.Fatal(err)
		}
		defer thread.Close()
		space, err := memory.Open(thread.Plain(), fabric, cat, memory.Options{SegmentSize: 256 << 10, LogArea: 64 << 10, Shared: true, Until: 3600e9})
		if err == nil {
			err = space.EndAlone()
		}
		if err != nil {
			log.Fatal(err)
		}
		spaces, coros = append(spaces, space), append(coros, thread.Plain())
		beats = append(beats, heartbeat.New(space, heartbeat.Options{Term: 50e6}))
	}
	turns := func(n int, processes ...int) {
		for range n {
			for _, i := range processes {
				if _, err := beats[i].Turn(ctx, coros[i]); err != nil {
					log.Fatal(err)
				}
			}
			coros[0].Sleep(beats[0].Every())
		}
	}
	turns(8, 0, 1)
	fmt.Println(spaces[0].TakeOver(fabric.Now()))
	turns(8, 0)
	fmt.Println(spaces[0].TakeOver(fabric.Now()))
	// Output:
	// 0 <nil>
	// 1 <nil>
}
