package txn_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"txnode/memory"
	"txnode/txn"
)

// await waits for what has to come to be.
func await(t *testing.T, what string, fn func() bool) {
	t.Helper()
	for since := time.Now(); !fn(); time.Sleep(time.Millisecond) {
		if time.Since(since) > time.Minute {
			t.Fatal(what)
		}
	}
}

// TestHeartbeat: the heartbeat of a process stands still, and its lease lasts for an hour. Another process ends its registration, and recovers its
// sessions, all by itself. The process finds that out, goes on, and asks for more time.
func TestHeartbeat(t *testing.T) {
	o := sharedOn(t, 2)
	o.LeaseTerm, o.Heartbeat = time.Hour, 50*time.Millisecond
	one, late := mustOpen(t, o), mustOpen(t, o)
	put := func(db *txn.DB, k uint64) {
		t.Helper()
		table, err := txn.CreateTable(db, "t", txn.Uint64, txn.Text())
		if err == nil {
			err = db.Update(t.Context(), func(tx *txn.Tx) error { return table.Put(tx, k, "x") })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(late, 1)
	put(one, 2)
	await(t, "heartbeats do not begin", func() bool { return one.Heartbeats().Turns > 5 && late.Heartbeats().Turns > 5 })
	was := late.Space().Process()
	resume := late.StallHeartbeat()
	await(t, "a silent process is not taken for dead", func() bool {
		l := one.Space().Layout()
		return !l.Registered(was) && !slices.ContainsFunc(l.Coordinators, func(c memory.CoordinatorEntry) bool { return c.Process == was })
	})
	put(one, 1)
	resume()
	put(late, 2)
	await(t, "a process that is late does not notice", func() bool { return late.Heartbeats().Ended > 0 })
	if s := late.Heartbeats(); s.Term <= int64(o.Heartbeat) || late.Space().Process() == was {
		t.Errorf("as process %d: %+v", late.Space().Process(), s)
	}
	put(late, 3)
	if one.Heartbeats().Silent == 0 {
		t.Error("the other process has found none silent")
	}
}

// TestHeartbeatOptions: which heartbeats are refused.
func TestHeartbeatOptions(t *testing.T) {
	o := sharedOn(t, 2)
	for _, x := range []struct {
		beat, lease time.Duration
		ok          bool
	}{
		{-1, 0, false}, {txn.MinHeartbeat - 1, 0, false}, {txn.MinHeartbeat, 0, true}, {txn.DefaultLeaseTerm, 0, true},
		{txn.DefaultLeaseTerm + 1, 0, false}, {2 * time.Second, time.Second, false},
	} {
		o.Heartbeat, o.LeaseTerm = x.beat, x.lease
		if err := o.Validate(); (err == nil) != x.ok || err != nil && !errors.Is(err, txn.ErrOptions) {
			t.Errorf("%v with a lease of %v: %v", x.beat, x.lease, err)
		}
	}
}

// TestHeartbeatLapsed: a process that has not been able to beat for as long as others watch it may be taken for gone by them, and what it
// reads may be old. The catalog says whether it is; if that does not answer, a read fails.
func TestHeartbeatLapsed(t *testing.T) {
	cat := &deaf{}
	o := sharedOn(t, 2)
	o.Catalog, o.LeaseTerm = cat, time.Hour
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 1, val(7))
	read := func() (v uint64, err error) {
		err = db.View(t.Context(), func(tx *txn.Tx) error {
			p, err := tab.Get(tx, 0)
			if err == nil {
				v = num(p)
			}
			return err
		})
		return v, err
	}
	for _, lapsed := range []bool{false, true} {
		if lapsed {
			db.Space().Beat(1, 1)
		}
		if v, err := read(); v != 7 || err != nil {
			t.Errorf("lapsed %v: %d, %v", lapsed, v, err)
		}
	}
	cat.down.Store(true)
	if _, err := read(); err == nil {
		t.Error("it has read though it may be gone, and nothing is heard of the catalog")
	}
	db.Space().Beat(0, 0)
	if v, err := read(); v != 7 || err != nil {
		t.Errorf("without heartbeats: %d, %v", v, err)
	}
	db.Space().Beat(1, 1)
	cat.down.Store(false)
	if v, err := read(); v != 7 || err != nil {
		t.Errorf("when the catalog is heard of again: %d, %v", v, err)
	}
}
