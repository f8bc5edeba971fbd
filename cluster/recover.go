package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/internal/outwait"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// An operator's words about a cluster that cannot go on by itself, or should not.

// GivenUp is what an operator's word gives up.
type GivenUp struct {
	// Blades are those that count as lost: they are away, and what they have is given up. Trusted
	// are those of which an old copy is taken for the newest: what was committed since it was made
	// is given up, as far as it has no other copy.
	Blades, Trusted []BladeStatus
	// Losses are what has no copy but on these blades: of Trusted, as it was; else nothing stays.
	layout.Losses
}

// ErrNotNeeded is of an operator's word that gives up something for nothing.
var ErrNotNeeded = errors.New("cluster: it is not needed")

// Recover has a database open again whose last copies of some segments are on blades that are away,
// by giving up what these have, or by taking the old copies on trusted blades for the newest, which
// are among those. It is an operator's word: agree is told what is given up, and returns nil if
// that is wanted; else Recover returns its error, and nothing has changed. Blades that are old,
// blank or silent count as lost in any case, and are taken in again, blank, when their servers
// answer. No process may have the database open: memory.ErrShared. ErrNotNeeded: the database opens
// without; so it was opened, and blades that were away, and had no last copies, count as lost.
// ErrOptions: a blade that is trusted is not old. Other errors are those of Open.
func Recover(ctx context.Context, catalog string, trust []int, agree func(*GivenUp) error, o Options) error {
	o.Post = -1
	blocked := with(ctx, catalog, o, func(*txn.DB) error { return nil })
	switch {
	case blocked == nil:
		return fmt.Errorf("%w: the database at %s opens, and nothing was given up", ErrNotNeeded, catalog)
	case !errors.Is(blocked, layout.ErrForeign) && !errors.Is(blocked, layout.ErrStale) &&
		!errors.Is(blocked, rdma.ErrBladeDown):
		return blocked // another process has it open, or something else is wrong
	}
	st, err := Ask(ctx, catalog, o)
	if err != nil {
		return err
	}
	if st.Layout == nil {
		return blocked
	}
	x := &GivenUp{}
	var gone, trusted []rdma.BladeID
	for i := range st.Blades {
		b := &st.Blades[i]
		id := rdma.BladeID(b.ID) // there are MaxBlades
		switch {
		case slices.Contains(trust, b.ID) && b.State != BladeOld:
			return fmt.Errorf("%w: blade %d has no old copy that could be trusted: it is %s", ErrOptions, b.ID, b.State)
		case slices.Contains(trust, b.ID):
			x.Trusted = append(x.Trusted, *b)
		case b.State == BladeForeign || b.State == BladeMisplaced:
			return fmt.Errorf("%w: start its server with the directory that it had, or with an empty one: %s",
				ErrOptions, b.Why)
		case b.Away() && b.State != BladeRestarted:
			x.Blades, gone = append(x.Blades, *b), append(gone, id)
		}
	}
	if len(x.Trusted) < len(trust) {
		return fmt.Errorf("%w: there are %d blades, from 0", ErrOptions, len(st.Blades))
	}
	// The newest first: of what several have it stays.
	slices.SortStableFunc(x.Trusted, func(a, b BladeStatus) int { return cmp.Compare(b.stale.Has, a.stale.Has) })
	for i := range x.Trusted {
		trusted = append(trusted, x.Trusted[i].stale.Blade)
	}
	x.Losses = st.Layout.Losses(append(slices.Clone(gone), trusted...)...)
	if x.Segments == 0 && len(gone)+len(trusted) < st.Layout.UpBlades() {
		return blocked // it is not for want of copies
	}
	if err := agree(x); err != nil {
		return err
	}
	cat, err := DialCatalog(ctx, catalog, o)
	if err != nil {
		return err
	}
	was, asked := st.Layout, heed(ctx, cat)
	if len(trusted) > 0 {
		if err = layout.Trust(asked, was, gone, trusted...); err == nil {
			was, err = layout.LoadLayout(asked)
		}
	}
	if err == nil && len(gone) > 0 {
		err = layout.GiveUp(asked, was, gone...)
	}
	if err := oneLine(err, cat.Close()); err != nil {
		return err
	}
	return with(ctx, catalog, o, func(*txn.DB) error { return nil })
}

// EvictBlade declares a blade dead by an operator's word: txn.DB.EvictBlade. Other errors
// are those of Open.
func EvictBlade(ctx context.Context, catalog string, blade int, o Options) error {
	return with(ctx, catalog, o, func(db *txn.DB) error {
		return outwait.Await(ctx, func() error { return db.EvictBlade(blade) }, nil)
	})
}

// EvictProcess ends the registration of a process by an operator's word: txn.DB.EvictProcess. Other
// errors are those of Open.
func EvictProcess(ctx context.Context, catalog string, process uint32, o Options) error {
	return with(ctx, catalog, o, func(db *txn.DB) error {
		return outwait.Await(ctx, func() error { return db.EvictProcess(process) }, nil)
	})
}

// ForgetBlade makes the place of a blade vacant that was declared dead, and will not come back:
// another server can take it. Its address goes out of the catalog, if all blades of its server are
// vacant. ErrOptions: there is no such blade, or it is up: drain it (DrainBlade), or declare it
// dead (EvictBlade). Other errors are those of DrainBlade.
func ForgetBlade(ctx context.Context, catalog string, blade int, o Options) error {
	cat, err := DialCatalog(ctx, catalog, o)
	if err != nil {
		return err
	}
	l, err := layout.LoadLayout(heed(ctx, cat))
	if err := oneLine(err, cat.Close()); err != nil {
		return err
	}
	switch {
	case l == nil || blade < 0 || blade >= len(l.Blades):
		return fmt.Errorf("%w: there is no blade %d", ErrOptions, blade)
	case l.Blades[blade].State == layout.BladeUp:
		return fmt.Errorf("%w: blade %d is up: drain it (txnode cluster drain-blade), or declare it dead (txnode "+
			"cluster evict)", ErrOptions, blade)
	}
	return DrainBlade(ctx, catalog, blade, nil, o)
}
