package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"txnode/memory"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// Blades that leave, and copies that move. The catalog says what is to be done (memory/move.go). The process with the
// right to copy does it, step by step, beside what is missing: see keep.

// movePause is how often Drain and Rebalance look how far it is.
const movePause = 5 * time.Millisecond

// Moving is how far a move of copies is.
type Moving struct {
	// Copies that are still to be moved, or to be dropped; those that are being built for it among them.
	Copies int
	// Done and Total are bytes of the copies that are being built just now, as far as this process builds them.
	Done, Total uint64
}

// Drain moves everything that a blade has to others, while transactions run, and makes its place vacant: the blade is down then, and can be
// switched off. It waits until that is so, and calls progress now and then, unless that is nil. If ctx ends before, the blade
// goes on being drained, also by other processes and after the database was opened again; to call Drain again waits on. Undrain
// takes it back. A blade that is down already has nothing: its place becomes vacant at once. Of a database that is not
// shared, copies are given up when no backup is made.
//
// ErrOptions: there is no such blade. ErrLayout: fewer than f+1 blades would stay. ErrNoSpace: the others have no room. Nothing has changed then.
func (db *DB) Drain(ctx context.Context, blade int, progress func(Moving)) error {
	if err := db.isBlade(blade); err != nil {
		return err
	}
	if err := db.moveBy(ctx, func() error { return db.space.Drain(rdma.BladeID(blade)) }); err != nil { //nolint:gosec // memory compares it
		return err
	}
	return db.moved(ctx, progress, func(l *memory.Layout) (int, bool) {
		b := rdma.BladeID(blade) //nolint:gosec // Drain has compared it
		if !l.Blades[b].Leaving {
			return 0, true // it was taken back
		}
		return l.Held(b), l.Vacant(b)
	})
}

// Undrain takes back that a blade is drained: it stays. A blade whose place was vacant already is taken in, blank, as soon as it
// answers, as one that has died and is back.
func (db *DB) Undrain(blade int) error {
	if err := db.isBlade(blade); err != nil {
		return err
	}
	return db.moveBy(context.Background(), func() error {
		b := rdma.BladeID(blade) //nolint:gosec // isBlade has compared it
		defer db.expecting(b)()  // its place may be vacant
		return db.space.Stay(b)
	})
}

// Rebalance moves copies from blades of which a larger part is taken to others, while transactions run, and waits until all are about as full. It calls
// progress now and then, unless that is nil. If ctx ends before, what was begun goes on; to call Rebalance again does the rest. It returns
// how many copies it has moved.
// With two backups primaries stay where they are.
func (db *DB) Rebalance(ctx context.Context, progress func(Moving)) (copies int, err error) {
	for range maxRebalances {
		if err := db.settledMoves(ctx, progress); err != nil {
			return copies, err
		}
		n := 0
		if err := db.moveBy(ctx, func() (err error) {
			n, err = db.space.Spread()
			return err
		}); err != nil || n == 0 {
			return copies, err
		}
		copies += n
	}
	return copies, db.settledMoves(ctx, progress)
}

// maxRebalances bounds how often it is looked whether blades could be more even: while others write, they change.
const maxRebalances = 8

// settledMoves waits until nothing is being moved.
func (db *DB) settledMoves(ctx context.Context, progress func(Moving)) error {
	return db.moved(ctx, progress, func(l *memory.Layout) (int, bool) {
		r := l.Redundancy()
		return r.Moving + r.Building, r.Moving+r.Building == 0
	})
}

// moveBy makes a change of the catalog that has copies move. If ctx ends before, it may be made yet.
func (db *DB) moveBy(ctx context.Context, change func() error) error {
	return db.ask(ctx, func() error { return db.makeMove(change) }, nil)
}

func (db *DB) makeMove(change func() error) error {
	if err := db.usable(); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		db.ctlMu.Lock()
		err := db.withBlades(func(*rdma.Coro) error { return change() })
		db.ctlMu.Unlock()
		if err == nil || tries > probes || !errors.Is(err, rdma.ErrStaleKey) {
			db.failover.awaken()
			return err
		}
	}
}

// isBlade is an ErrOptions if the database has no blade of a number.
func (db *DB) isBlade(blade int) error {
	if err := db.usable(); err != nil {
		return err
	}
	if n := len(db.space.Layout().Blades); blade < 0 || blade >= n {
		return fmt.Errorf("%w: blade %d: there are %d, from 0", ErrOptions, blade, n)
	}
	return nil
}

// usable says why nothing can be moved.
func (db *DB) usable() error {
	switch {
	case db.isClosed():
		return ErrClosed
	case db.readOnly():
		return fmt.Errorf("%w: nothing can be moved in it", ErrReadOnly)
	}
	return nil
}

// moved waits until done says that nothing is left of a move.
func (db *DB) moved(ctx context.Context, progress func(Moving), done func(l *memory.Layout) (left int, over bool)) error {
	for {
		if err := db.usable(); err != nil {
			return err
		}
		left, over := done(db.space.Layout())
		if progress != nil {
			x := Moving{Copies: left}
			if p := db.failover.copied.Load(); p != nil && !over {
				x.Done, x.Total = p.Done, p.Total
			}
			progress(x)
		}
		if over {
			return nil
		}
		if !db.fabric.Caps().RealTime { // there is no goroutine for it
			db.ctlMu.Lock()
			_, err := db.keep(db.ctl.Plain(), stint{steps: keepSteps})
			db.ctl.Plain().Sleep(lookPauseNs / keepSteps)
			db.ctlMu.Unlock()
			if err != nil && !again(err) {
				return err
			}
			if ctx.Err() != nil {
				return canceled(ctx)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return errors.Join(canceled(ctx), db.Redundancy().Failure)
		case <-time.After(movePause):
		}
	}
}

// move does the next step of moving copies, once nothing is being built: it drops those that are not needed, has blades
// retire that are empty, and clears the places that copies have left. All copies to be moved are built before, so that
// transactions are interrupted as seldom as possible.
func (db *DB) move(c *rdma.Coro) error {
	f, s := &db.failover, db.space
	r := s.Redundancy()
	if r.Building > 0 || s.Gated() {
		return nil
	}
	if n, primaries := s.Unsettled(); n > 0 {
		return db.besideBackups(func() error {
			if !primaries {
				return settled(s.AdvanceEpoch(s.Settle(false)))
			}
			if err := db.interrupt(c, s.Settle(true)); err != nil {
				return err
			}
			db.opts.Logger.Info("copies have moved to other blades", zap.Int("dropped", n))
			return nil
		})
	}
	for _, b := range s.Emptied() {
		if err := db.besideBackups(func() error { return db.interrupt(c, nil, s.Retire(b)) }); err != nil { // decided before: log records are on it
			return err
		}
		if !s.View().Up(b) {
			db.opts.Logger.Info("a blade was drained and takes part no more", zap.Int("blade", int(b)))
		}
	}
	if r.Dirty == 0 {
		return nil
	}
	return db.besideBackups(func() error {
		for more := true; more && !f.ended(); {
			var err error
			if more, err = s.Reclaim(c); err != nil {
				return err
			}
			if c.Thread().Now() >= f.lookAt { // transactions wait for the worker where there is no goroutine
				break
			}
		}
		return nil
	})
}

// besideBackups calls fn, which begins an epoch that can wait, unless a backup is made that would have to begin anew by that: one of this
// process alone. Then it is nil, and fn is called later.
func (db *DB) besideBackups(fn func() error) error {
	if !db.space.Shared() {
		if !db.dropMu.TryLock() {
			return nil
		}
		defer db.dropMu.Unlock()
	}
	return fn()
}

// interrupt has all transactions decided, and makes a change of the catalog with that; nil: none. Then the next.
func (db *DB) interrupt(c *rdma.Coro, changes ...func(*memory.Layout) error) error {
	f := &db.failover
	if !f.deciding.CompareAndSwap(false, true) {
		return nil // a blade does not answer; later
	}
	defer f.deciding.Store(false)
	for _, change := range changes {
		if _, err := recovery.FailOver(c, db.failOptions(), change); err != nil {
			return settled(err)
		}
	}
	return nil
}

// settled is nil for the error of a change that another process has made.
func settled(err error) error {
	if errors.Is(err, memory.ErrSettled) {
		return nil
	}
	return err
}
