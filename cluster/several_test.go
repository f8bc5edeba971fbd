package cluster_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"txnode/cluster"
	"txnode/memory"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestTwoSpaces: two processes change what the catalog says of one database, each by its own
// client, while the daemon of the catalog restarts. They agree in the end, and what a process
// was told is there.
func TestTwoSpaces(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	serve := b.catalogFile("c")
	stop := serve()
	defer func() { stop() }()
	b.blades([]uint64{size}, "a")
	b.blades([]uint64{size}, "b")
	if err := cluster.Init(ctx, b.client("c"), b.list("a", "b"),
		cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	var spaces []*memory.Space
	for range 2 {
		h, err := cluster.Connect(ctx, b.address("c"), cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		thread, err := rdma.NewThread(h.Fabric, rdma.ThreadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := memory.Open(thread.Plain(), h.Fabric, h.Catalog, memory.Options{Attach: true})
		if err == nil {
			err = s.EndAlone()
		}
		if err != nil {
			t.Fatal(err)
		}
		spaces = append(spaces, s)
		defer func() {
			if err := errors.Join(thread.Close(), h.Close()); err != nil {
				t.Error(err)
			}
		}()
	}
	const each = 30
	var made atomic.Int64
	var working sync.WaitGroup
	told := make([][]string, len(spaces))
	for i, s := range spaces {
		working.Go(func() {
			for k := range each {
				name := fmt.Sprintf("process %d, table %d", i, k)
				for {
					_, err := s.CreateTable(name, nil)
					// an attempt that failed was made after all
					if err == nil || errors.Is(err, memory.ErrTableExists) {
						break
					}
					if !errors.Is(err, remote.ErrAway) {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
				told[i] = append(told[i], name)
				made.Add(1)
			}
		})
	}
	for round := range int64(3) {
		for made.Load() < (round+1)*each/2 && !t.Failed() {
			runtime.Gosched()
		}
		stop()
		stop = serve()
	}
	working.Wait()
	l, err := layout.LoadLayout(b.client("c"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, table := range l.Tables {
		names[table.Name]++
	}
	for _, all := range told {
		for _, name := range all {
			if names[name] != 1 {
				t.Errorf("%s is there %d times", name, names[name])
			}
		}
	}
	if len(l.Tables) != 2*each {
		t.Errorf("%d tables", len(l.Tables))
	}
	for i, s := range spaces {
		if err := s.Follow(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
		same := func(a, b layout.Table) bool { return a.ID == b.ID && a.Name == b.Name && a.State == b.State }
		if got := s.Layout(); !slices.EqualFunc(got.Tables, l.Tables, same) || got.Epoch != l.Epoch {
			t.Errorf("process %d knows %d tables in epoch %d, and there are %d in epoch %d",
				i, len(got.Tables), got.Epoch, len(l.Tables), l.Epoch)
		}
	}
}
