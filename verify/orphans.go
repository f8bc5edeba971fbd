package verify

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// A record that has a value loses its slot when it moves, and its block is locked then until it is
// free. Who deletes a record takes the value first. So a live record that is unlocked, and that no
// slot leads to, has lost its slot by damage, if nobody's death is still to be looked after; its
// block says which key it has, and a slot can be set again.
//
// Nor does one lose it that was about to move when its client died, and its index was
// damaged: both its blocks are locked then, and whoever opens the database finishes the move
// if a slot leads to either.
//
// If the key has another record, somebody has not found this one, and inserted it once more: that
// one counts. Of two such records without a slot nobody knows which one came later.
//
// A deleted record without a slot needs none: its block is made free. So does a node to which
// nothing leads in a tree that is sound: a table whose creation was stopped leaves two. A live
// record of an ordered table is reported.

// orphan is a block in use to which nothing leads: a live record, a deleted one, or a node.
type orphan struct {
	finding Finding
	version txid
	state   record.State
	idle    bool // nobody needs the block
	class   layout.Class
	table   uint16
	hash    uint64
	key     []byte
	bytes   uint64 // of key and value
}

// maxOrphans bounds what is remembered of them.
const maxOrphans = 1 << 20

// orphaned reports a block in use that no slot points to, and is intact and unlocked;
// records later, when all are known. false: the copies tell different things, and none is
// to be written over.
func (w *walker) orphaned(b *block, m record.Meta) bool {
	img := b.copies[0]
	what := "no slot points to the block"
	if w.ordered(m.Table()) {
		what = "no node leads to the block"
	}
	f := w.at(Finding{Kind: KindOrphan, Table: m.Table(), What: what + ": " + describe(img)}, b.addr, 0)
	if w.filled(b, img, &f) { // the node that leads there is what its transaction publishes last
		return false
	}
	for k := 1; k < b.n; k++ {
		if b.copies[k] == nil {
			continue
		}
		if _, x := w.image(b, b.copies[k]); x == nil &&
			!bytes.Equal(b.copies[k][:record.LineSize], img[:record.LineSize]) {
			f.What += fmt.Sprintf("; copy %d has %v", k, describe(b.copies[k]))
			w.found(f)
			return false
		}
	}
	idle := m.State() != record.Live
	if len(w.orphans) >= maxOrphans || idle && img.Guard().Held() {
		w.found(f)
		return true
	}
	key := bytes.Clone(img.Key())
	w.orphans = append(w.orphans, orphan{
		f, img.Version(), m.State(), idle, b.class, m.Table(),
		record.Hash(m.Table(), key), key, uint64(m.KeyLen() + m.ValueLen()),
	})
	return true
}

// relink gives the records their slots again that have lost them, and makes the blocks of
// deleted ones free.
func (w *walker) relink() {
	seen := map[string]int{}
	name := func(o *orphan) string { return fmt.Sprintf("%d %s", o.table, o.key) }
	for i := range w.orphans {
		if o := &w.orphans[i]; !o.idle {
			seen[name(o)]++
		}
	}
	for i := range w.orphans {
		if w.stopped() {
			return
		}
		o := &w.orphans[i]
		f := o.finding
		x := w.walks[o.table]
		var to home
		var why string
		switch {
		case len(w.l.Coordinators) > 0 || w.unswept():
			why = "who opens the database looks after what the dead have left first"
			f.Unfinished = o.idle
		case o.idle:
		case seen[name(o)] > 1:
			why = "nor to another one with the same key"
		case w.suspects[f.Addr]:
			why = "but one that is damaged"
		case w.ordered(o.table):
			w.found(f)
			continue
		case x == nil:
			why = "the table has no index"
		default:
			to, why = x.home(o)
		}
		if why != "" {
			f.What += "; " + why
			w.found(f)
			continue
		}
		if o.idle {
			w.free(o)
			continue
		}
		if w.proves() {
			f.Remedy = fmt.Sprintf("the slot at %v, which is empty, is made to lead there", to.slot)
		}
		if w.o.Repair {
			f.Failed = x.settle(o, to)
			f.Repaired = f.Failed == nil
		}
		if w.found(f); f.Repaired {
			x.sum.Slots++
			x.sum.Records++
			x.sum.Bytes += o.bytes
		}
	}
}

// free makes the block of a deleted record, or of a node, free, on all copies.
func (w *walker) free(o *orphan) {
	img := make(record.Image, record.LineSize)
	// Its number is larger than those of what was freed as long as there was a coordinator.
	img.PutFree(o.finding.Addr, o.version, o.table, o.class, uint64(w.l.NextCoordinator)<<memory.FreesShift)
	f := o.finding
	if w.proves() {
		f.Remedy = "the block is made free, on all copies"
	}
	if w.o.Repair {
		for k := w.v.Copies(f.Addr) - 1; k >= 0 && f.Failed == nil; k-- {
			at := w.v.At(f.Addr, k)
			f.Failed = w.write(rdma.RemoteAddr{Blade: at.Blade, Key: w.v.Key(at.Blade), Off: at.Off}, img)
		}
		f.Repaired = f.Failed == nil
	}
	if w.found(f); f.Repaired {
		if w.sum.Free++; o.state == record.Node {
			w.sum.Nodes--
		} else {
			w.sum.Absent--
		}
	}
}

// home is where a slot for a key can be.
type home struct {
	slot layout.Addr
	mark layout.Addr // the header that has to say so; 0: none
	bit  race.Header
}

// home looks for a place for the slot of a record, or says why there is none.
func (x *indexWalk) home(o *orphan) (h home, why string) {
	e := x.dir[o.hash&uint64(len(x.dir)-1)]
	if e == 0 || e.Filling() {
		return h, "the directory of its index is damaged, or a split was not finished"
	}
	for k := range x.v.Copies(e.Table()) {
		p := x.read(e.Table(), k, x.small, tableHeader)
		if p == nil || word(p, tableChild) != 0 || word(p, tableLock) != 0 {
			return h, "its sub-table is damaged, or a split was not finished"
		}
		if _, err := race.ParseBirth(p); err != nil {
			return h, "its sub-table is damaged"
		}
	}
	want := race.MakeHeader(x.id, e.Depth(), uint32(o.hash)&(1<<e.Depth()-1))
	first, second := x.g.Places(o.hash)
	for i, place := range [2]uint32{first, second} {
		at := e.Table() + layout.Addr(place)
		copies := x.copies(at, combined, &x.chunks)
		main := race.MarkAt(place) - bucketHeader - place
		for _, line := range [2]uint32{main, lineSize - main} {
			for _, p := range copies {
				if p == nil || race.Header(word(p, line+bucketHeader)).Base() != want ||
					race.Header(word(p, line+bucketHeader)).Recount() {
					return h, "the buckets of its key are damaged, or a split was not finished"
				}
			}
			for off := line; off < line+bucketHeader && h.slot == 0; off += 8 {
				if !slices.ContainsFunc(copies, func(p []byte) bool { return !race.Slot(word(p, off)).Empty() }) {
					h.slot = at + layout.Addr(off)
					if i == 1 {
						h.mark, h.bit = e.Table()+layout.Addr(race.MarkAt(first)), race.SpillBit(uint8(o.hash>>56))
					}
				}
			}
		}
	}
	other, doubt := x.rival(e.Table(), o.hash, o.key, o.finding.Addr)
	switch {
	case other != 0:
		why = fmt.Sprintf("its key has another record, by the slot at %v", other)
	case doubt != "":
		why = doubt
	case h.slot == 0:
		why = "the buckets of its key are full"
	}
	return h, why
}

// rival returns the slot by which a key has another block, in a sub-table; 0: there is none, but
// for what doubt says.
func (x *indexWalk) rival(table layout.Addr, hash uint64, key []byte, block layout.Addr) (at layout.Addr,
	doubt string) {
	first, second := x.g.Places(hash)
	for _, place := range [2]uint32{first, second} {
		at := table + layout.Addr(place)
		var words [2 * lineSize / 8][]race.Slot // on all copies
		var primary [2 * lineSize / 8]race.Slot
		for k, p := range x.copies(at, combined, &x.chunks) {
			for i := range words {
				if p == nil {
					return 0, "its bucket cannot be read"
				}
				s := race.Slot(word(p, uint32(8*i)))
				if k == 0 {
					primary[i] = s
				}
				if uint32(8*i)%lineSize != bucketHeader && !s.Empty() && uint64(s.Fingerprint()) == hash>>56 &&
					s.Addr() != block && !slices.Contains(words[i], s) {
					words[i] = append(words[i], s)
				}
			}
		}
		for i, all := range words {
			for _, s := range all {
				slot := at + layout.Addr(8*i)
				if f := x.form(s); f != nil {
					doubt = fmt.Sprintf("the slot at %v may be that of its key: %s", slot, f.what)
				} else if k := x.soundKey(s); k == nil {
					doubt = fmt.Sprintf("the slot at %v may be that of its key: %v, a block that is damaged, or free",
						slot, s)
				} else if bytes.Equal(k, key) && (s == primary[i] || !x.departed(s.Addr())) {
					return slot, ""
				}
			}
		}
	}
	return 0, doubt
}

// departed reports whether a block is the one that a record was to leave whose move is to be
// finished: a slot that a backup alone has does not say that the record is linked.
func (x *indexWalk) departed(a layout.Addr) bool {
	p := x.read(a, 0, x.small, lineSize)
	return p != nil && record.Image(p).Stranded() && record.Image(p).Lock().Seq() == record.MaxSequence
}

// soundKey reads the key of a slot's block, from the first copy that is intact and in use;
// nil: there is none.
func (x *indexWalk) soundKey(s race.Slot) []byte {
	for k := range x.v.Copies(s.Addr()) {
		img := record.Image(x.read(s.Addr(), k, x.whole[k], s.Class().Size()))
		if img == nil {
			continue
		}
		if _, damage := img.Check(s.Addr()); damage == nil && img.Meta().State() != record.Free {
			return bytes.Clone(img.Key())
		}
	}
	return nil
}

// settle sets the slot of a record on all copies, with its mark ahead.
func (x *indexWalk) settle(o *orphan, to home) error {
	if to.mark != 0 {
		for k := range x.v.Copies(to.mark) {
			p := x.read(to.mark, k, x.small, 8)
			if p == nil {
				return ErrFault
			}
			if err := x.put(to.mark, k, word(p, 0)|uint64(to.bit)); err != nil {
				return err
			}
		}
	}
	for k := x.v.Copies(to.slot) - 1; k >= 0; k-- {
		if err := x.put(to.slot, k, uint64(race.MakeSlot(uint8(o.hash>>56), o.class, o.finding.Addr))); err != nil {
			return err
		}
	}
	return nil
}

// put writes a word of a copy.
func (x *indexWalk) put(a layout.Addr, k int, v uint64) error {
	at := x.v.At(a, k)
	return x.write(rdma.RemoteAddr{Blade: at.Blade, Key: x.v.Key(at.Blade), Off: at.Off},
		binary.LittleEndian.AppendUint64(nil, v))
}
