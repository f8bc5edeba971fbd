package runnertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"txnode/benchmarks/workload"
	"txnode/history"
)

// Options of a store. The zero value is a store that needs no time.
type Options struct {
	// TxnNs is the virtual time of each attempt of a transaction.
	TxnNs int64
	// ConflictEvery makes every so many-th attempt end in a conflict. Zero: none.
	ConflictEvery int
	// LoseEvery forgets the writes of every so many-th transaction that commits
	// some, although it is reported and recorded as committed. Zero: none.
	LoseEvery int
	// StallAt and StallNs: an attempt that begins at StallAt or later, and before
	// StallAt+StallNs, takes until StallAt+StallNs and then TxnNs.
	StallAt, StallNs int64
	// Fail, if not nil, is asked before each attempt; an error ends the transaction.
	Fail func(now int64) error
}

// Store implements workload.Store and workload.Recorder. It is not safe for
// concurrent use; its workers never run at the same time.
type Store struct {
	opts     Options
	tables   []workload.Table
	records  map[place]record
	now      int64
	attempts int
	commits  int
	version  history.Version
	recorder *history.Recorder
}

type place struct {
	table int
	key   uint64
}

type record struct {
	value   []byte
	version history.Version
}

// New returns an empty store. Its clock begins at 1 s.
func New(o Options) *Store {
	return &Store{opts: o, records: make(map[place]record), now: 1e9}
}

// Name implements workload.Store.
func (s *Store) Name() string { return "virtual" }

// Now implements workload.Store.
func (s *Store) Now() int64 { return s.now }

// Close implements workload.Store.
func (s *Store) Close(context.Context) error { return nil }

// Record implements workload.Recorder.
func (s *Store) Record(r *history.Recorder) { s.recorder = r }

// Tables implements workload.Store.
func (s *Store) Tables(_ context.Context, tables []workload.Table) (existed bool, err error) {
	if s.tables != nil {
		if !slices.Equal(s.tables, tables) {
			return true, errors.New("runnertest: other tables")
		}
		return true, nil
	}
	s.tables = slices.Clone(tables)
	return false, nil
}

// Run implements workload.Store: the worker whose time is earliest goes on, and
// of those the one that has waited longest.
func (s *Store) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	var (
		first   error
		waiting []*worker // by wake, then by when they began to wait
	)
	wait := func(w *worker) {
		i := len(waiting)
		for i > 0 && waiting[i-1].wake > w.wake {
			i--
		}
		waiting = slices.Insert(waiting, i, w)
	}
	for id := range threads * coroutines {
		w := &worker{s: s, wake: s.now}
		if s.recorder != nil {
			w.session = s.recorder.Session()
		}
		w.resume, w.end = iter.Pull(func(yield func(struct{}) bool) {
			w.yield = yield
			if err := fn(ctx, id, w); err != nil && first == nil {
				first = err
			}
		})
		defer w.end()
		wait(w)
	}
	for len(waiting) > 0 {
		w := waiting[0]
		waiting = waiting[1:]
		s.now = max(s.now, w.wake)
		if _, more := w.resume(); more {
			wait(w)
		}
	}
	return first
}

// worker implements workload.Worker, Sleeper, PhaseCounter, and Tx.
type worker struct {
	s       *Store
	wake    int64
	resume  func() (struct{}, bool)
	end     func()
	yield   func(struct{}) bool
	session *history.Session

	counters workload.Counters
	phases   [workload.NumPhases]workload.PhaseCounters
	reads    []place
	writes   []place
	new      map[place][]byte // nil value: deleted
}

// Counters implements workload.Worker.
func (w *worker) Counters() workload.Counters { return w.counters }

// Phases implements workload.PhaseCounter.
func (w *worker) Phases() [workload.NumPhases]workload.PhaseCounters { return w.phases }

// Sleep implements workload.Sleeper.
func (w *worker) Sleep(ns int64) {
	if ns > 0 {
		w.wake = w.s.now + ns
		w.yield(struct{}{})
	}
}

// View implements workload.Worker.
func (w *worker) View(ctx context.Context, fn func(workload.Tx) error) error {
	return w.Update(ctx, fn)
}

// Update implements workload.Worker.
func (w *worker) Update(ctx context.Context, fn func(workload.Tx) error) error {
	s := w.s
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.opts.Fail != nil {
			if err := s.opts.Fail(s.now); err != nil {
				return fmt.Errorf("runnertest: at %d ns: %w", s.now, err)
			}
		}
		start := s.now
		if left := s.opts.StallAt + s.opts.StallNs - start; start >= s.opts.StallAt && left > 0 {
			w.Sleep(left)
		}
		w.Sleep(s.opts.TxnNs)
		s.attempts++
		w.reads, w.writes, w.new = w.reads[:0], w.writes[:0], make(map[place][]byte)
		err := fn(w)
		if s.opts.ConflictEvery > 0 && s.attempts%s.opts.ConflictEvery == 0 {
			w.counters.Aborts[workload.AbortReason(s.attempts/s.opts.ConflictEvery)%workload.NumAbortReasons]++
			w.charge(false)
			continue
		}
		w.charge(err == nil)
		if err == nil {
			w.commit(start)
		}
		return err
	}
}

// charge books the verbs of an attempt: 2 for a record that it wrote and 1 for
// one that it only read, in one round trip; if it commits writes, 2 for the
// log and, with it, 2 for each record, and 1 more to release each.
func (w *worker) charge(commits bool) {
	n, r := uint64(len(w.writes)), uint64(0)
	for _, p := range w.reads {
		if !slices.Contains(w.writes, p) {
			r++
		}
	}
	book := func(p workload.Phase, verbs, trips, read, write uint64) {
		w.phases[p].Add(workload.PhaseCounters{Verbs: verbs, RoundTrips: trips, BytesRead: read, BytesWrite: write})
		w.counters.Verbs += verbs
		w.counters.RoundTrips += trips
		w.counters.BytesRead += read
		w.counters.BytesWrite += write
	}
	book(workload.PhaseRead, 2*n+r, 1, 64*(n+r), 8*n)
	if commits && n > 0 {
		book(workload.PhaseLog, 2, 0, 0, 128*n)
		book(workload.PhaseCommit, 2*n, 1, 0, 128*n)
		book(workload.PhaseRelease, n, 0, 0, 8*n)
	}
}

// commit makes the writes visible and records the transaction.
func (w *worker) commit(start int64) {
	s := w.s
	w.counters.Committed++
	s.version++
	lost := false
	if len(w.writes) > 0 {
		s.commits++
		lost = s.opts.LoseEvery > 0 && s.commits%s.opts.LoseEvery == 0
	}
	for _, p := range w.reads {
		kind := history.Read
		if s.records[p].value == nil {
			kind = history.ReadAbsent
		}
		w.session.Op(history.Op{Key: p.historyKey(), Version: s.records[p].version, Kind: kind})
	}
	for _, p := range w.writes {
		kind := history.Write
		if w.new[p] == nil {
			kind = history.Delete
		}
		w.session.Op(history.Op{Key: p.historyKey(), Version: s.version, Prev: s.records[p].version, Kind: kind})
		if !lost {
			s.records[p] = record{w.new[p], s.version}
		}
	}
	w.session.End(uint64(s.version), start, s.now, history.Committed)
}

func (p place) historyKey() history.Key { return history.Key(uint64(p.table)<<56 | p.key) }

// Stage implements workload.Tx.
func (w *worker) Stage(int, uint64, workload.Mode) {}

// Get implements workload.Tx.
func (w *worker) Get(table int, key uint64) ([]byte, error) {
	p := place{table, key}
	v := w.value(p)
	if v == nil {
		return nil, workload.ErrNotFound
	}
	return v, nil
}

// Put implements workload.Tx.
func (w *worker) Put(table int, key uint64, value []byte) error {
	w.write(place{table, key}, append([]byte{}, value...))
	return nil
}

// Prepare implements workload.Worker.
func (w *worker) Prepare(uses []workload.Use) workload.Plan { return workload.PlanEach(uses) }

// Insert implements workload.Tx.
func (w *worker) Insert(table int, key uint64, value []byte) error {
	if w.value(place{table, key}) != nil {
		return workload.ErrExists
	}
	return w.Put(table, key, value)
}

// Delete implements workload.Tx.
func (w *worker) Delete(table int, key uint64) error {
	p := place{table, key}
	if w.value(p) == nil {
		return workload.ErrNotFound
	}
	w.write(p, nil)
	return nil
}

func (w *worker) value(p place) []byte {
	if v, written := w.new[p]; written {
		return v
	}
	if !slices.Contains(w.reads, p) {
		w.reads = append(w.reads, p)
	}
	return w.s.records[p].value
}

func (w *worker) write(p place, value []byte) {
	if _, again := w.new[p]; !again {
		w.writes = append(w.writes, p)
	}
	w.new[p] = value
}

var (
	_ workload.Store        = (*Store)(nil)
	_ workload.Recorder     = (*Store)(nil)
	_ workload.Sleeper      = (*worker)(nil)
	_ workload.PhaseCounter = (*worker)(nil)
)
