package verify

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// linkedKey is a key of the sub-table that is walked.
type linkedKey struct {
	hash  uint64
	slot  layout.Addr
	block layout.Addr
}

// onlyBackup is a slot that a backup has and the primary has not, with a block that
// seems to belong there.
type onlyBackup struct {
	slot    layout.Addr
	copy    int
	word    race.Slot
	primary race.Slot // what the primary has
	hash    uint64
	table   layout.Addr // the sub-table; 0: it is being split
}

// candidate is a value of a slot, on one copy at least.
type candidate struct {
	off   uint32 // of the slot, from the first bucket of the chunk
	word  race.Slot
	fault *fault
	hash  uint64
	long  int    // bytes of the block that hold the key, if line 0 does not
	known bool   // hash is that of the block's key
	line  uint32 // arena: the first line of the block
}

// place is a candidate's key in a map.
type place struct {
	off  uint32
	word race.Slot
}

// buckets checks n bytes of buckets at offset o of the sub-table at table.
func (x *indexWalk) buckets(table layout.Addr, o, n uint32, header race.Header, elsewhere bool) bool {
	at := table + layout.Addr(o)
	copies := x.copies(at, n, &x.chunks)
	if copies[0] == nil {
		return false
	}
	cands, byPlace := x.candidates(copies)
	for len(cands) > 0 {
		k := min(len(cands), smallSize/lineSize)
		if !x.resolve(at, cands[:k], header, elsewhere) {
			return false
		}
		cands = cands[k:]
	}
	x.words(at, x.id, copies, func(off uint32, v uint64) *fault {
		if off%lineSize == bucketHeader {
			return x.header(race.Header(v), header)
		}
		if !race.Slot(v).Empty() {
			if f := byPlace[place{off, race.Slot(v)}].fault; f != nil {
				return f
			}
		}
		x.onlyOnBackup(at, off, race.Slot(v), copies, byPlace)
		return nil
	})
	for off := uint32(0); off < n; off += 8 {
		if off%lineSize == bucketHeader {
			x.headers = append(x.headers, race.Header(word(copies[0], off)))
			continue
		}
		// The value that counts is the primary's, or what should replace it.
		v := race.Slot(word(copies[0], off))
		if v.Empty() {
			continue
		}
		c := byPlace[place{off, v}]
		if c.fault != nil {
			for k := 1; k < len(copies); k++ {
				if copies[k] == nil {
					continue
				}
				if other := byPlace[place{off, race.Slot(word(copies[k], off))}]; other != nil && other.fault == nil {
					c = other
					break
				}
			}
		}
		if c.fault != nil {
			x.suspects[c.word.Addr()] = true
		}
		x.sum.Slots++
		x.keyed(x.id, c.hash, c.known)
		x.link(at+layout.Addr(off), c)
	}
	return true
}

// header judges the header of a bucket.
func (x *indexWalk) header(h, want race.Header) *fault {
	switch {
	case x.splitting && h.Check(x.id) == nil && related(h.Base(), want):
		return nil
	case h.Base() != want:
		return faultf(KindBucket, "the bucket's header is %#x (%v) instead of %v", uint64(h), h, want)
	case h.Recount() && !x.splitting:
		f := faultf(KindSplit, "the bucket's header is %v: a split was not finished", h)
		f.theirs = true
		return f
	}
	return nil
}

// marks reports the keys in their second choice whose first choice has no mark that
// says so: lookups do not find them. One mark too many is no fault.
func (x *indexWalk) marks(want race.Header) {
	need := map[uint32][]linkedKey{} // by the place of the header
	for _, k := range x.keys {
		first, _ := x.g.Places(k.hash)
		if off := uint32(k.slot - x.table); off&^(lineSize-1)-first >= combined {
			need[race.MarkAt(first)] = append(need[race.MarkAt(first)], k)
		}
	}
	for i, h := range x.headers {
		off := uint32(tableHeader + i*lineSize + bucketHeader)
		if h.Base() != want {
			continue // has been reported
		}
		missing, example := race.Header(0), linkedKey{}
		for _, k := range need[off] {
			if fp := uint8(k.hash >> 56); !h.Spills(fp) {
				missing |= race.SpillBit(fp)
				example = k
			}
		}
		if missing == 0 {
			continue
		}
		for k := range x.v.Copies(x.table) {
			x.unmarked(x.table+layout.Addr(off), k, h, missing, example.slot)
		}
	}
}

// parent is the header before the last split of its bucket.
func parent(h race.Header) race.Header {
	d := h.Depth() - min(h.Depth(), 1)
	return race.MakeHeader(h.Table(), d, h.Suffix()&(1<<d-1))
}

// related reports whether a bucket may have either header while it is split.
func related(a, b race.Header) bool { return parent(a) == b || a == parent(b) }

// candidates collects the values of the slots of all copies.
func (x *indexWalk) candidates(copies [][]byte) ([]*candidate, map[place]*candidate) {
	var list []*candidate
	byPlace := map[place]*candidate{}
	for off := uint32(0); off < uint32(len(copies[0])); off += 8 {
		if off%lineSize == bucketHeader {
			continue
		}
		for k := range copies {
			if copies[k] == nil {
				continue
			}
			s := race.Slot(word(copies[k], off))
			if s.Empty() || byPlace[place{off, s}] != nil {
				continue
			}
			c := &candidate{off: off, word: s}
			byPlace[place{off, s}] = c
			list = append(list, c)
		}
	}
	return list, byPlace
}

// form checks a slot without looking at its block.
func (x *indexWalk) form(s race.Slot) *fault {
	if err := s.Check(); err != nil {
		return faultf(KindSlot, "%v", err)
	}
	a := s.Addr()
	if s.Class() >= layout.NumClasses || !x.contains(a, s.Class().Size(), layout.KindBlocks) {
		return faultf(KindSlot, "%v: no block is there", s)
	}
	if class := x.l.Segments[a.Segment()].Class; class != s.Class() || a.Offset()%class.Size() != 0 {
		return faultf(KindSlot, "%v: the segment has blocks of class %d, of %d bytes", s, class, class.Size())
	}
	if s.Moving() {
		f := faultf(KindSplit, "%v: a split was not finished", s)
		f.theirs = true
		return f
	}
	return nil
}

// resolve reads the blocks of the candidates, with one doorbell, and judges them.
func (x *indexWalk) resolve(at layout.Addr, cands []*candidate, header race.Header, elsewhere bool) bool {
	x.batch.Reset()
	for i, c := range cands {
		if c.fault = x.form(c.word); c.fault != nil && c.fault.kind != KindSplit {
			continue
		}
		c.line = x.small + uint32(i)*lineSize
		x.batch.Read(x.v.At(c.word.Addr(), 0), c.line, lineSize)
	}
	if err := x.do(&x.batch); err != nil {
		x.unreadable(at, cands, err)
		for b := range x.v.Blades() {
			_ = x.t.Reconnect(x.f.Blades()[b].ID)
		}
		return false
	}
	x.walker.sum.Bytes += uint64(x.batch.Len()) * lineSize
	for _, c := range cands {
		if c.line != 0 {
			x.shortKey(at, c, header, elsewhere)
		}
	}
	return x.longKeys(at, cands, header, elsewhere)
}

// unreadable reports that blocks of candidates cannot be read: each, if a file cannot be.
func (x *indexWalk) unreadable(at layout.Addr, cands []*candidate, err error) {
	if !errors.Is(err, ErrFault) {
		x.found(KindUnreadable, at, 0, "the blocks of its slots: %v", err)
		return
	}
	for _, c := range cands {
		if c.line != 0 {
			x.walker.read(c.word.Addr(), 0, x.small, uint32(max(c.long, lineSize)))
		}
	}
}

// shortKey judges a slot by the first line of its block, if that has the key;
// otherwise it notes how much is to be read. A doubt leads to the whole block.
func (x *indexWalk) shortKey(at layout.Addr, c *candidate, header race.Header, elsewhere bool) {
	img := record.Image(x.t.Bytes(c.line, lineSize))
	m := img.Meta()
	n := m.KeyLen()
	switch {
	case m.State() == record.Free || n > record.MaxKey || m.Class() != c.word.Class() ||
		record.Size(n, 0) > int(c.word.Class().Size()):
		x.byWholeBlock(at, c, header, elsewhere)
	case record.KeyAt(n) >= record.LineSize:
		c.long = record.KeyAt(n) + n
	default:
		x.key(at, c, m.Table(), img.Key(), header, elsewhere, false)
	}
}

func dangling(s race.Slot) *fault {
	return faultf(KindDangling, "%v: the block is free", s)
}

// longKeys reads the keys that are not in the first lines.
func (x *indexWalk) longKeys(at layout.Addr, cands []*candidate, header race.Header, elsewhere bool) bool {
	for i := 0; i < len(cands); {
		x.batch.Reset()
		from, used := i, uint32(0)
		for ; i < len(cands) && used+record.LineSize+record.MaxKey <= smallSize; i++ {
			if c := cands[i]; c.long > 0 {
				c.line = x.small + used
				x.batch.Read(x.v.At(c.word.Addr(), 0), c.line, uint32(c.long))
				used += (uint32(c.long) + lineSize - 1) &^ (lineSize - 1)
			}
		}
		if x.batch.Len() == 0 {
			continue
		}
		if err := x.do(&x.batch); err != nil {
			x.unreadable(at, cands[from:i], err)
			return false
		}
		for _, c := range cands[from:i] {
			if c.long > 0 {
				img := record.Image(x.t.Bytes(c.line, uint32(c.long)))
				m := img.Meta()
				x.key(at, c, m.Table(), img.Key(), header, elsewhere, false)
			}
		}
	}
	return true
}

// key judges a slot by the key of its block. sure: the block has been seen to be
// intact; otherwise a fault may be that of the block, which is looked at as a whole.
func (x *indexWalk) key(at layout.Addr, c *candidate, table uint16, key []byte, header race.Header,
	elsewhere, sure bool) {
	what := x.misplaced(at+layout.Addr(c.off), c, table, key, header, elsewhere)
	if what == "" {
		c.known, c.hash = true, record.Hash(x.id, key)
		return
	}
	if !sure {
		x.byWholeBlock(at, c, header, elsewhere)
		return
	}
	c.fault = faultf(KindSlot, "%v: %s", c.word, what)
}

// misplaced says why a key does not belong to a slot; empty: it does.
func (x *indexWalk) misplaced(slot layout.Addr, c *candidate, table uint16, key []byte, header race.Header,
	elsewhere bool) string {
	if table != x.id {
		return fmt.Sprintf("its block is of %s", x.tableName(table))
	}
	hash := record.Hash(x.id, key)
	fp := uint8(hash >> 56)
	switch {
	case fp != c.word.Fingerprint():
		return fmt.Sprintf("its block has key %s with fingerprint %02x", keyText(key), fp)
	case !header.Covers(hash) && !(x.splitting && parent(header).Covers(hash)):
		return fmt.Sprintf("its block has key %s, which belongs to another sub-table", keyText(key))
	case elsewhere || x.splitting:
		return ""
	}
	first, second := x.g.Places(hash)
	if line := uint32(slot-x.table) &^ (lineSize - 1); line-first >= combined && line-second >= combined {
		return fmt.Sprintf("its block has key %s, whose lookups do not come by here", keyText(key))
	}
	return ""
}

// byWholeBlock judges a slot by the whole of its block: by the first copy that is
// intact and in use. That it is free on the primary alone is the block's fault: a
// slot is cleared before its block is freed, and blocks are freed on all copies that
// had them. If no copy can be judged by, the slot passes, and the block is reported
// with the blocks.
func (x *indexWalk) byWholeBlock(at layout.Addr, c *candidate, header race.Header, elsewhere bool) {
	a := c.word.Addr()
	free := false
	for k := range x.v.Copies(a) {
		p := x.read(a, k, x.whole[k], c.word.Class().Size())
		if p == nil {
			continue
		}
		img := record.Image(p)
		if _, err := img.Check(a); err != nil {
			continue
		}
		m := img.Meta()
		if m.State() == record.Free {
			free = free || k == 0
			continue
		}
		if m.Class() != c.word.Class() {
			c.fault = faultf(KindSlot, "%v: its block says that it is of class %d", c.word, m.Class())
			return
		}
		x.key(at, c, m.Table(), img.Key(), header, elsewhere, true)
		return
	}
	if free {
		c.fault = dangling(c.word)
		c.fault.theirs = x.l.Dangling && x.unswept()
	}
}

// link notes that a slot points to its block.
func (x *indexWalk) link(slot layout.Addr, c *candidate) {
	if c.fault != nil && c.fault.kind != KindDangling && c.fault.kind != KindSplit {
		return
	}
	a := c.word.Addr()
	if !x.walker.link(a, c.word.Class()) {
		if c.fault == nil && !x.splitting {
			x.twice[a] = true
			x.found(KindDuplicate, slot, 0, "%v: another slot points to this block, too", c.word)
		}
		return
	}
	if c.known {
		x.keys = append(x.keys, linkedKey{c.hash, slot, a})
	}
}

// isLinked reports whether a slot, or a node, leads to a block.
func (w *walker) isLinked(a layout.Addr, class layout.Class) bool {
	i := a.Offset() / class.Size()
	return w.linked[a.Segment()][i/64]>>(i%64)&1 != 0
}

// twins reports keys that the sub-table has twice. A key has only one sub-table.
func (x *indexWalk) twins() {
	slices.SortFunc(x.keys, func(a, b linkedKey) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.slot, b.slot))
	})
	for i := 1; i < len(x.keys); i++ {
		a, b := &x.keys[i-1], &x.keys[i]
		if a.hash != b.hash {
			continue
		}
		p, q := x.keyOf(a.block, 0), x.keyOf(b.block, 1)
		if p != nil && bytes.Equal(p, q) {
			x.found(KindDuplicate, b.slot, 0,
				"the slot at %v has the same key, %s, with the block at %v; this one has that at %v",
				a.slot, keyText(p), a.block, b.block)
		}
	}
}

// keyOf reads the key of a block into buffer i.
func (x *indexWalk) keyOf(a layout.Addr, i int) []byte {
	size := x.l.Segments[a.Segment()].Class.Size()
	img := record.Image(x.read(a, 0, x.whole[i], size))
	if img == nil {
		return nil
	}
	if n := img.Meta().KeyLen(); n > record.MaxKey || record.KeyAt(n)+n > len(img) {
		return nil
	}
	return img.Key()
}

// onlyOnBackup looks at the copies of a slot that is empty on the primary, or sound.
// Another one with a block to which it fits is put aside until all slots of the index
// are known, and made to look like the primary's.
func (x *indexWalk) onlyOnBackup(at layout.Addr, off uint32, primary race.Slot, copies [][]byte,
	byPlace map[place]*candidate) {
	for k := 1; k < len(copies); k++ {
		if copies[k] == nil {
			continue
		}
		s := race.Slot(word(copies[k], off))
		if s.Empty() || s == primary {
			continue
		}
		if c := byPlace[place{off, s}]; c != nil && c.fault == nil && c.known && len(x.only) < maxOnly {
			table := x.table
			if x.splitting {
				table = 0
			}
			x.only = append(x.only, onlyBackup{at + layout.Addr(off), k, s, primary, c.hash, table})
			binary.LittleEndian.PutUint64(copies[k][off:], uint64(primary))
		}
	}
}

// maxOnly bounds what is remembered of slots that only backups have.
const maxOnly = 1 << 20

// settleBackups settles them. Where the block has no other slot and is unlocked, the primary's has
// been lost, since whoever removes or replaces a slot holds the lock of its block. Where it has
// one, the backup's is a remnant. So it is where the block has a deleted record, if the primary's
// is another block's, or the key has another record.
func (x *indexWalk) settleBackups() {
	restored := map[layout.Addr]race.Slot{}
	if len(x.only) > 0 {
		x.keyed(x.id, 0, false)
	}
	for _, o := range x.only {
		if x.stopped() {
			return
		}
		a := o.word.Addr()
		if restored[o.slot] == o.word {
			continue // this copy agrees with what the primary should have
		}
		linked := x.isLinked(a, o.word.Class())
		p := x.read(a, 0, x.small, lineSize)
		if p == nil {
			continue
		}
		img := record.Image(p)
		held, lock := img.Guard().Held() && !(o.primary.Empty() && img.Stranded()), img.Lock()
		need, damage := img.Check(a)
		deleted := damage == nil && need <= lineSize && !img.Guard().Held() && img.Meta().State() == record.Absent
		replaced := !o.primary.Empty() && !x.twice[o.primary.Addr()]
		other := layout.Addr(0)
		if !linked && !held && !replaced {
			other = x.rivalOf(&o) // who did not find this one has inserted the key once more
		}
		remnant := ""
		switch {
		case linked:
			remnant = "; the block has its slot elsewhere"
		case deleted && (replaced || other != 0):
			remnant = "; the block has a deleted record"
		}
		var bytes [8]byte
		switch {
		case remnant != "":
			f := Finding{Kind: KindReplica, Table: x.id, What: fmt.Sprintf("copy %d has %v, the primary %v%s",
				o.copy, o.word, o.primary, remnant)}
			binary.LittleEndian.PutUint64(bytes[:], uint64(o.primary))
			x.repair(x.at(f, o.slot, o.copy), "the primary's word is written to the copy", bytes[:])
		case held:
			x.found(KindReplica, o.slot, o.copy, "copy %d has %v, the primary %v; the block is locked by %v",
				o.copy, o.word, o.primary, lock)
		case replaced: // each may be the only slot of a record
			x.found(KindReplica, o.slot, o.copy,
				"copy %d has %v, a block in use that no other slot points to, and the primary %v",
				o.copy, o.word, o.primary)
		case other != 0:
			x.found(KindReplica, o.slot, o.copy,
				"copy %d has %v, the primary %v; the key of the block has another record, by the slot at %v",
				o.copy, o.word, o.primary, other)
		default:
			f := Finding{
				Kind: KindSlot, Table: x.id,
				What: fmt.Sprintf("the slot is %v, but copy %d has %v, a block in use that no other slot points to",
					o.primary, o.copy, o.word),
			}
			binary.LittleEndian.PutUint64(bytes[:], uint64(o.word))
			x.repair(x.at(f, o.slot, 0), fmt.Sprintf("the slot of copy %d is written to the primary", o.copy), bytes[:])
			restored[o.slot] = o.word
			x.link(o.slot, &candidate{word: o.word, hash: o.hash})
			x.follow(&o)
			x.remark(&o)
		}
	}
}

// rivalOf is rival for what a backup has.
func (x *indexWalk) rivalOf(o *onlyBackup) layout.Addr {
	key := x.soundKey(o.word)
	if key == nil || o.table == 0 {
		return 0
	}
	other, _ := x.rival(o.table, o.hash, key, o.word.Addr())
	return other
}

// follow brings what is set again on the primary to the other copies, which had what that had
// before.
func (x *indexWalk) follow(o *onlyBackup) {
	for k := 1; k < x.v.Copies(o.slot); k++ {
		p := x.read(o.slot, k, x.small, 8)
		if p == nil || k == o.copy || race.Slot(word(p, 0)) != o.primary {
			continue
		}
		f := Finding{
			Kind: KindReplica, Table: x.id,
			What: fmt.Sprintf("copy %d has %v, as the primary, and not the slot of copy %d", k, o.primary, o.copy),
		}
		x.repair(x.at(f, o.slot, k), fmt.Sprintf("the slot of copy %d is written to it", o.copy),
			binary.LittleEndian.AppendUint64(nil, uint64(o.word)))
	}
}

// remark makes the mark of a slot that is set again, if it needs one that was taken back
// since it was lost.
func (x *indexWalk) remark(o *onlyBackup) {
	first, _ := x.g.Places(o.hash)
	if o.table == 0 || uint32(o.slot-o.table)&^(lineSize-1)-first < combined {
		return
	}
	bit := race.SpillBit(o.word.Fingerprint())
	for k := range x.v.Copies(o.table) {
		a := o.table + layout.Addr(race.MarkAt(first))
		p := x.read(a, k, x.small, 8)
		if p == nil || race.Header(word(p, 0)).Check(x.id) != nil || race.Header(word(p, 0))&bit != 0 {
			continue
		}
		x.unmarked(a, k, race.Header(word(p, 0)), bit, o.slot)
	}
}

// unmarked reports a header without the mark that a slot needs.
func (x *indexWalk) unmarked(a layout.Addr, k int, h, missing race.Header, slot layout.Addr) {
	f := Finding{
		Kind: KindBucket, Table: x.id,
		What: fmt.Sprintf("the bucket's header is %v, but the slot at %v holds a key in its second choice that this "+
			"is the first of", h, slot),
	}
	x.repair(x.at(f, a, k), "the mark is made", binary.LittleEndian.AppendUint64(nil, uint64(h|missing)))
}

// keyText is a key for people: as text if it is printable, else in hexadecimal.
func keyText(key []byte) string {
	const most = 40
	cut := ""
	if len(key) > most {
		key, cut = key[:most], "..."
	}
	for _, c := range key {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("%x%s", key, cut)
		}
	}
	return fmt.Sprintf("%q%s", key, cut)
}
