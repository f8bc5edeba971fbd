package txn

import (
	"txnode/occ/recovery"
	"txnode/rdma"
)

// tendPauseNs is between two rounds of a tender that may have more to do.
const tendPauseNs = int64(20_000)

// Tenders returns bodies that do, on a fabric with virtual time, what goroutines of a database do where time is real: the first renews leases
// and hears of changes of the catalog, the second does maintenance, the third looks after blades and copies. Each has a thread of its own,
// and is to run in a body of Fabric.Run of its own. It returns soon after over returns true, which it asks between
// two rounds; its error is that it has no thread. While one of them runs, workers leave all of that to them. All must have returned when
// the database is closed. It is for simulations, which otherwise never have a thread that is no session's in the middle of something.
func (db *DB) Tenders(over func() bool) []func() error {
	var sweeper *recovery.Sweeper
	var renewAt int64
	return []func() error{
		func() error {
			return db.tend(0, over, func(c *rdma.Coro) int64 { return db.listenOnce(c, &renewAt) })
		},
		func() error {
			return db.tend(1, over, func(c *rdma.Coro) int64 { return db.maintainOnceOn(c, &sweeper) })
		},
		func() error { return db.tend(2, over, db.lookAfter) },
	}
}

// tend runs rounds of tender i until over. A round returns how long to pause.
func (db *DB) tend(i int, over func() bool, round func(c *rdma.Coro) int64) error {
	t, err := rdma.NewThread(db.fabric, rdma.ThreadOptions{Index: keeperThread + i, Techniques: *db.opts.Techniques, Arena: keeperArena})
	if err != nil {
		return err
	}
	db.tending.Add(1)
	defer db.tending.Add(-1) // also when the thread is stopped
	for c := t.Plain(); !over(); {
		c.Sleep(round(c))
	}
	return t.Close()
}

// listenOnce renews the leases of the process, when it is time, and takes over what other processes have changed.
func (db *DB) listenOnce(c *rdma.Coro, renewAt *int64) int64 {
	if now := c.Thread().Now(); now >= *renewAt {
		if err := db.engine.RenewAll(now); err != nil {
			db.opts.Logger.Warn("renewing leases has failed, and will be tried again", errField(err))
			return tendPauseNs
		}
		*renewAt = now + db.term()/3
	}
	if err := db.space.Follow(); err != nil {
		db.opts.Logger.Warn("the catalog cannot be followed, which will be tried again", errField(err))
		return tendPauseNs
	}
	db.acknowledge()
	db.restSoon()
	db.lookForGaps()
	return tendPauseNs
}

// maintainOnceOn is maintainOnce on a thread.
func (db *DB) maintainOnceOn(c *rdma.Coro, sweeper **recovery.Sweeper) int64 {
	more, err := db.maintenanceDue()
	if more && err == nil {
		more, err = db.maintainOn(c, db.engine.Recovery(), sweeper, stint{steps: sweepPart})
	}
	switch {
	case err != nil:
		db.opts.Logger.Warn("maintenance has failed, and will be tried again", errField(err))
	case more:
		return tendPauseNs
	}
	return db.term() / 3
}

// lookAfter is a round of what looks after blades and copies.
func (db *DB) lookAfter(c *rdma.Coro) int64 {
	f := &db.failover
	db.lookAtAll(c)
	if !f.degraded.Load() {
		return db.term() / lookParts
	}
	busy, err := db.keep(c, stint{steps: keepSteps})
	if err != nil {
		db.opts.Logger.Warn("replacing what a lost blade had has failed, and will be tried again", errField(err))
	}
	if busy && err == nil {
		return tendPauseNs
	}
	return min(db.term()/lookParts, lookPauseNs)
}

// lookAtAll is what looks after blades even if no copy is missing.
func (db *DB) lookAtAll(c *rdma.Coro) {
	if err := db.lookAround(c); err != nil {
		db.opts.Logger.Warn("asking blades about which other processes have asked has failed, and will be tried again", errField(err))
	}
	db.lookForRoom(c.Thread().Now())
	db.tell(c)
	db.lookForGaps() // the catalog may have told of an epoch before it had begun here
}
