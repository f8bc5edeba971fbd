package txn_test

import (
	"context"
	"sync/atomic"
	"testing"

	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/txn"
)

// TestCopiesBesideSweep: after the loss of a blade there is much to sweep, and copies are built in
// turns with that: another loss would be that of data.
func TestCopiesBesideSweep(t *testing.T) {
	ctx := context.Background()
	f, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{
		{Size: 256 << 20}, {Size: 256 << 20}, {Size: 256 << 20},
	}})
	if err != nil {
		t.Fatal(err)
	}
	keeper := &heldKeeper{Fabric: f, at: make(chan struct{}), goOn: make(chan struct{})}
	db, err := txn.Open(ctx, txn.Options{
		Fabric: keeper, Catalog: &catalog.Mem{}, Closer: f, Backups: txn.F(1),
		SegmentSize: 1 << 20, LogArea: 64 << 10, LeaseTerm: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(ctx)
	defer close(keeper.goOn)
	defer keeper.hold.Store(false)
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Plain[int64]())
	if err != nil {
		t.Fatal(err)
	}
	const records = 60_000 // a sweep looks at 16,384 in a row at most
	if n, err := table.Load(ctx, func(yield func(uint64, int64) bool) {
		for i := range uint64(records) {
			if !yield(i, 1) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil || n != records {
		t.Fatal(n, err)
	}
	keeper.hold.Store(true)
	if err := f.StopBlade(1); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, records, 1) }); err != nil {
		t.Fatal(err)
	}
	if err := f.RestartBlade(1, true); err != nil {
		t.Fatal(err)
	}
	for {
		<-keeper.at
		_, unswept := db.Space().Unswept()
		copied := db.Redundancy().BuildDone
		if copied > 0 && unswept {
			return
		}
		if !unswept {
			t.Fatalf("the sweep has ended, and %d bytes of copies are there", copied)
		}
		keeper.goOn <- struct{}{}
	}
}

// heldKeeper is a fabric on which the goroutine that looks after blades and copies is held before
// each of its posts.
type heldKeeper struct {
	rdma.Fabric
	hold     atomic.Bool
	at, goOn chan struct{}
}

type heldPort struct {
	rdma.Port
	f *heldKeeper
}

func (f *heldKeeper) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	p, err := f.Fabric.NewPort(cfg)
	if err != nil || cfg.Index != txn.KeeperThread {
		return p, err
	}
	return &heldPort{p, f}, nil
}

func (p *heldPort) Post(b *rdma.Batch, first int) {
	if p.f.hold.Load() {
		select {
		case p.f.at <- struct{}{}:
			<-p.f.goOn
		case <-p.f.goOn:
		}
	}
	p.Port.Post(b, first)
}
