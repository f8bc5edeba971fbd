package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"txnode/history"
	"txnode/internal/logsink"
	"txnode/internal/outwait"
	"txnode/internal/validate"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn/supervisor"
)

// DB is an open database. Safe for concurrent use. The zero value is one that is closed.
type DB struct {
	opts    Options
	fabric  rdma.Fabric
	space   *memory.Space
	engine  *occ.Engine
	owned   io.Closer               // fabric, catalog and space, when Open made them
	rests   bool                    // see Worker.rest
	closing atomic.Pointer[closing] // see Close; nil: nothing is to be waited for
	heeds   bool                    // something may be silent: see hears
	threads threadNumbers
	tuner   *rdma.Tuner // of the workers' threads
	open    atomic.Bool
	unclean bool          // coordinators had died when it was opened
	patient atomic.Int32  // transactions that have had patientAfter conflicts in a row
	hungry  atomic.Uint64 // address of a record that one worker waits for in vain; 0: none
	// indexRepairs is how often an index was repaired while the database was open.
	indexRepairs atomic.Uint64
	hopeless     hopeless

	ctl *rdma.Thread // of the control path; under ctlMu
	// ctlMu serializes what is rare: opening tables, closing.
	ctlMu  sync.Mutex
	tables map[string]*occ.Table
	// dropMu is held by a drop, and for reading by a backup: neither waits in Lock.
	dropMu sync.RWMutex

	pool     pool
	sup      *supervisor.Supervisor // nil: it was not opened
	shortage shortage
	resting  resting
	waits    atomic.Pointer[memory.Restless] // see WaitsFor
	kept     atomic.Pointer[occ.Table]       // see keptTable; nil: it was not needed yet

	names      tableNames
	known      atomic.Pointer[tableIndexes] // nil: no table that was opened has any
	recoveries recoveryCounters

	log *logsink.Sink // behind opts.Logger; nil: lines are written at once

	mu      sync.Mutex
	workers map[*Worker]struct{}
	own     int    // sessions that are not the pool's, those being made included
	retired totals // of workers that are closed
}

// Open opens a database, or creates it. It first recovers what a process that died has left, and
// ctx does not interrupt that. If ctx ends before, and Fabric has no virtual time, Open returns,
// and the opening goes on until it can be ended in order. Fabric and Catalog are in use until then:
// have Closer end them. Recovery reads all of the data: about a quarter of a second for a million
// records. With DurabilityPower it also compares the copies and builds the indexes anew: about a
// second, and 16 bytes of memory for each record.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Fabric == nil || !o.Fabric.Caps().RealTime || ctx.Done() == nil || ctx.Err() != nil {
		return open(ctx, o)
	}
	var db *DB
	var err error
	if left := outwait.Leave(ctx, func() { db, err = open(ctx, o) }, func() {
		if err == nil {
			_ = db.Close(context.Background()) // it is said in the log what has gone wrong
		}
	}); left != nil {
		return nil, fmt.Errorf("txn: opening the database: %w", canceled(ctx))
	}
	return db, err
}

// open is Open.
func open(ctx context.Context, o Options) (db *DB, err error) {
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
	var log *logsink.Sink
	// where time is virtual, a second of the log is none of the database's
	if o.Fabric == nil || o.Fabric.Caps().RealTime {
		o.Logger, log = logsink.New(o.Logger)
		defer func() {
			if !opened {
				log.Flush(logFlush)
			}
		}()
	}
	db = &DB{opts: o, fabric: o.Fabric, log: log, tables: map[string]*occ.Table{}, workers: map[*Worker]struct{}{}}
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
		if e.Tightened() {
			o.Logger.Warn("other users had rights to the directory of the database, or to files in it, and have "+
				"none any more", zap.String("directory", o.Dir))
		}
		if lost := e.Replaced(); len(lost) > 0 {
			r := db.space.Redundancy()
			o.Logger.Error("regions are missing or blank; their blades begin anew, and copies are built of what "+
				"the others have", zap.Any("blades", lost),
				zap.Int("copies missing", r.Missing), zap.Int("segments lost", r.Lost))
		}
	}
	caps := db.fabric.Caps()
	db.rests = caps.RealTime && !caps.Synchronous
	db.pool.init(o.Workers)
	db.open.Store(true)
	if err := db.start(); err != nil {
		if db.sup != nil {
			err = errors.Join(err, db.sup.Close())
		}
		// others need not wait until its registration expires
		if db.owned == nil && db.space != nil && db.space.Shared() {
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
	db.resumeDrops(ctx)
	db.convert(ctx)
	if db.space.First() {
		if err := db.space.EndAlone(); err != nil {
			return nil, errors.Join(err, db.Close(ctx))
		}
	}
	return db, nil
}

// openSpace opens the memory of a database on blades of the caller's.
func (db *DB) openSpace() error {
	o := &db.opts
	l, err := layout.LoadLayout(o.Catalog)
	if err != nil {
		return err
	}
	mo := memory.Options{
		SegmentSize: o.SegmentSize, LogArea: o.LogArea, ReadOnly: o.ReadOnly, Durable: o.Durability == DurabilityPower,
		Parts:   db.fabric.Caps().Durable,
		Backups: min(DefaultBackups, len(db.fabric.Blades())-1), Shared: o.Shared,
	}
	if l != nil {
		mo.SegmentSize, mo.LogArea, mo.Backups = cmp.Or(mo.SegmentSize, l.SegmentSize),
			cmp.Or(mo.LogArea, l.LogArea), l.Backups
		mo.Shared = mo.Shared || l.Shared
	}
	if o.Backups != nil {
		mo.Backups = *o.Backups
	}
	if mo.Shared {
		var faults validate.Faults
		faults.Check(o.Durability != DurabilityPower,
			"Durability power: several processes can have the database open, and the flushes of one say nothing of "+
				"what the others have written")
		faults.Check(o.LeaseTerm > 0,
			"LeaseTerm is %v: several processes can have the database open, and what one has left that dies is "+
				"theirs after its lease", o.LeaseTerm)
		if err := faults.Err(ErrOptions); err != nil {
			return err
		}
		if o.ReadOnly && (l == nil || !l.Formatted) {
			return fmt.Errorf("%w: catalog %s has no database yet: open it once for writing",
				layout.ErrNotFormatted, o.Catalog.Name())
		}
		mo.ReadOnly = false // it registers, so that the others know of it, and its transactions write nothing
		mo.Until, mo.ClockDrift = db.fabric.Now()+int64(o.LeaseTerm), o.ClockDrift
		mo.GiveUp, mo.Damaged, mo.Buried = o.ReplaceLost, db.leaveDamaged, db.buried
	}
	db.space, err = memory.Open(db.ctl.Plain(), db.fabric, o.Catalog, mo)
	return err
}

// fold takes over what has become of a table, before anything begins that does not know: see
// memory.Space.OnTables.
func (db *DB) fold(m layout.Table) {
	t := db.names.table(m.ID)
	if t == nil {
		return // it was not opened
	}
	if m.State != layout.TableLive {
		t.Drop()
		return
	}
	if o, err := decodeTableOptions(m.Options); err == nil {
		db.know(t, o)
	}
}

// start makes what runs on the fabric.
func (db *DB) start() error {
	var err error
	db.tuner = rdma.NewTuner(db.opts.Tuner)
	// The control thread takes the last doorbell, not the first.
	if db.ctl, err = rdma.NewThread(db.fabric, rdma.ThreadOptions{
		Index: controlThread, Techniques: *db.opts.Techniques,
	}); err != nil {
		return err
	}
	if db.space == nil {
		if err := db.openSpace(); err != nil {
			return err
		}
	}
	db.space.OnTables(db.fold)
	db.supervise()
	flush := occ.FlushAuto
	power := db.opts.Durability == DurabilityPower
	if power {
		if !db.fabric.Caps().Durable {
			return fmt.Errorf("%w: Durability power: fabric %q can not flush to anything durable",
				ErrOptions, db.fabric.Name())
		}
		flush = occ.FlushDurable
	}
	if db.opts.LatencySample == 0 {
		db.opts.LatencySample = 1
		if db.fabric.Caps().Synchronous && !power {
			db.opts.LatencySample = cheapLatencySample
		}
	}
	db.heeds = db.owned == nil && db.fabric.Caps().RealTime && (db.space.Shared() || db.rests)
	if err := db.recover(); err != nil {
		return err
	}
	if err := db.promise(power); err != nil {
		return err
	}
	eo := occ.Options{
		Policy: db.opts.Policy, LikeFORD: db.likeFORD(), ReadBackups: db.opts.ReadBackups, Flush: flush,
		CacheBytes: db.opts.CacheBytes,
		LeaseTerm:  int64(max(db.opts.LeaseTerm, 0)), ClockDrift: db.opts.ClockDrift, BladeDown: db.sup.BladeDown,
		ReclaimAfter: db.opts.ReclaimAfter, Damaged: db.sayDamage, Recovered: db.recovered, Settle: db.sup.Settle,
		Still: db.owned != nil && db.opts.ReadOnly,
	}
	if db.space.Shared() {
		eo.Kept = db.keptTable
	}
	db.engine = occ.NewEngine(db.space, eo)
	return db.sup.Start(db.engine)
}

// logFlush is how long closing a database waits at most for its lines of the log to be written.
const logFlush = time.Second

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

// readOnly reports whether the database was opened ReadOnly: no table, index or record of
// it is made or changed. The space of a shared one is written even then, as by every
// process that registers.
func (db *DB) readOnly() bool { return db.opts.ReadOnly || db.space.ReadOnly() }

// Record makes workers that are created from now on record their transactions into r; nil ends
// that. It is Options.History for a part of a database's life.
func (db *DB) Record(r *history.Recorder) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.opts.History = r
}

// Space returns the memory of the database, for tools.
func (db *DB) Space() *memory.Space { return db.space }

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
		w.yieldToStarving(0)
	}
	w.ticks++
	w.time()
	w.heed(ctx)
	if err := w.begin(ctx); err != nil {
		if w.left == nil {
			w.heed(once)
			w.gaveUp(err)
			w.began = untimed
		}
		db.putIn(ctx, w)
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
	return db.newWorker(once, false)
}

// Run runs fn in threads x coroutines workers. It returns when all have returned, with the first
// error. The coroutines of a thread share one goroutine; on a simulated fabric all threads do. So
// fn must wait only through its worker.
//
// A fn that ends its goroutine ends the coroutines of its thread, which is an error. Their open
// transactions are decided as if their client had died. A panic of fn ends the process: it is on a
// goroutine whose caller cannot recover it.
func (db *DB) Run(ctx context.Context, threads, coroutines int,
	fn func(ctx context.Context, id int, w *Worker) error) error {
	if db.isClosed() {
		return ErrClosed
	}
	if threads < 1 || coroutines < 1 {
		return fmt.Errorf("%w: %d threads x %d coroutines: at least one of each is needed",
			ErrOptions, threads, coroutines)
	}
	if arena, least := cmp.Or(db.opts.Arena, rdma.DefaultArena), occ.LeastArena(coroutines); arena < least {
		return fmt.Errorf("%w: Arena is %d: %d coroutines on a thread need at least %d: raise Arena, or run fewer "+
			"Coroutines on a thread", ErrOptions, arena, coroutines, least)
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
		t, s, err := db.newSession(ctx, false)
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
				s.Unwound(errGoexit) // a simulated process lives on without the thread, and does not renew its lease
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
				report(w.regain(context.Background()))
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
