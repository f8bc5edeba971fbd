package verify

import (
	"encoding/binary"
	"fmt"
	"strings"

	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

type txid = record.TxID

// logRecordAlign is where records begin: package log's rings align them to lines.
const logRecordAlign = 64

// hashBudget bounds the work of telling records from garbage: how many bytes are
// hashed at most, as a multiple of a log area's size.
const hashBudget = 16

// logArea is a coordinator's log area on one blade.
func (d *Database) logArea(c layout.CoordinatorEntry, b rdma.BladeID) (layout.Addr, bool) {
	per := d.l.SegmentSize / d.l.LogArea
	for id := range d.l.Segments {
		s := &d.l.Segments[id]
		if s.Kind == layout.KindLog && s.Placement.N > 0 && s.Row == c.Slot/per && s.Placement.Replicas[0].Blade == b {
			return layout.MakeAddr(layout.SegmentID(id), c.Slot%per*d.l.LogArea), true
		}
	}
	return 0, false
}

// logs looks into every log area: those in use for transactions that are
// undecided, the others for anything at all.
func (w *walker) logs() {
	owner := map[uint32]layout.CoordinatorEntry{}
	for _, c := range w.l.Coordinators {
		owner[c.Slot] = c
	}
	per := w.l.SegmentSize / w.l.LogArea
	seen := map[txid]bool{}
	for id := range w.l.Segments {
		s := &w.l.Segments[id]
		if s.Kind != layout.KindLog || s.Placement.N == 0 {
			continue
		}
		for i := range per {
			if w.stopped() {
				return
			}
			area := layout.MakeAddr(layout.SegmentID(id), i*w.l.LogArea)
			if c, ok := owner[s.Row*per+i]; ok {
				w.logOf(c, area, seen)
			} else {
				w.blankLog(area)
			}
			w.advance(uint64(w.l.LogArea))
		}
	}
}

// blankLog checks that an area that nobody uses is blank, as the next coordinator
// expects it.
func (w *walker) blankLog(area layout.Addr) {
	for off := uint32(0); off < w.l.LogArea; off += chunk {
		a := area + layout.Addr(off)
		p := w.read(a, 0, w.chunks[0], min(chunk, w.l.LogArea-off))
		for i := 0; i+8 <= len(p); i += 8 {
			if v := binary.LittleEndian.Uint64(p[i:]); v != 0 {
				w.found(w.at(Finding{
					Kind: KindLog, What: fmt.Sprintf("the log area belongs to nobody and is not blank: %#x", v),
				}, a+layout.Addr(i), 0))
				return
			}
		}
	}
}

// logOf reads the area of a coordinator that was not closed.
func (w *walker) logOf(c layout.CoordinatorEntry, area layout.Addr, seen map[txid]bool) {
	p := make([]byte, 0, w.l.LogArea)
	for off := uint32(0); off < w.l.LogArea; off += chunk {
		q := w.read(area+layout.Addr(off), 0, w.chunks[0], min(chunk, w.l.LogArea-off))
		if q == nil {
			return
		}
		p = append(p, q...)
	}
	eachRecord(p, func(off uint32, r *log.Record, err error) bool {
		a := area + layout.Addr(off)
		switch {
		case err != nil:
			// Part of the ring was used again, or a record was being written.
		case r.Tx.Coordinator() != c.ID:
			w.found(w.at(Finding{
				Kind: KindLog, What: fmt.Sprintf("a record of transaction %v in the log of coordinator %d", r.Tx, c.ID),
			}, a, 0))
		case !seen[r.Tx]:
			seen[r.Tx] = true
			w.sum.LogRecords++
			if !w.alive(c.ID) {
				w.decided(a, r)
			}
		}
		return !w.stopped()
	})
}

// eachRecord calls fn for every log record that begins in an area, whole or not,
// until fn returns false.
func eachRecord(p []byte, fn func(off uint32, r *log.Record, err error) bool) {
	budget := hashBudget * len(p)
	for off := 0; off+log.HeaderSize <= len(p); {
		n, err := log.Peek(p[off:])
		if err != nil {
			off += logRecordAlign
			continue
		}
		if budget -= min(n, len(p)-off); budget < 0 {
			return
		}
		r, err := log.Decode(p[off:])
		if !fn(uint32(off), &r, err) {
			return
		}
		if err != nil {
			off += logRecordAlign
			continue
		}
		off += (r.Length + logRecordAlign - 1) &^ (logRecordAlign - 1)
	}
}

// logKind names a kind of records.
func logKind(k log.Kind) string {
	switch k {
	case log.Redo:
		return "redo"
	case log.Undo:
		return "undo"
	case log.Mark:
		return "mark"
	}
	return fmt.Sprintf("kind %d", k)
}

// decided reports a transaction whose record is in a log and which still has
// something to be done: it holds a lock, or its images are not where the record
// says that they go.
func (w *walker) decided(at layout.Addr, r *log.Record) {
	var held, lost []string
	for _, e := range r.Entries {
		for _, a := range [...]layout.Addr{e.Addr, e.From} {
			if a == 0 || !w.contains(a, record.LineSize, layout.KindBlocks) || a%layout.BlockAlign != 0 {
				continue
			}
			p := w.read(a, 0, w.small, record.LineSize)
			if p == nil {
				continue
			}
			img := record.Image(p)
			switch {
			case img.Lock() == r.Tx:
				held = append(held, a.String())
			case r.Kind == log.Redo && a == e.Addr && e.Kind == log.Update && e.Prev != r.Tx && e.Prev != 0 &&
				img.Guard() == record.FreeAt(e.Prev):
				lost = append(lost, a.String())
			}
		}
	}
	if len(held)+len(lost) == 0 {
		return
	}
	what := fmt.Sprintf("transaction %v has a record (%s, generation %d, %d entries)",
		r.Tx, logKind(r.Kind), r.Generation, len(r.Entries))
	if r.Kind == log.Redo {
		what += ": it is committed"
	}
	if len(held) > 0 {
		what += fmt.Sprintf("; it holds the locks of %d blocks: %s", len(held), some(held))
	}
	if len(lost) > 0 {
		what += fmt.Sprintf("; %d blocks have what they had before it, unlocked: %s", len(lost), some(lost))
	}
	for _, e := range r.Entries {
		if e.Kind == log.New {
			w.fills[e.Addr] = r.Tx
		}
	}
	w.pending[r.Tx] = fmt.Sprintf("its %s record is at %v", logKind(r.Kind), at)
	w.found(w.at(Finding{Kind: KindPending, What: what, Unfinished: len(lost) == 0}, at, 0))
}

// some is the first few of a list.
func some(list []string) string {
	const most = 4
	if len(list) > most {
		return strings.Join(list[:most], ", ") + ", ..."
	}
	return strings.Join(list, ", ")
}
