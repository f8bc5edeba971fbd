package txn_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/txn"
)

// TestHistogram: every duration is in the bucket whose bounds enclose it.
func TestHistogram(t *testing.T) {
	var h txn.Histogram
	durations := []int64{-1, 0, 1, 255, 256, 257, 512, 513, 1_000_000, 1 << 35, 1<<35 + 1, math.MaxInt64 / 2}
	for n, ns := range durations {
		before := h
		h.Record(ns)
		at := -1
		for i := range h.Buckets {
			if h.Buckets[i] != before.Buckets[i] {
				if at >= 0 || h.Buckets[i] != before.Buckets[i]+1 {
					t.Fatalf("%d ns: bucket %d went from %d to %d, too", ns, i, before.Buckets[i], h.Buckets[i])
				}
				at = i
			}
		}
		d := time.Duration(max(ns, 0))
		if at < 0 || at > 0 && d <= h.Bound(at-1) || at < txn.HistogramBuckets-1 && d > h.Bound(at) {
			t.Errorf("%v is in bucket %d, from %v to %v", d, at, h.Bound(at-1), h.Bound(at))
		}
		if h.Sum-before.Sum != d || h.Count() != uint64(n)+1 {
			t.Errorf("%v: sum %v, then %v; count %d", d, before.Sum, h.Sum, h.Count())
		}
	}
	if h.Bound(0) != 256 || h.Bound(txn.HistogramBuckets-1) != 0 || h.Bound(-1) != 0 {
		t.Errorf("bounds %v, %v", h.Bound(0), h.Bound(txn.HistogramBuckets-1))
	}
	twice := h
	twice.Add(&h)
	if twice.Count() != 2*h.Count() || twice.Sum != 2*h.Sum {
		t.Errorf("added to itself: %v of %v", twice, h)
	}
}

// tableOf is the figures of a table.
func tableOf(t *testing.T, m txn.Metrics, name string) txn.TableCounts {
	t.Helper()
	for _, x := range m.Tables {
		if x.Table == name {
			return x.TableCounts
		}
	}
	t.Fatalf("table %q is not in %+v", name, m.Tables)
	return txn.TableCounts{}
}

// TestMetrics: what a known sequence of transactions has done is counted, each thing once, and is
// the same after Close.
func TestMetrics(t *testing.T) {
	o := tiny()
	o.LatencySample = 1
	db := mustOpen(t, o)
	ctx := t.Context()
	a, b := table(t, db, "a"), table(t, db, "b")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	update := func(fn func(tx *txn.Tx) error) { t.Helper(); must(db.Update(ctx, fn)) }
	update(func(tx *txn.Tx) error { // three inserts: one of them blind, one of a key that had been looked for
		if _, err := a.Get(tx, 3); !errors.Is(err, txn.ErrNotFound) {
			t.Errorf("a key that is not there: %v", err)
		}
		return errors.Join(a.Insert(tx, 1, val(1)), a.Put(tx, 2, val(2)), a.Put(tx, 3, val(3)))
	})
	update(func(tx *txn.Tx) error { // an update, a read, a read of what is absent; the key read twice counts once
		_, err := a.Get(tx, 1)
		_, again := a.Get(tx, 1)
		_, absent := b.Get(tx, 9)
		if !errors.Is(absent, txn.ErrNotFound) {
			t.Errorf("an absent key: %v", absent)
		}
		return errors.Join(err, again, a.Put(tx, 2, val(4)))
	})
	update(func(tx *txn.Tx) error { return a.Delete(tx, 3) })
	// where its block still is
	update(func(tx *txn.Tx) error { return a.Insert(tx, 3, val(5)) })
	update(func(tx *txn.Tx) error { return errors.Join(b.Put(tx, 1, val(1)), a.Delete(tx, 3)) }) // in two tables
	must(db.View(ctx, func(tx *txn.Tx) error { _, err := b.Get(tx, 1); return err }))
	if err := db.Update(ctx,
		func(tx *txn.Tx) error { return errors.Join(a.Put(tx, 1, val(8)), errRollback) }); !errors.Is(err,
		errRollback) {
		t.Fatal(err)
	}

	// A conflict over a key of b, once met by Begin, which fails, and once by Update,
	// which tries again.
	holder, err := db.Begin(ctx, false)
	must(err)
	_, err = b.GetForUpdate(holder, 1)
	must(err)
	other, err := db.Begin(ctx, false)
	must(err)
	if _, err := b.GetForUpdate(other, 1); !errors.Is(err, txn.ErrConflict) {
		t.Fatal(err)
	}
	if err := other.Commit(); !errors.Is(err, txn.ErrConflict) {
		t.Fatal(err)
	}
	attempts := 0
	update(func(tx *txn.Tx) error {
		if attempts++; attempts == 2 {
			if err := holder.Rollback(); err != nil {
				t.Error(err)
			}
		}
		_, err := b.GetForUpdate(tx, 1)
		return err
	})
	canceled, cancel := context.WithCancel(ctx)
	if err := db.Update(canceled, func(tx *txn.Tx) error { cancel(); return a.Put(tx, 1, val(9)) }); !errors.Is(err,
		context.Canceled) {
		t.Fatal(err)
	}

	m := db.Metrics()
	if want := (txn.TableCounts{Reads: 1, Updates: 1, Inserts: 4, Deletes: 2}); tableOf(t, m, "a") != want {
		t.Errorf("table a: %+v instead of %+v", tableOf(t, m, "a"), want)
	}
	if want := (txn.TableCounts{Reads: 3, Inserts: 1, Conflicts: 2}); tableOf(t, m, "b") != want {
		t.Errorf("table b: %+v instead of %+v", tableOf(t, m, "b"), want)
	}
	if m.Committed != 7 || m.RolledBack != 2 || m.Failed != 2 || m.Retries != 1 || m.Conflicts[txn.AbortLocked] != 2 {
		t.Errorf("%d committed, %d rolled back, %d failed, %d retries, conflicts %v", m.Committed, m.RolledBack,
			m.Failed, m.Retries, m.Conflicts)
	}
	if u, v := m.Latency[txn.KindUpdate].Count(), m.Latency[txn.KindView].Count(); u != 10 || v != 1 {
		t.Errorf("%d updates and %d views were timed", u, v)
	}
	var sum txn.VerbCounts
	for i := range m.Phases {
		sum.Add(&m.Phases[i])
	}
	if sum != m.Verbs || sum.Verbs[txn.VerbRead] == 0 || m.Phases[txn.PhaseCommit].Verbs[txn.VerbWrite] == 0 {
		t.Errorf("verbs %+v, by phase %+v", m.Verbs, m.Phases)
	}
	if len(m.Blades) != 2 {
		t.Errorf("%d blades", len(m.Blades))
	}
	for i, x := range m.Blades {
		if x.Blade != i || x.Down || x.Used == 0 || x.Free == 0 || x.Used+x.Free != x.Total {
			t.Errorf("blade %+v", x)
		}
	}
	if w := m.Workers; w.Open != w.Idle || w.Open < 2 || w.Open > w.Limit || w.Waiting != 0 || w.Waits != 0 {
		t.Errorf("workers %+v", w)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	after := db.Metrics()
	if tableOf(t, after, "a") != tableOf(t, m, "a") || tableOf(t, after, "b") != tableOf(t, m, "b") ||
		after.Latency != m.Latency || after.Committed != m.Committed || after.Workers.Open != 0 {
		t.Errorf("after Close %+v, before %+v", after, m)
	}
}

// TestMetricsOfTableMadeAgain: tables of one name, each made after the one before was dropped, have
// one entry, whose figures go on.
func TestMetricsOfTableMadeAgain(t *testing.T) {
	db := mustOpen(t, tiny())
	for n := uint64(1); n <= 3; n++ {
		tab := table(t, db, "daily")
		if m := db.Metrics(); len(m.Tables) != 1 {
			t.Fatalf("made %d times: %+v", n, m.Tables)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, 1, val(1)) }); err != nil {
			t.Fatal(err)
		}
		if got := tableOf(t, db.Metrics(), "daily"); got.Inserts != n {
			t.Errorf("made %d times: %+v", n, got)
		}
		if err := db.DropTable(t.Context(), "daily"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMetricsDefaultSample: in memory one transaction in 61 is timed; some of those that
// pause are among them.
func TestMetricsDefaultSample(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	w := newWorker(t, db)
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	const n = 61 * 32
	for range n {
		if err := w.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.Has(tx, 1); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.Metrics().Latency[txn.KindView].Count(); got != n/61 {
		t.Errorf("%d of %d were timed", got, n)
	}
}

// TestMetricsOfWaiting: a call that waits for a worker is seen while it does, and
// counted when it has.
func TestMetricsOfWaiting(t *testing.T) {
	o := tiny()
	o.Workers = 1
	db := mustOpen(t, o)
	tx, err := db.Begin(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- db.View(t.Context(), func(*txn.Tx) error { return nil }) }()
	for db.Metrics().Workers.Waiting != 1 {
		time.Sleep(time.Millisecond)
	}
	if w := db.Metrics().Workers; w.Limit != 1 || w.Open != 1 || w.Idle != 0 {
		t.Errorf("%+v", w)
	}
	if err := errors.Join(tx.Rollback(), <-done); err != nil {
		t.Fatal(err)
	}
	if w := db.Metrics().Workers; w.Waiting != 0 || w.Waits != 1 || w.Waited <= 0 || w.Idle != 1 {
		t.Errorf("%+v", w)
	}
}

// TestMetricsOfRecovery: recoveries, rejoining workers and lost blades are counted.
func TestMetricsOfRecovery(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	put := func() {
		t.Helper()
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, val(1)) }); err != nil {
			t.Fatal(err)
		}
	}
	put()
	if _, err := db.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	put()
	if m := db.Metrics(); m.Recovery.Coordinators != 1 || m.Rejoins != 1 || m.Recovery.Outages != 0 {
		t.Errorf("after a recovery: %+v, %d rejoins", m.Recovery, m.Rejoins)
	}
	if err := stopper(t, db).StopBlade(rdma.BladeID(1)); err != nil {
		t.Fatal(err)
	}
	put()
	m := db.Metrics()
	if m.Recovery.Outages != 1 || m.Rejoins != 2 || m.Recovery.Coordinators < 2 {
		t.Errorf("after the loss of a blade: %+v, %d rejoins", m.Recovery, m.Rejoins)
	}
	if !m.Blades[1].Down || m.Blades[1].Free != 0 || m.Blades[0].Down {
		t.Errorf("blades %+v", m.Blades)
	}
}
