package txn

import (
	"fmt"

	"go.uber.org/zap"
	"txnode/occ/recovery"
)

// recover brings a database into order that its last user has not closed. The
// caller is the only one who uses it: whatever coordinators there are, are dead.
func (db *DB) recover() error {
	left, err := db.space.Coordinators()
	if err != nil {
		return err
	}
	_, unswept := db.space.Unswept()
	if len(left) == 0 && !unswept {
		return nil
	}
	if db.space.ReadOnly() {
		return fmt.Errorf("%w: %d transaction coordinators were left by a process that died: open the database once for writing, which recovers it", ErrUnrecovered, len(left))
	}
	ids := make([]uint32, len(left))
	for i := range left {
		ids[i] = left[i].ID
	}
	c := db.ctl.Plain()
	o := recovery.Options{Space: db.space, Steal: true, Durable: db.opts.Durable}
	rep, err := recovery.Recover(c, o, ids...)
	if err != nil {
		return fmt.Errorf("txn: recovering what a process has left that died: %w", err)
	}
	swept, err := recovery.Sweep(c, o)
	if err != nil {
		return fmt.Errorf("txn: recovering what a process has left that died: %w", err)
	}
	db.opts.Logger.Info("recovered a database that was not closed", zap.Int("coordinators", len(left)),
		zap.Int("finished", rep.Finished), zap.Int("undone", len(rep.Aborted)), zap.Int("locks", swept.Locks), zap.Int("blocks", rep.Blocks+swept.Freed))
	return nil
}
