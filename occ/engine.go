package occ

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"txnode/index"
	"txnode/index/addrcache"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// Policy decides which verbs commit a transaction.
type Policy uint8

// Commit policies: see the package comment.
const (
	PolicyDefault Policy = iota
	PolicyFORD
)

// String returns the name used on the command line.
func (p Policy) String() string {
	if p == PolicyFORD {
		return "ford"
	}
	return "default"
}

// Flush says when a commit spends FLUSH verbs.
type Flush uint8

// Flush modes.
const (
	// FlushAuto flushes what the fabric would otherwise not have placed.
	FlushAuto Flush = iota
	// FlushDurable also flushes the log on every blade that holds it before
	// the commit is acknowledged, so that it survives power loss.
	FlushDurable
)

// Options of an engine. The zero value is the default.
type Options struct {
	Policy Policy
	// LikeFORD makes a transaction that its user rolls back post the log that FORD's
	// has posted by then. For comparisons of verbs: nothing needs it.
	LikeFORD bool
	// ReadBackups reads records that are only read from the first backup; they
	// are always validated at the primary.
	ReadBackups bool
	Flush       Flush
	// Damaged, if not nil, is told when somebody who is recovered, by whoever that is, has left
	// something in a table whose index is damaged, or lost, which stays as it is: see
	// recovery.Report.Damage. It may be called by several goroutines at once.
	Damaged func(err error)
	// Recovered, if not nil, is told what each recovery of coordinators has done, the session's
	// own included when it rejoins. It may be called by several goroutines at once, and must
	// not keep the report.
	Recovered func(*recovery.Report)
	// CacheBytes bounds the address cache; 0: 512 MiB.
	CacheBytes int
	// ReclaimAfter is how many deletes of a session pass before it reclaims the
	// first one's block; 0: 16384. Until then a re-insert reuses the block.
	ReclaimAfter int
	// LeaseTerm is for how long a session is not declared dead, in nanoseconds of the
	// fabric's clock, after its lease was renewed: see Session.Renew and
	// Engine.RenewAll. 0: for ever.
	LeaseTerm int64
	// ClockDrift bounds how much faster another's clock may run, as a part of LeaseTerm. Leases
	// make sure that things go on. Nothing else depends on them but that no process of a shared
	// database reads from a blade which is lost to another one: see memory.Space.Fresh.
	ClockDrift float64
	// BladeDown is called, on the session's coroutine, when a session that rejoins has
	// met err, a blade that does not answer: it declares the blade dead, or waits for
	// who does, and returns nil when it is worth trying again. nil: nobody sees to it,
	// and the session stays broken.
	BladeDown func(c *rdma.Coro, err error) error
	// Settle: see recovery.Options.
	Settle func(c *rdma.Coro, claim *memory.Claim, renew func() error) error
	// Still says of a space that is attached read-only that nobody else writes either.
	Still bool
	// Kept is the table in which transactions keep what they replace while a backup is made beside
	// several processes (see Tx.keep). It is called on the coroutine of a transaction. nil: no
	// such backup is made.
	Kept func(c *rdma.Coro) (*Table, error)
	// OpenIndex is how recovery opens the index of a table; nil: as a RACE index.
	OpenIndex recovery.OpenIndex
}

// DefaultCacheBytes bounds the address cache by default.
const DefaultCacheBytes = 512 << 20

// Table is one table: its number and its index. Comparable by pointer.
type Table struct {
	ID   uint16
	Name string
	// One of Index and Ordered is nil.
	Index   index.Slots
	Ordered index.Ranged
	// Hashed says that Ordered has the hashes of keys in the places of keys: see index.AppendHash.
	Hashed bool

	dropped  atomic.Bool
	reserved atomic.Pointer[error]
}

// IndexKey is the key by which an index of nodes knows a key. The bytes are the caller's.
func (t *Table) IndexKey(key []byte) []byte {
	if t.Hashed {
		return index.AppendHash(nil, record.Hash(t.ID, key))
	}
	return bytes.Clone(key)
}

// Drop makes every further use of the table by a transaction ErrDropped. What a transaction has
// staged before goes on. Deleted records of the table are not reclaimed by this handle any more.
func (t *Table) Drop() { t.dropped.Store(true) }

// Dropped reports whether Drop was called.
func (t *Table) Dropped() bool { return t.dropped.Load() }

// Reserve makes a write of the table the error err, unless its transaction is allowed to write
// reserved tables: see Tx.AllowReserved. nil: every transaction may write the table. A write that
// is staged already goes on.
func (t *Table) Reserve(err error) {
	if err == nil {
		t.reserved.Store(nil)
		return
	}
	t.reserved.Store(&err)
}

// Engine is what all sessions of a process share. Safe for concurrent use.
type Engine struct {
	space   *memory.Space
	cache   *addrcache.Cache
	runs    *addrcache.Runs
	opts    Options
	farRuns int           // see Session.decidePrefetch
	readers atomic.Uint32 // sessions that have no coordinator, since the space is read-only
	tap     atomic.Pointer[Tap]
	taps    atomic.Uint32 // how often one was attached or detached; odd: one is attached

	mu         sync.Mutex
	sessions   map[*Session]uint32 // their coordinators; 0: the session is broken
	reclaimers map[*Session]bool   // those that still reclaim: see Session.resign
	asked      []record.TxID       // transactions of which somebody was told that nobody knows what became of them
	asking     atomic.Uint32       // how many these are
	commits    []*commits          // with FlushDurable
	durable    durability
	scarce     atomic.Bool // room was made, and little has been deleted since
}

// NewEngine makes an engine over a memory space.
func NewEngine(space *memory.Space, o Options) *Engine {
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.ReclaimAfter == 0 {
		o.ReclaimAfter = 16384
	}
	e := &Engine{
		space: space, cache: addrcache.New(o.CacheBytes), runs: addrcache.NewRuns(o.CacheBytes), opts: o,
		farRuns: farRuns, sessions: map[*Session]uint32{}, reclaimers: map[*Session]bool{},
	}
	if o.Flush == FlushDurable {
		e.durable.generation.Store(space.Checkpoint())
		e.durable.covered.Store(space.Checkpoint())
	}
	if f, ok := space.Fabric().(rdma.PageAdvisor); ok {
		e.cache.Advise(f.AdviseHuge)
		e.runs.Advise(f.AdviseHuge)
	}
	return e
}

// Session is a coordinator on one thread. It belongs to the thread's goroutine.
type Session struct {
	eng        *Engine
	thread     *rdma.Thread
	caps       rdma.Caps
	alloc      *memory.Allocator // nil: the space is read-only, and so is the session
	coord      memory.Coordinator
	background int // under way: see Background
	seq        uint64
	ring       logRing
	masks      uint32 // arena: compare mask, swap mask of the lock verb; then a scratch word
	spare      uint32 // arena: see openSpare
	plain      bool   // see Tx.probeLines
	lines      int    // of the items of a transaction, the requests of how many may be built when they are staged
	straight   bool   // images of one line may be committed by Tx.commitLines
	far        bool   // blocks are loaded before they are asked for
	broken     error
	without    bladeSet    // that it does without: see reach
	due        bool        // see Due
	held       []heldToken // with FlushDurable: log space to be covered by a checkpoint
	commits    *commits    // with FlushDurable

	epoch     layout.Epoch // that the session has joined, and in which the log areas were asked for
	renewAt   int64        // when its lease should be renewed
	rejoining bool
	// somebody wants to know whether this transaction, of its number and one, is at rest; 0: nobody
	queried  atomic.Uint64
	answer   atomic.Pointer[answer]
	tried    uint32 // the coordinator that it has begun to recover
	halfDone bool   // it may have left a change of an index half-done
	unwound  bool   // see Unwound

	spareUsers int
	spareHeld  bool

	txs     []*Tx
	keeper  *Tx // for what the session does between transactions: see unlink
	reclaim reclaimer
}

// NewSession registers a new coordinator for the thread. In a space that is
// attached read-only there is none, and the session takes no writes.
func (e *Engine) NewSession(t *rdma.Thread) (*Session, error) {
	s := &Session{eng: e, thread: t, caps: *t.Caps()}
	if err := s.init(); err != nil {
		return nil, fmt.Errorf("txn: new session: %w", err)
	}
	return s, nil
}

func (s *Session) init() (err error) {
	t, space := s.thread, s.eng.space
	if s.masks, err = t.Alloc(64); err != nil {
		return err
	}
	if s.spare, err = t.Alloc(spareSize); err != nil {
		return err
	}
	s.spareHeld = true
	if s.plain = s.caps.MaskedCAS && !s.eng.opts.ReadBackups; s.plain {
		s.lines = linearItems
	}
	s.straight = s.caps.OrderedLine && s.eng.opts.Flush != FlushDurable
	s.decidePrefetch()
	s.bar()
	t.PutWord(s.masks, record.HeldBit)
	t.PutWord(s.masks+8, ^uint64(0))
	s.epoch = space.Current().Epoch
	if space.ReadOnly() {
		s.coord.ID = s.eng.readers.Add(1)
		return nil
	}
	if s.alloc, err = space.NewAllocator(t); err != nil {
		return err
	}
	if err := s.enlist(t.Plain()); err != nil {
		// The space knows all allocators, and would keep this one.
		return errors.Join(err, s.alloc.Close(t.Plain()))
	}
	s.eng.mu.Lock()
	defer s.eng.mu.Unlock()
	s.eng.reclaimers[s] = true
	return nil
}

// Thread returns the session's thread.
func (s *Session) Thread() *rdma.Thread { return s.thread }

// Coordinator returns the session's coordinator id.
func (s *Session) Coordinator() uint32 { return s.coord.ID }

// nextTx draws a transaction id. When those of its coordinator are used up, after days, the session
// is broken, and goes on as another one when it has rejoined.
func (s *Session) nextTx() (record.TxID, error) {
	s.seq++
	if s.seq%decidePrefetchEvery == 0 {
		s.decidePrefetch()
	}
	if s.seq < record.MaxSequence {
		return record.MakeTxID(s.coord.ID, s.seq), nil
	}
	s.seq--
	return 0, s.fail(fmt.Errorf("%w: the transaction ids of coordinator %d are used up", ErrFenced, s.coord.ID))
}

// ahead is how many ids were drawn since that of a transaction under way.
func (s *Session) ahead(id record.TxID) uint64 { return s.seq - id.Seq() }

// Maintain does what is better done between transactions: it refills the
// allocator and reclaims the blocks of deleted records. The caller runs no
// transaction on the coroutine.
func (s *Session) Maintain(c *rdma.Coro) error {
	if s.alloc == nil {
		return nil
	}
	s.due = false
	if s.queried.Load() != 0 {
		s.reply()
	}
	if err := s.alloc.Maintain(c); err != nil {
		return s.failed(err)
	}
	return s.reclaim.some(s, c, s.eng.opts.ReclaimAfter)
}

// Due reports whether so much has been deleted that Maintain is to reclaim it at once.
func (s *Session) Due() bool { return s.due }

// Unwound notes that coroutines of the session's thread were unwound where they waited (see
// rdma.Thread.Run), because of err: in the middle of a transaction, or of something between
// two. The session can only be closed. Its coordinator stays registered then, and is
// recovered like a dead one.
func (s *Session) Unwound(err error) {
	s.unwound = true
	_ = s.fail(err)
}

// Close waits for what is in flight and gives everything back. Every Tx must
// have ended, unless the session is Unwound.
func (s *Session) Close() error {
	c := s.thread.Plain()
	s.eng.mu.Lock()
	delete(s.eng.sessions, s)
	s.eng.mu.Unlock()
	defer s.eng.space.Leave(s.thread)
	err := s.broken
	if !s.unwound {
		if err := s.drain(c); err != nil {
			s.handTombstones(true) // nobody knows whether it will be closed at all
			return err
		}
		err = s.conclude(c)
	}
	if err != nil && s.alloc != nil {
		s.eng.space.Abandon(s.coord.ID) // nobody will renew its lease, or wait for it
	}
	s.handTombstones(true)
	for _, tx := range s.txs {
		tx.free()
	}
	s.reclaim.close(s)
	if s.alloc != nil {
		_ = s.alloc.Close(c) // it posts nothing
	}
	s.thread.Free(s.masks, 64)
	if s.spareHeld {
		s.thread.Free(s.spare, spareSize)
	}
	return err
}

// drain waits for what transactions that have ended have in flight.
func (s *Session) drain(c *rdma.Coro) error {
	for _, tx := range s.txs {
		if tx.open() {
			return fmt.Errorf("txn: close: transaction %v is still open", tx.id)
		}
		if err := tx.drain(c); err != nil && s.broken == nil {
			s.broken = err
		}
	}
	return nil
}

// conclude closes the coordinator, or the one that the session becomes if it is broken.
func (s *Session) conclude(c *rdma.Coro) error {
	_ = s.follow() // or it rejoins
	if s.broken == nil && s.outlived(c) != nil {
		for _, tx := range s.txs {
			clear(tx.items)
			tx.items = tx.items[:0]
		}
	}
	err := s.broken
	for tries := 0; ; tries++ {
		if err != nil && s.broken == nil {
			_ = s.fail(err)
		}
		if s.broken != nil {
			err = s.Rejoin(c)
			s.eng.mu.Lock()
			delete(s.eng.sessions, s)
			s.eng.mu.Unlock()
			if err != nil {
				err = s.broken
				break // the coordinator stays registered: recovery takes over
			}
		}
		// The epoch may move meanwhile, as others are declared dead, or the session itself.
		err = s.WithSpare(func() error { return s.end(c) })
		if errors.Is(err, memory.ErrNoCoordinator) && !s.eng.space.Registered(s.coord.ID) {
			err = nil // and recovered: its coordinator is closed
		}
		if errors.Is(err, rdma.ErrBarred) && tries < maxRejoins { // which blades are cut off has changed
			_, err = s.follow(), nil // or it rejoins
			continue
		}
		if !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, memory.ErrNoCoordinator) || tries >= maxRejoins {
			break
		}
	}
	return err
}

// end closes the coordinator of a session whose transactions have ended.
func (s *Session) end(c *rdma.Coro) error {
	if s.alloc == nil {
		return nil
	}
	for last := false; ; last = true {
		if _, err := s.reclaim.run(s, c, 0, s.reclaim.len()); err != nil {
			return err
		}
		if s.handTombstones(last) {
			break
		}
	}
	if s.broken != nil { // the transaction of a merge is undecided: it is in the log
		return s.broken
	}
	if s.commits != nil { // its log area is cleared now
		if err := s.lastCheckpoint(c); err != nil {
			return err
		}
		s.commits.closed.Store(true)
	}
	if s.beyond() {
		if err := s.drain(c); err != nil {
			return err
		}
		return s.giveUp(s.coord.ID)
	}
	return s.eng.space.CloseCoordinatorOn(c, s.coord.ID)
}
