package txn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/rdma"
)

// Segments of which nothing is in use go back: see memory/giveback.go.

const (
	// givePart is how often it is looked for them in Options.GiveBack.
	givePart = 4
	// maxGives bounds how long nothing must be in use of a segment, and how seldom transactions are interrupted, when that was done for others
	// lately: 1<<maxGives times Options.GiveBack. So one that takes long is not interrupted again and again, and the numbers of
	// coordinators last: each that is at work takes another one.
	maxGives = 6
	// pressing is how often transactions are interrupted for them in a row since the blades are full. Then once in Options.GiveBack.
	pressing = 8
	// awaitRoomNs is how long a transaction waits for them when the blades are full. After that was in vain, for awaitRest times as
	// long none waits.
	awaitRoomNs = int64(2_000_000_000)
	awaitRest   = 4
	// awaitStepNs is how often it looks, and after awaitLook steps for more segments.
	awaitStepNs = int64(1_000_000)
	awaitLook   = 32
)

// giving is what a database knows of segments that go back.
type giving struct {
	lookAt  atomic.Int64 // when to look next
	found   atomic.Bool  // there are some
	full    atomic.Bool  // the blades are full, so they are not to wait
	pressed atomic.Int64 // until when those interruptions would last that were made because of that, at one in Options.GiveBack
	gives   atomic.Int32 // how often transactions were interrupted lately: each doubles the patience, until it was not done for so long
	since   atomic.Int64 // when gives was changed
	rested  atomic.Int64 // when transactions may be interrupted again
	awaits  atomic.Int64 // from when on transactions wait for room again
	// needs are the classes, by bit, of which transactions have asked for blocks that have not found room for all of them, and short is how many
	// these are: what goes back for one would be missed by another, or by itself.
	mu    sync.Mutex
	needs uint64
	short int
}

// miss notes what a transaction of the worker needs that has not found room for all of it, and returns that of all such transactions.
func (w *Worker) miss() uint64 {
	g := &w.db.failover.giving
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.missing {
		w.missing = true
		g.short++
	}
	g.needs |= w.o.Asked()
	return g.needs
}

// missed is the end of a transaction for which miss was called.
func (w *Worker) missed() {
	g := &w.db.failover.giving
	g.mu.Lock()
	defer g.mu.Unlock()
	w.missing = false
	if g.short--; g.short == 0 {
		g.needs = 0
	}
}

// patience is for how long nothing must be in use of a segment.
func (db *DB) patience() int64 { return int64(db.opts.GiveBack) << db.failover.giving.gives.Load() }

// lookForRoom looks now and then for segments to go back, and has that be done.
func (db *DB) lookForRoom(now int64) {
	due := db.failover.giving.lookAt.Load()
	if now >= due {
		db.lookFor(memory.Search{Now: now}, due)
	}
}

// lookFor looks for segments to go back, unless that was done meanwhile: it was due at a time.
func (db *DB) lookFor(o memory.Search, due int64) {
	g := &db.failover.giving
	if db.opts.GiveBack < 0 || db.space.ReadOnly() || !g.lookAt.CompareAndSwap(due, max(due, o.Now+int64(db.opts.GiveBack)/givePart)) {
		return
	}
	if n := g.gives.Load(); n > 0 && o.Now-g.since.Load() > 2*db.patience() {
		g.gives.Store(n - 1)
		g.since.Store(o.Now)
	}
	o.Patience = db.patience()
	some, err := db.space.Withdraw(o)
	if err != nil {
		db.opts.Logger.Warn("it is not known which transactions may use segments that are to go back; they stay for now", errField(err))
	}
	if some {
		if o.Full {
			g.full.Store(true)
		}
		g.found.Store(true)
		db.failover.degraded.Store(true)
	}
}

// giveBack has segments go back that were found. What cannot be done now is found again.
func (db *DB) giveBack(c *rdma.Coro) error {
	g, s := &db.failover.giving, db.space
	if !g.found.Swap(false) {
		return nil
	}
	full := g.full.Swap(false)
	return db.besideBackups(func() error {
		some, ripe := s.Withdrawn()
		if some && !ripe && g.mayInterrupt(c.Thread().Now(), int64(db.opts.GiveBack), full) {
			if err := settled(db.interrupt(c, nil)); err != nil && !errors.Is(err, memory.ErrClaimed) { // another process is at it
				return err
			}
			now := c.Thread().Now()
			g.gives.Store(min(g.gives.Load()+1, maxGives))
			g.since.Store(now)
			g.rested.Store(now + db.patience())
			some, ripe = s.Withdrawn()
		}
		if !some || !ripe {
			return nil
		}
		n, err := s.GiveBack()
		if n > 0 && err == nil {
			db.engine.Plenty()
			db.opts.Logger.Info("segments of which nothing was in use have gone back", zap.Int("segments", n))
		}
		return err
	})
}

// mayInterrupt reports whether transactions may be interrupted, at a time, for segments to go back, and counts it.
func (g *giving) mayInterrupt(now, each int64, full bool) bool {
	if !full {
		return now >= g.rested.Load()
	}
	until := max(g.pressed.Load(), now)
	if until-now > (pressing-1)*each {
		return false
	}
	g.pressed.Store(until + each)
	return true
}

// awaitRoom waits, after a transaction has failed with err since there was no space, until segments have gone back and are cleared, and
// reports whether there is room now. No transaction is under way.
func (w *Worker) awaitRoom(ctx context.Context, err error) bool {
	db, g := w.db, &w.db.failover.giving
	from := w.thread.Now()
	if from < g.awaits.Load() {
		return false
	}
	var full *memory.NoSpaceError
	lacks := errors.As(err, &full) && full.Backing == nil // a place, and nothing else
	for i, now := 0, from; now-from < awaitRoomNs && ctx.Err() == nil && !db.failover.ended(); i, now = i+1, w.thread.Now() {
		more := false
		if i%awaitLook == 0 {
			if more, err = w.session.LookThrough(w.coro, awaitLook*awaitStepNs); err != nil {
				return false // a session that is broken now rejoins before the next attempt of any transaction
			}
			db.lookFor(memory.Search{Now: w.thread.Now(), Full: true, Needs: w.miss()}, g.lookAt.Load())
		}
		room, soon := db.space.HasRoom()
		switch {
		case room && (lacks || i > 0):
			return true
		case soon:
			db.failover.awaken()
		case !more:
			return false
		}
		if db.failover.stop == nil { // there is no goroutine for it
			w.maintain()
		}
		if more {
			i = -1
			continue
		}
		w.coro.Sleep(awaitStepNs)
	}
	g.awaits.Store(w.thread.Now() + awaitRest*awaitRoomNs)
	return false
}
