package cluster_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// TestHostWithoutPower: a host with a blade and a program loses its power in the middle of
// transactions. Nothing comes from it any more, no connection is refused, and none ends. The other
// program goes on with all data, what was acknowledged is there, and copies are built at once.
func TestHostWithoutPower(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b.catalogFile("c")()
	host := []*relay{b.relay("rc", "c")} // what there is of the host: ways of its program to all others,
	var names, addresses []string
	for _, name := range []string{"b0", "b1", "b2"} {
		b.blades([]uint64{size}, name)
		host = append(host, b.relay("host-"+name, name))
		addresses = append(addresses, b.address("host-"+name))
		last := b.relay("r"+name, name)
		names = append(names, "r"+name)
		if name == "b2" {
			host = append(host, last) // and those of all others to its blade
		}
	}
	if err := cluster.Init(ctx, b.client("c"), b.list(names...), cluster.Geometry{
		SegmentSize: 256 << 10, LogArea: 64 << 10,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	b.witness("c")
	o := txn.Options{LeaseTerm: time.Second, Workers: 2, IndexGroups: 16}
	db, err := cluster.Open(ctx, b.address("c"), o, cluster.Options{Term: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := txn.CreateTable(db, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	patient := tcp.Options{Connect: time.Second, Control: time.Second, Verb: time.Second}
	if o.Fabric, err = tcp.Dial(ctx, addresses, patient); err != nil {
		t.Fatal(err)
	}
	cat, err := cluster.DialCatalog(ctx, b.address("rc"), cluster.Options{TCP: patient})
	if err != nil {
		t.Fatal(err)
	}
	o.Catalog, o.Closer, o.Shared = cat, both{o.Fabric, cat}, true
	lost, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	lostNumbers, err := txn.OpenTable(lost, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	const keys = 32
	add := func(ctx context.Context, db *txn.DB, table *txn.Table[uint64, uint64], k uint64) error {
		return db.Update(ctx, func(tx *txn.Tx) error {
			v, err := table.Get(tx, k)
			if err != nil && !errors.Is(err, txn.ErrNotFound) {
				return err
			}
			return table.Put(tx, k, v+1)
		})
	}
	var acknowledged, tried [keys]uint64 // transactions of the program of the host
	var doubt [keys]uint64               // those of the other one whose outcome it does not know
	ending, end := context.WithCancel(ctx)
	defer end()
	many := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for n := uint64(0); ending.Err() == nil; n++ {
			tried[n%keys]++
			if add(ending, lost, lostNumbers, n%keys) == nil {
				acknowledged[n%keys]++
			}
			if n == 4*keys {
				close(many)
			}
		}
	})
	<-many
	off := time.Now()
	heal := cut(t, host...)
	for k := range uint64(keys) {
		for err := errors.New("not tried"); err != nil; {
			if err = add(ctx, db, numbers, k); ctx.Err() != nil || errors.Is(err, txn.ErrLost) {
				t.Fatalf("key %d: %v", k, err)
			}
			if errors.Is(err, txn.ErrOutcomeUnknown) {
				doubt[k]++
			}
		}
	}
	t.Logf("all data is written again after %v, with a lease term of %v",
		time.Since(off).Round(time.Millisecond), o.LeaseTerm)
	b.until("no copies are built of what the host had", func(l *layout.Layout) bool {
		r := l.Redundancy()
		return l.Blades[2].State == layout.BladeDown && r.Missing == 0 && r.Building == 0
	}, "c")
	t.Logf("all copies are there after %v", time.Since(off).Round(time.Millisecond))
	end()
	heal() // only to end what belongs to the host
	done.Wait()
	for k := range uint64(keys) {
		var v uint64
		if err := db.View(ctx, func(tx *txn.Tx) (err error) { v, err = numbers.Get(tx, k); return err }); err != nil {
			t.Fatal(err)
		}
		if v < acknowledged[k]+1 || v > tried[k]+1+doubt[k] {
			t.Errorf("key %d is %d; %d of %d were acknowledged before the host lost its power, one after that, and "+
				"%d have an unknown outcome", k, v, acknowledged[k], tried[k], doubt[k])
		}
	}
	if err := db.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := lost.Close(ctx); err != nil && !errors.Is(err, txn.ErrFenced) {
		t.Logf("the program of the host: %v", err)
	}
}
