package occ

import (
	"errors"
	"fmt"
	"unsafe"

	"txnode/history"
	"txnode/index"
	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Phase is a part of a transaction, for counting verbs.
type Phase uint8

// Phases of a transaction.
const (
	PhaseExecute  Phase = iota // lock and read
	PhaseValidate              // repeat what was only read
	PhaseLog                   // FORD: the undo log is not sent with anything else
	PhaseCommit                // log and replicas
	PhaseRelease               // in the background
	NumPhases
)

// String names the phase.
func (p Phase) String() string {
	return [...]string{"lock+read", "validate", "log", "commit", "release"}[p]
}

// flight is the buffers of one transaction, kept until its background requests
// have completed.
type flight struct {
	bg    rdma.Batch
	slab  uint32 // arena; slabSize bytes
	extra []chunk
	token log.Token
	held  bool   // token is a reservation
	seq   uint64 // of the transaction

	generation uint32 // of the record, with FlushDurable; else 0
	freed      []freed
	installs   []layout.Addr // private blocks whose images are on their way to the primaries
}

// freed is a block that a record has left. As long as the transaction that moved it
// is not at rest, recovery may come by and free it again.
type freed struct {
	addr  layout.Addr
	class layout.Class
}

type chunk struct {
	at uint32
	n  int
}

const (
	numFlights  = 4
	slabSize    = 16 << 10
	slabLog     = 4 << 10 // of these, for the log record
	maxRereads  = 64
	maxSearches = 64
	probeLen    = 4 << 10 // larger blocks are first read this far
	linearItems = 16
)

// state is what Begin sets back.
type state struct {
	fetched int // items[:fetched] have been executed
	// the requests of so many items behind these are in the batch: see StageShort; -1: they were,
	// and are not valid any more
	built   int
	lines   int // so many may follow them, if the requests of all that is staged are in the batch; else 0
	writes  int
	inserts int // staged items of Insert that have not been executed
	valid   bool
	active  bool
	shut    bool // of a worker that is closed
	queried bool // an item has a query
	deletes bool // an item has been deleted
	odd     bool // not every entry of the log is an image of one line
	moves   bool // an item moves to a larger block
	linked  bool // the transaction has linked a block
	late    bool // an item was written that was not locked, or is outgrown
	atEnd   bool // ValidateAtEnd
	// outgrown: a record that the transaction inserts has come to be too large for its block.
	outgrown bool
	copied   bool     // of items[:judged], one was read from a backup
	judged   int32    // of items[:judged], certify has counted
	loose    int32    // so many that are not locked
	homes    bladeSet // of the primaries of what is written, once that is sealed
	behind   bladeSet // of the backups
	busy     bool     // from Begin until the last background request is posted
	// blind: a record is written of which every copy is damaged: see overwrite.
	blind   bool
	scans   *Scan // the last one that it began; nil: none
	vacates bool  // the commit makes blocks free
	edits   bool  // the commit changes nodes of ordered indexes
	// concluded: it is committed, and what is left of it is in its log.
	concluded bool
	// reserved: it may write reserved tables: see AllowReserved.
	reserved bool
	keeps    uint32 // the cut of a backup for which it keeps what it replaces; 0: none. See keep
}

// Tx is a transaction on a coroutine, reused for one after another. All byte
// slices that it returns alias the thread's arena and are valid until Commit or
// Rollback.
type Tx struct {
	s    *Session
	c    *rdma.Coro
	id   record.TxID
	base unsafe.Pointer // of the thread's arena

	view  *layout.View
	items []item
	state
	index   itemIndex
	keys    []byte
	queries []*index.Query // free

	spaces  []*scanSpace // free
	loops   []*Scan      // open scans: see note
	notes   notes
	nodes   []node // of ordered indexes
	editors []tableEditor
	// evidence and cands are scratch of lookups.
	evidence []index.Node
	cands    []index.Candidate
	posts    []tablePost
	scratch  []byte
	kept     []byte // what is replaced, as it is kept: see keep
	// guards that scans of ordered tables depend on, perhaps while one of them reads
	// blocks (see stand)
	checks []block
	proofs []tableEvidence // of the same numbers
	order  []int32         // of checks that are read together, by address

	batch   rdma.Batch
	flights [numFlights]flight
	flight  int
	next    uint32 // bump pointer in the slab
	end     uint32
	log     log.Builder
	logAt   uint32 // arena: log buffer
	logCap  int

	tap    *Tap   // nil: nobody asks, or the transaction has not drawn its number
	number uint64 // of the tap's
	taps   uint32 // Engine.taps when it began

	stuck    stuck       // what it meets, and has met before
	met      meeting     // what the last conflict was with
	asked    uint64      // of which classes blocks were asked for, by bit, since Begin
	dangling layout.Addr // a block that is free, and a slot led to it
	ragged   meeting     // one of several candidates that could not be read
	// mayBeDamaged is such a block that seems to be damaged: see contradicted.
	mayBeDamaged layout.Addr
	// ill is where damage was met last, and served are blocks of this transaction and of those
	// before that were read from another copy: what Repair is to look at.
	ill    ill
	served []layout.Addr

	expected  [maxExpected]expected // of these, the first expecting: see Expect
	expecting int

	phases [NumPhases]rdma.Counters
	aborts [NumAbortReasons]uint64
	// tallies are of tables, by number; tallied are the numbers of those that are fresh.
	tallies []tally
	tallied []uint16
	hist    *history.Session
	start   int64
	clock   func() int64
}

// NewTx makes a transaction slot for a coroutine of the session's thread.
func (s *Session) NewTx(c *rdma.Coro) (*Tx, error) {
	tx := &Tx{s: s, c: c, base: s.thread.Base()}
	for i := range tx.flights {
		at, err := s.thread.Alloc(slabSize)
		if err != nil {
			return nil, fmt.Errorf("txn: buffers of a transaction: %w; raise Arena, or run fewer "+
				"Coroutines on a thread", err)
		}
		tx.flights[i].slab = at
	}
	tx.items = make([]item, 0, linearItems)
	tx.keys = make([]byte, 0, 1024)
	s.txs = append(s.txs, tx)
	return tx, nil
}

// Record makes the transaction report what it read and wrote. clock must be
// shared by all recorded transactions.
func (tx *Tx) Record(h *history.Session, clock func() int64) { tx.hist, tx.clock = h, clock }

// ID returns the id of the current attempt.
func (tx *Tx) ID() record.TxID { return tx.id }

// Phases returns running totals of verbs by phase.
func (tx *Tx) Phases() *[NumPhases]rdma.Counters { return &tx.phases }

// Aborts returns running totals of conflicts by reason.
func (tx *Tx) Aborts() *[NumAbortReasons]uint64 { return &tx.aborts }

// Active reports whether the transaction has begun and not ended.
func (tx *Tx) Active() bool { return tx.active }

// Shut makes the transaction active for good, since its worker is closed: no other one
// begins, and nobody waits for its end. It has ended.
func (tx *Tx) Shut() { tx.active, tx.shut = true, true }

// open reports whether the transaction is under way.
func (tx *Tx) open() bool { return tx.active && !tx.shut }

// Begin starts a transaction.
func (tx *Tx) Begin() error {
	if tx.active {
		return fmt.Errorf("txn: transaction %v is still open", tx.id)
	}
	s := tx.s
	if s.broken != nil {
		return s.broken
	}
	if !tx.flights[tx.flight].bg.Done() {
		tx.flight = (tx.flight + 1) % numFlights
	}
	f := &tx.flights[tx.flight]
	if f.used() {
		tx.busy = true // nobody else waits for these requests: see Session.Rejoin
		err := tx.land(f)
		tx.busy = false
		if err == nil {
			err = s.broken
		}
		if err != nil {
			return err
		}
	}
	if s.reachDiffers() {
		if err := s.reach(); err != nil {
			return err
		}
	}
	v := s.eng.space.View()
	if v.Epoch != s.epoch {
		var err error
		if v, err = s.moved(tx.c); err != nil {
			return err
		}
	}
	if s.queried.Load() != 0 {
		s.reply()
	}
	id, err := s.nextTx()
	if err != nil {
		return err
	}
	tx.id, f.seq, tx.asked = id, id.Seq(), 0
	tx.taps = s.eng.taps.Load()
	tx.view = v
	tx.logAt, tx.logCap = f.slab, slabLog
	tx.next, tx.end = f.slab+slabLog, f.slab+slabSize
	tx.log.Reset()
	if tx.queried {
		clear(tx.items) // an item may still have its query
	}
	tx.items = tx.items[:0]
	tx.keys = tx.keys[:0]
	tx.nodes, tx.posts = tx.nodes[:0], tx.posts[:0]
	for i := range tx.editors {
		tx.editors[i].changes = tx.editors[i].changes[:0]
	}
	if tx.index.n > 0 {
		tx.index.reset()
	}
	tx.state = state{valid: true, active: true, busy: true}
	tx.lines = s.lines
	if tx.hist != nil {
		tx.start = tx.clock()
	}
	return nil
}

// used reports whether something of the flight's last transaction is left to do.
func (f *flight) used() bool {
	return f.bg.Len() > 0 || len(f.extra) > 0 || f.held || len(f.installs) > 0
}

// land waits for the background requests of a flight and frees its buffers.
func (tx *Tx) land(f *flight) error {
	if f.bg.Len() > 0 {
		err := tx.c.Drain(&f.bg)
		f.bg.Reset()
		if err != nil {
			return tx.s.fail(err)
		}
	}
	if f.held {
		tx.s.release(f)
	}
	tx.s.freeExtra(f)
	return tx.installed(f)
}

// drain waits for all background requests, on any coroutine of the thread.
func (tx *Tx) drain(c *rdma.Coro) error {
	old := tx.c
	tx.c = c
	defer func() { tx.c = old }()
	for i := range tx.flights {
		if err := tx.land(&tx.flights[i]); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) free() {
	for i := range tx.flights {
		tx.s.thread.Free(tx.flights[i].slab, slabSize)
	}
}

// failed is fail for an error of somebody who posts verbs for the transaction, or asks
// blades for memory, and also returns errors of other kinds, which break nothing. A
// blade that has not answered is seen to when the session rejoins.
func (s *Session) failed(err error) error {
	if e := s.refused(err); e != nil { // what is done of a change of an index is undone when the transaction rolls back
		return e
	}
	if errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrBladeDown) {
		s.halfDone = true
		return s.fail(err)
	}
	if errors.Is(err, memory.ErrNoCoordinator) { // it was declared dead
		return s.fail(fmt.Errorf("%w: %w", ErrFenced, err))
	}
	return err
}

// alloc returns n bytes of arena that live as long as the transaction's buffers.
func (tx *Tx) alloc(n uint32) (uint32, error) {
	n = (n + 7) &^ 7
	if tx.next+n <= tx.end {
		at := tx.next
		tx.next += n
		tx.lines = min(tx.lines, int(tx.end-tx.next)/record.LineSize)
		return at, nil
	}
	tx.lines = 0
	size := int(max(n, 4<<10))
	at, err := tx.extra(size)
	if err != nil {
		return 0, err
	}
	if n < 4<<10 {
		tx.next, tx.end = at+n, at+uint32(size)
	}
	return at, nil
}

// bytes returns arena memory.
func (tx *Tx) bytes(at, n uint32) []byte { return tx.s.thread.Bytes(at, n) }

// line is the line of arena at an offset that alloc has returned, or one in a log
// buffer.
func (tx *Tx) line(at uint32) *record.Line { return (*record.Line)(unsafe.Add(tx.base, at)) }

func (tx *Tx) image(it *item) record.Image { return record.Image(tx.bytes(it.buf, it.bufLen)) }

// Coro returns the coroutine that the transaction runs on.
func (tx *Tx) Coro() *rdma.Coro { return tx.c }
