package txn

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"txnode/memory/layout"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// recover brings a database into order that its last user has not closed, unless other processes
// have joined. The caller is its only user: all coordinators that there are, are dead.
func (db *DB) recover() error {
	if !db.space.First() {
		return nil // others live, and what is left by those that do not is recovered when their leases have expired
	}
	left, err := db.space.Coordinators()
	if err != nil {
		return err
	}
	if db.space.Checkpoint() != 0 {
		return db.recoverPower()
	}
	_, unswept := db.space.Unswept()
	if db.space.ReadOnly() && db.space.OnlyDamage() { // opening it for writing could not do more
		unswept = false
	}
	if len(left) == 0 && !unswept && (!db.space.Leaked() || db.space.ReadOnly()) {
		if db.space.ReadOnly() {
			return nil
		}
		// CreateTable needs no coordinator, so its process may have died without a trace.
		_, err := db.freeExtents(db.ctl.Plain(), recovery.Options{Space: db.space, By: db.space.Recoverer()})
		return err
	}
	if db.space.ReadOnly() {
		what := fmt.Sprintf("%d transaction coordinators were left by a process that died", len(left))
		if len(left) == 0 {
			what = "what transaction coordinators may have left that died, or were cut off by the loss of a blade, " +
				"was not swept before it was closed"
		}
		return fmt.Errorf("%w: %s: open the database once for writing, which recovers it", ErrUnrecovered, what)
	}
	db.unclean = true
	ids := make([]uint32, len(left))
	for i := range left {
		ids[i] = left[i].ID
	}
	c := db.ctl.Plain()
	// Nothing was promised of the loss of power yet: see promise.
	o := recovery.Options{
		Space: db.space, By: db.space.Recoverer(), Steal: true, Alone: true, Damaged: db.sayDamage,
		Recovered: db.recovered,
	}
	rep, err := recovery.Recover(c, o, ids...)
	if err != nil {
		return fmt.Errorf("txn: recovering what a process has left that died: %w", err)
	}
	var swept recovery.SweepReport
	if _, unswept := db.space.Unswept(); unswept {
		if swept, err = recovery.Sweep(c, o); err != nil {
			return fmt.Errorf("txn: recovering what a process has left that died: %w", err)
		}
		if swept.Damage != nil { // users of that table are told; the others are sound
			db.opts.Logger.Error("an index is damaged: what was changing it when its process died stays as it is",
				errField(swept.Damage))
		}
	}
	slots, err := recovery.PruneSlots(c, o, swept)
	if err != nil {
		return fmt.Errorf("txn: recovering what a process has left that died: %w", err)
	}
	extents, err := db.freeExtents(c, o)
	if err != nil {
		return err
	}
	db.opts.Logger.Info("recovered what coordinators have left that died", zap.Int("extents", extents),
		zap.Int("slots", slots), zap.Int("coordinators", len(left)),
		zap.Int("finished", rep.Finished), zap.Int("undone", len(rep.Aborted)), zap.Int("locks", swept.Locks),
		zap.Int("tombstones", swept.Tombstones), zap.Int("blocks", rep.Blocks+swept.Freed))
	return nil
}

// sayDamage says what a recovery has met in a table whose index is damaged.
func (db *DB) sayDamage(err error) {
	db.recoveries.damage.Add(1)
	db.opts.Logger.Error("an index is damaged, or lost: what a coordinator that has died was changing in its table "+
		"is not finished", errField(err))
}

// leaveDamaged tells of damage of a segment that was adopted from a process that is gone.
func (db *DB) leaveDamaged(err error) {
	db.recoveries.damage.Add(1)
	db.opts.Logger.Error("what a process has left that is gone is damaged, and is not used", errField(err))
}

// buried tells of blades that count as lost since the database was opened.
func (db *DB) buried(err error) {
	db.opts.Logger.Warn("blades have not what they had: they count as lost, and get copies of what other blades have",
		errField(err))
}

// freeExtents frees the extents that no index reaches, unless an index is damaged.
func (db *DB) freeExtents(c *rdma.Coro, o recovery.Options) (int, error) {
	n, err := recovery.FreeExtents(c, o)
	switch {
	case errors.Is(err, ErrCorrupt): // users of that table are told; the others are sound
		db.opts.Logger.Error("an index is damaged: what is not in use is not looked for", errField(err))
	case err != nil:
		return n, fmt.Errorf("txn: recovering what a process has left that died: %w", err)
	}
	return n, nil
}

// recoverPower is recover for a database that promised to survive the loss of power,
// and was not closed.
func (db *DB) recoverPower() error {
	if db.space.ReadOnly() {
		return fmt.Errorf("%w: it was open with Durability power: open the database once for writing, "+
			"which recovers it", ErrUnrecovered)
	}
	rep, err := recovery.Power(db.ctl.Plain(), recovery.Options{Space: db.space, GiveUp: db.opts.ReplaceLost})
	if err != nil {
		return fmt.Errorf("txn: recovering a database that was open with Durability power: %w", err)
	}
	db.recoveries.coordinators.Add(uint64(len(rep.Coordinators)))
	db.opts.Logger.Info("recovered a database that was open with Durability power and not closed",
		zap.Int("coordinators", len(rep.Coordinators)),
		zap.Int("records", rep.Records), zap.Int("restored", rep.Restored), zap.Int("copied", rep.Copied))
	return nil
}

// promise notes in the catalog that the database survives the loss of power from
// now on, or that it does not.
func (db *DB) promise(durable bool) error {
	s := db.space
	if s.ReadOnly() || durable == (s.Checkpoint() != 0) {
		return nil
	}
	if !durable {
		return s.SetCheckpoint(0)
	}
	if err := s.FlushSegments(db.ctl.Plain(), layout.KindBlocks, layout.KindIndex, layout.KindLog); err != nil {
		return err
	}
	return s.SetCheckpoint(1)
}

// fulfil ends the promise when the database is closed: everything is durable.
func (db *DB) fulfil() error {
	s := db.space
	if s.ReadOnly() || s.Checkpoint() == 0 {
		return nil
	}
	if err := s.FlushSegments(db.ctl.Plain(), layout.KindBlocks, layout.KindIndex, layout.KindLog); err != nil {
		return err
	}
	return s.SetCheckpoint(0)
}
