package occ

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
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

// item is one key that the transaction uses.
type item struct {
	table *Table
	key   []byte
	short uint64 // the key, if it has 8 bytes
	hash  uint64
	spot  uint64 // where the address cache keeps the key
	query *index.Query

	addr    memory.Addr     // block, 0: the key has none
	home    rdma.RemoteAddr // of the primary, when the transaction commits
	from    memory.Addr     // where a record that moves comes from
	version record.TxID     // as read, and as held while locked
	prior   record.Guard
	buf     uint32 // arena: image as read
	bufLen  uint32
	vbuf    uint32 // arena: what validation reads; 0: not allocated
	w       int32  // offset in the log buffer of the new image, -1: none
	wlen    uint32 // bytes of the new image
	vlen    uint32 // bytes of the new value
	cas, rd int32  // requests in the batch, -1: none

	class     memory.Class
	fromClass memory.Class
	step      step
	state     record.State
	write     write
	update    bool // to be locked when fetched
	cached    bool // addr came from the address cache
	locked    bool
	insert    bool // by Insert: link a block when the key turns out to have none
	inserted  bool // this transaction linked the block
	backup    bool // read from a backup
	primary   bool // not to be read from a backup
	whole     bool // candidates are read to their ends
	tries     uint8
}

// hideAbove is the size of the address cache, in bytes, from which on lookups and
// records are taken to be out of the processor's caches, so that switching to
// another coroutine twice costs less than waiting for them.
const hideAbove = 64 << 20

// flight is the buffers of one transaction, kept until its background requests
// have completed.
type flight struct {
	bg    rdma.Batch
	slab  uint32 // arena; slabSize bytes
	extra []chunk
	token log.Token
	held  bool // token is a reservation
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

// Tx is a transaction on a coroutine, reused for one after another. All byte
// slices that it returns alias the thread's arena and are valid until Commit or
// Rollback.
type Tx struct {
	s  *Session
	c  *rdma.Coro
	id record.TxID

	view    *memory.View
	items   []item
	fetched int // items[:fetched] have been executed
	writes  int
	inserts int // staged items of Insert that have not been executed
	valid   bool
	active  bool
	hide    bool // let others run while memory comes: see touchBlocks
	queried bool // an item has a query
	deletes bool // an item has been deleted
	busy    bool // from Begin until the last background request is posted
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

	logs   bladeSet     // where commit writes the log
	images []imageWrite // what it writes to backups

	tap    *Tap   // nil: nobody asks, or the transaction has not drawn its number
	number uint64 // of the tap's

	phases [NumPhases]rdma.Counters
	aborts [NumAbortReasons]uint64
	hist   *history.Session
	start  int64
	clock  func() int64
}

// NewTx makes a transaction slot for a coroutine of the session's thread.
func (s *Session) NewTx(c *rdma.Coro) (*Tx, error) {
	tx := &Tx{s: s, c: c}
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
	if err := tx.land(f); err != nil {
		return err
	}
	id, err := s.nextTx()
	if err != nil {
		return err
	}
	tx.id = id
	tx.view = s.eng.space.View()
	tx.logAt, tx.logCap = f.slab, slabLog
	tx.next, tx.end = f.slab+slabLog, f.slab+slabSize
	tx.log.Reset()
	tx.items = tx.items[:0]
	tx.keys = tx.keys[:0]
	tx.index.reset()
	tx.fetched, tx.writes, tx.inserts = 0, 0, 0
	tx.valid, tx.active, tx.busy = true, true, true
	tx.queried, tx.deletes = false, false
	tx.hide = s.thread.Touches() && s.eng.cache.Bytes() >= hideAbove
	if tx.hist != nil {
		tx.start = tx.clock()
	}
	return nil
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
		tx.s.ring.ring.Release(f.token)
		f.held = false
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

// fail marks the session as broken: a request failed whose effect is not known.
func (s *Session) fail(err error) error {
	if s.broken == nil {
		s.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return s.broken
}

// Broken returns why the session takes no more transactions, or nil.
func (s *Session) Broken() error { return s.broken }

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

func (tx *Tx) image(it *item) record.Image { return record.Image(tx.bytes(it.buf, it.bufLen)) }

// Stage adds a key to the transaction and returns its number, the same for the
// same key; it posts nothing. update means that the key will probably be
// written: it is locked when it is fetched. The key is copied.
func (tx *Tx) Stage(t *Table, key []byte, update bool) (int, error) {
	if !tx.active {
		return 0, ErrDone
	}
	if len(key) > record.MaxKey || len(key) == 0 {
		if len(key) == 0 {
			return 0, fmt.Errorf("occ: empty key in table %q", t.Name)
		}
		return 0, &TooLargeError{What: "key", Got: len(key), Limit: record.MaxKey}
	}
	if update && tx.s.alloc == nil {
		return 0, ErrReadOnly
	}
	if i := tx.find(t, key); i >= 0 {
		if update && i >= tx.fetched {
			tx.items[i].update = true
		}
		return i, nil
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
	*it = item{table: t, hash: record.Hash(t.ID, key), w: -1, update: update}
	it.spot = it.hash
	if len(key) == 8 {
		it.short = binary.LittleEndian.Uint64(key)
		it.spot = spot(it.hash, t.ID, it.short)
	}
	tx.s.eng.cache.Prefetch(it.spot)
	tx.keys = append(tx.keys, key...)
	it.key = tx.keys[len(tx.keys)-len(key):]
	if n >= linearItems {
		tx.index.add(tx.items, n)
	}
	return n, nil
}

// spot is where the address cache keeps an 8-byte key. Keys that are close to each
// other as integers, of either byte order, are kept close: 128 of them share a page
// of 64 lines, two a line, so that keys that are hot together touch few pages and
// lines, and yet a line overflows hardly more often than with keys all over. Pages,
// and where in a page a run of keys begins, are chosen by a hash; the tag is that of
// the whole key.
func spot(hash uint64, table uint16, key uint64) uint64 {
	const tag = 0xffff << 48
	k := key ^ bits.ReverseBytes64(key) // alike for both byte orders; the ends are the fast bytes
	h := (k&^(0x7f|0xff<<56) ^ uint64(table)<<56) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 29
	return hash&tag | (h^k>>1&63)&^tag
}

// find returns the number of a key, -1: not in the transaction.
func (tx *Tx) find(t *Table, key []byte) int {
	switch {
	case len(tx.items) > linearItems:
		return tx.index.find(tx.items, t, record.Hash(t.ID, key), key)
	case len(key) == 8:
		k := binary.LittleEndian.Uint64(key)
		for i := range tx.items {
			if it := &tx.items[i]; it.short == k && it.table == t && len(it.key) == 8 {
				return i
			}
		}
	default:
		for i := range tx.items {
			if it := &tx.items[i]; it.table == t && bytes.Equal(it.key, key) {
				return i
			}
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
	for k := items[i].hash % uint64(len(x.slots)); ; k = (k + 1) % uint64(len(x.slots)) {
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
		if it := &items[i]; it.hash == hash && it.table == t && bytes.Equal(it.key, key) {
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
	switch it.write {
	case writePut:
		at := int(it.w) + record.ValueAt(len(it.key), int(it.vlen))
		end := at + int(it.vlen)
		return tx.logBytes()[at:end:end], true
	case writeDelete:
		return nil, false
	}
	if it.state != record.Live {
		return nil, false
	}
	return tx.image(it).Value(), true
}

// Executed reports whether item i has been fetched.
func (tx *Tx) Executed(i int) bool { return i < tx.fetched }

// Exists reports whether item i, which has been executed or written, has a value.
func (tx *Tx) Exists(i int) bool {
	it := &tx.items[i]
	return it.write == writePut || it.write == writeNone && it.state == record.Live
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
	n := record.Size(len(it.key), len(value))
	if it.w < 0 || log.Room(tx.logBytes(), int(it.w)) < n {
		if err := tx.place(it, n); err != nil {
			return err
		}
	} else if it.write == writePut && overlap(value, tx.logBytes()) {
		value = bytes.Clone(value) // what Read has returned of the image that is replaced
	}
	if it.write == writeNone {
		tx.writes++
	}
	record.Image(tx.logBytes()[it.w:int(it.w)+n]).PutBody(it.key, value)
	it.write, it.vlen, it.wlen = w, uint32(len(value)), uint32(n)
	if i >= tx.fetched {
		it.update = true
	}
	return nil
}

// Coro returns the coroutine that the transaction runs on.
func (tx *Tx) Coro() *rdma.Coro { return tx.c }
