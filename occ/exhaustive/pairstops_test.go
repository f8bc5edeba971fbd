package exhaustive

import (
	"fmt"
	"testing"

	"txnode/rdma/steptest"
)

// What happens to two clients in the middle of conflicting transactions.
const (
	bothStop = iota // and are recovered together
	// declared dead, and recovered beside the other, who is recovered in turn; both go
	// on with late verbs
	firstDies
	pairFates
)

// TestStopsInPairs stops clients in the middle of conflicting transactions: the first
// after any of its requests, the second after any of its own behind that.
func TestStopsInPairs(t *testing.T) {
	s := oneIn(97, 1, 997)
	s.weak = 7
	s.inPairs(t, usually(those(configs(), config.oneBackup), config.promised), conflictingPairs(), (*world).stopsInPair)
}

// stopsInPair tries a pair of transactions.
func (w *world) stopsInPair(s *sample, x, y txn) error {
	var cs []*client
	return s.beside(w, 2, pairFates, func() (first, second *steptest.Client) {
		w.anew()
		cs = w.start(x, y)
		return cs[0].run, cs[1].run
	}, func(how int) error { return w.pairFate(how, cs) })
}

// pairFate lets it happen, and checks what comes of it.
func (w *world) pairFate(how int, cs []*client) error {
	if how == bothStop {
		stopClients(cs...)
		if err := w.recoverFrom(nil, cs...); err != nil {
			return err
		}
		return w.agree(cs...)
	}
	for i := range cs {
		if err := w.recoverFrom(nil, cs[i]); err != nil {
			return fmt.Errorf("recovery of client %d: %w", i, err)
		}
		w.advance(cs[0].run, allMoves)
	}
	return w.agreeLate(cs...)
}
