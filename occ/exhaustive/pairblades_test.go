package exhaustive

import (
	"testing"

	"txnode/rdma"
	"txnode/rdma/steptest"
)

// What two clients do when a blade is lost.
const (
	bothHaveStopped = iota
	bothGoOnFirst
	bothGoOnLate
	bladePairFates
)

// TestBladeLostInPairs loses or restarts each blade when two clients are in the middle of
// conflicting transactions: the first after any of its requests, the second after any of
// its own behind that. They have stopped, or go on until a verb fails, or go on with late
// verbs when all is decided.
func TestBladeLostInPairs(t *testing.T) {
	oneIn(1999, 29, 9973).inPairs(t, usually(those(configs(), config.promised), config.oneBackup), conflictingPairs(),
		(*world).bladeInPair)
}

// bladeInPair tries a pair of transactions. how of a case is the blade, what happens to it,
// and what the clients do, each times how many there are of those before it.
func (w *world) bladeInPair(s *sample, x, y txn) error {
	var cs []*client
	return s.beside(w, 2, blades*mishaps*bladePairFates, func() (first, second *steptest.Client) {
		w.anew()
		cs = w.start(x, y)
		return cs[0].run, cs[1].run
	}, func(how int) error {
		return w.bladeFate(mishap{rdma.BladeID(how % blades), how / blades % mishaps}, how/blades/mishaps, cs)
	})
}

// bladeFate lets it happen, and checks what comes of it.
func (w *world) bladeFate(m mishap, how int, cs []*client) error {
	if how == bothHaveStopped {
		stopClients(cs...)
	}
	w.happens(m)
	if how == bothGoOnFirst {
		w.toTheEnd()
	}
	if err := w.failOver(m.blade); err != nil {
		return err
	}
	if err := w.sweep(); err != nil {
		return err
	}
	return w.agreeLate(cs...)
}
