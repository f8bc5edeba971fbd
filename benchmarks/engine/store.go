package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/benchmarks/workload"
	"txnode/history"
	"txnode/internal/sentinel"
	"txnode/occ"
	"txnode/txn"
)

// Store is a database under test. It implements workload.Store and
// workload.Recorder.
type Store struct {
	db     *txn.DB
	name   string
	tables []table
	kept   bool // in a directory

	loading loading
}

// table is a table and how its keys are encoded.
type table struct {
	*txn.RawTable
	ordered *txn.OrderedTable[[]byte, []byte] // the same one; nil if it is a hash table
	keys    keyKind
}

// keyKind is how numbers are encoded as keys.
type keyKind uint8

const (
	little keyKind = iota // 8 bytes, as in a plan
	big                   // 8 bytes, in the order of the numbers
	text                  // in that order, too
)

// aliased is txn.BytesKey without a copy of each key that a range meets.
var aliased = func() txn.Key[[]byte] {
	k := txn.BytesKey
	k.Decode = func(src []byte) ([]byte, error) { return src, nil }
	return k
}()

var (
	_ workload.Store        = (*Store)(nil)
	_ workload.Recorder     = (*Store)(nil)
	_ workload.Sharer       = (*Store)(nil)
	_ workload.Overlapper   = (*Store)(nil)
	_ workload.PhaseCounter = (*worker)(nil)
	_ workload.Sleeper      = (*worker)(nil)
	_ workload.Expecter     = (*worker)(nil)
	_ workload.Ranger       = (*transaction)(nil)
	_ workload.EndValidator = (*transaction)(nil)
)

// Open opens a database with the engine's options.
func Open(ctx context.Context, o txn.Options) (*Store, error) {
	db, err := txn.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	s := New(db, o.Policy)
	s.kept = o.Dir != ""
	return s, nil
}

// New is a store of a database that is open, with a policy. Close closes the database.
func New(db *txn.DB, p txn.Policy) *Store { return &Store{db: db, name: "txnode " + p.String()} }

// Others reports whether other processes have had the database open since: workload.Sharer.
func (s *Store) Others() bool { return s.db.Space().Company() > 0 }

// Overlap returns how many coroutines of a thread are worth while: workload.Overlapper.
func (s *Store) Overlap() int {
	if s.db.Space().Fabric().Caps().Synchronous {
		return 1
	}
	return 16
}

// DB returns the database.
func (s *Store) DB() *txn.DB { return s.db }

// Name returns "txnode" and the policy.
func (s *Store) Name() string { return s.name }

// Now is the fabric's clock.
func (s *Store) Now() int64 { return s.db.Now() }

// Record makes later runs record their transactions.
func (s *Store) Record(r *history.Recorder) { s.db.Record(r) }

// Close closes the database.
func (s *Store) Close(ctx context.Context) error { return s.db.Close(ctx) }

// Tables creates or opens the tables; they exist all or not at all.
func (s *Store) Tables(ctx context.Context, tables []workload.Table) (bool, error) {
	s.tables = s.tables[:0]
	names, err := s.db.Tables()
	if err != nil {
		return false, err
	}
	has := map[string]bool{}
	for _, n := range names {
		has[n] = true
	}
	var there []table
	for _, t := range tables {
		table, err := s.create(t)
		if err != nil {
			return false, err
		}
		if s.tables = append(s.tables, table); has[t.Name] {
			there = append(there, table)
		}
	}
	if s.loading.active {
		if empty, err := s.begun(ctx, there); err != nil || empty {
			return false, err
		}
	}
	n := len(there)
	if n != 0 && n != len(tables) {
		return false, fmt.Errorf("engine: %d of %d tables exist: loading was interrupted; remove the database and "+
			"load it again", n, len(tables))
	}
	return n > 0, nil
}

func (s *Store) create(t workload.Table) (out table, err error) {
	if t.Text {
		out.keys = text
	}
	if !t.Ordered {
		out.RawTable, err = txn.CreateRawTable(s.db, t.Name)
		return out, err
	}
	if !t.Text {
		out.keys = big
	}
	keys := aliased
	keys.MaxBytes = workload.TextKey
	out.ordered, err = txn.CreateOrderedTable(s.db, t.Name, keys, txn.Bytes())
	if err == nil {
		out.RawTable = out.ordered.Raw()
	}
	return out, err
}

// Run runs workers: workload.Store.
func (s *Store) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return s.db.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w *txn.Worker) error {
		b := &worker{s: s, w: w}
		b.tx.tables = s.tables
		b.call = func(tx *txn.Tx) error {
			b.tx.t = tx
			return b.fn(&b.tx)
		}
		return fn(ctx, id, b)
	})
}

// worker adapts a txn.Worker.
type worker struct {
	s    *Store
	w    *txn.Worker
	tx   transaction
	fn   func(workload.Tx) error
	call func(*txn.Tx) error
}

func (w *worker) Update(ctx context.Context, fn func(workload.Tx) error) error {
	w.fn = fn
	err := w.w.Update(ctx, w.call)
	if err != nil {
		err = ended(err)
	}
	return err
}

func (w *worker) View(ctx context.Context, fn func(workload.Tx) error) error {
	w.fn = fn
	err := w.w.View(ctx, w.call)
	if err != nil {
		err = ended(err)
	}
	return err
}

// Maintain is txn.Worker.Maintain.
func (w *worker) Maintain() error { return w.w.Maintain() }

func (w *worker) Sleep(ns int64) {
	if ns > 0 {
		w.w.Sleep(ns)
	}
}

func (w *worker) Expects() bool { return w.w.Expects() }

func (w *worker) Expect(table int, key uint64, mode workload.Mode) {
	w.s.tables[table].Expect(w.w, w.tx.k(table, key), modes[mode])
}

func (w *worker) Prepare(uses []workload.Use) workload.Plan {
	if slices.ContainsFunc(uses, func(u workload.Use) bool { return w.s.tables[u.Table].keys != little }) {
		return workload.PlanEach(uses)
	}
	p := &plan{make([]txn.Row, len(uses)), make([]workload.Row, len(uses))}
	for i, u := range uses {
		key := new(workload.Key)
		p.own[i] = txn.Row{Table: w.s.tables[u.Table].RawTable, Key: key[:], Mode: modes[u.Mode]}
		p.rows[i] = workload.Row{Key: key, Value: &p.own[i].Value}
	}
	return p
}

// plan implements workload.Plan.
type plan struct {
	own  []txn.Row
	rows []workload.Row // point to these
}

func (p *plan) Rows() []workload.Row { return p.rows }

func (p *plan) Fetch(tx workload.Tx) error {
	err := tx.(*transaction).t.Fetch(p.own)
	if err != nil {
		err = translate(err)
	}
	return err
}

func (p *plan) Set(tx workload.Tx, i int, value []byte) error {
	err := p.own[i].Put(tx.(*transaction).t, value)
	if err != nil {
		err = translate(err)
	}
	return err
}

// modes maps the workload's modes to the engine's.
var modes = [...]txn.Mode{workload.Read: txn.ForRead, workload.Update: txn.ForUpdate}

// reasons maps the engine's abort reasons to the workload's.
var reasons = [occ.NumAbortReasons]workload.AbortReason{
	occ.AbortLocked:     workload.AbortLocked,
	occ.AbortReadLocked: workload.AbortReadLocked,
	occ.AbortValidation: workload.AbortValidation,
	occ.AbortPhantom:    workload.AbortPhantom,
	occ.AbortStale:      workload.AbortStale,
}

func (w *worker) Counters() workload.Counters {
	committed, conflicts, phases := w.w.Counters()
	c := workload.Counters{Committed: committed}
	for r, n := range conflicts {
		c.Aborts[reasons[r]] += n
	}
	for i := range phases {
		p := &phases[i]
		c.Verbs += p.Total()
		c.RoundTrips += p.RoundTrips
		c.BytesRead += p.BytesRead
		c.BytesWrite += p.BytesWrite
	}
	return c
}

// phaseOf maps the engine's phases to the workload's.
var phaseOf = [occ.NumPhases]workload.Phase{
	occ.PhaseExecute:  workload.PhaseRead,
	occ.PhaseValidate: workload.PhaseValidate,
	occ.PhaseLog:      workload.PhaseLog,
	occ.PhaseCommit:   workload.PhaseCommit,
	occ.PhaseRelease:  workload.PhaseRelease,
}

func (w *worker) Phases() (out [workload.NumPhases]workload.PhaseCounters) {
	for i, p := range w.w.Phases() {
		out[phaseOf[i]].Add(workload.PhaseCounters{
			Verbs: p.Total(), RoundTrips: p.RoundTrips, BytesRead: p.BytesRead, BytesWrite: p.BytesWrite,
		})
	}
	return out
}

// transaction adapts a txn.Tx.
type transaction struct {
	t      *txn.Tx
	tables []table
	key    [workload.TextKey]byte
}

// k returns a key as bytes, which are overwritten by the next call.
func (t *transaction) k(table int, key uint64) []byte {
	switch t.tables[table].keys {
	case text:
		return workload.AppendText(t.key[:0], key)
	case big:
		binary.BigEndian.PutUint64(t.key[:], key)
	default:
		binary.LittleEndian.PutUint64(t.key[:], key)
	}
	return t.key[:8]
}

// number returns the key that k has encoded, of an ordered table.
func (t *table) number(key []byte) (uint64, error) {
	if t.keys == text {
		return workload.ParseText(key)
	}
	if len(key) != 8 {
		return 0, fmt.Errorf("engine: a key of table %s has %d bytes, not 8", t.Name(), len(key))
	}
	return binary.BigEndian.Uint64(key), nil
}

// ValidateAtEnd implements workload.EndValidator.
func (t *transaction) ValidateAtEnd() { t.t.ValidateAtEnd() }

// Range implements workload.Ranger.
func (t *transaction) Range(table int, r workload.Range, do func(key uint64, value []byte) bool) error {
	of := &t.tables[table]
	if of.ordered == nil {
		return workload.ErrNoRanges
	}
	options := make([]txn.RangeOption, 0, 2)
	if r.Descending {
		options = append(options, txn.Descending())
	}
	if r.Limit > 0 {
		options = append(options, txn.Limit(r.Limit))
	}
	from := txn.Including(append([]byte(nil), t.k(table, r.From)...))
	to := txn.Including(append([]byte(nil), t.k(table, r.To)...))
	for k, v := range of.ordered.Range(t.t, from, to, options...) {
		key, err := of.number(k)
		if err != nil {
			return err
		}
		if !do(key, v) {
			break
		}
	}
	return t.t.Err()
}

func (t *transaction) Stage(table int, key uint64, mode workload.Mode) {
	m := txn.ForRead
	if mode == workload.Update {
		m = txn.ForUpdate
	}
	// A failure shows at the Get that follows: it stages the key again.
	_ = t.tables[table].Stage(t.t, t.k(table, key), m)
}

func (t *transaction) Get(table int, key uint64) ([]byte, error) {
	v, err := t.tables[table].Get(t.t, t.k(table, key))
	if err != nil {
		err = translate(err)
	}
	return v, err
}

func (t *transaction) Put(table int, key uint64, value []byte) error {
	if err := t.tables[table].Put(t.t, t.k(table, key), value); err != nil {
		return translate(err)
	}
	return nil
}

func (t *transaction) Insert(table int, key uint64, value []byte) error {
	return translate(t.tables[table].Insert(t.t, t.k(table, key), value))
}

func (t *transaction) Delete(table int, key uint64) error {
	return translate(t.tables[table].Delete(t.t, t.k(table, key)))
}

func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, txn.ErrNotFound):
		return workload.ErrNotFound
	case errors.Is(err, txn.ErrExists):
		return workload.ErrExists
	}
	return err
}

// ended translates the error of a whole transaction. Workloads roll back often, with
// errors of their own.
func ended(err error) error {
	if sentinel.Is(err, txn.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", workload.ErrUncertain, err)
	}
	return err
}
