package txn

import (
	"txnode/occ"
	"txnode/rdma"
)

// Metrics are running totals since Open.
type Metrics struct {
	Committed  uint64
	RolledBack uint64 // by the transaction function's own error
	// Conflicts are attempts that did not commit, by occ.AbortReason; each but the
	// last of a transaction was retried.
	Conflicts [occ.NumAbortReasons]uint64
	Verbs     rdma.Counters
}

func (m *Metrics) add(d *Metrics) {
	m.Committed += d.Committed
	m.RolledBack += d.RolledBack
	for i := range m.Conflicts {
		m.Conflicts[i] += d.Conflicts[i]
	}
	m.Verbs.Add(&d.Verbs)
}

// Metrics returns the totals of all workers, past and present. What a worker did in its
// last few dozen transactions may be missing while it is at work.
func (db *DB) Metrics() Metrics {
	p := &db.pool
	for i := range p.idle {
		if w := p.idle[i].Swap(nil); w != nil {
			w.publish()
			db.put(w)
		}
	}
	for n := len(p.handed); n > 0; n-- { // for borrowers who have found another one
		select {
		case w := <-p.handed:
			if w == nil {
				p.hand(nil)
				continue
			}
			w.publish()
			db.put(w)
		default:
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	m := db.retired
	for w := range db.workers {
		w.mu.Lock()
		m.add(&w.published)
		w.mu.Unlock()
	}
	return m
}
