package txn_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestCheckpointBesideUnwound: a thread is unwound in the middle of a commit whose log record a
// checkpoint waits for. Whoever needs log space next, or closes, recovers it first.
func TestCheckpointBesideUnwound(t *testing.T) {
	raced.Skip(t)
	for i := range 80 {
		k := i / 2
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 16 << 20, Caps: later, Seed: uint64(k)})
		o := onFabric(f, txn.PolicyDefault)
		o.Durability, o.Retries = txn.DurabilityPower, 3
		db := reopen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 20, val(0))
		w := newWorker(t, db)
		dieCommitting(t, db, tab, k)
		if i%2 == 1 {
			for i := range 50 { // fewer than it does maintenance after
				err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, make([]byte, 50_000)) })
				if err != nil {
					t.Fatalf("after %d us: update %d: %v", k, i, err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Errorf("after %d us: %v", k, err)
		}
		close1(t, db)
	}
}

// dieCommitting has a thread unwound that commits, after k us.
func dieCommitting(t *testing.T, db *txn.DB, tab *txn.Table[uint64, []byte], k int) {
	_ = db.Run(t.Context(), 1, 2, func(ctx context.Context, id int, w *txn.Worker) error {
		if id == 0 {
			w.Sleep(int64(1000 * k))
			runtime.Goexit()
		}
		for {
			if err := w.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, 2, val(1)) }); err != nil {
				return err
			}
		}
	})
}

// dieLocking has a thread unwound that has locked a record.
func dieLocking(t *testing.T, db *txn.DB, tab *txn.Table[uint64, []byte], key uint64) {
	_ = db.Run(t.Context(), 1, 2, func(ctx context.Context, id int, w *txn.Worker) error {
		if id == 0 {
			w.Sleep(60_000)
			runtime.Goexit()
		}
		return w.Update(ctx, func(tx *txn.Tx) error {
			_, err := tab.GetForUpdate(tx, key)
			w.Sleep(1_000_000)
			return err
		})
	})
}

// TestRejoinBesideUnwound: a session rejoins, for which it needs a checkpoint, and somebody has
// died in the middle of a commit that this waits for. He is recovered with it.
func TestRejoinBesideUnwound(t *testing.T) {
	raced.Skip(t)
	for k := range 40 {
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 16 << 20, Caps: later, Seed: uint64(k)})
		o := onFabric(f, txn.PolicyDefault)
		o.Durability = txn.DurabilityPower
		db := reopen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 20, val(0))
		w := newWorker(t, db)
		dieCommitting(t, db, tab, k)
		once := true
		f.Fail(func(*rdma.WR) rdma.Status {
			if once {
				once = false
				return rdma.StatusTimeout
			}
			return rdma.StatusOK
		})
		for i := range 3 {
			if err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, val(3)) }); err != nil {
				t.Fatalf("after %d us: update %d: %v", k, i, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Errorf("after %d us: %v", k, err)
		}
		close1(t, db)
	}
}

// TestRejoinBesideSlow: a session rejoins, for which it needs a checkpoint, while somebody is in
// the middle of a commit for longer than a checkpoint waits. It waits longer.
func TestRejoinBesideSlow(t *testing.T) {
	raced.Skip(t)
	for _, k := range []int{2, 5, 8} {
		if testing.Short() && k != 5 {
			continue
		}
		late := -1 // how many requests from now one takes long
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 16 << 20, Caps: later, Seed: uint64(k),
			ServiceNs: func(int) int64 {
				if late--; late == -1 {
					return 1_500_000_000
				}
				return 10
			}})
		o := onFabric(f, txn.PolicyDefault)
		o.Durability = txn.DurabilityPower
		db := reopen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 20, val(0))
		longest := int64(0)
		err := db.Run(t.Context(), 2, 1, func(ctx context.Context, id int, w *txn.Worker) error {
			if id == 0 {
				w.Sleep(500_000)
				once := true
				f.Fail(func(*rdma.WR) rdma.Status {
					if once {
						once = false
						return rdma.StatusTimeout
					}
					return rdma.StatusOK
				})
			} else {
				w.Sleep(100_000)
				late = k
			}
			begun := w.Now()
			err := w.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, uint64(id), val(3)) })
			longest = max(longest, w.Now()-begun)
			return err
		})
		if err != nil {
			t.Errorf("request %d: %v", k, err)
		}
		if longest < 1_000_000_000 { // of the fabric's clock
			t.Errorf("request %d: nothing took longer than %d ns: this tests nothing", k, longest)
		}
		close1(t, db)
	}
}

// TestTwoUnwound: somebody has died who had locked a record, and another in the middle of a commit.
// Who meets the lock recovers both, and does not wait for the second.
func TestTwoUnwound(t *testing.T) {
	raced.Skip(t)
	for i := range 80 {
		k := i / 2
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 16 << 20, Caps: later, Seed: uint64(k)})
		o := onFabric(f, txn.PolicyDefault)
		o.Durability, o.Retries = txn.DurabilityPower, 20
		if i%2 == 1 {
			o.LeaseTerm = 3 * time.Second
		}
		db := reopen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 20, val(0))
		w := newWorker(t, db)
		dieLocking(t, db, tab, 1)
		dieCommitting(t, db, tab, k)
		begun := w.Now()
		for i := range 3 {
			if err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, val(3)) }); err != nil {
				t.Fatalf("after %d us: update %d: %v", k, i, err)
			}
		}
		if d := w.Now() - begun; d > 500_000_000 { // of the fabric's clock, which nothing but the database moves
			t.Errorf("after %d us: it took %d ns", k, d)
		}
		if err := w.Close(); err != nil {
			t.Errorf("after %d us: %v", k, err)
		}
		close1(t, db)
	}
}

// TestBesideOwnCommit: a coroutine recovers somebody, which ends the commit that another of its
// session is in the middle of. The checkpoint at the recovery's end does not wait for that, as it
// is decided after the recovery, but recovers the session's own coordinator with the other.
func TestBesideOwnCommit(t *testing.T) {
	raced.Skip(t)
	for k := range 30 {
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 32 << 20, Caps: later, Seed: uint64(k)})
		o := onFabric(f, txn.PolicyDefault)
		o.Durability, o.Retries = txn.DurabilityPower, 100
		if k%3 == 0 {
			o.LeaseTerm = 3 * time.Second
		}
		db := reopen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 20, val(0))
		dieLocking(t, db, tab, 12)
		done := false
		updates := uint64(0)
		err := db.Run(t.Context(), 1+k%2, 2, func(ctx context.Context, id int, w *txn.Worker) error {
			if id == 0 {
				defer func() { done = true }()
				w.Sleep(int64(100_000 + 1000*k))
				begun := w.Now()
				err := w.Maintain()
				if d := w.Now() - begun; d > 500_000_000 { // of the fabric's clock
					t.Errorf("k %d: it took %d ns: %v", k, d, err)
				}
				return nil
			}
			for !done {
				err := w.Update(ctx, func(tx *txn.Tx) error {
					v, err := tab.GetForUpdate(tx, uint64(id))
					if err != nil {
						return err
					}
					return tab.Put(tx, uint64(id), val(binary.LittleEndian.Uint64(v)+1))
				})
				if err != nil {
					return err
				}
				if id == 1 {
					updates++
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("k %d: %v", k, err)
		}
		if got := binary.LittleEndian.Uint64(contents(t, db, tab, 2)[1]); got != updates {
			t.Errorf("k %d: %d updates are counted, of %d", k, got, updates)
		}
		close1(t, db)
	}
}

// TestManyBesideUnwound: all coroutines of some threads need log space beside somebody who
// has died in the middle of a commit. Whoever recovers him, the others are not kept from
// their commits for long.
func TestManyBesideUnwound(t *testing.T) {
	raced.Skip(t)
	step := 1
	if testing.Short() {
		step = 4
	}
	for k := 0; k < 40; k += step {
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 32 << 20, Caps: later, Seed: uint64(k)})
		o := onFabric(f, txn.PolicyDefault)
		o.Durability, o.Retries = txn.DurabilityPower, 100
		db := reopen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 20, val(0))
		dieCommitting(t, db, tab, k)
		err := db.Run(t.Context(), 2, 4, func(ctx context.Context, id int, w *txn.Worker) error {
			for i := range 20 {
				begun := w.Now()
				if err := w.Update(ctx,
					func(tx *txn.Tx) error { return tab.Put(tx, uint64(id), make([]byte, 30_000)) }); err != nil {
					return err
				}
				if d := w.Now() - begun; d > 500_000_000 {
					t.Errorf("after %d us: worker %d: update %d took %d ns", k, id, i, d)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("after %d us: %v", k, err)
		}
		close1(t, db)
	}
}

// TestCheckpointOfExpired: the lease of the only session runs out while a checkpoint waits for
// another coroutine of it. Nobody can recover it but itself: it waits.
func TestCheckpointOfExpired(t *testing.T) {
	raced.Skip(t)
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 32 << 20, Caps: later, Seed: 1})
	o := onFabric(f, txn.PolicyDefault)
	o.Durability, o.SingleAttempt, o.LeaseTerm = txn.DurabilityPower, true, time.Microsecond
	db := reopen(t, o)
	tab := table(t, db, "t")
	err := db.Run(t.Context(), 1, 4, func(ctx context.Context, id int, w *txn.Worker) error {
		for range 200 {
			if err := w.Update(ctx,
				func(tx *txn.Tx) error { return tab.Put(tx, uint64(id), make([]byte, 30_000)) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	close1(t, db)
}
