package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"txnode/internal/outwait"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// heeded is a catalog whose calls end with a context, whatever is silent. Waiting has a
// context of its own.
type heeded struct {
	layout.Catalog
	ctx context.Context
}

// heed returns a catalog whose calls end soon after ctx, as those of one that is away. Those that
// were left go on: the catalog must be closed, which ends them, as before.
func heed(ctx context.Context, cat layout.Catalog) layout.Catalog {
	if ctx.Done() == nil {
		return cat
	}
	return heeded{cat, ctx}
}

// call calls the catalog.
func call[T any](c heeded, fn func() (T, error)) (T, error) {
	x := new(T)
	err := outwait.Await(c.ctx, func() (err error) {
		*x, err = fn()
		return err
	}, nil)
	if err == nil {
		return *x, nil
	}
	var none T
	if errors.Is(err, rdma.ErrLeft) {
		return none, fmt.Errorf("%w: %s: %w", memory.ErrAway, c.Name(), err)
	}
	return none, err
}

// loaded is what Load returns.
type loaded struct {
	entries []layout.Entry
	rev     layout.Revision
}

func (c heeded) Identity() (layout.Identity, error) { return call(c, c.Catalog.Identity) }

func (c heeded) Load() ([]layout.Entry, layout.Revision, error) {
	x, err := call(c, func() (x loaded, err error) {
		x.entries, x.rev, err = c.Catalog.Load()
		return x, err
	})
	return x.entries, x.rev, err
}

func (c heeded) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	return call(c, func() (layout.Revision, error) { return c.Catalog.Apply(rev, changes) })
}

func (c heeded) Revision() (layout.Revision, error) { return call(c, c.Catalog.Revision) }

func (c heeded) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	return call(c, func() ([]layout.Beat, error) { return c.Catalog.KeepAlive(b) })
}

// closePatience is for how long a database is closed behind the end of a context before the caller
// goes: it mostly takes less.
const closePatience = 60 * time.Millisecond

// closeSoon closes a database in order. If ctx has ended, and that takes long, it goes on
// without the caller.
func closeSoon(ctx context.Context, db *txn.DB) error {
	done := make(chan error, 1)
	go func() { done <- db.Close(context.WithoutCancel(ctx)) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(closePatience)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return fmt.Errorf("%w: %w", txn.ErrClosing, ctx.Err())
	}
}
