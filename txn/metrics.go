package txn

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"txnode/memory"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// The fields of Metrics have names of this package, so that a program that reads them imports no
// other.
type (
	// AbortReason is why an attempt did not commit.
	AbortReason = occ.AbortReason
	// Phase is a part of a transaction.
	Phase = occ.Phase
	// Verb is a kind of verb.
	Verb = rdma.Op
	// VerbCounts are verbs by kind, round trips, and bytes.
	VerbCounts = rdma.Counters
	// TableCounts are what committed transactions have done to a table, and its conflicts.
	TableCounts = occ.TableCounts
)

// Reasons of conflicts, the index of Metrics.Conflicts.
const (
	AbortLocked     = occ.AbortLocked     // a record to be written was locked by another transaction
	AbortReadLocked = occ.AbortReadLocked // a record to be read was locked by a writer
	AbortValidation = occ.AbortValidation // a record that was read has changed
	AbortPhantom    = occ.AbortPhantom    // a key that was absent has been inserted
	AbortStale      = occ.AbortStale      // the index has changed too often under a lookup or an insert
	NumAbortReasons = occ.NumAbortReasons
)

// Phases of a transaction, the index of Metrics.Phases.
const (
	PhaseExecute  = occ.PhaseExecute  // lock and read
	PhaseValidate = occ.PhaseValidate // repeat what was only read
	PhaseLog      = occ.PhaseLog      // PolicyFORD only
	PhaseCommit   = occ.PhaseCommit   // log and replicas
	PhaseRelease  = occ.PhaseRelease  // in the background
	NumPhases     = occ.NumPhases
)

// Kinds of verbs, the index of VerbCounts.Verbs.
const (
	VerbRead      = rdma.OpRead
	VerbWrite     = rdma.OpWrite
	VerbCAS       = rdma.OpCAS
	VerbFAA       = rdma.OpFAA
	VerbMaskedCAS = rdma.OpMaskedCAS
	VerbFlush     = rdma.OpFlush
	NumVerbs      = rdma.NumOps
)

// Kind is what a transaction may do.
type Kind uint8

// Kinds of transactions, the index of Metrics.Latency.
const (
	KindUpdate Kind = iota // of Update, and of Begin for writing
	KindView               // of View, and of Begin for reading
	NumKinds
)

// String names the kind in a word.
func (k Kind) String() string {
	if k == KindView {
		return "view"
	}
	return "update"
}

// Metrics are running totals since Open, of a database or of one worker. Those of a database also
// say how things are now.
type Metrics struct {
	// Committed, RolledBack and Failed count transactions by their end. RolledBack: by the
	// function's own error, or by Rollback. Failed: by any other error, such as ErrConflict after
	// Options.Retries attempts, a context that was done, ErrNoSpace, ErrOutcomeUnknown.
	Committed, RolledBack, Failed uint64
	// Conflicts are attempts that did not commit, by AbortReason. Each but the last of a
	// transaction was retried.
	Conflicts [NumAbortReasons]uint64
	// Retries are attempts that were begun because the one before had failed.
	Retries uint64
	// Verbs are all verbs of transactions, and Phases the same by Phase.
	Verbs  VerbCounts
	Phases [NumPhases]VerbCounts
	// Latency is the duration of transactions, by Kind, from the call of Update, View or Begin to
	// its end, whatever that was. It includes all attempts and waits, but not the wait for a
	// worker. One transaction in Options.LatencySample is timed.
	Latency [NumKinds]Histogram
	// Rejoins counts workers that went on as another coordinator: the loss of a blade had cut them
	// off, or their lease had expired.
	Rejoins uint64
	// Damage counts transactions that have failed with ErrCorrupt or ErrLost.
	Damage uint64
	// Mended counts damaged records that were served from an intact copy, or written over,
	// and of which all copies are whole since. One that is met by several workers at once may
	// be counted by each.
	Mended uint64

	// The rest is of DB.Metrics alone.

	Workers  WorkerMetrics
	Recovery RecoveryMetrics
	Copies   CopyMetrics
	Blades   []BladeMetrics // by number
	// Tables are sorted by name and have one entry for each name of a table that was opened
	// or made since Open.
	Tables []TableMetrics
}

// WorkerMetrics are the figures of the workers that Update, View and Begin borrow, but for Own.
type WorkerMetrics struct {
	Limit  int // how many there can be
	Open   int // how many there are
	Idle   int // of these, not in use
	Own    int // and how many of NewWorker there are
	Waits  uint64
	Waited time.Duration // by all calls that have waited for a worker, and do no more
	// Waiting is how many calls wait now because all workers are in use.
	Waiting int
}

// RecoveryMetrics counts recoveries since Open, those of Open included.
type RecoveryMetrics struct {
	Coordinators uint64 // that were declared dead, or had been cut off, and were recovered
	Finished     uint64 // transactions of theirs that were found committed and were completed
	Undone       uint64 // and that were taken back
	Outages      uint64 // blades that were declared dead
	Damage       uint64 // recoveries that have left something as it was in a table whose index is damaged, or lost
}

// BladeMetrics is the memory of a blade in bytes. Used is what was handed out, in segments; free
// room inside of these counts as used.
type BladeMetrics struct {
	Blade             int
	Total, Used, Free uint64
	Down              bool // it was declared dead, and is not back; then Free is 0
}

// TableMetrics are the figures of one name. A table that was dropped and made again under its name
// goes on counting, so the figures never go back.
type TableMetrics struct {
	Table string
	TableCounts
}

func (m *Metrics) add(d *Metrics) {
	m.Committed += d.Committed
	m.RolledBack += d.RolledBack
	m.Failed += d.Failed
	m.Retries += d.Retries
	m.Rejoins += d.Rejoins
	m.Damage += d.Damage
	m.Mended += d.Mended
	for i := range m.Conflicts {
		m.Conflicts[i] += d.Conflicts[i]
	}
	for i := range m.Phases {
		m.Phases[i].Add(&d.Phases[i])
	}
	m.Verbs.Add(&d.Verbs)
	for i := range m.Latency {
		m.Latency[i].Add(&d.Latency[i])
	}
}

// totals are what a worker has published, or all workers that are closed: Metrics without what is
// the database's, and the tables by their numbers.
type totals struct {
	Metrics
	tables []TableCounts
}

// table returns the figures of a table.
func (t *totals) table(id int) *TableCounts {
	for id >= len(t.tables) {
		t.tables = append(t.tables, TableCounts{})
	}
	return &t.tables[id]
}

func (t *totals) add(d *totals) {
	t.Metrics.add(&d.Metrics)
	for id := range d.tables {
		if d.tables[id] != (TableCounts{}) {
			t.table(id).Add(&d.tables[id])
		}
	}
}

// Metrics returns the totals of all workers, past and present. What a worker did in its last few
// dozen transactions may be missing while it is at work. Metrics can be called at any time, also
// after Close, and waits for no transaction.
func (db *DB) Metrics() Metrics {
	db.publishIdle()
	db.mu.Lock()
	t := totals{Metrics: db.retired.Metrics, tables: slices.Clone(db.retired.tables)}
	for w := range db.workers {
		w.mu.Lock()
		t.add(&w.published)
		w.mu.Unlock()
	}
	t.Workers = db.pool.metrics()
	t.Workers.Own = max(len(db.workers)-t.Workers.Open, 0) // one that is being opened counts as open already
	db.mu.Unlock()
	t.Recovery = db.recoveries.metrics()
	if db.sup != nil { // else it is the zero value
		t.Copies, t.Recovery.Outages = db.sup.CopyMetrics(), db.sup.Losses()
		t.Blades = bladeMetrics(db.space.Room())
		t.Tables = db.names.metrics(t.tables)
	}
	return t.Metrics
}

// publishIdle has all idle workers publish their totals.
func (db *DB) publishIdle() {
	p := &db.pool
	for i := range p.idle {
		if w := p.idle[i].Swap(nil); w != nil {
			w.publish()
			db.put(w)
		}
	}
	for n := len(p.handed); n > 0; n-- { // for borrowers that have found another one
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
}

// metrics is how it goes with the pool. The caller holds DB.mu.
func (p *pool) metrics() WorkerMetrics {
	m := WorkerMetrics{
		Limit: p.limit, Open: p.created, Idle: len(p.handed), Waiting: int(max(p.wanted.Load(), 0)),
		Waits: p.waits.Load(), Waited: time.Duration(p.waited.Load()),
	}
	for i := range p.idle {
		if p.idle[i].Load() != nil {
			m.Idle++
		}
	}
	m.Idle = min(m.Idle, m.Open)
	return m
}

func bladeMetrics(rooms []memory.Room) []BladeMetrics {
	blades := make([]BladeMetrics, len(rooms))
	for i, r := range rooms {
		blades[i] = BladeMetrics{Blade: int(r.Blade), Total: r.Size, Used: r.Size - r.Free, Free: r.Free, Down: r.Down}
	}
	return blades
}

// tableNames are the tables that were opened, by number. Safe for concurrent use.
type tableNames struct {
	mu   sync.Mutex
	byID map[uint16]*occ.Table
}

func (n *tableNames) add(t *occ.Table) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byID == nil {
		n.byID = map[uint16]*occ.Table{}
	}
	n.byID[t.ID] = t
}

// table is the one with a number; nil if it was not opened.
func (n *tableNames) table(id uint16) *occ.Table {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byID[id]
}

// name is that of a table; empty if it was not opened.
func (n *tableNames) name(id uint16) string {
	if t := n.table(id); t != nil {
		return t.Name
	}
	return ""
}

// metrics are the figures of all tables that were opened, by name: counts are by number. Tables of
// one name were made one after another.
func (n *tableNames) metrics(counts []TableCounts) []TableMetrics {
	n.mu.Lock()
	defer n.mu.Unlock()
	tables := make([]TableMetrics, 0, len(n.byID))
	at := make(map[string]int, len(n.byID))
	for id, t := range n.byID {
		i, ok := at[t.Name]
		if !ok {
			i = len(tables)
			at[t.Name] = i
			tables = append(tables, TableMetrics{Table: t.Name})
		}
		if int(id) < len(counts) {
			tables[i].Add(&counts[id])
		}
	}
	slices.SortFunc(tables, func(a, b TableMetrics) int { return strings.Compare(a.Table, b.Table) })
	return tables
}

// recoveryCounters count what RecoveryMetrics tells.
type recoveryCounters struct {
	coordinators, finished, undone, damage atomic.Uint64
}

// recovered counts a recovery.
func (db *DB) recovered(r *recovery.Report) {
	c := &db.recoveries
	c.coordinators.Add(uint64(len(r.Coordinators)))
	c.finished.Add(uint64(r.Finished))
	c.undone.Add(uint64(len(r.Aborted)))
}

// metrics reads the counters.
func (c *recoveryCounters) metrics() RecoveryMetrics {
	return RecoveryMetrics{
		Coordinators: c.coordinators.Load(), Finished: c.finished.Load(), Undone: c.undone.Load(),
		Damage: c.damage.Load(),
	}
}

// Metrics returns the totals of this worker. It belongs where the worker does.
func (w *Worker) Metrics() Metrics {
	m := w.own
	m.Committed, m.RolledBack = w.committed, w.rolledBack
	m.Conflicts = *w.o.Aborts()
	m.Phases = *w.o.Phases()
	for i := range m.Phases {
		m.Verbs.Add(&m.Phases[i])
	}
	return m
}

// publish makes the totals visible to DB.Metrics.
func (w *Worker) publish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published.Metrics = w.Metrics()
	w.o.Tallies(func(id uint16, c TableCounts) { *w.published.table(int(id)) = c })
}

// gaveUp counts a transaction that has ended in err, and neither committed nor was rolled back
// by its own decision.
func (w *Worker) gaveUp(err error) {
	w.own.Failed++
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrLost) {
		w.own.Damage++
	}
}

// timed ends what has begun when w.began was set: a transaction that is timed.
func (w *Worker) timed(readOnly bool) {
	k := KindUpdate
	if readOnly {
		k = KindView
	}
	w.own.Latency[k].record(w.thread.Now() - w.began)
	w.began = untimed
}
