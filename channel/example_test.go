package channel_test

import (
	"context"
	"fmt"
	"log"

	"txnode/channel"
	"txnode/channel/local"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// Progress is what a worker tells the others.
type Progress struct{ Done, Failed uint64 }

// Two workers count together and tell each other their progress. A change of two objects on one
// doorbell costs one round trip.
func Example() {
	fabric, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 1 << 20, Key: 1}}})
	if err != nil {
		log.Fatal(err)
	}
	defer fabric.Close()
	catalog := local.NewCatalog(fabric, 4096) // a database has a catalog of its own
	fabric.Run(2, func(i int) {
		if err := work(fabric, catalog.Host(), i); err != nil {
			log.Fatal(err)
		}
	})
	// Output:
	// all have done 6, the counter is 6
}

func work(fabric rdma.Fabric, host channel.Host, i int) error {
	thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{Index: i})
	if err != nil {
		return err
	}
	defer thread.Close()
	ctx, c := context.Background(), thread.Plain()
	member, err := channel.Join(ctx, c, host, channel.Identity{Name: fmt.Sprint("worker-", i)})
	if err != nil {
		return err
	}
	scope := member.Scope("run-17")
	counter, err := channel.OpenVar[uint64](ctx, c, scope, "counter")
	if err != nil {
		return err
	}
	table, err := channel.OpenSST(ctx, c, scope, "progress", channel.Plain[Progress]("progress"), 2)
	if err != nil {
		return err
	}
	var b rdma.Batch
	for done := range uint64(3) {
		b.Reset()
		if err := counter.StageAdd(&b, 1); err != nil {
			return err
		}
		if err := table.StageStore(&b, Progress{Done: done + 1}); err != nil {
			return err
		}
		if err := member.Do(c, &b); err != nil {
			return err
		}
	}
	total := uint64(0)
	err = table.Await(ctx, c, func(t *channel.SST[Progress]) bool {
		total = 0
		for _, row := range t.Rows() {
			total += row.Value.Done
		}
		return total == 6
	})
	if err != nil {
		return err
	}
	n, err := counter.Load(c)
	if err != nil {
		return err
	}
	if table.Row() == 0 {
		fmt.Printf("all have done %d, the counter is %d\n", total, n)
	}
	return nil
}

// A member keeps settings in a map that all members read. The second change depends on the value
// before.
func ExampleKV() {
	fabric, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 1 << 20, Key: 1}}})
	if err != nil {
		log.Fatal(err)
	}
	defer fabric.Close()
	catalog := local.NewCatalog(fabric, 4096)
	fabric.Run(1, func(i int) {
		if err := settings(fabric, catalog.Host(), i); err != nil {
			log.Fatal(err)
		}
	})
	// Output:
	// workers: 4
	// workers: 8
}

func settings(fabric rdma.Fabric, host channel.Host, i int) error {
	thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{Index: i})
	if err != nil {
		return err
	}
	defer thread.Close()
	ctx, c := context.Background(), thread.Plain()
	member, err := channel.Join(ctx, c, host, channel.Identity{Name: "operator"})
	if err != nil {
		return err
	}
	type name [16]byte
	kv, err := channel.OpenKV(ctx, c, member.Scope("run-17"), "settings", channel.Plain[name]("name"),
		channel.Plain[uint64]("setting"), channel.KVOptions{Keys: 100})
	if err != nil {
		return err
	}
	workers := name([]byte("workers\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	if err := kv.Put(ctx, c, workers, 4); err != nil {
		return err
	}
	n, _, err := kv.Get(c, workers)
	if err != nil {
		return err
	}
	fmt.Println("workers:", n)

	n, _, err = kv.Hold(ctx, c, workers)
	if err != nil {
		return err
	}
	var b rdma.Batch
	if err := kv.StagePut(&b, 2*n); err != nil {
		return err
	}
	if err := member.Do(c, &b); err != nil {
		return err
	}
	n, _, err = kv.Get(c, workers)
	fmt.Println("workers:", n)
	return err
}
