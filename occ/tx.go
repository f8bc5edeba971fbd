package occ

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"txnode/history"
	"txnode/index"
	"txnode/log"
	"txnode/memory"
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

// step is how far the fetching of an item has come.
type step uint8

const (
	stepNew     step = iota
	stepProbe        // read, and lock if wanted, the block at addr
	stepSearch       // read the index
	stepMany         // read all candidates
	stepConfirm      // no candidate matches: is the index still the same?
	stepLock         // lock the block that was read, if it has not changed
	stepReread       // the image was torn, or longer than expected
	stepDone
)

// write is what the transaction does to an item.
type write uint8

const (
	writeNone write = iota
	writePut
	writeDelete
)

// item is one key that the transaction uses. Items are used again by one transaction
// after another, so staging sets every field, or says why it need not: what every
// transaction needs comes first, two cache lines of it.
type item struct {
	table *Table
	short uint64 // the key as a little-endian number, if klen is 8
	spot  uint64 // where the address cache keeps the key, 0: not asked for yet

	addr    memory.Addr  // block, 0: the key has none
	version record.TxID  // as read, and as held while locked
	prior   record.Guard // as the lock was taken
	buf     uint32       // arena: image as read
	bufLen  uint32
	cas, rd int32  // requests in the batch, -1: none
	val     uint32 // arena: the value as the transaction sees it, if has
	vlen    uint32 // its length in bytes
	w       int32  // offset in the log buffer of the new image, -1: none
	wlen    uint32 // bytes of the new image
	vbuf    uint32 // arena: what validation reads; 0: not allocated
	klen    uint32
	marks

	hash  uint64       // of table and key, 0: not asked for yet
	long  []byte       // the key, if klen is not 8
	query *index.Query // nil when the transaction has ended: see finish
	from  memory.Addr  // where a record that moves comes from
}

// marks are an item's small fields, all zero when it is staged.
type marks struct {
	class     memory.Class
	fromClass memory.Class
	step      step
	state     record.State
	write     write
	has       bool // the key has a value, as the transaction sees it
	update    bool // to be locked when fetched
	cached    bool // addr came from the address cache
	locked    bool
	insert    bool // by Insert: link a block when the key turns out to have none
	inserted  bool // this transaction linked the block
	backup    bool // read from a backup
	primary   bool // not to be read from a backup
	whole     bool // candidates are read to their ends
	changed   bool // absent, and its buckets are not as they were
	tries     uint8
}

// is reports whether the item is that of an 8-byte key.
func (it *item) is(t *Table, short uint64) bool {
	return it.short == short && it.table == t && it.klen == 8
}

// key returns the key. It does not change as long as the transaction.
func (it *item) key() []byte {
	if it.klen == 8 && littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(&it.short)), 8)
	}
	if it.klen == 8 {
		it.long = binary.LittleEndian.AppendUint64(nil, it.short)
	}
	return it.long
}

// littleEndian: the bytes of item.short are the key.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// keyHash returns the record.Hash of table and key.
func (it *item) keyHash() uint64 {
	if it.hash == 0 {
		it.hash = record.Hash(it.table.ID, it.key())
	}
	return it.hash
}

// flight is the buffers of one transaction, kept until its background requests
// have completed.
type flight struct {
	bg    rdma.Batch
	slab  uint32 // arena; slabSize bytes
	extra []chunk
	token log.Token
	held  bool // token is a reservation

	generation uint32 // of the record, with FlushDurable; else 0
	freed      []freed
}

// freed is a block that a record has left. As long as the transaction that moved it
// is not at rest, recovery may come by and free it again.
type freed struct {
	addr  memory.Addr
	class memory.Class
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
	built   int // the requests of so many items behind these are in the batch: see Stage; -1: they were, and are not valid any more
	writes  int
	inserts int // staged items of Insert that have not been executed
	valid   bool
	active  bool
	queried bool     // an item has a query
	deletes bool     // an item has been deleted
	odd     bool     // not every entry of the log is an image of one line
	moves   bool     // an item moves to a larger block
	linked  bool     // the transaction has linked a block
	late    bool     // an item was written that was not locked
	homes   bladeSet // of the primaries of what is written, once that is sealed
	behind  bladeSet // of the backups
	busy    bool     // from Begin until the last background request is posted
	// concluded: it is committed, and what is left of it is in its log.
	concluded bool
}

// Tx is a transaction on a coroutine, reused for one after another. All byte
// slices that it returns alias the thread's arena and are valid until Commit or
// Rollback.
type Tx struct {
	s    *Session
	c    *rdma.Coro
	id   record.TxID
	base unsafe.Pointer // of the thread's arena

	view  *memory.View
	items []item
	state
	index   itemIndex
	keys    []byte
	queries []*index.Query // free

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

	met    meeting     // what the last conflict was with
	hollow memory.Addr // a block that is free, and a slot led to it

	expected  [maxExpected]expected // of these, the first expecting: see Expect
	expecting int

	phases [NumPhases]rdma.Counters
	aborts [NumAbortReasons]uint64
	hist   *history.Session
	start  int64
	clock  func() int64
}

// NewTx makes a transaction slot for a coroutine of the session's thread.
func (s *Session) NewTx(c *rdma.Coro) (*Tx, error) {
	tx := &Tx{s: s, c: c, base: s.thread.Base()}
	for i := range tx.flights {
		at, err := s.thread.Alloc(slabSize)
		if err != nil {
			return nil, fmt.Errorf("occ: buffers of a transaction: %w", err)
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

// Begin starts a transaction.
func (tx *Tx) Begin() error {
	if tx.active {
		return fmt.Errorf("occ: transaction %v is still open", tx.id)
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
	v := s.eng.space.View()
	if v.Epoch != s.epoch {
		var err error
		if v, err = s.moved(); err != nil {
			return err
		}
	}
	id, err := s.nextTx()
	if err != nil {
		return err
	}
	tx.id = id
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
	if tx.index.n > 0 {
		tx.index.reset()
	}
	tx.state = state{valid: true, active: true, busy: true}
	if tx.hist != nil {
		tx.start = tx.clock()
	}
	return nil
}

// used reports whether something of the flight's last transaction is left to do.
func (f *flight) used() bool { return f.bg.Len() > 0 || len(f.extra) > 0 || f.held }

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
	return nil
}

// inFlight reports whether background requests are outstanding.
func (tx *Tx) inFlight() bool {
	for i := range tx.flights {
		if !tx.flights[i].bg.Done() {
			return true
		}
	}
	return false
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
	if errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrBladeDown) {
		s.torn = true
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
		return at, nil
	}
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

// Stage adds a key to the transaction and returns its number, the same for the
// same key; it posts nothing. update means that the key will probably be
// written: it is locked when it is fetched. The key is copied.
func (tx *Tx) Stage(t *Table, key []byte, update bool) (int, error) {
	if !tx.active {
		return 0, ErrDone
	}
	if update && tx.s.alloc == nil {
		return 0, ErrReadOnly
	}
	if len(key) != 8 || len(tx.items) >= linearItems {
		return tx.stageAny(t, key, update)
	}
	k := binary.LittleEndian.Uint64(key)
	items := tx.items
	for i := range items {
		if it := &items[i]; it.short == k && it.is(t, k) {
			if update && i >= tx.fetched {
				tx.toUpdate(it)
			}
			return i, nil
		}
	}
	n := len(items)
	items = items[:n+1] // linearItems of them are always there
	tx.items = items
	it := &items[n]
	it.short, it.klen = k, 8
	it.fresh(t, update)

	// If its block is known, of one line, and the requests of all items that wait before
	// it are in the batch, those of this one follow.
	s := tx.s
	if a, class, ok := s.eng.runs.Lookup(t.ID, k); ok {
		if from, ok := tx.view.Primary(a); ok {
			it.addr, it.class, it.cached = a, class, true
			it.step = stepProbe
			if s.far {
				tx.touch(it)
			}
			at := tx.next
			if class != 0 || tx.built != n-tx.fetched || at+record.LineSize > tx.end || !s.plain {
				return n, nil
			}
			b := &tx.batch
			if tx.built == 0 {
				b.Reset()
			}
			tx.built++
			tx.next = at + record.LineSize
			it.buf, it.bufLen = at, record.LineSize
			if update {
				it.cas = int32(b.LockRead(from, record.GuardOff, 0, uint64(record.HeldBy(tx.id)), s.masks, at, record.LineSize))
			} else {
				b.Read(from, at, record.LineSize)
			}
			return n, nil
		}
	}
	s.eng.cache.Prefetch(it.place())
	return n, nil
}

// toUpdate makes a staged item one that is locked when it is fetched.
func (tx *Tx) toUpdate(it *item) {
	if !it.update {
		it.update = true
		tx.unbuild()
	}
}

// fresh sets the fields of an item that has been staged, but for its key.
func (it *item) fresh(t *Table, update bool) {
	it.table = t
	it.marks = marks{update: update}
	it.addr, it.version, it.hash, it.spot, it.from = 0, 0, 0, 0, 0
	it.bufLen, it.vbuf, it.w, it.cas = 0, 0, -1, -1
}

// stageAny is Stage for keys of any length, and any number of them.
func (tx *Tx) stageAny(t *Table, key []byte, update bool) (int, error) {
	if i := tx.find(t, key); i >= 0 {
		if update && i >= tx.fetched {
			tx.toUpdate(&tx.items[i])
		}
		return i, nil
	}
	if len(key) > record.MaxKey || len(key) == 0 {
		if len(key) == 0 {
			return 0, fmt.Errorf("occ: empty key in table %q", t.Name)
		}
		return 0, &TooLargeError{What: "key", Got: len(key), Limit: record.MaxKey}
	}
	n := len(tx.items)
	if n == log.MaxEntries {
		return 0, fmt.Errorf("occ: transaction of more than %d keys: %w", n, ErrTooLarge)
	}
	if n < cap(tx.items) {
		tx.items = tx.items[:n+1]
	} else {
		tx.items = append(tx.items, item{})
	}
	it := &tx.items[n]
	it.fresh(t, update)
	it.klen = uint32(len(key))
	if len(key) == 8 {
		it.short = binary.LittleEndian.Uint64(key)
	} else {
		tx.keys = append(tx.keys, key...)
		it.long = tx.keys[len(tx.keys)-len(key):]
	}
	tx.ahead(it)
	if n >= linearItems {
		tx.index.add(tx.items, n)
	}
	return n, nil
}

// find returns the number of a key, -1: not in the transaction.
func (tx *Tx) find(t *Table, key []byte) int {
	if len(key) != 8 {
		return tx.findLong(t, key)
	}
	if len(tx.items) > linearItems {
		return tx.index.find(tx.items, t, record.Hash(t.ID, key), key)
	}
	k := binary.LittleEndian.Uint64(key)
	for i := range tx.items {
		if it := &tx.items[i]; it.is(t, k) {
			return i
		}
	}
	return -1
}

// findLong is find for keys that are not 8 bytes long.
func (tx *Tx) findLong(t *Table, key []byte) int {
	if len(tx.items) > linearItems {
		return tx.index.find(tx.items, t, record.Hash(t.ID, key), key)
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.table == t && int(it.klen) == len(key) && bytes.Equal(it.long, key) {
			return i
		}
	}
	return -1
}

// itemIndex finds items of large transactions: open addressing over item numbers.
type itemIndex struct {
	slots []int32 // number + 1
	n     int
}

func (x *itemIndex) reset() {
	if x.n > 0 {
		clear(x.slots)
		x.n = 0
	}
}

func (x *itemIndex) add(items []item, n int) {
	if x.n == 0 || 2*(x.n+1) > len(x.slots) {
		x.slots = make([]int32, max(4*linearItems, 4*len(items)))
		x.n = 0
		for i := range items[:n] {
			x.put(items, i)
		}
	}
	x.put(items, n)
}

func (x *itemIndex) put(items []item, i int) {
	for k := items[i].keyHash() % uint64(len(x.slots)); ; k = (k + 1) % uint64(len(x.slots)) {
		if x.slots[k] == 0 {
			x.slots[k] = int32(i) + 1
			x.n++
			return
		}
	}
}

func (x *itemIndex) find(items []item, t *Table, hash uint64, key []byte) int {
	for k := hash % uint64(len(x.slots)); x.slots[k] != 0; k = (k + 1) % uint64(len(x.slots)) {
		i := int(x.slots[k]) - 1
		if it := &items[i]; it.keyHash() == hash && it.table == t && bytes.Equal(it.key(), key) {
			return i
		}
	}
	return -1
}

// Read returns the value of item i as the transaction sees it, its own writes
// included; live is false if the key has no value. The item must have been
// executed or written.
func (tx *Tx) Read(i int) (value []byte, live bool) {
	it := &tx.items[i]
	if !it.has {
		return nil, false
	}
	return tx.bytes(it.val, it.vlen), true
}

// Get is Stage and Read of a key that has a value, when everything staged has been
// executed; else ok is false.
func (tx *Tx) Get(t *Table, key []byte) (value []byte, ok bool) {
	if tx.fetched < len(tx.items) || !tx.active {
		return nil, false // it may be one of those, and most likely is
	}
	if len(key) == 8 && len(tx.items) <= linearItems {
		k := binary.LittleEndian.Uint64(key)
		for i := range tx.items {
			if it := &tx.items[i]; it.is(t, k) {
				if !it.has {
					break
				}
				return unsafe.Slice((*byte)(unsafe.Add(tx.base, it.val)), it.vlen), true
			}
		}
		return nil, false
	}
	i := tx.find(t, key)
	if i < 0 {
		return nil, false
	}
	return tx.Read(i)
}

// Staged reports whether an 8-byte key has been staged, for update if update, and not
// been executed.
func (tx *Tx) Staged(t *Table, key []byte, update bool) bool {
	if len(key) != 8 || tx.fetched >= len(tx.items) {
		return false
	}
	k := binary.LittleEndian.Uint64(key)
	items := tx.items[tx.fetched:]
	for i := range items {
		if it := &items[i]; it.is(t, k) {
			return !update || it.update
		}
	}
	return false
}

// Set is Stage for update, and Put.
func (tx *Tx) Set(t *Table, key, value []byte) error {
	if len(key) == 8 && len(value) <= record.ShortValue && len(tx.items) <= linearItems {
		k := binary.LittleEndian.Uint64(key)
		for i := range tx.items {
			it := &tx.items[i]
			if !it.is(t, k) {
				continue
			}
			if !it.locked || it.write != writeNone || !tx.log.Fits(record.LineSize, tx.logCap) || !tx.active {
				break
			}
			// setImage for a locked item's first value, that fits a line.
			at := tx.logAt + uint32(tx.log.Len())
			it.w = int32(tx.log.AddLine(tx.entry(at)))
			at += log.EntryHeaderSize
			record.PutShort(tx.line(at), k, value)
			it.write, it.has, it.wlen = writePut, true, record.LineSize
			it.val, it.vlen = at+record.KeyOff+8, uint32(len(value))
			tx.writes++
			return nil
		}
	}
	i, err := tx.Stage(t, key, true)
	if err != nil {
		return err
	}
	return tx.Put(i, value)
}

// Executed reports whether item i has been fetched.
func (tx *Tx) Executed(i int) bool { return i < tx.fetched }

// Exists reports whether item i, which has been executed or written, has a value.
func (tx *Tx) Exists(i int) bool {
	return tx.items[i].has
}

func (tx *Tx) logBytes() []byte { return tx.bytes(tx.logAt, uint32(tx.logCap)) }

// reserve makes room in the log buffer for an image of size bytes.
func (tx *Tx) reserve(size int) (int, error) {
	need := tx.log.Need(size)
	if need > tx.s.ring.ring.Max() || tx.log.Entries() == log.MaxEntries {
		return 0, tx.logTooLarge(need)
	}
	if need > tx.logCap {
		grown := 2 * tx.logCap
		for grown < need {
			grown *= 2
		}
		at, err := tx.extra(grown)
		if err != nil {
			return 0, err
		}
		copy(tx.bytes(at, uint32(grown)), tx.logBytes()[:tx.log.Len()])
		for i := range tx.items {
			if it := &tx.items[i]; it.write == writePut {
				it.val += at - tx.logAt
			}
		}
		tx.logAt, tx.logCap = at, grown
	}
	return tx.log.Add(tx.logBytes(), size), nil
}

// place finds room in the log buffer for a new image of n bytes. When there is
// none, the item stays as it was.
func (tx *Tx) place(it *item, n int) error {
	if tx.s.alloc == nil {
		return ErrReadOnly
	}
	size := n
	if it.w >= 0 { // it grows: perhaps again
		size = max(n, 2*log.Room(tx.logBytes(), int(it.w)))
	}
	at, err := tx.reserve(size)
	if err != nil && size > n {
		at, err = tx.reserve(n)
	}
	if err != nil {
		return err
	}
	if it.w >= 0 {
		tx.odd = true
		tx.log.Kill(tx.logBytes(), int(it.w))
	}
	it.w = int32(at)
	return nil
}

// overlap reports whether two slices share memory.
func overlap(a, b []byte) bool {
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return len(a) > 0 && x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// Put sets the value of item i. The value is copied.
func (tx *Tx) Put(i int, value []byte) error {
	if !tx.active {
		return ErrDone
	}
	if len(value) > record.MaxValue {
		return &TooLargeError{What: "value", Got: len(value), Limit: record.MaxValue}
	}
	return tx.setImage(i, writePut, value)
}

// Insert sets the value of item i, which has not been executed, on the condition
// that it has none: Execute then links a block for it at once, so that the lock is
// taken with the fetch and not by a later step of Commit. If after Execute Exists
// still is what was stored before, the caller takes the write back with Withdraw.
func (tx *Tx) Insert(i int, value []byte) error {
	if err := tx.Put(i, value); err != nil {
		return err
	}
	if it := &tx.items[i]; i >= tx.fetched && !it.insert {
		it.insert = true
		tx.inserts++
	}
	return nil
}

// Found reports whether item i, which has been executed, had a value when it was
// fetched, whatever the transaction has written since.
func (tx *Tx) Found(i int) bool { return tx.items[i].state == record.Live }

// Withdraw forgets what the transaction has written to item i.
func (tx *Tx) Withdraw(i int) {
	if it := &tx.items[i]; it.write != writeNone && !it.inserted {
		tx.dropWrite(it)
	}
}

// Delete removes the value of item i; a key without one stays without.
func (tx *Tx) Delete(i int) error {
	if !tx.active {
		return ErrDone
	}
	tx.deletes = true
	return tx.setImage(i, writeDelete, nil)
}

func (tx *Tx) setImage(i int, w write, value []byte) error {
	it := &tx.items[i]
	n := record.Size(int(it.klen), len(value))
	if it.w < 0 || log.Room(tx.logBytes(), int(it.w)) < n {
		if err := tx.place(it, n); err != nil {
			return err
		}
	} else if it.write == writePut && overlap(value, tx.logBytes()) {
		value = bytes.Clone(value) // what Read has returned of the image that is replaced
	}
	if it.write == writeNone {
		tx.writes++
		tx.late = tx.late || !it.locked
	}
	img := record.Image(tx.logBytes()[it.w : int(it.w)+n])
	if it.klen == 8 && n == record.LineSize {
		record.PutShort((*record.Line)(img), it.short, value)
	} else {
		tx.odd = true
		img.PutBody(it.key(), value)
	}
	it.write, it.wlen = w, uint32(n)
	it.val, it.vlen = tx.logAt+uint32(it.w)+uint32(record.ValueAt(int(it.klen), len(value))), uint32(len(value))
	it.has = w == writePut
	if i >= tx.fetched {
		tx.toUpdate(it)
	}
	return nil
}

// sees notes what the transaction has read of an item: a verified image. That is the
// value that it sees, unless it has written one.
func (it *item) sees(m record.Meta) {
	it.state = m.State()
	if it.write != writeNone {
		return
	}
	it.vlen = uint32(m.ValueLen())
	it.val = it.buf + uint32(record.ValueAt(int(it.klen), m.ValueLen()))
	it.has = it.state == record.Live
}

// Coro returns the coroutine that the transaction runs on.
func (tx *Tx) Coro() *rdma.Coro { return tx.c }
