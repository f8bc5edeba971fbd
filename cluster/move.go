package cluster

import (
	"context"
	"time"

	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// A cluster has a fixed number of places for blades (Geometry.Places). A server is added to a place
// that is vacant in two steps of the catalog: its address is written, and the place is not vacant
// any more. All processes then take its blade in as one that has died and is back. Draining goes
// the other way. Each command can be called again after an error, and goes on.

// followed is a catalog that tells a fabric where servers are, whenever it is loaded. A process
// loads it when another one has changed it, before it makes use of the change: so it knows the
// address of a blade before it learns that the blade takes part.
type followed struct {
	layout.Catalog
	fabric locator
}

// locator is a fabric whose servers can be elsewhere than they were.
type locator interface {
	Locate(server int, address string) error
}

// Load is that of the catalog.
func (c *followed) Load() ([]layout.Entry, layout.Revision, error) {
	entries, rev, err := c.Catalog.Load()
	if err != nil {
		return entries, rev, err
	}
	servers, err := find(c.Catalog, entries)
	if err != nil {
		return nil, 0, err
	}
	for i, s := range servers {
		if err := c.fabric.Locate(i, string(s.Address)); err != nil {
			return nil, 0, err
		}
	}
	return entries, rev, nil
}

// first is the id of the first blade of a server.
func first(servers []Server, i int) (b int) {
	for _, s := range servers[:i] {
		b += len(s.Blades)
	}
	return b
}

// lookPause is how often it is looked whether a blade takes part.
const lookPause = 5 * time.Millisecond

// with opens the database for fn.
func with(ctx context.Context, catalog string, o Options, fn func(db *txn.DB) error) error {
	o.Post = -1
	db, err := Open(ctx, catalog, txn.Options{Workers: 1}, o)
	if err != nil {
		return err
	}
	return oneLine(fn(db), closeSoon(ctx, db))
}

// DrainBlade moves everything that a blade has to others, while transactions run (txn.DB.Drain),
// and then takes its server out of the catalog, if all of its blades are drained: its place is
// vacant, and it can be stopped. With shared memory the server stays in the catalog, and has to go
// on. Errors are those of Open and of txn.DB.Drain.
func DrainBlade(ctx context.Context, catalog string, blade int, progress func(txn.Moving), o Options) error {
	err := with(ctx, catalog, o, func(db *txn.DB) error { return db.Drain(ctx, blade, progress) })
	if err != nil {
		return err
	}
	cat, err := DialCatalog(ctx, catalog, o)
	if err != nil {
		return err
	}
	err = change(heed(ctx, cat), func(x *content) (err error) {
		all, l := x.servers, x.layout
		for i := range all {
			b := first(all, i)
			if _, _, shm := all[i].Address.shared(); shm || blade < b || blade >= b+len(all[i].Blades) {
				continue
			}
			for k := range all[i].Blades {
				if !l.Vacant(rdma.BladeID(b + k)) { // MaxBlades at most
					return nil
				}
			}
			x.leaves(all[i].Address)
			all[i] = Server{Blades: make([]uint64, len(all[i].Blades))}
		}
		return nil
	})
	return oneLine(err, cat.Close())
}

// Rebalance spreads copies over all blades, while transactions run, and returns how many have
// moved: txn.DB.Rebalance.
func Rebalance(ctx context.Context, catalog string, progress func(txn.Moving), o Options) (copies int, err error) {
	err = with(ctx, catalog, o, func(db *txn.DB) (err error) {
		copies, err = db.Rebalance(ctx, progress)
		return err
	})
	return copies, err
}
