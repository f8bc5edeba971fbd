package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/layout"
	"txnode/txn"
)

// BenchmarkRenewals is what 100 members cost the daemon of a catalog, in per cent of a processor:
// their leases alone, and all of 100 programs that have a database open and do nothing. One
// operation is a second.
func BenchmarkRenewals(b *testing.B) {
	const members = 100
	daemon := func(b *testing.B) (address string, catalog *daemon) {
		address = "unix:" + filepath.Join(b.TempDir(), "c")
		return address, serve(b, "--listen", address, "--catalog", filepath.Join(b.TempDir(), "d"), "--memory", "0")
	}
	dial := func(b *testing.B, address string) layout.Catalog {
		c, err := cluster.DialCatalog(b.Context(), address, cluster.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		return c
	}
	b.Run("leases", func(b *testing.B) {
		address, catalog := daemon(b)
		var entries []layout.Entry
		for i := range uint32(members) {
			entries = append(entries, layout.EntryOfProcess(layout.ProcessEntry{ID: i + 1}))
		}
		at := dial(b, address)
		_, rev, err := at.Load()
		if err == nil {
			_, err = at.Apply(rev, entries)
		}
		if err != nil {
			b.Fatal(err)
		}
		ctx, end := context.WithCancel(b.Context())
		var all sync.WaitGroup
		for i := range uint32(members) {
			c := dial(b, address)
			all.Go(func() {
				for ctx.Err() == nil {
					if _, err := c.KeepAlive(layout.Beat{Member: i + 1}); err != nil {
						b.Error(err)
					}
					time.Sleep(txn.DefaultLeaseTerm / 3)
				}
			})
		}
		seconds(b, catalog, at)
		end()
		all.Wait()
	})
	b.Run("programs", func(b *testing.B) {
		address, catalog := daemon(b)
		init := []string{"cluster", "init", "--catalog", address}
		for range 2 {
			blade := "unix:" + filepath.Join(b.TempDir(), "b")
			serve(b, "--listen", blade, "--memory", "256MiB")
			init = append(init, "--blade", blade)
		}
		if p := start(b, init...); p.end(b) != 0 {
			b.Fatal(p.err.String())
		}
		dbs := make([]*txn.DB, members)
		for i := range dbs {
			var err error
			if dbs[i], err = cluster.Open(b.Context(), address, txn.Options{Workers: 1},
				cluster.Options{}); err != nil {
				b.Fatal(err)
			}
		}
		seconds(b, catalog, dial(b, address))
		var all sync.WaitGroup
		for _, db := range dbs {
			all.Go(func() { _ = db.Close(context.Background()) })
		}
		all.Wait()
	})
}

// seconds measures a daemon of a catalog for so many seconds as the benchmark wants.
func seconds(b *testing.B, d *daemon, c layout.Catalog) {
	time.Sleep(2 * time.Second) // what comes about at the beginning is done
	before, err := c.Revision()
	ran := onProcessors(b, d)
	b.ResetTimer()
	for b.Loop() {
		time.Sleep(time.Second)
	}
	b.ReportMetric(100*(onProcessors(b, d)-ran).Seconds()/b.Elapsed().Seconds(), "%cpu")
	if after, e := c.Revision(); err == nil && e == nil {
		b.ReportMetric(float64(after-before), "changes") // each of which waits for the disk
	}
}

// onProcessors is for how long the threads of a daemon have run.
func onProcessors(b *testing.B, d *daemon) (sum time.Duration) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.Process.Pid))
	if err != nil || len(files) == 0 {
		b.Fatal("no threads: ", err)
	}
	for _, f := range files {
		var ns int64
		if p, err := os.ReadFile(f); err == nil {
			if _, err := fmt.Sscan(string(p), &ns); err != nil {
				b.Fatal(err)
			}
		}
		sum += time.Duration(ns)
	}
	return sum
}
