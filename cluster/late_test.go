package cluster_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory"
	"txnode/memory/catalog/catalogtest"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// TestLateReads: one process hears nothing of a blade, while another one reads from it. If that one
// hears nothing of the catalog, it cannot say that it hears the blade, and the first one declares
// the blade dead when the lease of the other one has ended. What it commits then, the other one
// reads, or it fails: it reads nothing that is older.
func TestLateReads(t *testing.T) {
	for name, hears := range map[string]bool{"it hears of the catalog": true, "it does not": false} {
		t.Run(name, func(t *testing.T) { lateReads(t, hears) })
	}
}

func lateReads(t *testing.T, hears bool) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b.catalogFile("c")()
	names := []string{"b0", "b1", "b2"}
	var direct, relayed []string
	var relays []*relay
	for _, name := range names {
		b.blades([]uint64{size}, name)
		relays = append(relays, b.relay("r"+name, name))
		direct, relayed = append(direct, b.address(name)), append(relayed, b.address("r"+name))
	}
	if err := cluster.Init(ctx, b.client("c"), b.list(names...), cluster.Geometry{
		SegmentSize: 256 << 10, LogArea: 64 << 10,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	open := func(cat layout.Catalog, term time.Duration, addresses []string, o tcp.Options) (db *txn.DB, done func()) {
		t.Helper()
		f, err := tcp.Dial(ctx, addresses, o)
		if err != nil {
			t.Fatal(err)
		}
		db, err = txn.Open(ctx, txn.Options{
			Fabric: f, Catalog: cat, Shared: true, Backups: txn.F(1), LeaseTerm: term, Workers: 1, IndexGroups: 16,
		})
		if err != nil {
			t.Fatal(err)
		}
		return db, func() {
			if err := errors.Join(db.Close(ctx), cat.Close(), f.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	term := 10 * time.Minute // longer than the test
	if !hears {
		term = 3 * time.Second
	}
	cat := &catalogtest.Unheard{Catalog: b.client("c")}
	near, nearDone := open(cat, term, direct, tcp.Options{})
	numbers, err := txn.CreateTable(near, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	const keys = 64
	for k := range uint64(keys) {
		if err := near.Update(ctx, func(tx *txn.Tx) error { return numbers.Put(tx, k, 1) }); err != nil {
			t.Fatal(err)
		}
	}
	const patience = 100 * time.Millisecond
	far, farDone := open(b.client("c"), 10*time.Minute, relayed,
		tcp.Options{Connect: patience, Control: patience, Verb: patience})
	farNumbers, err := txn.OpenTable(far, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	read := func(k uint64) (v uint64, err error) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if cat.Away.Load() { // which is waited for
			ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
		}
		err = near.View(ctx, func(tx *txn.Tx) (err error) {
			v, err = numbers.Get(tx, k)
			return err
		})
		return v, err
	}
	for k := range uint64(keys) {
		if v, err := read(k); err != nil || v != 1 { // it knows where it is from now on
			t.Fatal(v, err)
		}
	}
	segments := near.Space().Layout().Segments
	blade := segments[slices.IndexFunc(segments,
		func(g layout.Segment) bool { return g.Kind == layout.KindBlocks })].Placement.Replicas[0].Blade
	cat.Away.Store(!hears)
	relays[blade].mu.Lock()
	reach := sync.OnceFunc(relays[blade].mu.Unlock)
	defer reach()
	written := uint64(keys)
	if hears { // it says so
		written = 1
	}
	for k := range written {
		for {
			err := far.Update(ctx, func(tx *txn.Tx) error { return farNumbers.Put(tx, k, 2) })
			if err == nil {
				break
			}
			if hears && errors.Is(err, txn.ErrCutOff) {
				reach()
			}
			if ctx.Err() != nil {
				t.Fatalf("key %d: %v", k, err)
			}
		}
		if v, err := read(k); err == nil && v != 2 {
			t.Errorf("key %d: %d was read after 2 was committed", k, v)
		} else if err != nil && (hears || !errors.Is(err, memory.ErrAway) &&
			!errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("key %d: %v", k, err)
		}
	}
	if declared := len(far.Redundancy().Outages) > 0; declared == hears {
		t.Errorf("the silent blade was declared dead: %v", declared)
	}
	cat.Away.Store(false)
	reach()
	for k := range uint64(keys) {
		want := uint64(1)
		if k < written {
			want = 2
		}
		if v, err := read(k); err != nil || v != want {
			t.Errorf("key %d: %d, %v; want %d", k, v, err, want)
		}
	}
	nearDone()
	farDone()
}
