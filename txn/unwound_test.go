package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"txnode/internal/raced"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
	"txnode/verify"
)

// TestGoexitAnywhere: a function of Run ends its goroutine, and the other coroutines of the
// thread are unwound wherever they are: in the middle of a transaction, or of something between
// two. Nothing that was acknowledged is lost, and nothing is left of them when their
// coordinator is recovered.
func TestGoexitAnywhere(t *testing.T) {
	raced.Skip(t)
	seeds := 60
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		for _, caps := range []rdma.Caps{atOnce, later} {
			if goexitAnywhere(t, caps, seed); t.Failed() {
				t.Fatalf("seed %d, synchronous %v", seed, caps.Synchronous)
			}
		}
	}
}

func goexitAnywhere(t *testing.T, caps rdma.Caps, seed int) {
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: caps, Seed: uint64(seed)})
	o := onFabric(f, txn.Policy(seed%2))
	o.Retries, o.ReclaimAfter = 1000, 1
	if seed%4 == 2 {
		o.Durability = txn.DurabilityPower
	}
	db := reopen(t, o)
	tab := table(t, db, "t")
	const threads, coroutines, each, shared = 2, 3, 20, uint64(1000)
	fill(t, db, tab, shared, val(0))
	value := map[uint64][]byte{}    // of what was acknowledged; nil: deleted
	trying := map[uint64][][]byte{} // what may have become true besides
	rounds := 5 + seed*3
	err := db.Run(t.Context(), threads, coroutines, func(ctx context.Context, id int, w *txn.Worker) error {
		rng := rand.New(rand.NewPCG(uint64(seed), uint64(id)))
		for round := 0; ; round++ {
			ends := id == 0 && round == rounds
			if ends && seed%3 > 0 {
				runtime.Goexit()
			}
			if id >= coroutines && round == 2*rounds {
				return nil
			}
			k := shared + 1 + uint64(id*each) + rng.Uint64N(each)
			var v []byte
			if rng.IntN(3) > 0 {
				v = bytes.Repeat([]byte{byte(round)}, 1+rng.IntN(300))
			}
			trying[k] = append(trying[k], v)
			err := w.Update(ctx, func(tx *txn.Tx) error {
				if v != nil {
					if err := tab.Put(tx, k, v); err != nil {
						return err
					}
				} else if err := tab.Delete(tx, k); err != nil && !errors.Is(err, txn.ErrNotFound) {
					return err
				}
				_, err := tab.GetForUpdate(tx, rng.Uint64N(4)) // others wait for it
				if ends {
					runtime.Goexit() // it rolls back by itself
				}
				return err
			})
			if err != nil {
				return err
			}
			value[k], trying[k] = v, nil
			if rng.IntN(4) == 0 {
				if err := w.Maintain(); err != nil {
					return err
				}
			}
		}
	})
	if err == nil || !strings.Contains(err.Error(), "Goexit") {
		t.Errorf("Run: %v", err)
	}
	settled(t, f, db, func(w *txn.Worker) {
		for k := range shared + 1 + threads*coroutines*each {
			var got []byte
			err := w.Update(t.Context(), func(tx *txn.Tx) (err error) {
				if got, err = tab.Get(tx, k); errors.Is(err, txn.ErrNotFound) {
					got, err = nil, nil
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			want, ok := value[k]
			if !ok && k < shared {
				want = val(0)
			}
			good := bytes.Equal(got, want)
			for _, v := range trying[k] {
				good = good || bytes.Equal(got, v)
			}
			if !good {
				t.Errorf("key %d has %.8q, and not %.8q, nor any of %d others", k, got, want, len(trying[k]))
			}
		}
	})
}

// settled waits for what unwound coroutines have left to be recovered, calls look with a worker,
// closes the database, and checks that nothing is left and nothing is damaged.
func settled(t *testing.T, f *rdmatest.Fabric, db *txn.DB, look func(w *txn.Worker)) {
	t.Helper()
	w := newWorker(t, db)
	for range 1000 {
		_, unswept := db.Space().Unswept()
		if len(db.Space().Layout().Coordinators) == 1 && !unswept {
			break
		}
		if err := w.Maintain(); err != nil {
			t.Fatal(err)
		}
		w.Sleep(1_000_000) // a claim of who could not recover it ends by and by
	}
	look(w)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	close1(t, db)
	if c := db.Space().Layout().Coordinators; len(c) > 0 {
		t.Errorf("left: %v", c)
	}
	d, err := verify.Attach(f, db.Space().Layout())
	if err != nil {
		t.Fatal(err)
	}
	sum, err := d.Check(t.Context(), verify.Options{Report: func(f verify.Finding) error {
		t.Errorf("%v", f)
		return nil
	}})
	if err = errors.Join(err, d.Close()); err != nil {
		t.Error(err)
	}
	for _, x := range sum.Tables {
		if x.Tombstones > 0 {
			t.Error(fmt.Sprint(x.Tombstones, " deleted records are left"))
		}
	}
}

// TestMoveUnwoundAnywhere: a coroutine is unwound at any time of a transaction that moves a
// record to a larger block. What it has posted reads its arena later, and finds there what
// it was posted with.
func TestMoveUnwoundAnywhere(t *testing.T) {
	raced.Skip(t)
	step := int64(200)
	if testing.Short() {
		step = 500
	}
	for _, p := range []txn.Policy{txn.PolicyDefault, txn.PolicyFORD} {
		for delay, over := int64(0), false; !over; delay += step {
			if over = moveUnwound(t, p, delay); t.Failed() {
				t.Fatalf("%v, unwound after %d ns", p, delay)
			}
		}
	}
}

// moveUnwound is TestMoveUnwoundAnywhere so much later, in nanoseconds; true: the
// transaction was over.
func moveUnwound(t *testing.T, p txn.Policy, delay int64) (over bool) {
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: later, Seed: uint64(delay)})
	o := onFabric(f, p)
	o.Retries, o.ReclaimAfter = 1000, 1
	db := reopen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 2, val(1))
	larger := bytes.Repeat([]byte("x"), 300)
	if err := db.Run(t.Context(), 2, 2, func(ctx context.Context, id int, w *txn.Worker) error {
		switch id {
		case 1:
			w.Sleep(delay)
			runtime.Goexit()
		case 2, 3: // the other thread goes on until what was posted has arrived: then the unwound one is fenced
			w.Sleep(delay + 10_000)
			return nil
		}
		if err := w.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, 0, larger) }); err != nil {
			return err
		}
		over = true
		return nil
	}); err == nil || !strings.Contains(err.Error(), "Goexit") {
		t.Errorf("Run: %v", err)
	}
	settled(t, f, db, func(w *txn.Worker) {
		if err := w.Update(t.Context(), func(tx *txn.Tx) error {
			got, err := tab.Get(tx, 0)
			if err == nil && !bytes.Equal(got, larger) && (over || !bytes.Equal(got, val(1))) {
				t.Errorf("%d bytes, acknowledged: %v", len(got), over)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	return over
}

// TestGoexitInRecovery: a function of Run ends its goroutine while another coroutine of its
// thread recovers somebody who has died so before. Both are recovered by who comes next,
// also without leases.
func TestGoexitInRecovery(t *testing.T) {
	for k := 1; k < 30; k += 2 {
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: later, Seed: uint64(k)})
		db := reopen(t, onFabric(f, txn.PolicyDefault))
		tab := table(t, db, "t")
		fill(t, db, tab, 20, val(0))
		end := func(after int64, beside func(ctx context.Context, w *txn.Worker) error) {
			_ = db.Run(t.Context(), 1, 2, func(ctx context.Context, id int, w *txn.Worker) error {
				if id > 0 {
					return beside(ctx, w)
				}
				w.Sleep(after)
				runtime.Goexit()
				return nil
			})
		}
		end(60_000, func(ctx context.Context, w *txn.Worker) error {
			return w.Update(ctx, func(tx *txn.Tx) error {
				_, err := tab.GetForUpdate(tx, 2)
				w.Sleep(1_000_000)
				return err
			})
		})
		end(int64(1000*k), func(_ context.Context, w *txn.Worker) error { return w.Maintain() })
		w := newWorker(t, db)
		for range 10 {
			w.Sleep(1_000_000)
			if err := w.Maintain(); err != nil {
				t.Fatalf("after %d us: %v", k, err)
			}
		}
		if err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 2, val(3)) }); err != nil {
			t.Errorf("after %d us: %v", k, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		close1(t, db)
		if c := db.Space().Layout().Coordinators; len(c) > 0 {
			t.Errorf("after %d us: left: %+v", k, c)
		}
	}
}

// TestRejoinedTogether: the session of several coroutines is broken, since one of them recovers
// somebody, and rejoins: all of them go on.
func TestRejoinedTogether(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: later, Seed: 1})
	db := reopen(t, onFabric(f, txn.PolicyDefault))
	tab := table(t, db, "t")
	fill(t, db, tab, 20, val(0))
	_ = db.Run(t.Context(), 1, 2, func(ctx context.Context, id int, w *txn.Worker) error {
		if id > 0 {
			runtime.Goexit()
		}
		return w.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, 1, val(1)) })
	})
	var committed [4]int
	err := db.Run(t.Context(), 1, len(committed), func(ctx context.Context, id int, w *txn.Worker) error {
		if id == 0 {
			w.Sleep(100_000)
			if err := w.Maintain(); err != nil {
				return err
			}
			clear(committed[:])
		}
		for committed[0] < 2000 && slices.Min(committed[:]) < 100 {
			if err := w.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, uint64(id), val(1)) }); err != nil {
				return err
			}
			committed[id]++
		}
		return nil
	})
	if err != nil || slices.Min(committed[:]) < 100 {
		t.Errorf("commits of the coroutines: %v; %v", committed, err)
	}
	close1(t, db)
}

// TestIdleWorkerSweeps: on a fabric of the caller's, a worker that has nothing else to do sweeps a
// whole database in few calls of Maintain.
func TestIdleWorkerSweeps(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: later, Seed: 1})
	db := reopen(t, onFabric(f, txn.PolicyDefault))
	tab := table(t, db, "t")
	fill(t, db, tab, 10_000, val(0))
	w := newWorker(t, db)
	_ = db.Run(t.Context(), 1, 2, func(ctx context.Context, id int, w *txn.Worker) error {
		if id > 0 {
			runtime.Goexit()
		}
		for {
			if err := w.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, 1, val(1)) }); err != nil {
				return err
			}
		}
	})
	calls := 0
	for unswept := true; unswept; calls++ {
		w.Sleep(1_000_000_000)
		if err := w.Maintain(); err != nil {
			t.Fatal(err)
		}
		_, unswept = db.Space().Unswept()
	}
	if calls > 3 {
		t.Errorf("%d calls", calls)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	close1(t, db)
}
