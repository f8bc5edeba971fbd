package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/workload"
	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// reader posts READs of 64 bytes of a blade in a process of its own, and returns a function that
// does so with batches of depth, each of which it waits for.
func reader(b *testing.B, network string, depth int) (batches func(n int)) {
	const size = 1 << 20
	f := dial(b, tcp.Options{}, spawn(b, "serve", network, 1, size).addr)
	t, err := rdma.NewThread(f, rdma.ThreadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(t.Close(), f.Close()); err != nil {
			b.Error(err)
		}
	})
	key := f.Blades()[0].Key
	var batch rdma.Batch
	rng := uint64(1)
	return func(n int) {
		for range n {
			batch.Reset()
			for i := range depth {
				rng = rng*6364136223846793005 + 1442695040888963407
				batch.Read(rdma.RemoteAddr{Key: key, Off: rng >> 33 % (size / 64) * 64}, uint32(i)*64, 64)
			}
			if err := t.Plain().Do(&batch); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// echoer is as reader, but exchanges as many bytes with a process that does nothing else.
func echoer(b *testing.B, network string, depth int) (batches func(n int)) {
	out, in := tcp.RequestSize*depth, (tcp.ReplySize+64)*depth
	_, address, _ := strings.Cut(spawn(b, "echo", network, out, in).addr, ":")
	c, err := net.Dial(network, address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	to, from := make([]byte, out), make([]byte, in)
	return func(n int) {
		for range n {
			if _, err := c.Write(to); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, from); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkReads compares READs with the echo and with READs that wait by poll, in turn, because
// the machine's load changes faster than a benchmark ends. It reports the first decile of short
// rounds: the time of a READ, its share of the echo's rate, and the same with poll.
func BenchmarkReads(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		for _, depth := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", network, depth), func(b *testing.B) {
				const batches = 4
				read, echo := reader(b, network, depth), echoer(b, network, depth)
				was := tcp.PollWaiter()
				poll := reader(b, network, depth)
				was()
				times := make([][]float64, 3)
				b.ResetTimer()
				for range b.N {
					for i, f := range []func(int){read, echo, poll} {
						t0 := time.Now()
						f(batches)
						times[i] = append(times[i], float64(time.Since(t0))/batches/float64(depth))
					}
				}
				for i := range times {
					slices.Sort(times[i])
				}
				m := len(times[0]) / 10
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(times[0][m], "ns/READ")
				b.ReportMetric(100*times[1][m]/times[0][m], "%-of-echo")
				b.ReportMetric(100*times[1][m]/times[2][m], "%-with-poll")
			})
		}
	}
}

// BenchmarkTransfers moves so many bytes by one request.
func BenchmarkTransfers(b *testing.B) {
	for _, size := range []uint32{1 << 10, 4 << 10, 64 << 10, 1 << 20} {
		for _, op := range []rdma.Op{rdma.OpRead, rdma.OpWrite} {
			b.Run(fmt.Sprintf("%v/%d", op, size), func(b *testing.B) {
				f := dial(b, tcp.Options{}, spawn(b, "serve", "unix", 1, 16<<20).addr)
				defer f.Close()
				t, err := rdma.NewThread(f, rdma.ThreadOptions{})
				if err != nil {
					b.Fatal(err)
				}
				defer t.Close()
				at := rdma.RemoteAddr{Key: f.Blades()[0].Key}
				var batch rdma.Batch
				b.SetBytes(int64(size))
				b.ResetTimer()
				for range b.N {
					batch.Reset()
					if op == rdma.OpRead {
						batch.Read(at, 0, size)
					} else {
						batch.Write(at, 0, size)
					}
					if err := t.Plain().Do(&batch); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSmallBank runs SmallBank in turn on two blades in processes of their own, over a
// unix socket with both ways to wait and over TCP, and on the in-process fabric. One operation
// is a round of some 1,000 transactions a thread on each; it reports the medians of
// transactions a second.
func BenchmarkSmallBank(b *testing.B) {
	names := []string{"unix/s", "unix-poll/s", "tcp/s", "inproc/s"}
	runs := []func(int, int, int){
		bank(b, "unix", tcp.NestedWaiter), bank(b, "unix", tcp.PollWaiter),
		bank(b, "tcp", tcp.NestedWaiter), bank(b, "", tcp.NestedWaiter),
	}
	for _, threads := range []int{1, 2} {
		for _, coroutines := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("%dx%d", threads, coroutines), func(b *testing.B) {
				rates := make([][]float64, len(names))
				for range b.N {
					for i, run := range runs {
						t0 := time.Now()
						run(threads, coroutines, 1000)
						rates[i] = append(rates[i], float64(threads*1000)/time.Since(t0).Seconds())
					}
				}
				b.ReportMetric(0, "ns/op")
				for i, name := range names {
					slices.Sort(rates[i])
					b.ReportMetric(rates[i][len(rates[i])/2], name)
				}
			})
		}
	}
}

// bank loads SmallBank and returns a function that runs so many transactions in each thread.
func bank(b *testing.B, network string, wait func() (back func())) func(threads, coroutines, n int) {
	ctx := b.Context()
	var f rdma.Fabric
	if network == "" {
		in, err := inproc.New(inproc.Options{Blades: regions(2, 1<<30), Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		f = in
	} else {
		f = dial(b, tcp.Options{Seed: 1}, spawn(b, "serve", network, 1, 1<<30).addr,
			spawn(b, "serve", network, 1, 1<<30).addr)
	}
	o := smallbank.DefaultOptions()
	o.Accounts, o.HotAccounts = 20_000, 800
	d, err := smallbank.New(o)
	if err != nil {
		b.Fatal(err)
	}
	back := wait()
	store, err := engine.Open(ctx, txn.Options{Fabric: f, Catalog: &catalog.Mem{}, Backups: txn.F(1)})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := d.Load(ctx, store, nil); err != nil {
		b.Fatal(err)
	}
	seed := uint64(0)
	run := func(threads, coroutines, n int) {
		seed++
		err := store.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
			c := d.NewClient(id, seed, w)
			for range n / coroutines {
				c.Next()
				if _, err := c.Run(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	run(2, 32, 100) // threads are made now
	back()
	b.Cleanup(func() {
		if err := errors.Join(store.Close(context.Background()), f.Close()); err != nil {
			b.Error(err)
		}
	})
	return run
}
