package txn

import (
	"context"
	"errors"
	"slices"
	"sync"

	"txnode/occ"
	"txnode/rdma"
	"txnode/txn/supervisor"
)

// newSession makes a thread and its coordinator. One that is not the pool's keeps the database open
// from now on, until endSession. It may be the first that meets a blade which does not answer.
// While the catalog is away, it is tried again until ctx ends, as retries says; once: it is not.
func (db *DB) newSession(ctx context.Context, pooled bool) (*rdma.Thread, *occ.Session, error) {
	if !pooled {
		db.mu.Lock()
		if db.isClosed() {
			db.mu.Unlock()
			return nil, nil, ErrClosed
		}
		db.own++
		db.mu.Unlock()
	}
	for tries, p := 0, (retries{db: db, ctx: ctx}); ; tries++ {
		t, s, again, err := db.trySession()
		if err == nil {
			return t, s, nil
		}
		if p.again(err) {
			tries = 0
			continue
		}
		if !again || tries >= supervisor.MaxFailovers {
			if !pooled {
				db.disown()
			}
			return nil, nil, p.over(err)
		}
	}
}

// disown ends what keeps the database open.
func (db *DB) disown() {
	db.mu.Lock()
	db.own--
	db.mu.Unlock()
}

// trySession is one attempt of newSession. again: it has failed because of a blade,
// which has been seen to, or is reached again.
func (db *DB) trySession() (_ *rdma.Thread, _ *occ.Session, again bool, _ error) {
	index := db.threads.take()
	t, err := rdma.NewThread(db.fabric, rdma.ThreadOptions{
		Index: index, Techniques: *db.opts.Techniques, Policy: db.opts.QPPolicy, Tuner: db.tuner, Arena: db.opts.Arena,
	})
	if err != nil {
		db.threads.free(index)
		return nil, nil, false, err
	}
	s, err := db.engine.NewSession(t)
	if err != nil {
		switch {
		case errors.Is(err, rdma.ErrBladeDown):
			e := db.sup.BladeDown(t.Plain(), err)
			again = e == nil
			err = errors.Join(err, e)
		case errors.Is(err, ErrCutOff) && !db.sup.Keeps():
			again = db.sup.Regained(t.Plain()) // perhaps there is no other session that looks
		}
		err = errors.Join(err, t.Close())
		db.threads.free(index)
		return nil, nil, again, err
	}
	return t, s, false, nil
}

// endSession ends what newSession has made.
func (db *DB) endSession(t *rdma.Thread, s *occ.Session, pooled bool) error {
	err := errors.Join(s.Close(), t.Close())
	db.threads.free(t.Index())
	if !pooled {
		db.disown()
	}
	return err
}

// threadNumbers hands out the numbers of threads, always the least that is free: a
// thread's number decides its doorbell and, on a simulated fabric, its compute
// blade, whatever threads there were before.
type threadNumbers struct {
	mu   sync.Mutex
	used []bool
}

func (n *threadNumbers) take() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.Index(n.used, false)
	if i < 0 {
		i = len(n.used)
		n.used = append(n.used, false)
	}
	n.used[i] = true
	return i
}

func (n *threadNumbers) free(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used[i] = false
}
