package cluster_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// witness has the catalog of a bed be a witness until the test ends.
func (b *bed) witness(name string) {
	b.t.Helper()
	cat := b.client(name)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		cluster.Witness(ctx, cat, cluster.WitnessOptions{Every: 50 * time.Millisecond})
	})
	b.t.Cleanup(func() {
		cancel()
		done.Wait()
		if err := cat.Close(); err != nil {
			b.t.Error(err)
		}
	})
	b.until("the witness is not there", func(l *layout.Layout) bool { return l.Witnessed }, name)
}

// witnessed makes a cluster of three blades, b0 to b2, whose catalog c is a witness. stops end the
// servers of the blades.
func (b *bed) witnessed(ctx context.Context) (addresses []string, stops []func()) {
	b.t.Helper()
	b.catalogFile("c")()
	names := []string{"b0", "b1", "b2"}
	for _, name := range names {
		stops = append(stops, b.blades([]uint64{size}, name))
		addresses = append(addresses, b.address(name))
	}
	if err := cluster.Init(ctx, b.client("c"), b.list(names...), cluster.Geometry{
		SegmentSize: 256 << 10, LogArea: 64 << 10,
	}, cluster.Options{}); err != nil {
		b.t.Fatal(err)
	}
	b.witness("c")
	return addresses, stops
}

// until waits until the catalog says something.
func (b *bed) until(not string, is func(l *layout.Layout) bool, name string) {
	b.t.Helper()
	cat := b.client(name)
	defer cat.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for rev := layout.Revision(0); ; {
		l, err := layout.LoadLayout(cat)
		if err == nil && l != nil && is(l) {
			return
		}
		if rev, err = cat.Await(ctx, rev); err != nil {
			b.t.Fatalf("%s: %v", not, err)
		}
	}
}

// TestAloneAndCutOff: a process is alone with a database, and cannot reach blades that are alive:
// nothing listens where it looks for them, as when its tunnel has ended, or it has no descriptors.
// The witness hears the blades: none is declared dead, and nothing is lost.
func TestAloneAndCutOff(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b.catalogFile("c")()
	names := []string{"b0", "b1", "b2"}
	var addresses []string
	var tunnels []*tunnel
	for _, name := range names {
		b.blades([]uint64{size}, name)
		tunnels = append(tunnels, b.tunnel("t"+name, name))
		addresses = append(addresses, b.address("t"+name))
	}
	if err := cluster.Init(ctx, b.client("c"), b.list(names...), cluster.Geometry{
		SegmentSize: 256 << 10, LogArea: 64 << 10,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	b.witness("c")
	f, err := tcp.Dial(ctx, addresses, tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cat := b.client("c")
	db, err := txn.Open(ctx, txn.Options{
		Fabric: f, Catalog: cat, Shared: true, Backups: txn.F(1), Workers: 1, IndexGroups: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := txn.CreateTable(db, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	put := func(k uint64) error {
		return db.Update(ctx, func(tx *txn.Tx) error { return numbers.Put(tx, k, k) })
	}
	const keys = 100
	for k := range uint64(keys) {
		if err := put(k); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n <= len(tunnels); n++ { // one after the other, as descriptors run out
		tunnels[n-1].end()
		for err := put(0); !errors.Is(err, txn.ErrCutOff); err = put(0) {
			if ctx.Err() != nil {
				t.Fatalf("cut off %d blades: %v", n, err)
			}
		}
	}
	if r := db.Redundancy(); len(r.Down) > 0 || r.Lost > 0 || len(r.Outages) > 0 {
		t.Errorf("blades %v are down, %d segments are lost: %+v", r.Down, r.Lost, r.Outages)
	}
	for _, x := range tunnels {
		x.begin()
	}
	for k := range uint64(keys) {
		for {
			var v uint64
			err := db.View(ctx, func(tx *txn.Tx) (err error) {
				v, err = numbers.Get(tx, k)
				return err
			})
			if err == nil && v == k {
				break
			}
			if err == nil || ctx.Err() != nil || errors.Is(err, txn.ErrNotFound) || errors.Is(err, txn.ErrLost) {
				t.Fatalf("key %d: %d, %v", k, v, err)
			}
		}
	}
	if err := errors.Join(db.Close(ctx), cat.Close(), f.Close()); err != nil {
		t.Error(err)
	}
}

// TestIdleNotices: a blade dies while no program touches it. The witness notices, processes declare
// it dead and build its copies elsewhere, and another program can open the database.
func TestIdleNotices(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, stops := b.witnessed(ctx)
	open := func() *txn.DB {
		db, err := cluster.Open(ctx, b.address("c"), txn.Options{LeaseTerm: time.Hour, Workers: 1, IndexGroups: 16},
			cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	idle := open()
	if _, err := txn.CreateTable(idle, "numbers", txn.Uint64, txn.Plain[uint64]()); err != nil {
		t.Fatal(err)
	}
	stops[1]()
	b.until("nobody has noticed that a blade is gone", func(l *layout.Layout) bool {
		return l.Blades[1].State == layout.BladeDown && l.Redundancy().Missing == 0 && l.Redundancy().Building == 0
	}, "c")
	other := open()
	if err := errors.Join(other.Close(ctx), idle.Close(ctx)); err != nil {
		t.Error(err)
	}
}

// TestUnavailable: two blades with the copies of a segment end. What they had is not given up:
// it is waited for, and an error says so. A blade that has begun anew has lost what it had, and
// only then it is lost.
func TestUnavailable(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, stops := b.witnessed(ctx)
	db, err := cluster.Open(ctx, b.address("c"), txn.Options{Workers: 1, IndexGroups: 16}, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := txn.CreateTable(db, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	put := func(k uint64) error {
		return db.Update(ctx, func(tx *txn.Tx) error { return numbers.Put(tx, k, k) })
	}
	for k := range uint64(2000) { // on all blades
		if err := put(k); err != nil {
			t.Fatal(err)
		}
	}
	if db.Space().Layout().Without(0, 1, 2).Redundancy().Lost == 0 {
		t.Fatal("there is nothing to lose")
	}
	for _, stop := range stops {
		stop()
	}
	for err := put(0); !errors.Is(err, txn.ErrCutOff) || !errors.Is(err, rdma.ErrBladeDown); err = put(0) {
		if err == nil || ctx.Err() != nil || errors.Is(err, txn.ErrLost) {
			t.Fatalf("without blades: %v", err)
		}
	}
	if r := db.Redundancy(); r.Lost > 0 {
		t.Errorf("%d segments are lost, and their blades may come back", r.Lost)
	}
	_ = db.Close(ctx) // its blades are away
}

// TestFirstAndCutOff: the first program to open a database cannot reach a blade that lives. The
// witness hears that blade: it is not given up, and an error says what is wrong. When the program
// reaches it, the database opens with all of its copies.
func TestFirstAndCutOff(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addresses, _ := b.witnessed(ctx)
	x := b.tunnel("t1", "b1")
	x.end()
	addresses[1] = b.address("t1")
	for _, reached := range []bool{false, true} {
		if reached {
			x.begin()
		}
		f, err := tcp.Dial(ctx, addresses, tcp.Options{Absent: [][]uint64{{size}, {size}, {size}}})
		if err != nil {
			t.Fatal(err)
		}
		cat := b.client("c")
		db, err := txn.Open(ctx, txn.Options{
			Fabric: f, Catalog: cat, Shared: true, Backups: txn.F(1), Workers: 1, IndexGroups: 16,
		})
		if reached != (err == nil) || !reached && (!errors.Is(err, memory.ErrShared) ||
			!errors.Is(err, rdma.ErrBladeDown)) {
			t.Errorf("reached %v: %v", reached, err)
		}
		if err == nil {
			if r := db.Redundancy(); len(r.Down) > 0 {
				t.Errorf("blades %v are down", r.Down)
			}
			err = db.Close(ctx)
		} else {
			err = nil
		}
		if err := errors.Join(err, cat.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestLateDescriptors: a program opens a database beside another one, without a way to a blade that
// lives. It knows no incarnation of that, which does not mean that the blade has restarted.
func TestLateDescriptors(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b.catalogFile("c")()
	names := []string{"b0", "b1", "b2"}
	addresses := make([]string, len(names))
	for i, name := range names {
		b.blades([]uint64{size}, name)
		addresses[i] = b.address(name)
	}
	if err := cluster.Init(ctx, b.client("c"), b.list(names...), cluster.Geometry{
		SegmentSize: 256 << 10, LogArea: 64 << 10,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	near, err := cluster.Open(ctx, b.address("c"), txn.Options{Workers: 1, IndexGroups: 16}, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x := b.tunnel("t1", "b1")
	addresses[1] = b.address("t1")
	f, err := tcp.Dial(ctx, addresses, tcp.Options{Absent: [][]uint64{{size}, {size}, {size}}})
	if err != nil {
		t.Fatal(err)
	}
	cat := b.client("c")
	far, err := txn.Open(ctx, txn.Options{
		Fabric: f, Catalog: cat, Shared: true, Backups: txn.F(1), Workers: 1, IndexGroups: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	x.end()
	if err := f.Locate(1, ""); err != nil { // its incarnation is not known any more
		t.Fatal(err)
	}
	numbers, err := txn.CreateTable(near, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := txn.OpenTable(far, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err == nil {
		for err = nil; err == nil; {
			err = far.Update(ctx, func(tx *txn.Tx) error { return theirs.Put(tx, 1, 1) })
		}
	}
	if !errors.Is(err, txn.ErrCutOff) {
		t.Errorf("cut off a blade: %v", err)
	}
	if err := near.Update(ctx, func(tx *txn.Tx) error { return numbers.Put(tx, 2, 2) }); err != nil {
		t.Error(err)
	}
	if r := near.Redundancy(); len(r.Down) > 0 || len(r.Outages) > 0 {
		t.Errorf("blades %v are down: %+v", r.Down, r.Outages)
	}
	if err := f.Locate(1, b.address("b1")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(far.Close(ctx), cat.Close(), f.Close(), near.Close(ctx)); err != nil {
		t.Error(err)
	}
}

// TestDeadTogether: a process dies, and so does the blade with the root of a table's index. The
// registration of the process is left, and is no sign that the process hears the blade. The next
// opening waits for a term of the dead process, which is longer than the second that an opening
// waits otherwise. Then that opening is the first one, and goes on with the copies.
func TestDeadTogether(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addresses, stops := b.witnessed(ctx)
	f, err := tcp.Dial(ctx, addresses, tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cat := b.client("c")
	dead, err := txn.Open(ctx, txn.Options{
		Fabric: f, Catalog: cat, Shared: true, Backups: txn.F(1), Workers: 1, IndexGroups: 16,
		LeaseTerm: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := txn.CreateTable(dead, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Update(ctx, func(tx *txn.Tx) error { return numbers.Put(tx, 1, 2) }); err != nil {
		t.Fatal(err)
	}
	root := dead.Space().View().At(dead.Space().Layout().Tables[0].Root, 0).Blade
	if err := cat.Close(); err != nil { // it says no more that it is alive
		t.Fatal(err)
	}
	stops[root]()
	db, err := cluster.Open(ctx, b.address("c"), txn.Options{Workers: 1, IndexGroups: 16}, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if numbers, err = txn.CreateTable(db, "numbers", txn.Uint64, txn.Plain[uint64]()); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error {
		x, err := numbers.Get(tx, 1)
		if err == nil && x != 2 {
			t.Errorf("the record is %d", x)
		}
		return errors.Join(err, numbers.Put(tx, 1, 3))
	}); err != nil {
		t.Error(err)
	}
	if r := db.Redundancy(); len(r.Down) != 1 || r.Down[0] != root || r.Lost > 0 {
		t.Errorf("blades %v are down, %d segments are lost", r.Down, r.Lost)
	}
	if err := db.Close(ctx); err != nil {
		t.Error(err)
	}
	_ = dead.Close(ctx) // it has nothing any more
	_ = f.Close()
}
