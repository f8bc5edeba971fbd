package channelhost_test

import (
	"context"
	"fmt"
	"log"

	"txnode/channel"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/channelhost"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// A member of a database's host counts in a word that all processes with the database see.
func Example() {
	fabric, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 8 << 20}}})
	if err != nil {
		log.Fatal(err)
	}
	defer fabric.Close()
	thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer thread.Close()
	ctx, c := context.Background(), thread.Plain()
	space, err := memory.Open(c, fabric, &catalog.Mem{}, memory.Options{SegmentSize: 256 << 10, LogArea: 64 << 10})
	if err != nil {
		log.Fatal(err)
	}
	member, err := channel.Join(ctx, c, channelhost.New(space), channel.Identity{Name: "counter"})
	if err != nil {
		log.Fatal(err)
	}
	v, err := channel.OpenVar[uint64](ctx, c, member.Scope("run-17"), "done")
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := v.Add(c, 1); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(v.Load(c))
	for _, r := range space.Layout().Reserved {
		fmt.Println(r.Name)
	}
	// Output:
	// 3 <nil>
	// channel/.host
	// channel/.host/00000001
	// channel/.members
	// channel/run-17/done
}
