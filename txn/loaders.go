package txn

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"txnode/memory"
	"txnode/occ"
)

// maxLoaders is how many workers load a backup at the same time where round trips take time: an insert has some, one after the other.
const maxLoaders = 8

// loaders load records by several workers at the same time. Those of one key go to one of them, in the order in which they come, and so do all of
// an ordered table, whose neighbours would be in each other's way. It belongs to one goroutine.
type loaders struct {
	all      []*loader
	filled   []*loaded      // what is being filled for each
	queues   []chan *loaded // to each; nil: this goroutine loads
	free     chan *loaded
	progress func(uint64)
	seed     maphash.Seed

	done   atomic.Uint64
	cancel context.CancelCauseFunc
	ctx    context.Context
	ended  sync.WaitGroup
}

// loaded are records of a transaction.
type loaded struct {
	bytes   []byte
	pending []pendingRecord
}

// newLoaders makes loaders with workers of their own; close ends them, whatever has happened.
func (db *DB) newLoaders(ctx context.Context, progress func(uint64)) (*loaders, error) {
	n, c := 1, db.fabric.Caps()
	far := c.RealTime && !c.Synchronous
	if far {
		n = maxLoaders
	}
	s := &loaders{progress: progress, free: make(chan *loaded, 2*n), seed: maphash.MakeSeed()}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	for range n {
		w, err := db.ownWorker(ctx)
		if errors.Is(err, memory.ErrNoSpace) && len(s.all) > 0 { // for the log of one more: the others do
			break
		}
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.all = append(s.all, &loader{ctx: s.ctx, w: w, rows: restoreRecords, size: restoreBytes, far: far, restores: true})
	}
	s.filled = make([]*loaded, len(s.all))
	if len(s.all) == 1 {
		s.all[0].progress = progress
		return s, nil
	}
	for i := range s.all {
		q := make(chan *loaded, 1)
		s.queues, s.filled[i] = append(s.queues, q), &loaded{}
		s.ended.Go(func() { s.run(s.all[i], q) })
	}
	return s, nil
}

// run loads what comes until the queue is closed. After an error of any loader nothing more is loaded.
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

// add adds a record of a table, which may be ordered. The bytes are copied.
func (s *loaders) add(t *occ.Table, ordered bool, key, value []byte) error {
	if s.queues == nil {
		return s.all[0].add(t, key, value)
	}
	i := uint64(t.ID)
	if !ordered {
		i = maphash.Bytes(s.seed, key)
	}
	i %= uint64(len(s.all))
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
func (s *loaders) send(i uint64) error {
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
	if s.progress != nil {
		s.progress(s.done.Load())
	}
	return nil
}

// flush returns when all that was added is loaded. Nothing is added after it.
func (s *loaders) flush() error {
	if s.queues == nil {
		return s.all[0].flush()
	}
	for i := range s.queues {
		if err := s.send(uint64(i)); err != nil { //nolint:gosec // maxLoaders
			return err
		}
	}
	s.wait()
	if s.progress != nil && s.ctx.Err() == nil {
		s.progress(s.done.Load())
	}
	return context.Cause(s.ctx)
}

// wait returns when no loader is at work. Nothing is sent after it.
func (s *loaders) wait() {
	for _, q := range s.queues {
		close(q)
	}
	s.queues = nil
	s.ended.Wait()
}

// close ends the loaders and their workers.
func (s *loaders) close() (err error) {
	s.cancel(nil)
	s.wait()
	for _, l := range s.all {
		err = errors.Join(err, l.w.Close())
	}
	return err
}
