package txn_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// refusing is a fabric on which blades execute verbs, and do not change their keys: their
// servers are stopped.
type refusing struct {
	*rdmatest.Fabric
	blades atomic.Uint32 // a bit each
	calls  atomic.Int32
}

func (f *refusing) refuses(b rdma.BladeID) error {
	if f.blades.Load()&(1<<b) == 0 {
		return nil
	}
	f.calls.Add(1)
	return rdma.ErrBladeDown
}

func (f *refusing) Grant(b rdma.BladeID) (rdma.Key, error) {
	if err := f.refuses(b); err != nil {
		return 0, err
	}
	return f.Fabric.Grant(b)
}

func (f *refusing) Revoke(b rdma.BladeID, before rdma.Key) error {
	if err := f.refuses(b); err != nil {
		return err
	}
	return f.Fabric.Revoke(b, before)
}

// TestBladeRefuses: a process dies, and a blade executes verbs and does not change its keys from
// then on, when another blade may have died before. It is declared dead after a while: the dead are
// recovered, after few epochs.
func TestBladeRefuses(t *testing.T) {
	raced.Skip(t)
	for _, second := range []bool{false, true} {
		f := &refusing{Fabric: rdmatest.New(rdmatest.Options{Blades: 4, Size: 16 << 20, Caps: atOnce, Seed: 5})}
		o := onFabric(f, txn.PolicyDefault)
		o.Shared, o.LeaseTerm, o.Retries = true, 100*time.Millisecond, 10
		dead, err := txn.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		words, err := txn.CreateTable(dead, "words", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		dying := newWorker(t, dead)
		all := func(v uint64) func(tx *txn.Tx) error {
			return func(tx *txn.Tx) (err error) {
				for k := range uint64(20) {
					err = errors.Join(err, words.Put(tx, k, v))
				}
				return err
			}
		}
		if err := dying.Update(t.Context(), all(1)); err != nil {
			t.Fatal(err)
		}
		l := dead.Space().Layout().Coordinators
		id := l[len(l)-1].ID
		db := mustOpen(t, o)
		w := newWorker(t, db)
		has, err := txn.OpenTable(db, "words", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		if second { // the copies of what it had are made before
			if err := f.StopBlade(3); err != nil {
				t.Fatal(err)
			}
			for db.Redundancy().Missing > 0 || db.Space().View().Up(3) {
				w.Sleep(int64(time.Millisecond))
				if err := w.Maintain(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := db.Space().Follow(); err != nil {
			t.Fatal(err)
		}
		f.blades.Store(1 << 1)
		from := db.Space().View().Epoch
		if err := db.Space().AdvanceEpoch(nil); err == nil {
			t.Fatal("it does not refuse")
		}
		registered := func() bool {
			return slices.ContainsFunc(db.Space().Layout().Coordinators, func(c layout.CoordinatorEntry) bool {
				return c.ID == id
			})
		}
		for i := 0; len(db.Space().Layout().Processes) > 1 || registered() || db.Space().View().Up(1); i++ {
			if i == 1000 {
				t.Fatalf("after %d refusals registered are %+v, and %+v", f.calls.Load(), db.Space().Layout().Processes,
					db.Space().Layout().Coordinators)
			}
			w.Sleep(int64(10 * time.Millisecond))
			_ = w.Maintain()
		}
		if n := db.Space().View().Epoch - from; n > 100 {
			t.Errorf("%d epochs have begun", n)
		}
		if db.Space().View().Up(1) {
			t.Error("the blade that refuses takes part")
		}
		x := db.Redundancy().Outages
		if k := len(x) - 1; k < 0 || x[k].Blade != 1 ||
			!strings.Contains(x[k].Cause, "has not changed its access keys") {
			t.Errorf("outages: %+v", x)
		}
		if err := w.Update(t.Context(), func(tx *txn.Tx) error {
			for k := range uint64(20) {
				if v, err := has.Get(tx, k); err != nil || v != 1 {
					t.Errorf("%d has %d, %v", k, v, err)
				}
			}
			return has.Put(tx, 1, 3)
		}); err != nil {
			t.Error(err)
		}
		f.blades.Store(0) // it is taken in again
		for i := 0; i < 200 && !db.Space().View().Up(1); i++ {
			w.Sleep(int64(10 * time.Millisecond))
			if err := w.Maintain(); err != nil {
				t.Fatal(err)
			}
		}
		if !db.Space().View().Up(1) {
			t.Error("the blade is not taken in again")
		}
		if err := dying.Update(t.Context(), all(4)); err != nil { // it was only late
			t.Error(err)
		}
		if err := errors.Join(w.Close(), dying.Close(), dead.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}
}

// TestBladesRefuseTogether: two blades do not change their keys from the same moment on. They have
// the only copies of some segments: one is declared dead, not both, and when they have come to
// themselves all is there.
func TestBladesRefuseTogether(t *testing.T) {
	raced.Skip(t)
	f := &refusing{Fabric: rdmatest.New(rdmatest.Options{Blades: 3, Size: 8 << 20, Caps: atOnce, Seed: 5})}
	o := onFabric(f, txn.PolicyDefault)
	o.Shared, o.LeaseTerm, o.Retries, o.SegmentSize = true, 100*time.Millisecond, 10, 256<<10
	db := mustOpen(t, o)
	words, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	const keys = 3000
	w := newWorker(t, db)
	for k := range uint64(keys) { // segments on all blades
		if err := w.Update(t.Context(), func(tx *txn.Tx) error { return words.Put(tx, k, k) }); err != nil {
			t.Fatal(err)
		}
	}
	if db.Space().Layout().Without(0, 1).Redundancy().Lost == 0 {
		t.Fatal("two blades have no segment in common")
	}
	f.blades.Store(1<<0 | 1<<1)
	if err := db.Space().AdvanceEpoch(nil); err == nil {
		t.Fatal("they do not refuse")
	}
	down := func() (n int) {
		for b := range rdma.BladeID(3) {
			if !db.Space().View().Up(b) {
				n++
			}
		}
		return n
	}
	maintain := func() {
		w.Sleep(int64(10 * time.Millisecond))
		_ = w.Maintain()
		if n := db.Redundancy().Lost; n > 0 {
			t.Fatalf("%d segments are lost: %+v", n, db.Redundancy().Outages)
		}
	}
	for i := 0; down() == 0; i++ {
		if i == 2000 {
			t.Fatalf("after %d refusals none is declared dead", f.calls.Load())
		}
		maintain()
	}
	for range 50 {
		maintain()
	}
	f.blades.Store(0)
	for i := 0; down() > 0 || db.Redundancy().Missing > 0; i++ {
		if i == 2000 {
			t.Fatalf("%d are down, %d copies are missing", down(), db.Redundancy().Missing)
		}
		maintain()
	}
	for k := range uint64(keys) {
		if err := w.View(t.Context(), func(tx *txn.Tx) error {
			if v, err := words.Get(tx, k); err != nil || v != k {
				t.Errorf("%d has %d, %v", k, v, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
