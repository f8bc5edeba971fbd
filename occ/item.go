package occ

import (
	"encoding/binary"
	"unsafe"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
)

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
	stepCopy         // the primary's image is damaged: read another copy
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

	addr    layout.Addr  // block, 0: the key has none
	version record.TxID  // as read, and as held while locked
	prior   record.Guard // as the lock was taken
	buf     uint32       // arena: image as read
	bufLen  uint32
	cas, rd int32  // requests in the batch, -1: none
	val     uint32 // arena: the value as the transaction sees it, if has
	vlen    uint32 // its length in bytes
	w       int32  // offset in the log buffer of the new image, -1: none
	wlen    uint32 // bytes of the new image
	vbuf    uint32 // arena: what validation reads of an index; 0: not allocated
	klen    uint32
	marks

	hash  uint64       // of table and key, 0: not asked for yet
	long  []byte       // the key, if klen is not 8
	query *index.Query // nil when the transaction has ended: see finish
	from  layout.Addr  // where a record that moves comes from
	hop   index.Hop    // of an ordered table: the block to be read next; 0: ask the index
	node  int32        // of an ordered table: one more than the number of the node that was read last
	rank  [8]byte      // of a table of hashes: what indexKey returns
	leaf  record.TxID  // version of the node by which passed counts
}

// marks are an item's small fields, all zero when it is staged.
type marks struct {
	class     layout.Class
	fromClass layout.Class
	step      step
	state     record.State
	write     write
	has       bool // the key has a value, as the transaction sees it
	update    bool // to be locked when fetched
	cached    bool // addr came from the address cache
	locked    bool
	insert    bool  // by Insert: link a block when the key turns out to have none
	inserted  bool  // this transaction linked the block
	backup    bool  // read from a backup
	primary   bool  // not to be read from a backup
	looksFar  uint8 // 0, or as a power of two how far candidates are read that are longer than readLen
	changed   bool  // absent, and its buckets are not as they were
	vacates   bool  // the commit makes the block free: see edit.go
	private   bool  // the block is known to nobody yet: see edit.go
	blind     bool  // what is stored will be replaced, whatever it is: see Tx.Blind
	unread    bool  // it has a record of which no copy could be read: see Tx.overwrite
	copy      uint8 // stepCopy reads this copy; 0: the primary was not found damaged
	proof     proof // what damaged copies still show: see Tx.overwrite
	tries     uint8
	hops      uint8 // nodes of an ordered index that the search has followed
	unsure    bool  // the block at addr may well be another key's: it is not locked before it was read
	passed    uint8 // blocks that the node links for the key's hash, and that have other keys: see candidate
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

// indexKey is the key by which the index of nodes knows the item: its key, or the hash of it. It does
// not change as long as the transaction.
func (it *item) indexKey() []byte {
	if !it.table.Hashed {
		return it.key()
	}
	return index.AppendHash(it.rank[:0], it.keyHash())
}

// where is where the index of nodes has the item's key.
func (it *item) where() index.Place { return index.PlaceOf(it.indexKey()) }

// fresh sets the fields of an item that has been staged, but for its key.
func (it *item) fresh(t *Table, update bool) {
	it.table = t
	it.marks = marks{update: update}
	it.addr, it.version, it.hash, it.spot, it.from = 0, 0, 0, 0, 0
	it.hop, it.node = index.Hop{}, 0
	it.bufLen, it.vbuf, it.w, it.cas = 0, 0, -1, -1
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
