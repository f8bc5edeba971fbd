package recovery

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// tx is a transaction that a log has a record of.
type tx struct {
	log.Record
	raw     []byte // the record
	off     uint32 // in the log areas
	areas   []memory.LogArea
	on      []rdma.BladeID // where an intact copy was found
	entries []entry
	state   state
}

// state is what is to be done about a transaction.
type state uint8

const (
	atRest   state = iota // nothing
	toFinish              // it is committed
	toUndo                // it is not
)

// entry is a record that a transaction has written, and what was found of it.
type entry struct {
	log.Entry
	class layout.Class
	table uint16
	lost  bool // the segment has no copy left
	// lines are the first lines of the copies of Addr, or, of a redo log's Update,
	// that of the primary alone, as a rule; old are those of From.
	lines, old [layout.MaxReplicas][]byte
	// block is all of the block of a New that has no other copy, where the words of a line
	// arrive in any order.
	block []byte
	// held: the transaction has the lock: of Addr; of a move, of the block that the record leaves.
	// Of a New: the image is still to be written.
	held      bool
	installed bool // of a New: the primary has the image, as far as the first line tells
	switched  bool // of a move: the slot has the new block
	// whole: every copy of the new image is in place.
	whole bool
	asks  bool // the transaction has the lock if a slot points to Addr
	// reclaimed: the record was deleted, and whoever was freeing its block has not come to
	// its primary, or to what is the primary now.
	reclaimed record.Image // the free block, once more; nil: it is not so
	stranded  bool         // the index of its table is of no use: see strand.go
	freed     bool         // the block that the record has left, or did not come to
	// behindOnCopy: the primary is damaged, and a copy has what the transaction was to replace.
	behindOnCopy bool
}

// dirty is a part of a log area that has something in it.
type dirty struct {
	at rdma.RemoteAddr
	n  uint32
}

// clearUnit is how log areas are divided for clearing, in bytes.
const clearUnit = 16 << 10

// scan reads the log areas of all claimed coordinators. With Options.Durable it flushes
// them: whoever wrote a record may have died before he could. What is decided by it must
// not be there without it after a loss of power, neither a verdict nor a part of its images.
func (r *run) scan() error {
	found := map[record.TxID]*tx{}
	r.marks = map[uint32]uint64{}
	var areas [][]byte // by blade; of one coordinator after the other, in the same memory
	for _, co := range r.claim.Coordinators {
		var list []*fetch
		at := map[uint32]*tx{} // of this coordinator, by where their records are
		for b := range co.Logs {
			l := &co.Logs[b]
			l.Addr.Key = r.v.Key(rdma.BladeID(b))
			if b == len(areas) {
				areas = append(areas, nil)
			}
			areas[b] = slices.Grow(areas[b][:0], int(l.Size))[:l.Size]
		}
		// The same part of all areas in one round trip.
		part := r.size / uint32(max(len(co.Logs), 1)) &^ (clearUnit - 1)
		part = max(part, clearUnit)
		for off := uint32(0); off < maxSize(co.Logs); off += part {
			for b, l := range co.Logs {
				if off >= l.Size {
					continue
				}
				a, n := l.Addr, min(part, l.Size-off)
				a.Off += uint64(off)
				list = append(list, &fetch{at: a, n: n, out: areas[b][off : off+n]})
			}
		}
		if err := r.read(list); err != nil {
			return err
		}
		for b := range areas {
			r.noteDirty(co.Logs[b], areas[b])
			if l := &co.Logs[b]; r.o.Durable && l.Size > 0 {
				r.batch.Flush(l.Addr, l.Size)
			}
			again := func(off uint32) int { // the same record on another blade is known to be intact
				x := at[off]
				if x == nil || !bytes.HasPrefix(areas[b][off:], x.raw) {
					return 0
				}
				x.on = append(x.on, rdma.BladeID(b))
				return len(x.raw)
			}
			err := records(areas[b], co.ID, again, func(off uint32, rec *log.Record) {
				if rec.Kind == log.Mark {
					r.marks[co.ID] = max(r.marks[co.ID], rec.Tx.Seq())
					return
				}
				if found[rec.Tx] != nil { // it is not the same
					return
				}
				raw := bytes.Clone(areas[b][off:][:rec.Length])
				own, err := log.Decode(raw)
				if err != nil {
					return // it was decoded a moment ago
				}
				x := &tx{Record: own, raw: raw, off: off, areas: co.Logs, on: []rdma.BladeID{rdma.BladeID(b)}}
				found[rec.Tx], at[off] = x, x
				r.txs = append(r.txs, x)
			})
			if err != nil {
				return fmt.Errorf("recovery: log of coordinator %d on blade %d: %w", co.ID, b, err)
			}
		}
		if err := r.do(); err != nil {
			return err
		}
	}
	slices.SortFunc(r.txs, func(a, b *tx) int { return cmp.Compare(a.Tx, b.Tx) })
	return nil
}

func maxSize(logs []memory.LogArea) uint32 {
	n := uint32(0)
	for _, l := range logs {
		n = max(n, l.Size)
	}
	return n
}

// records calls fn for every intact record of a coordinator in a log area. Records start on lines.
// One that is intact has not been overwritten anywhere, so what looks like a record inside of it is
// a part of an image. known returns the length of a record at an offset that is known to be intact,
// and is passed over, or 0. log.ErrFormat: there is a record of the coordinator that this program
// does not understand.
func records(area []byte, coordinator uint32, known func(off uint32) int, fn func(off uint32, rec *log.Record)) error {
	for off := 0; off+log.HeaderSize <= len(area); {
		n := 0
		if _, err := log.Peek(area[off:]); err == nil { // few lines go on
			if n = known(uint32(off)); n == 0 {
				rec, err := log.Decode(area[off:])
				switch own := rec.Tx.Coordinator() == coordinator; {
				case own && errors.Is(err, log.ErrFormat):
					return fmt.Errorf("at byte %d: %w", off, err)
				case own && err == nil:
					fn(uint32(off), &rec)
					n = rec.Length
				}
			}
		}
		off += max((n+record.LineSize-1)&^(record.LineSize-1), record.LineSize)
	}
	return nil
}

// noteDirty remembers which parts of a log area are to be cleared.
func (r *run) noteDirty(l memory.LogArea, area []byte) {
	for off := uint32(0); off < l.Size; off += clearUnit {
		n := min(clearUnit, l.Size-off)
		if !allZero(area[off : off+n]) {
			a := l.Addr
			a.Off += uint64(off)
			r.dirty = append(r.dirty, dirty{a, n})
		}
	}
}

func allZero(p []byte) bool {
	for len(p) >= 8 {
		if binary.LittleEndian.Uint64(p) != 0 {
			return false
		}
		p = p[8:]
	}
	for _, x := range p {
		if x != 0 {
			return false
		}
	}
	return true
}

// clear makes the log areas zero: all of their transactions are at rest.
func (r *run) clear() error {
	if len(r.dirty) == 0 {
		return nil
	}
	zero := r.t.Bytes(r.buf, clearUnit)
	clear(zero)
	for _, d := range r.dirty {
		r.batch.Write(d.at, r.buf, d.n)
	}
	if r.o.Durable {
		for _, d := range together(r.dirty) {
			r.batch.Flush(d.at, d.n)
		}
	}
	if err := r.do(); err != nil {
		return err
	}
	return r.fence()
}

// together sorts parts of log areas, and makes one of those that lie side by side: a disk takes
// as long for all of them as for each.
func together(parts []dirty) []dirty {
	slices.SortFunc(parts, func(x, y dirty) int {
		return cmp.Or(cmp.Compare(x.at.Blade, y.at.Blade), cmp.Compare(x.at.Off, y.at.Off))
	})
	var out []dirty
	for _, d := range parts {
		if n := len(out) - 1; n >= 0 && out[n].at.Blade == d.at.Blade && out[n].at.Off+uint64(out[n].n) == d.at.Off {
			out[n].n += d.n
		} else {
			out = append(out, d)
		}
	}
	return out
}
