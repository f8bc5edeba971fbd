package txn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"txnode/history"
	"txnode/index"
	"txnode/index/race"
	"txnode/index/tree"
	"txnode/internal/validate"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// DB is an open database. Safe for concurrent use. The zero value is one that is closed.
type DB struct {
	opts    Options
	fabric  rdma.Fabric
	space   *memory.Space
	engine  *occ.Engine
	owned   io.Closer // fabric, catalog and space, when Open made them
	rests   bool      // see Worker.rest
	threads threadNumbers
	tuner   *rdma.Tuner // of the workers' threads
	open    atomic.Bool
	hungry  atomic.Uint64 // address of a record that one worker waits for in vain; 0: none
	// indexMends is how often an index was mended while the database was open.
	indexMends atomic.Uint64

	ctl *rdma.Thread // of the control path; under ctlMu
	// ctlMu serializes what is rare: opening tables, closing.
	ctlMu  sync.Mutex
	tables map[string]*occ.Table
	// dropMu is held by a drop, and for reading by a backup: neither waits in Lock.
	dropMu sync.RWMutex

	pool        pool
	maintenance maintainer
	failover    failover
	kept        atomic.Pointer[occ.Table] // see keptTable; nil: it was not needed yet

	names      tableNames
	known      atomic.Pointer[tableIndexes] // nil: no table that was opened has any
	knowMu     sync.Mutex                   // of changes of known
	beating    beating
	unrenew    func()                     // ends renewing; nil: it has not begun
	renewed    atomic.Pointer[occ.Engine] // whose sessions are renewed; nil: there are none yet
	recoveries recoveryCounters

	mu      sync.Mutex
	workers map[*Worker]struct{}
	own     int    // sessions that are not the pool's, those being made included
	retired totals // of workers that are closed
}

// Open opens a database, or creates it. It first recovers what a process that died has left, and
// ctx does not interrupt that. Recovery reads all of the data: about a quarter of a second for a
// million records. With DurabilityPower it also compares the copies and builds the indexes anew:
// about a second, and 16 bytes of memory for each record.
func Open(ctx context.Context, o Options) (db *DB, err error) {
	opened := false // DB.Close ends everything
	defer func() {
		if !opened && o.Closer != nil {
			err = errors.Join(err, o.Closer.Close())
		}
	}()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, canceled(ctx)
	}
	o = o.withDefaults()
	db = &DB{opts: o, fabric: o.Fabric, tables: map[string]*occ.Table{}, workers: map[*Worker]struct{}{}}
	if db.fabric == nil {
		if err := o.checkRoom(); err != nil {
			return nil, err
		}
		e, err := embedded.Open(o.embedded())
		if errors.Is(err, embedded.ErrOptions) { // with what the database has that is there
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
		if err != nil {
			return nil, err
		}
		db.owned, db.fabric, db.space = e, e.Fabric(), e.Space()
		if lost := e.Replaced(); len(lost) > 0 {
			r := db.space.Redundancy()
			o.Logger.Error("regions are missing or blank; their blades begin anew, and copies are built of what the others have", zap.Any("blades", lost),
				zap.Int("copies missing", r.Missing), zap.Int("segments lost", r.Lost))
		}
	}
	caps := db.fabric.Caps()
	db.rests = caps.RealTime && !caps.Synchronous
	db.pool.init(o.Workers)
	db.open.Store(true)
	if err := db.start(); err != nil {
		if db.unrenew != nil {
			db.unrenew()
		}
		if db.owned == nil && db.space != nil && db.space.Shared() { // others need not wait until its registration expires
			err = errors.Join(err, db.space.Close(db.ctl.Plain()))
		}
		if db.ctl != nil {
			err = errors.Join(err, db.ctl.Close())
		}
		if db.owned != nil {
			err = errors.Join(err, db.owned.Close())
		}
		return nil, err
	}
	opened = true
	openDatabases.Add(1)
	if db.space.First() {
		db.resumeDrops(ctx)
		if err := db.space.EndAlone(); err != nil {
			return nil, errors.Join(err, db.Close(ctx))
		}
	}
	if err := db.startHeartbeat(); err != nil {
		return nil, errors.Join(err, db.Close(ctx))
	}
	return db, nil
}

// openSpace opens the memory of a database on blades of the caller's.
func (db *DB) openSpace() error {
	o := &db.opts
	l, err := memory.LoadLayout(o.Catalog)
	if err != nil {
		return err
	}
	mo := memory.Options{
		SegmentSize: o.SegmentSize, LogArea: o.LogArea, ReadOnly: o.ReadOnly, Durable: o.Durability == DurabilityPower, Parts: db.fabric.Caps().Durable,
		Backups: min(DefaultBackups, len(db.fabric.Blades())-1), Shared: o.Shared,
	}
	if l != nil {
		mo.SegmentSize, mo.LogArea, mo.Backups = cmp.Or(mo.SegmentSize, l.SegmentSize), cmp.Or(mo.LogArea, l.LogArea), l.Backups
		mo.Shared = mo.Shared || l.Shared
	}
	if o.Backups != nil {
		mo.Backups = *o.Backups
	}
	if mo.Shared {
		var faults validate.Faults
		faults.Check(o.Durability != DurabilityPower, "Durability power: several processes can have the database open, and the flushes of one say nothing of what the others have written")
		faults.Check(o.LeaseTerm > 0, "LeaseTerm is %v: several processes can have the database open, and what one has left that dies is theirs after its lease", o.LeaseTerm)
		if err := faults.Err(ErrOptions); err != nil {
			return err
		}
		mo.ReadOnly = false // it registers, so that the others know of it, and its transactions write nothing
		mo.Until, mo.ClockDrift = db.fabric.Now()+int64(o.LeaseTerm), o.ClockDrift
		mo.GiveUp, mo.Anew, mo.Damaged = o.ReplaceLost, db.anew, db.leaveDamaged
	}
	db.space, err = memory.Open(db.ctl.Plain(), db.fabric, o.Catalog, mo)
	return err
}

// anew takes over what another process may have done to the tables that was alone with the database while this one was taken for dead,
// before any transaction begins again.
func (db *DB) anew(ts []memory.Table) {
	for _, t := range db.names.all() {
		i := slices.IndexFunc(ts, func(x memory.Table) bool { return x.ID == t.ID })
		if i < 0 || ts[i].State != memory.TableLive {
			t.Drop()
			continue
		}
		if o, err := decodeTableOptions(ts[i].Options); err == nil {
			db.know(t.Name, o.Indexes)
		}
	}
}

// renewing renews the registration of the process, and the leases of its sessions, until it is stopped, whatever else waits: opening
// the database may take longer than a term, and so may a recovery by another process.
func (db *DB) renewing() (stop func()) {
	if !db.space.Shared() || !db.fabric.Caps().RealTime {
		return func() {}
	}
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		t := time.NewTicker(max(db.opts.LeaseTerm/3, minMaintenance))
		defer t.Stop()
		for {
			select {
			case <-ended:
				return
			case <-t.C:
				now := db.fabric.Now()
				if e := db.renewed.Load(); e != nil {
					_ = e.RenewAll(now) // the next one may do it, and maintenance says what fails
				} else {
					_ = db.space.Renew(now + int64(db.opts.LeaseTerm)) // likewise
				}
			}
		}
	})
	return func() { close(ended); done.Wait() }
}

// start makes what runs on the fabric.
func (db *DB) start() error {
	var err error
	db.tuner = rdma.NewTuner(db.opts.Tuner)
	// The control thread takes the last doorbell, not the first.
	if db.ctl, err = rdma.NewThread(db.fabric, rdma.ThreadOptions{Index: controlThread, Techniques: *db.opts.Techniques}); err != nil {
		return err
	}
	if db.space == nil {
		if err := db.openSpace(); err != nil {
			return err
		}
	}
	db.unrenew = db.renewing()
	flush := occ.FlushAuto
	power := db.opts.Durability == DurabilityPower
	if power {
		if !db.fabric.Caps().Durable {
			return fmt.Errorf("%w: Durability power: fabric %q can not flush to anything durable", ErrOptions, db.fabric.Name())
		}
		flush = occ.FlushDurable
	}
	if db.opts.LatencySample == 0 {
		db.opts.LatencySample = 1
		if db.fabric.Caps().Synchronous && !power {
			db.opts.LatencySample = cheapLatencySample
		}
	}
	if err := db.recover(); err != nil {
		return err
	}
	if err := db.promise(power); err != nil {
		return err
	}
	eo := occ.Options{
		Policy: db.opts.Policy, LikeFORD: db.likeFORD(), ReadBackups: db.opts.ReadBackups, Flush: flush, CacheBytes: db.opts.CacheBytes,
		LeaseTerm: int64(max(db.opts.LeaseTerm, 0)), ClockDrift: db.opts.ClockDrift, BladeDown: db.bladeDown,
		ReclaimAfter: db.opts.ReclaimAfter, Damaged: db.sayDamage, Recovered: db.recovered, Settle: db.settle, Still: db.owned != nil && db.opts.ReadOnly,
	}
	if db.space.Shared() {
		eo.Kept = db.keptTable
	}
	db.engine = occ.NewEngine(db.space, eo)
	db.renewed.Store(db.engine)
	if err := db.startFailover(); err != nil {
		return err
	}
	db.startMaintenance()
	db.startWatching()
	return nil
}

// controlThread is the index of the control path's thread.
const controlThread = 1 << 16

// Now is the fabric's clock in nanoseconds. Safe for concurrent use.
func (db *DB) Now() int64 {
	if db.fabric == nil { // the zero value
		return 0
	}
	return db.fabric.Now()
}

// isClosed reports whether the database was closed, or never opened.
func (db *DB) isClosed() bool { return !db.open.Load() }

// Record makes workers that are created from now on record their transactions into r; nil ends
// that. It is Options.History for a part of a database's life.
func (db *DB) Record(r *history.Recorder) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.opts.History = r
}

// Space returns the memory of the database, for tools.
func (db *DB) Space() *memory.Space { return db.space }

// tableOptions is what the catalog keeps of a table for this layer.
type tableOptions struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Index string `json:"index"`
	// MaxKey, of an ordered table, is the length of the longest key in bytes.
	MaxKey int `json:"max_key,omitempty"`
	// Indexes are the table's secondary indexes. Of is the table that this one is an index of.
	Indexes []indexOptions `json:"indexes,omitempty"`
	Of      string         `json:"of,omitempty"`
	// Kept says that it is the table of backups beside several processes: see keptTable.
	Kept bool `json:"kept,omitempty"`
}

// Kinds of indexes, as TableInfo and the catalog name them.
const (
	indexHash    = "race"
	indexOrdered = "blink"
)

// is reports whether a table has the types and the index that are wanted.
func (o tableOptions) is(want tableOptions) bool {
	return o.Key == want.Key && o.Value == want.Value && o.Index == want.Index && (want.MaxKey == 0 || o.MaxKey == want.MaxKey) && (want.Of == "" || o.Of == want.Of)
}

// decodeTableOptions reads what the catalog keeps of a table, whatever it is.
func decodeTableOptions(p []byte) (o tableOptions, err error) {
	if err := json.Unmarshal(p, &o); err != nil {
		return o, fmt.Errorf("%w: its options in the catalog: %w", ErrCorrupt, err)
	}
	return o, nil
}

// CreateTable creates a table. If the table exists it opens it; other types of key or value are
// ErrTableType. A failure, as on full blades, creates no table. Indexes of a table that has records are
// to be built: see [Index.Build].
func CreateTable[K, V any](db *DB, name string, key Key[K], value Codec[V], indexes ...TableIndex[K, V]) (*Table[K, V], error) {
	has, err := defineIndexes(name, key, indexes)
	if err != nil {
		return nil, err
	}
	t, err := typedTable(db, name, key, value, tableOptions{Index: indexHash, Indexes: has}, true)
	if err != nil {
		return nil, err
	}
	return withIndexes(&Table[K, V]{t: t, db: db, key: key, value: value}, indexes, true)
}

// OpenTable opens a table that exists, or returns ErrNoTable.
func OpenTable[K, V any](db *DB, name string, key Key[K], value Codec[V], indexes ...TableIndex[K, V]) (*Table[K, V], error) {
	t, err := typedTable(db, name, key, value, tableOptions{Index: indexHash}, false)
	if err != nil {
		return nil, err
	}
	return withIndexes(&Table[K, V]{t: t, db: db, key: key, value: value}, indexes, false)
}

// typedTable is table with the names of key and value. It refuses them without functions:
// what they are for would panic later.
func typedTable[K, V any](db *DB, name string, key Key[K], value Codec[V], want tableOptions, create bool) (*occ.Table, error) {
	var faults validate.Faults
	faults.Check(key.Append != nil, "table %q: its Key has no Append", name)
	faults.Check(value.Append != nil, "table %q: its Codec has no Append", name)
	faults.Check(value.Decode != nil, "table %q: its Codec has no Decode", name)
	if create {
		faults.Check(name != "", "a table needs a name")
		faults.Check(utf8.ValidString(name), "the name of table %.40q is not UTF-8", name)
		faults.Check(name != keptName, "the name %q is that of a table of backups", name)
		faults.Check(len(name) <= memory.MaxTableName, "table %.40q...: its name has %d bytes, and %d are possible", name, len(name), memory.MaxTableName)
	}
	if err := faults.Err(ErrOptions); err != nil {
		return nil, err
	}
	want.Key, want.Value = key.Name, value.Name
	return db.table(name, want, create, 0)
}

// Tables returns the names of all tables, but for those that are indexes of others, and that of backups beside
// several processes.
func (db *DB) Tables() ([]string, error) {
	if db.isClosed() {
		return nil, ErrClosed
	}
	ts, err := db.space.Tables()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(ts))
	for i := range ts {
		if ts[i].Root == 0 || ts[i].State != memory.TableLive { // its creation was not finished, or it is dropped
			continue
		}
		if o, err := decodeTableOptions(ts[i].Options); err != nil || o.Of == "" && !o.Kept {
			names = append(names, ts[i].Name)
		}
	}
	return names, nil
}

// table returns a table. If it has to be created, its index is made for so many records: no larger than
// their inserts would make it, since the blades may have room for no more.
func (db *DB) table(name string, want tableOptions, create bool, records uint64) (t *occ.Table, err error) {
	var w *Worker // makes an ordered index, whose nodes are committed
	if create && want.Index == indexOrdered && !db.opts.ReadOnly && !db.space.ReadOnly() {
		if _, e := db.findTable(name, want, false); errors.Is(e, ErrNoTable) {
			if w, err = db.NewWorker(); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, w.Close()) }()
		}
	}
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	if db.isClosed() {
		return nil, ErrClosed
	}
	if create && db.opts.ReadOnly {
		if _, err := db.findTable(name, want, false); errors.Is(err, ErrNoTable) {
			return nil, fmt.Errorf("%w: table %q can not be created", ErrReadOnly, name)
		}
	}
	meta, made, err := db.makeTable(name, want, create)
	defer made()
	if errors.Is(err, memory.ErrReadOnly) {
		return nil, fmt.Errorf("%w: table %q can not be created: %w", ErrReadOnly, name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("txn: table %q: %w", name, err)
	}
	has, err := decodeTableOptions(meta.Options)
	if err != nil {
		return nil, fmt.Errorf("txn: table %q: %w", name, err)
	}
	if !has.is(want) {
		return nil, fmt.Errorf("%w: table %q has keys %s, values %s, index %s; asked for %s, %s, %s",
			ErrTableType, name, has.Key, has.Value, has.Index, want.Key, want.Value, want.Index)
	}
	db.know(name, has.Indexes)
	if t := db.tables[name]; t != nil && t.ID == meta.ID {
		return t, nil
	}
	if meta.Ordered() {
		if t, err = db.orderedTable(w, meta); err != nil {
			return nil, fmt.Errorf("txn: index of table %q: %w", name, err)
		}
		db.tables[name] = t
		db.names.add(t)
		return t, nil
	}
	var ix *race.Index
	err = db.withBlades(func(c *rdma.Coro) (err error) {
		if meta.Root != 0 {
			if ix, err = db.openIndex(c, meta); err == nil {
				db.equip(ix)
			}
			return err
		}
		// Created now, or by a process that stopped here: the index is made first, then
		// recorded.
		var root memory.Addr
		o := race.Options{Groups: db.opts.IndexGroups, Keys: race.KeysAtLeast(records)}
		if o.Validate() != nil {
			o.Keys = 0 // more than it can have: Put says so
		}
		if root, ix, err = race.Create(c, db.space, meta.ID, o); err == nil {
			db.equip(ix)
			err = db.space.SetTableRoot(meta.ID, root)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("txn: index of table %q: %w", name, err)
	}
	t = &occ.Table{ID: meta.ID, Name: name, Index: ix}
	db.tables[name] = t
	db.names.add(t)
	return t, nil
}

// openIndex opens the index of a table, which no transaction uses yet. What is damaged of its primary is mended
// from a copy.
func (db *DB) openIndex(c *rdma.Coro, meta memory.Table) (*race.Index, error) {
	ix, err := race.Open(c, db.space, meta.Root, meta.ID)
	if ill := errors.Is(err, ErrCorrupt) || err == nil && ix.Ill(); !ill || db.space.ReadOnly() || !db.space.Tidy() || db.space.Gated() {
		return ix, err
	}
	if e := db.space.BeginAlone(); e != nil {
		return ix, err // others may be changing it: it is mended when a transaction meets the damage
	}
	words, e := race.Heal(c, db.space, meta.Root, meta.ID)
	e = errors.Join(e, db.space.EndAlone())
	if words > 0 {
		db.opts.Logger.Warn("a damaged index was mended from another copy", zap.String("table", meta.Name), zap.Stringer("near", meta.Root), zap.Int("words", words))
	}
	if e != nil && !errors.Is(e, ErrCorrupt) {
		return nil, e
	}
	return race.Open(c, db.space, meta.Root, meta.ID)
}

// equip tells an index what it needs to know of the database.
func (db *DB) equip(ix *race.Index) {
	ix.SetGone(db.gone)
	ix.SetVacant(recovery.Vacant(db.space))
	ix.SetSpoilt(recovery.Spoilt(db.space))
}

// makeTable is findTable, and gives the caller the right to make the index of a table that has none yet, until it calls
// made: one process at a time does so.
func (db *DB) makeTable(name string, want tableOptions, create bool) (meta memory.Table, made func(), err error) {
	made = func() {}
	c := db.ctl.Plain()
	for since := c.Thread().Now(); ; {
		meta, err = db.findTable(name, want, create)
		if errors.Is(err, memory.ErrTableExists) { // since it was looked for
			continue
		}
		if err != nil || meta.Root != 0 {
			return meta, made, err
		}
		of := uint32(meta.ID)
		if !db.space.BeginMend(of) {
			if c.Thread().Now()-since > dropRestNs {
				return meta, made, fmt.Errorf("another process makes it: %w", index.ErrBusy)
			}
			c.Sleep(dropPauseNs)
			continue
		}
		ts, err := db.space.Tables()
		if err != nil {
			db.space.EndMend(of)
			return meta, made, err
		}
		if t := &ts[meta.ID-1]; t.Root == 0 && t.State == memory.TableLive && bytes.Equal(t.Options, meta.Options) {
			return meta, func() { db.space.EndMend(of) }, nil
		}
		db.space.EndMend(of)
	}
}

func (db *DB) findTable(name string, want tableOptions, create bool) (memory.Table, error) {
	ts, err := db.space.Tables()
	if err == nil && liveTable(ts, name) == nil && db.space.Shared() { // another process may have made it just now
		if err = db.space.Follow(); err == nil {
			ts, err = db.space.Tables()
		}
	}
	if err != nil {
		return memory.Table{}, err
	}
	if t := liveTable(ts, name); t != nil {
		return *t, nil
	}
	if !create {
		return memory.Table{}, ErrNoTable
	}
	if want.Of != "" && !hasIndexTable(ts, want.Of, name) {
		return memory.Table{}, fmt.Errorf("%w: table %q, or its index, was dropped meanwhile", ErrNoTable, want.Of)
	}
	for _, x := range want.Indexes {
		if liveTable(ts, indexTable(name, x.Name)) != nil {
			return memory.Table{}, notIndex(name, x.Name)
		}
	}
	// Others could not be told from it when the table is opened.
	var faults validate.Faults
	faults.Check(want.Key != "" && utf8.ValidString(want.Key), "the Name of its Key is %q: some words in UTF-8 are needed", want.Key)
	faults.Check(want.Value != "" && utf8.ValidString(want.Value), "the Name of its Codec is %q: some words in UTF-8 are needed", want.Value)
	if err := faults.Err(ErrOptions); err != nil {
		return memory.Table{}, err
	}
	options, err := json.Marshal(want)
	if err != nil {
		return memory.Table{}, err
	}
	switch want.Index {
	case indexOrdered:
		nodes, err := tree.Fit(want.MaxKey)
		if err != nil {
			return memory.Table{}, fmt.Errorf("%w: MaxKey is %d: from 1 to %d are possible: %w", ErrOptions, want.MaxKey, record.MaxKey, err)
		}
		return db.space.CreateOrderedTable(name, options, nodes, want.MaxKey)
	case indexHash:
		return db.space.CreateTable(name, options)
	}
	return memory.Table{}, fmt.Errorf("%w: it has an index %q, which this program does not know", ErrTableType, want.Index)
}

// orderedTable returns a table with an ordered index. If that has no root yet, w makes it.
func (db *DB) orderedTable(w *Worker, meta memory.Table) (*occ.Table, error) {
	t := &occ.Table{ID: meta.ID, Name: meta.Name}
	if meta.Root == 0 {
		if w == nil {
			return nil, ErrReadOnly
		}
		var root memory.Addr
		err := w.insist(context.Background(), func() (err error) {
			if root, err = w.o.NewOrdered(t, meta.Nodes, tree.Empty); errors.Is(err, ErrConflict) {
				err = ErrFenced // only the epoch is in its way
			}
			return err
		})
		if err == nil {
			err = db.space.SetTableRoot(meta.ID, root)
		}
		if err != nil && !errors.Is(err, ErrNoSpace) { // it may have been committed: the next opening frees it
			e := db.space.ChangeTables(memory.TableChange{ID: meta.ID, Drop: true, Unmade: true})
			if !errors.Is(e, memory.ErrTableExists) { // else it has a root, and other processes may have records in it
				err = errors.Join(err, e)
			}
		}
		if err != nil {
			return nil, err
		}
		meta.Root = root
	}
	g := tree.GeometryOf(&meta)
	g.MaxEntries = db.opts.NodeEntries
	ix, err := tree.New(db.space, g, meta.ID, meta.Root)
	if err != nil {
		return nil, err
	}
	t.Index, t.Ordered = ix, ix
	return t, nil
}

// Update runs fn in a transaction on a borrowed worker: see Worker.Update.
func (db *DB) Update(ctx context.Context, fn func(tx *Tx) error) error {
	w, err := db.take(ctx)
	if err != nil {
		return err
	}
	defer db.putIn(ctx, w)
	return w.run(ctx, fn, false)
}

// View runs fn in a transaction that writes nothing: see Worker.View.
func (db *DB) View(ctx context.Context, fn func(tx *Tx) error) error {
	w, err := db.take(ctx)
	if err != nil {
		return err
	}
	defer db.putIn(ctx, w)
	return w.run(ctx, fn, true)
}

// Begin starts a transaction that ends with Commit or Rollback. The transaction holds a worker
// until then. If all workers are in use, Begin waits for one, at most for Options.WorkerWait. The
// caller retries after ErrConflict.
//
// ctx governs the whole transaction. When it is done, Commit and operations that fetch something
// return its error and its cause. The transaction still has to be ended, and holds its locks until
// then.
func (db *DB) Begin(ctx context.Context, readOnly bool) (*Tx, error) {
	w, err := db.take(ctx)
	if err != nil {
		return nil, err
	}
	if db.hungry.Load() != 0 {
		w.giveWay(0)
	}
	w.ticks++
	w.time()
	if err := w.begin(); err != nil {
		w.gaveUp(err)
		w.began = untimed
		db.put(w)
		return nil, err
	}
	return &Tx{w: w, o: w.o, open: db, ctx: ctx, readOnly: readOnly || db.opts.ReadOnly, borrowed: true}, nil
}

// NewWorker makes a worker of the caller's own, to be closed before the DB. Use it for many
// transactions: each worker, and each thread of Run, is a coordinator, of which a database has 2^24
// in its life. DB.Update and DB.View keep theirs.
func (db *DB) NewWorker() (*Worker, error) {
	if db.isClosed() {
		return nil, ErrClosed
	}
	return db.newWorker(false)
}

// Run runs fn in threads x coroutines workers. It returns when all have returned, with the first
// error. The coroutines of a thread share one goroutine; on a simulated fabric all threads do. So
// fn must wait only through its worker.
//
// A fn that ends its goroutine ends the coroutines of its thread, which is an error. Their open
// transactions are decided as if their client had died. A panic of fn ends the process: it is on a
// goroutine whose caller cannot recover it.
func (db *DB) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int, w *Worker) error) error {
	if db.isClosed() {
		return ErrClosed
	}
	if threads < 1 || coroutines < 1 {
		return fmt.Errorf("%w: %d threads x %d coroutines: at least one of each is needed", ErrOptions, threads, coroutines)
	}
	if arena, least := cmp.Or(db.opts.Arena, rdma.DefaultArena), occ.LeastArena(coroutines); arena < least {
		return fmt.Errorf("%w: Arena is %d: %d coroutines on a thread need at least %d: raise Arena, or run fewer Coroutines on a thread", ErrOptions, arena, coroutines, least)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var first error
	report := func(err error) {
		if err == nil {
			return
		}
		mu.Lock()
		if first == nil {
			first = err
		}
		mu.Unlock()
		cancel(err)
	}
	db.fabric.Run(threads, func(i int) {
		t, s, err := db.newSession(false)
		if err != nil {
			report(err)
			return
		}
		made := 0 // coroutines of this thread that have their buffers, or cannot
		var workers []*Worker
		returned := false
		defer func() {
			if returned {
				return
			}
			if p := recover(); p != nil {
				if where := t.Panicked(); where != nil {
					p = &runPanicError{p, where}
				}
				panic(p)
			}
			report(errGoexit)
			if coroutines > 1 { // the others were unwound, wherever they were
				s.Unwound(errGoexit)
			}
			for _, w := range workers {
				w.retire()
			}
			report(db.endSession(t, s, false))
			for _, w := range workers {
				w.shut()
			}
		}()
		body := func(c *rdma.Coro) {
			w, err := db.workerOn(t, s, c, false)
			made++
			if err != nil {
				report(err)
				return
			}
			workers = append(workers, w)
			// All of them before the first transaction takes what is left of the arena.
			for made < coroutines {
				c.Yield()
			}
			report(fn(ctx, i*coroutines+c.ID(), w))
			report(w.Close())
		}
		if coroutines == 1 {
			body(t.Plain())
		} else {
			t.Run(coroutines, body)
		}
		returned = true
		report(db.endSession(t, s, false))
		for _, w := range workers {
			w.shut()
		}
	})
	return first
}

func errField(err error) zap.Field { return zap.Error(err) }
