package remote_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/tcp"
)

// TestSpacesOnCutConnections: spaces of two processes make tables while their connections to the
// catalog break in the middle of messages and its daemon restarts. They find out what became of
// each change, so that every table is there once.
func TestSpacesOnCutConnections(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { spacesOnCutConnections(t, seed) })
	}
}

func spacesOnCutConnections(t *testing.T, seed uint64) {
	d := newDaemon(t, inFile(t))
	cut := newCutter(t, d.socket, seed, 1200) // a layout has to fit sometimes
	f, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{
		{Size: 16 << 20, Key: 1}, {Size: 16 << 20, Key: 2},
	}, Seed: seed + 1})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var spaces []*memory.Space
	for range 2 {
		var c *remote.Client
		for c == nil {
			c, _ = remote.Dial(t.Context(), "unix:"+cut.l.Addr().String(), tcp.Options{})
		}
		defer c.Close()
		thread, err := rdma.NewThread(f, rdma.ThreadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer thread.Close()
		for {
			s, err := memory.Open(thread.Plain(), f, c, memory.Options{
				Backups: 1, SegmentSize: 1 << 20, LogArea: 64 << 10, Shared: true, Until: f.Now() + int64(time.Second),
			})
			for err == nil && s.EndAlone() != nil { // until the catalog answers
			}
			if err == nil {
				spaces = append(spaces, s)
				break
			}
			if !errors.Is(err, remote.ErrAway) {
				t.Fatal(err)
			}
		}
	}
	const each = 40
	var made, failed atomic.Int64
	var working sync.WaitGroup
	for i, s := range spaces {
		working.Go(func() {
			for k := range each {
				name := fmt.Sprintf("%d/%d", i, k)
				for {
					_, err := s.CreateTable(name, nil)
					if err == nil || errors.Is(err, memory.ErrTableExists) {
						break
					}
					if !errors.Is(err, remote.ErrAway) {
						t.Errorf("%s: %v", name, err)
						return
					}
					failed.Add(1)
				}
				made.Add(1)
			}
		})
	}
	for round := range int64(2) {
		for made.Load() < (round+1)*each/2 && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		d.stop()
		d.start()
	}
	working.Wait()
	cut.calm.Store(true)
	l, err := layout.LoadLayout(d.dial())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range l.Tables {
		names = append(names, table.Name)
	}
	slices.Sort(names)
	if len(names) != 2*each || len(slices.Compact(names)) != 2*each {
		t.Errorf("%d tables: %q", len(l.Tables), names)
	}
	for i, s := range spaces {
		for errors.Is(s.Follow(), remote.ErrAway) { // connections of before may break yet
		}
		if got := s.Layout(); len(got.Tables) != len(l.Tables) {
			t.Errorf("process %d knows %d tables of %d", i, len(got.Tables), len(l.Tables))
		}
	}
	t.Logf("%d cuts, %d changes failed", cut.cuts.Load(), failed.Load())
}
