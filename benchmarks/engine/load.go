package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"txnode/benchmarks/workload"
	"txnode/memory/layout"
	"txnode/txn"
)

// Several processes may want to load one database. One of them has the right of layout.RightLoad,
// which ends with its process, and the others wait for it. As long as it loads, the first of the
// tables has a mark, so that tables of a load that was interrupted are known by it. So are those
// that were made, and got no mark any more, by having no records.

// markKey is the key of the mark: no workload has that number.
const markKey = math.MaxUint64

const (
	loadPause = 50 * time.Millisecond
	loadTries = 200 // without another process that has the right: the catalog does not answer
)

// errOvertaken: the mark is another process's by now.
var errOvertaken = errors.New("engine: other processes have taken this one for dead while it loaded, and load the " +
	"tables themselves: start it again")

// loading is what a store knows between BeginLoad and its end.
type loading struct {
	active bool
	marked bool // by this process
}

// BeginLoad implements workload.Loader.
func (s *Store) BeginLoad(ctx context.Context, waiting func()) (end func(loaded bool) error, err error) {
	space := s.db.Space()
	if !s.kept && !space.Shared() {
		return func(bool) error { return nil }, nil // what was not loaded is gone with the process
	}
	for tries := 0; !space.AcquireRight(layout.RightLoad); tries++ {
		if err := space.Follow(); err != nil {
			return nil, fmt.Errorf("engine: waiting for the right to load: %w", err)
		}
		switch {
		case !space.RightElsewhere(layout.RightLoad) && tries > loadTries:
			return nil, errors.New("engine: the right to load is not to be had, and no process has it: does the " +
				"catalog take changes?")
		case space.RightElsewhere(layout.RightLoad):
			if tries = 0; waiting != nil {
				waiting()
				waiting = nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(loadPause):
		}
	}
	s.loading = loading{active: true}
	return func(loaded bool) (err error) {
		if loaded && s.loading.marked {
			if err = s.unmark(context.WithoutCancel(ctx)); err == nil && !space.HasRight(layout.RightLoad) {
				err = errOvertaken
			}
		}
		s.endLoading()
		return err
	}, nil
}

// endLoading lets another process load, or find that it need not.
func (s *Store) endLoading() {
	if s.loading.active {
		s.db.Space().ReleaseRight(layout.RightLoad)
	}
	s.loading = loading{}
}

// begun makes tables ready to be loaded, of which some were there, and reports whether
// they are to be filled.
func (s *Store) begun(ctx context.Context, there []table) (empty bool, err error) {
	unfinished := len(there) > 0 && len(there) < len(s.tables)
	for _, t := range there {
		if marked, has, err := s.look(ctx, t); err != nil {
			return false, err
		} else if marked {
			unfinished = true
			break
		} else if has {
			s.endLoading()
			return false, nil
		}
	}
	if unfinished {
		for _, t := range there {
			if err := s.empty(ctx, t); err != nil {
				return false, fmt.Errorf("engine: emptying table %q, which a load has left unfinished: %w",
					t.Name(), err)
			}
		}
	}
	if err := s.update(ctx, func(tx *txn.Tx) error {
		return s.tables[0].Put(tx, s.mark(),
			[]byte("loading"))
	}); err != nil {
		return false, fmt.Errorf("engine: noting that tables are being loaded: %w", err)
	}
	s.loading.marked = true
	return true, nil
}

// mark is the key of the mark in the first table.
func (s *Store) mark() []byte {
	t := transaction{tables: s.tables}
	return bytes.Clone(t.k(0, markKey))
}

func (s *Store) unmark(ctx context.Context) error {
	err := s.update(ctx, func(tx *txn.Tx) error { return s.tables[0].Delete(tx, s.mark()) })
	if errors.Is(err, txn.ErrNotFound) {
		return errOvertaken
	}
	return err
}

func (s *Store) update(ctx context.Context, fn func(tx *txn.Tx) error) error {
	return s.db.Update(ctx, fn)
}

// look reports whether a table has the mark, and whether it has records.
func (s *Store) look(ctx context.Context, t table) (marked, has bool, err error) {
	err = s.db.View(ctx, func(tx *txn.Tx) (err error) {
		marked, has = false, false
		if s.first(t) {
			if marked, err = t.Has(tx, s.mark()); err != nil {
				return err
			}
		}
		for range t.All(tx) {
			has = true
			break
		}
		return nil
	})
	return marked, has, err
}

// Of a table that is emptied, how many records a transaction reads, and how many one deletes.
const (
	emptyRead   = 8192
	emptyBytes  = 2 << 20
	emptyDelete = 64
)

// first reports whether a table is the one with the mark.
func (s *Store) first(t table) bool { return t.Name() == s.tables[0].Name() }

// empty deletes all records of a table but the mark. No other process changes the table.
func (s *Store) empty(ctx context.Context, t table) error {
	var mark []byte
	if s.first(t) {
		mark = s.mark()
	}
	for {
		var keys [][]byte
		if err := s.db.View(ctx, func(tx *txn.Tx) error {
			tx.ValidateAtEnd()
			keys = keys[:0]
			size := 0
			for k, v := range t.All(tx) {
				if mark != nil && bytes.Equal(k, mark) {
					continue
				}
				keys = append(keys, bytes.Clone(k))
				if size += len(k) + len(v); len(keys) == emptyRead || size > emptyBytes {
					break
				}
			}
			return nil
		}); err != nil || len(keys) == 0 {
			return err
		}
		for len(keys) > 0 {
			n := min(len(keys), emptyDelete)
			if err := s.update(ctx, func(tx *txn.Tx) error {
				for _, k := range keys[:n] {
					if err := t.Delete(tx, k); err != nil && !errors.Is(err, txn.ErrNotFound) {
						return err
					}
				}
				return nil
			}); err != nil {
				return err
			}
			keys = keys[n:]
		}
	}
}

var _ workload.Loader = (*Store)(nil)
