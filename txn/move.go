package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn/supervisor"
)

// Blades that leave, and copies that move. The catalog says what is to be done
// (memory/move.go). The process with the right to copy does it, step by step, beside what is
// missing: see package supervisor.

const (
	movePause   = 5 * time.Millisecond // how often Drain and Rebalance look how far it is
	moveSteps   = 8                    // where time is virtual: steps of a copier between two looks, and a pause
	moveSleepNs = int64(6_250_000)
	moveTries   = 3 // to change the catalog while epochs begin
)

// Moving is how far a move of copies is.
type Moving struct {
	// Copies that are still to be moved, or to be dropped; those that are being built
	// for it among them.
	Copies int
	// Done and Total are bytes of the copies that are being built just now, as far as this
	// process builds them.
	Done, Total uint64
}

// Drain moves everything that a blade has to others, while transactions run, and makes its place
// vacant: the blade is down then, and can be switched off. It waits until that is so, and calls
// progress now and then, unless that is nil. If ctx ends before, the blade goes on being drained,
// also by other processes and after the database was opened again; to call Drain again waits on.
// Undrain takes it back. A blade that is down already has nothing: its place becomes vacant at
// once. Of a database that is not shared, copies are given up when no backup is made.
//
// ErrOptions: there is no such blade. ErrLayout: fewer than f+1 blades would stay. ErrNoSpace: the
// others have no room. Nothing has changed then.
func (db *DB) Drain(ctx context.Context, blade int, progress func(Moving)) error {
	if err := db.isBlade(blade); err != nil {
		return err
	}
	// memory compares it
	if err := db.moveBy(ctx, func() error { return db.space.Drain(rdma.BladeID(blade)) }); err != nil {
		return err
	}
	return db.moved(ctx, progress, func(l *layout.Layout) (int, bool) {
		b := rdma.BladeID(blade) // Drain has compared it
		if !l.Blades[b].Leaving {
			return 0, true // it was taken back
		}
		return l.Held(b), l.Vacant(b)
	})
}

// Undrain takes back that a blade is drained: it stays. A blade whose place was vacant already is
// taken in, blank, as soon as it answers, as one that has died and is back.
func (db *DB) Undrain(blade int) error {
	if err := db.isBlade(blade); err != nil {
		return err
	}
	return db.moveBy(context.Background(), func() error {
		b := rdma.BladeID(blade)    // isBlade has compared it
		defer db.sup.Expecting(b)() // its place may be vacant
		return db.space.Stay(b)
	})
}

// Rebalance moves copies from blades of which a larger part is taken to others, while transactions
// run, and waits until all are about as full. It calls progress now and then, unless that is nil.
// If ctx ends before, what was begun goes on; to call Rebalance again does the rest. It returns how
// many copies it has moved. With two backups primaries stay where they are.
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

// maxRebalances bounds how often it is looked whether blades could be more even: while others
// write, they change.
const maxRebalances = 8

// settledMoves waits until nothing is being moved.
func (db *DB) settledMoves(ctx context.Context, progress func(Moving)) error {
	return db.moved(ctx, progress, func(l *layout.Layout) (int, bool) {
		r := l.Redundancy()
		return r.Moving + r.Building, r.Moving+r.Building == 0
	})
}

// moveBy makes a change of the catalog that has copies move. If ctx ends before, it may be made
// yet.
func (db *DB) moveBy(ctx context.Context, change func() error) error {
	return db.ask(ctx, func() error { return db.makeMove(change) }, nil)
}

func (db *DB) makeMove(change func() error) error {
	if err := db.usable(); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		err := db.sup.Do(func(*rdma.Coro) error { return change() })
		if err == nil || tries > moveTries || !errors.Is(err, rdma.ErrStaleKey) {
			db.sup.Awaken()
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
func (db *DB) moved(ctx context.Context, progress func(Moving),
	done func(l *layout.Layout) (left int, over bool)) error {
	for {
		if err := db.usable(); err != nil {
			return err
		}
		left, over := done(db.space.Layout())
		if progress != nil {
			x := Moving{Copies: left}
			if m := db.sup.CopyMetrics(); !over {
				x.Done, x.Total = m.Done, m.Total
			}
			progress(x)
		}
		if over {
			return nil
		}
		if !db.fabric.Caps().RealTime { // there is no goroutine for it
			err := host{db}.Control(func(c *rdma.Coro) error {
				defer c.Sleep(moveSleepNs)
				_, err := db.sup.Keep(c, supervisor.Budget{Steps: moveSteps})
				return err
			})
			if err != nil && !supervisor.Again(err) {
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

// EvictBlade declares a blade dead by an operator's word, whether it answers or not: its backups
// take over, and copies are built on other blades. If its server answers, it is taken in again,
// blank, so stop that before. ErrOptions: there is no such blade. layout.ErrDown: it was declared
// dead before. layout.ErrLayout: the last copy of a segment is on it, and nothing has changed.
func (db *DB) EvictBlade(blade int) error {
	if err := db.isBlade(blade); err != nil {
		return err
	}
	return db.sup.EvictBlade(rdma.BladeID(blade)) // isBlade has compared it
}

// EvictProcess ends the registration of another process by an operator's word: what it had begun
// has no effect, and others decide its transactions and use its memory when the leases of its
// workers have ended. If it lives, it registers anew. memory.ErrNoCoordinator: no such process is
// registered, or it is this one.
func (db *DB) EvictProcess(process uint32) error {
	if err := db.usable(); err != nil {
		return err
	}
	return db.sup.Do(func(*rdma.Coro) error { return db.space.Evict(process) })
}
