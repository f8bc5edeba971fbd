package cluster_test

import (
	"context"
	"errors"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/memory/channelhost"
	"txnode/rdma"
	"txnode/txn"
)

// two opens a new database on sockets in two processes.
func two(t *testing.T) (dbs []*txn.DB) {
	t.Helper()
	b := newBed(t)
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "a")
	b.blades([]uint64{size}, "b")
	if err := cluster.Init(t.Context(), c, b.list("a", "b"), cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10},
		cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		db, err := cluster.Open(t.Context(), b.address("c"), txn.Options{}, cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		dbs = append(dbs, db)
	}
	return dbs
}

// TestChannels runs the suite of channels on sockets, with members in two processes that
// have a database open.
func TestChannels(t *testing.T) {
	channeltest.RunOn(t, func(t *testing.T) *channeltest.World {
		dbs := two(t)
		return channeltest.NewWorldOn(t, dbs[0].Space().Fabric(), func(i int) (rdma.Fabric, channel.Host) {
			s := dbs[i%2].Space()
			return s.Fabric(), channelhost.New(s)
		})
	})
}

// TestChannelMissing: a member that stands still in another process is missing at a barrier, learns
// that it was fenced, and joins again. The database goes on over the new epochs.
func TestChannelMissing(t *testing.T) {
	dbs := two(t)
	type party struct {
		m *channel.Member
		b *channel.Barrier
		c *rdma.Coro
	}
	join := func(i int) (p party) {
		t.Helper()
		s := dbs[i].Space()
		th, err := rdma.NewThread(s.Fabric(), rdma.ThreadOptions{Arena: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := th.Close(); err != nil {
				t.Error(err)
			}
		})
		p.c = th.Plain()
		if p.m, err = channel.Join(t.Context(), p.c, channelhost.New(s), channel.Identity{}); err == nil {
			p.b, err = channel.OpenBarrier(t.Context(), p.c, p.m.Scope("s"), "b", 2)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	table, err := txn.CreateTable(dbs[0], "t", txn.Uint64, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	put := func(k uint64) {
		t.Helper()
		err := dbs[0].Update(t.Context(), func(tx *txn.Tx) error { return table.Put(tx, k, "x") })
		if err != nil {
			t.Fatal(err)
		}
	}
	put(1)
	late := join(1)
	waiting := join(0)
	err = waiting.b.Wait(t.Context(), waiting.c)
	var missing *channel.MissingError
	if !errors.As(err, &missing) || missing.Member != late.m.ID() {
		t.Fatalf("%v, and member %d is missing", err, late.m.ID())
	}
	put(2)
	if err := late.b.Wait(t.Context(), late.c); !errors.Is(err, channel.ErrFenced) {
		t.Errorf("a member that was fenced: %v", err)
	}
	if err := waiting.b.Reform(t.Context(), waiting.c); err != nil {
		t.Fatal(err)
	}
	put(3)
	again := join(1)
	done := make(chan error)
	go func() { done <- again.b.Wait(t.Context(), again.c) }()
	if err := errors.Join(waiting.b.Wait(t.Context(), waiting.c), <-done); err != nil {
		t.Errorf("another member has come: %v", err)
	}
}
