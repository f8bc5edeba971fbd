package txn

import (
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/rdma"
)

// EvictBlade declares a blade dead by an operator's word, whether it answers or not: its backups take over, and copies are built on other
// blades. If its server answers, it is taken in again, blank, so stop that before. ErrOptions: there is no such blade. memory.ErrDown: it was
// declared dead before. memory.ErrLayout: the last copy of a segment is on it, and nothing has changed.
func (db *DB) EvictBlade(blade int) error {
	if err := db.isBlade(blade); err != nil {
		return err
	}
	b := rdma.BladeID(blade) //nolint:gosec // isBlade has compared it
	if err := db.space.Follow(); err != nil {
		return err
	}
	now := db.fabric.Now()
	x := Outage{Blade: blade, Noticed: now, Cause: "an operator's word", spare: true, demise: db.space.Demise(b)}
	l := db.space.Layout()
	refused := &memory.BladeError{Blade: b, Name: fmt.Sprintf("blade %d", blade), Err: memory.ErrLayout, What: fmt.Sprintf("declaring it dead: %d of %d segments have no other copy", l.Last(b), l.Redundancy().Segments)}
	switch {
	case l.Blades[b].State == memory.BladeDown:
		return &memory.BladeError{Blade: b, Name: refused.Name, Err: memory.ErrDown, What: "declaring it dead"}
	case l.Last(b) > 0:
		return refused
	}
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	err := db.withBlades(func(c *rdma.Coro) error { return db.declareDead(c, x) })
	if errors.Is(err, errSpared) {
		return refused
	}
	return err
}

// EvictProcess ends the registration of another process by an operator's word: what it had begun has no effect, and others decide its
// transactions and use its memory when the leases of its workers have ended. If it lives, it registers anew. memory.ErrNoCoordinator: no such
// process is registered, or it is this one.
func (db *DB) EvictProcess(process uint32) error {
	if err := db.usable(); err != nil {
		return err
	}
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	return db.withBlades(func(*rdma.Coro) error { return db.space.Evict(process) })
}
