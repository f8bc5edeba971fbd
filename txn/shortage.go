package txn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"txnode/memory"
)

// A transaction that has found no room waits until segments go back of which nothing is in use: see
// package supervisor.

const (
	// awaitRoomNs is how long a transaction waits for them when the blades are full. After that was
	// in vain, for awaitRest times as long none waits.
	awaitRoomNs = int64(2_000_000_000)
	awaitRest   = 4
	// awaitStepNs is how often it looks, and after awaitLook steps for more segments.
	awaitStepNs = int64(1_000_000)
	awaitLook   = 32
)

// shortage is what transactions lack that have not found room for all that they need.
type shortage struct {
	awaits atomic.Int64 // from when on transactions wait for room again

	mu sync.Mutex
	// classes, by bit, of which they have asked for blocks: what goes back for one would be missed
	// by another, or by itself
	needs uint64
	short int // how many these transactions are
}

// miss notes what a transaction of the worker needs that has not found room for all of it, and
// returns that of all such transactions.
func (w *Worker) miss() uint64 {
	g := &w.db.shortage
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
	g := &w.db.shortage
	g.mu.Lock()
	defer g.mu.Unlock()
	w.missing = false
	if g.short--; g.short == 0 {
		g.needs = 0
	}
}

// awaitRoom waits, after a transaction has failed with err since there was no space, until
// segments have gone back and are cleared, and reports whether there is room now. No
// transaction is under way.
func (w *Worker) awaitRoom(ctx context.Context, err error) bool {
	db, g := w.db, &w.db.shortage
	from := w.thread.Now()
	if from < g.awaits.Load() {
		return false
	}
	var full *memory.NoSpaceError
	lacks := errors.As(err, &full) && full.Backing == nil // a place, and nothing else
	for i, now := 0, from; now-from < awaitRoomNs && ctx.Err() == nil && !db.sup.Ended(); i, now = i+1, w.thread.Now() {
		more := false
		if i%awaitLook == 0 {
			if more, err = w.session.LookThrough(w.coro, awaitLook*awaitStepNs); err != nil {
				return false // a session that is broken now rejoins before the next attempt of any transaction
			}
			db.sup.SearchRoom(memory.Search{Now: w.thread.Now(), Full: true, Needs: w.miss()})
		}
		room, soon := db.space.HasRoom()
		switch {
		case room && (lacks || i > 0):
			return true
		case soon:
			db.sup.Awaken()
		case !more:
			return false
		}
		// What goes back waits for this worker, too.
		w.o.Attend()
		if !db.sup.Keeps() { // there is no goroutine for it
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
