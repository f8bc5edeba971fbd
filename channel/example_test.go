package channel_test

import (
	"context"
	"fmt"
	"log"

	"txnode/channel"
	"txnode/channel/channeltest"
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
	catalog := channeltest.NewCatalog(fabric, 4096) // a database has a catalog of its own
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
