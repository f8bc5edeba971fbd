package txn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"txnode/memory"
	"txnode/occ"
)

// maxLoaders is how many workers load ordered tables at the same time where round trips take time:
// an insert has some, one after the other.
const maxLoaders = 8

// loaders load a backup into tables that nobody can find yet: hash tables in bulk, and ordered ones
// by several workers at the same time. All records of an ordered table go to one of them, since
// neighbours would be in each other's way. It belongs to one goroutine.
type loaders struct {
	bulk     bulk
	all      []*loader      // of ordered tables
	filled   []*loaded      // what is being filled for each
	queues   []chan *loaded // to each; nil: this goroutine loads
	free     chan *loaded
	progress func(uint64)

	done   atomic.Uint64 // records of ordered tables, if there are queues
	cancel context.CancelCauseFunc
	ctx    context.Context
	ended  sync.WaitGroup
}

// loaded are records of a transaction.
type loaded struct {
	bytes   []byte
	pending []pendingRecord
}

// newLoaders makes loaders for so many ordered tables, with workers of their own, and one that
// loads in bulk with w; close ends them, whatever has happened.
func (db *DB) newLoaders(ctx context.Context, w *Worker, ordered int, progress func(uint64)) (*loaders, error) {
	c := db.fabric.Caps()
	far := c.RealTime && !c.Synchronous
	n := min(ordered, maxLoaders)
	if !far {
		n = min(n, 1)
	}
	s := &loaders{progress: progress, free: make(chan *loaded, 2*n)}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.bulk = newBulk(s.ctx, w)
	for range n {
		w, err := db.ownWorker(ctx)
		if errors.Is(err, memory.ErrNoSpace) && len(s.all) > 0 { // for the log of one more: the others do
			break
		}
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.all = append(s.all, &loader{
			ctx: s.ctx, w: w, rows: restoreRecords, size: restoreBytes, far: far, alone: true,
		})
	}
	s.filled = make([]*loaded, len(s.all))
	if !far {
		for _, l := range s.all {
			l.progress = func(uint64) { s.tell() }
		}
		return s, nil
	}
	for i := range s.all {
		q := make(chan *loaded, 1)
		s.queues, s.filled[i] = append(s.queues, q), &loaded{}
		s.ended.Go(func() { s.run(s.all[i], q) })
	}
	return s, nil
}

// tell tells how many records are loaded.
func (s *loaders) tell() {
	if s.progress == nil {
		return
	}
	n := s.bulk.done + s.done.Load()
	if s.queues == nil && len(s.all) > 0 {
		n += s.all[0].done
	}
	s.progress(n)
}

// run loads what comes until the queue is closed. After an error of any loader nothing more is
// loaded.
func (s *loaders) run(l *loader, q chan *loaded) {
	for x := range q {
		if s.ctx.Err() == nil {
			l.bytes, l.pending = x.bytes, x.pending
			if err := l.flush(); err != nil {
				s.cancel(err)
			}
			s.done.Add(uint64(len(x.pending)))
		}
		x.bytes, x.pending = x.bytes[:0], x.pending[:0]
		select {
		case s.free <- x:
		default:
		}
	}
}

// add adds a record of a table. The bytes are copied.
func (s *loaders) add(t *occ.Table, key, value []byte) error {
	if t.Ordered == nil {
		before := s.bulk.done
		err := s.bulk.add(t, key, value)
		if s.bulk.done != before {
			s.tell()
		}
		return err
	}
	if s.queues == nil {
		return s.all[0].add(t, key, value)
	}
	i := int(t.ID) % len(s.all)
	x := s.filled[i]
	if len(x.pending) == restoreRecords || len(x.pending) > 0 && len(x.bytes)+len(key)+len(value) > restoreBytes {
		if err := s.send(i); err != nil {
			return err
		}
		x = s.filled[i]
	}
	at := len(x.bytes)
	x.bytes = append(append(x.bytes, key...), value...)
	x.pending = append(x.pending, pendingRecord{t, at, at + len(key), len(x.bytes)})
	return nil
}

// send has loader i load what is filled for it.
func (s *loaders) send(i int) error {
	select {
	case s.queues[i] <- s.filled[i]:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	select {
	case s.filled[i] = <-s.free:
	default:
		s.filled[i] = &loaded{}
	}
	s.tell()
	return nil
}

// flush returns when all that was added is loaded. Nothing is added after it.
func (s *loaders) flush() error {
	if s.queues == nil && len(s.all) > 0 {
		if err := s.all[0].flush(); err != nil {
			return err
		}
	}
	for i := range s.queues {
		if err := s.send(i); err != nil {
			return err
		}
	}
	if err := s.bulk.flush(); err != nil {
		return err
	}
	s.wait()
	if err := context.Cause(s.ctx); err != nil {
		return err
	}
	s.tell()
	return nil
}

// wait returns when no loader is at work. Nothing is sent after it.
func (s *loaders) wait() {
	for _, q := range s.queues {
		close(q)
	}
	s.queues = s.queues[:0]
	s.ended.Wait()
}

// close ends the loaders and the workers of ordered tables.
func (s *loaders) close() (err error) {
	s.cancel(nil)
	s.wait()
	for _, l := range s.all {
		err = errors.Join(err, l.w.Close())
	}
	return err
}
