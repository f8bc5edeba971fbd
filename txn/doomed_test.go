package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/catalog/catalogtest"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// hushed is a fabric on which nothing is heard of a blade.
type hushed struct {
	rdma.Fabric
	blade atomic.Int32 // -1: none
	asked atomic.Int32 // how often it was asked for, each time for as long as the fabric waits
}

type hushedPort struct {
	rdma.Port
	f *hushed
}

func (f *hushed) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	p, err := f.Fabric.NewPort(cfg)
	return &hushedPort{p, f}, err
}

func (p *hushedPort) Reset(b rdma.BladeID) error {
	if int32(b) == p.f.blade.Load() {
		p.f.asked.Add(1)
		return fmt.Errorf("%w: %w", rdma.ErrBladeDown, rdma.ErrSilent)
	}
	return p.Port.Reset(b)
}

// putEverywhere puts so many records that there are segments on all blades.
func putEverywhere(t *testing.T, update func(context.Context, func(*txn.Tx) error) error,
	words *txn.Table[uint64, uint64]) (err error) {
	t.Helper()
	for k := uint64(0); k < 3000 && err == nil; k++ {
		err = update(t.Context(), func(tx *txn.Tx) error { return words.Put(tx, k, k) })
	}
	return err
}

// TestDeclaredInVain: the catalog is away when a silent blade is to be declared dead. That the
// blade was not is no sign that another process has heard of it: the next attempt declares it dead.
func TestDeclaredInVain(t *testing.T) {
	raced.Skip(t)
	under := rdmatest.New(rdmatest.Options{Blades: 3, Size: 8 << 20, Caps: atOnce, Seed: 5})
	f := &hushed{Fabric: under}
	f.blade.Store(-1)
	under.Fail(func(w *rdma.WR) rdma.Status {
		if int32(w.Blade) == f.blade.Load() {
			return rdma.StatusTimeout
		}
		return rdma.StatusOK
	})
	o := onFabric(f, txn.PolicyDefault)
	cat := &catalogtest.Unheard{Catalog: o.Catalog}
	o.Catalog, o.SegmentSize = cat, 256<<10
	db := mustOpen(t, o)
	words, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, db)
	put := func() error { return putEverywhere(t, w.Update, words) }
	if err := put(); err != nil {
		t.Fatal(err)
	}
	f.blade.Store(1)
	cat.Away.Store(true)
	if err := put(); !errors.Is(err, memory.ErrAway) || !db.Space().View().Up(1) {
		t.Fatalf("without the catalog: %v", err)
	}
	cat.Away.Store(false)
	for range 3 { // the first attempts may be in doubt
		err = put()
	}
	if err != nil || db.Space().View().Up(1) {
		t.Errorf("the silent blade takes part: %v, %v", db.Space().View().Up(1), err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestSilentOnce: a thread that connects again asks a blade of which nothing is heard once: that
// has taken as long as the fabric waits.
func TestSilentOnce(t *testing.T) {
	f := &hushed{Fabric: rdmatest.New(rdmatest.Options{Blades: 3, Size: 8 << 20, Caps: atOnce, Seed: 5})}
	f.blade.Store(1)
	db := mustOpen(t, onFabric(f, txn.PolicyDefault))
	th, err := rdma.NewThread(f, rdma.ThreadOptions{Index: 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := recovery.Reconnect(th.Plain(), db.Space()); !errors.Is(err, rdma.ErrSilent) || f.asked.Load() != 1 {
		t.Errorf("asked %d times: %v", f.asked.Load(), err)
	}
	if err := th.Close(); err != nil {
		t.Error(err)
	}
}

// TestKeptOut: a process that hears nothing of a blade that was dead and is back does not keep
// others from taking it in, neither one that has nothing to do for the copies nor one that has
// built some meanwhile.
func TestKeptOut(t *testing.T) {
	for f := 1; f <= 2; f++ {
		t.Run(fmt.Sprintf("f=%d", f), func(t *testing.T) {
			const blade = 1
			o := sharedOf(t, 3, 8<<20)
			under := o.Fabric.(*inproc.Fabric)
			deaf := &hushed{Fabric: under}
			deaf.blade.Store(-1)
			o.Backups, o.SegmentSize, o.Workers = txn.F(f), 256<<10, 1
			o.Fabric = deaf
			far := mustOpen(t, o)
			words, err := txn.CreateTable(far, "words", txn.Uint64, txn.Plain[uint64]())
			if err != nil {
				t.Fatal(err)
			}
			put := func() error { return putEverywhere(t, far.Update, words) }
			if err := put(); err != nil {
				t.Fatal(err)
			}
			if err := under.StopBlade(blade); err != nil {
				t.Fatal(err)
			}
			deaf.blade.Store(blade)
			if err := put(); err != nil || far.Space().View().Up(blade) {
				t.Fatalf("the blade takes part: %v, %v", far.Space().View().Up(blade), err)
			}
			if err := under.RestartBlade(blade, false); err != nil {
				t.Fatal(err)
			}
			await := func(what string, done func() bool) {
				t.Helper()
				for from := time.Now(); !done(); time.Sleep(time.Millisecond) {
					if time.Since(from) > time.Minute {
						t.Fatalf("%s: %+v", what, far.Redundancy())
					}
				}
			}
			asked := deaf.asked.Load() + 5
			await("it is not looked for the blade", func() bool { return deaf.asked.Load() >= asked })
			o.Fabric = under
			near := mustOpen(t, o)
			await("the blade is not taken in again", func() bool { return near.Space().View().Up(blade) })
			await("there are copies missing", func() bool { r := near.Redundancy(); return r.Missing+r.Building == 0 })
			deaf.blade.Store(-1)
		})
	}
}
