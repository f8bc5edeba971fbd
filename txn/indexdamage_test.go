package txn_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// indexPlaces are words of the primary of an index, and bits of them whose change shows. No client
// can tell a lock that seems to be that of a live coordinator, or an entry that leads to other
// buckets of its own sub-table: these are not among them.
var indexPlaces = []struct {
	what string
	root bool
	off  func(r *rng) uint32
	bits func(r *rng) uint64
}{
	{"header", false, func(r *rng) uint32 { return 64 + 64*uint32(r.n(6)) + 56 }, func(r *rng) uint64 {
		return 1 << (48 + r.n(16))
	}},
	{"child", false, func(*rng) uint32 { return 48 }, anyBit},
	{"lock of a sub-table", false, func(*rng) uint32 { return 56 }, deadOwner},
	{"global depth", true, func(*rng) uint32 { return 64 }, anyBit},
	{"lock of the directory", true, func(*rng) uint32 { return 72 }, deadOwner},
	{"entry", true, func(r *rng) uint32 { return 256 + 8*uint32(r.n(8)) }, otherTable},
}

func anyBit(r *rng) uint64 { return 1 << r.n(64) }

// otherTable changes a bit of an entry, but none that moves its address by less than a
// sub-table of 512 bytes.
func otherTable(r *rng) uint64 {
	n := r.n(61)
	if n >= 6 {
		n += 3
	}
	return 1 << n
}

// deadOwner changes a bit of the thread that a lock names, or one above the numbers of the
// test's coordinators.
func deadOwner(r *rng) uint64 {
	n := r.n(56)
	if n >= 16 {
		n += 8
	}
	return 1 << n
}

// TestIndexBesideDamage: words of the primary of an index are damaged while workers insert, so that
// splits are under way. Every insert and every read goes on. None waits as long as for a live
// client's change that does not end.
func TestIndexBesideDamage(t *testing.T) {
	raced.Skip(t)
	seeds := uint64(12)
	if testing.Short() {
		seeds = 1
	}
	for i, p := range indexPlaces {
		t.Run(p.what, func(t *testing.T) {
			for seed := range seeds {
				t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { indexBesideDamage(t, i, seed) })
			}
		})
	}
}

func indexBesideDamage(t *testing.T, place int, seed uint64) {
	caps := rdma.Caps{Placed: seed%2 == 0, OrderedLine: true, MaskedCAS: true}
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: caps, Seed: seed})
	o := tiny()
	o.BladeSize, o.Fabric, o.Catalog, o.Policy, o.IndexGroups, o.Seed = 0, f, &catalog.Mem{},
		txn.Policy(seed/2%2), 2, seed
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	const workers, each = 4, 60
	get := func(ctx context.Context, w *txn.Worker, k uint64) error {
		return w.View(ctx, func(tx *txn.Tx) error {
			v, err := tab.Get(tx, k)
			if err == nil && num(v) != k {
				err = fmt.Errorf("it has %d", num(v))
			}
			return err
		})
	}
	insert := func(ctx context.Context, w *txn.Worker, k uint64) error {
		begun := f.Now()
		err := w.Update(ctx, func(tx *txn.Tx) error {
			return tab.Insert(tx, k, binary.LittleEndian.AppendUint64(nil, k))
		})
		if took := f.Now() - begun; err == nil && took > 1_000_000_000 { // of the fabric's clock
			err = fmt.Errorf("it has waited for %d ms", took/1_000_000)
		}
		return err
	}
	run(t, db, setting{threads: 2, coroutines: 2}, func(ctx context.Context, id int, w *txn.Worker) error {
		r := rng(seed<<8 + uint64(id))
		p := &indexPlaces[place]
		for i := range uint64(each) {
			if i%20 == 10 && id == 0 {
				if err := w.SpoilIndex("t", p.root, r.n(1<<40), p.off(&r), p.bits(&r)); err != nil {
					return err
				}
			}
			if err := insert(ctx, w, i*workers+uint64(id)); err != nil {
				return fmt.Errorf("insert %d of worker %d: %w", i, id, err)
			}
			if k := r.n(i+1)*workers + uint64(id); get(ctx, w, k) != nil {
				return fmt.Errorf("key %d: %w", k, get(ctx, w, k))
			}
		}
		return nil
	})
	look := func(from, to uint64) {
		t.Helper()
		run(t, db, setting{threads: 1, coroutines: 1}, func(ctx context.Context, _ int, w *txn.Worker) error {
			for k := range to {
				if k >= from {
					if err := insert(ctx, w, k); err != nil {
						return fmt.Errorf("insert %d: %w", k, err)
					}
				}
				if err := get(ctx, w, k); err != nil {
					return fmt.Errorf("key %d: %w", k, err)
				}
			}
			return nil
		})
	}
	look(workers*each, workers*each)
	close1(t, db)
	db = mustOpen(t, o)
	tab = table(t, db, "t")
	look(workers*each, 2*workers*each)
	close1(t, db)
}
