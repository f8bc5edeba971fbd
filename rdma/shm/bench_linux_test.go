package shm_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/shm"
)

// bench has a thread execute n batches of a transaction's kind on its own part of 16 MiB: three
// READs of 64 bytes, an atomic, and a WRITE of 64.
func bench(f rdma.Fabric, part uint64, n int) error {
	t, err := rdma.NewThread(f, rdma.ThreadOptions{})
	if err != nil {
		return err
	}
	var b rdma.Batch
	c, key, at := t.Plain(), f.Blades()[0].Key, part
	for range n {
		b.Reset()
		for range 3 {
			at = at*6364136223846793005 + 1442695040888963407
			b.Read(rdma.RemoteAddr{Key: key, Off: at >> 40 &^ 63}, 0, 64)
		}
		a := rdma.RemoteAddr{Key: key, Off: at >> 40 &^ 63}
		b.CAS(a, 0, 0)
		b.Write(a, 0, 64)
		if err := c.Do(&b); err != nil {
			return err
		}
	}
	return t.Close()
}

const benchSize = 16 << 20

// playBench is a client process: "bench DIR PART N" begins when it gets a line, and says when it
// has done.
func playBench(dir string, part uint64, n int) error {
	f, err := shm.Dial(context.Background(), dir, shm.Options{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := bench(f, part, n); err != nil {
		return err
	}
	fmt.Println("done")
	return f.Close()
}

// BenchmarkBatches compares two client processes of one thread each with two threads of one
// process.
func BenchmarkBatches(b *testing.B) {
	b.Run("shm, two processes", func(b *testing.B) {
		dir := directory(b)
		serve(b, dir, shm.ServerOptions{Blades: regions(1, benchSize)})
		var all []*process
		for i := range 2 {
			all = append(all, spawn(b, "bench", dir, i+1, b.N))
		}
		begin := time.Now()
		for _, p := range all {
			fmt.Fprintln(p.input)
		}
		for _, p := range all {
			if line, err := p.output.ReadString('\n'); strings.TrimSpace(line) != "done" {
				b.Fatal(line, err)
			}
		}
		b.ReportMetric(2*float64(b.N)/time.Since(begin).Seconds()/1e6, "Mbatches/s")
	})
	for name, open := range map[string]func(b *testing.B) rdma.Fabric{
		"shm, two threads": func(b *testing.B) rdma.Fabric {
			dir := directory(b)
			serve(b, dir, shm.ServerOptions{Blades: regions(1, benchSize)})
			return dial(b, dir, shm.Options{})
		},
		"inproc, two threads": func(b *testing.B) rdma.Fabric {
			f, err := inproc.New(inproc.Options{Blades: regions(1, benchSize)})
			if err != nil {
				b.Fatal(err)
			}
			return f
		},
	} {
		b.Run(name, func(b *testing.B) {
			f := open(b)
			b.ResetTimer()
			begin := time.Now()
			var both sync.WaitGroup
			for i := range 2 {
				both.Go(func() {
					if err := bench(f, uint64(i+1), b.N); err != nil {
						b.Error(err)
					}
				})
			}
			both.Wait()
			b.ReportMetric(2*float64(b.N)/time.Since(begin).Seconds()/1e6, "Mbatches/s")
			if err := f.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
