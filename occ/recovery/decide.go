package recovery

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// inspect reads what the blades say of the records that the logs name: of a redo
// log's Update the first line of the primary, unless a blade was lost and it frees the block, and
// of everything else that of all copies.
func (r *run) inspect() error {
	var list []*fetch
	var to []*[]byte
	want := func(dst *[]byte, a layout.Addr, k int, n uint32) {
		at := r.v.At(a, k)
		f := &fetch{at: at, n: n, out: make([]byte, n)}
		*dst = f.out
		list, to = append(list, f), append(to, dst)
	}
	tables, err := r.o.Space.Tables()
	if err != nil {
		return err
	}
	for _, x := range r.txs {
		x.entries = make([]entry, 0, len(x.Record.Entries))
		for _, e := range x.Record.Entries {
			m := e.Image.Meta()
			n := entry{Entry: e, class: m.Class(), table: m.Table()}
			// No transaction that has written to a table is under way when nothing is
			// left of the table.
			n.lost = n.table > 0 && int(n.table) <= len(tables) && tables[n.table-1].State == layout.TableDropped
			if !r.sound(e.Addr, n.class) {
				n.lost = true
			}
			x.entries = append(x.entries, n)
		}
		for i := range x.entries {
			e := &x.entries[i]
			switch {
			case e.lost:
			case x.Kind == log.Redo && e.Kind == log.Update && (e.Prev != 0 && !e.frees() || !r.claim.Promoted):
				want(&e.lines[0], e.Addr, 0, record.LineSize)
			default:
				for k := range r.v.Copies(e.Addr) {
					want(&e.lines[k], e.Addr, k, record.LineSize)
				}
				if e.Kind == log.New && r.v.Copies(e.Addr) == 1 && !r.t.Caps().OrderedLine {
					want(&e.block, e.Addr, 0, e.class.Size())
				}
			}
		}
	}
	if err := r.read(list); err != nil {
		return err
	}
	return r.settle(list)
}

// settle reads lines again whose guard is not of the version in front of it, until they stay the
// same. The dead leave such lines, and so does a READ beside a WRITE of the living.
func (r *run) settle(lines []*fetch) error {
	for range maxSettles {
		var list []*fetch
		for _, f := range lines {
			if img := record.Image(f.out); f.n == record.LineSize && !img.Guard().Held() &&
				img.Guard().Version() != img.Version() {
				list = append(list, &fetch{at: f.at, n: f.n, into: f})
			}
		}
		if len(list) == 0 {
			return nil
		}
		if err := r.read(list); err != nil {
			return err
		}
		lines = lines[:0]
		for _, f := range list {
			if !bytes.Equal(f.out, f.into.out) {
				copy(f.into.out, f.out)
				lines = append(lines, f.into)
			}
		}
	}
	return nil
}

// maxSettles bounds how often lines are read again: one that goes on to change is
// written by a live client.
const maxSettles = 16

// sound reports whether an address of a log can be that of a block. Segments whose
// last copy is gone are lost, and what was in them.
func (r *run) sound(a layout.Addr, class layout.Class) bool {
	return a%layout.BlockAlign == 0 && class < layout.NumClasses && r.v.Contains(a, class.Size())
}

// guardOf is the guard in a line, or in a guard that was read alone.
func guardOf(p []byte) record.Guard {
	return record.Guard(binary.LittleEndian.Uint64(p[len(p)-8:]))
}

// decide finds out which transactions are not at rest, and what is to become of them.
func (r *run) decide() error {
	if err := r.locate(); err != nil {
		return err
	}
	if err := r.compare(); err != nil {
		return err
	}
	for _, x := range r.txs {
		if x.Kind == log.Redo {
			x.state = x.redo()
		} else {
			x.state = r.sustain(x, x.undo())
		}
	}
	return nil
}

// redo: the record is the decision; is everything in place?
func (x *tx) redo() state {
	if slices.ContainsFunc(x.entries, func(e entry) bool { return !e.lost && e.held }) {
		return toFinish
	}
	return atRest
}

// undo decides by what is in place: if every copy of every record that the
// transaction still holds has the new image, it is committed. Records that it does
// not hold were released, after either decision, and say nothing; if there are no
// others, and a copy still has its lock, it was released after a commit, since only
// that has written to backups.
func (x *tx) undo() state {
	holds, whole, trace := false, true, false
	for i := range x.entries {
		e := &x.entries[i]
		if e.lost {
			continue
		}
		if e.held {
			holds = true
			whole = whole && e.whole
			continue
		}
		for _, p := range e.lines {
			trace = trace || p != nil && guardOf(p) == record.HeldBy(x.Tx)
		}
	}
	switch {
	case holds && whole, !holds && trace:
		return toFinish
	case holds:
		return toUndo
	}
	return atRest
}

// sustain keeps to what an earlier recoverer has decided and made durable: without
// backups, a transaction that is half undone can look like one that is whole.
func (r *run) sustain(x *tx, s state) state {
	if s == atRest {
		return s
	}
	v, ok := r.o.Space.Verdict(x.Tx.Coordinator())
	if !ok {
		return s
	}
	if slices.Contains(v.Aborted, x.Tx.Seq()) {
		return toUndo
	}
	if slices.Contains(v.Committed, x.Tx.Seq()) {
		return toFinish
	}
	return s
}

// locate finds out which records are still locked by their transactions.
func (r *run) locate() error {
	r.findSuccessors()
	if err := r.askCopies(); err != nil {
		return err
	}
	for _, x := range r.txs {
		for i := range x.entries {
			switch e := &x.entries[i]; {
			case e.lost:
			case e.Kind == log.New:
				e.held = r.uninstalled(x, e)
			default:
				e.held = r.holds(x, e) || e.behindOnCopy || r.unreleased(x, e)
			}
		}
	}
	return nil
}

// image is a version of a block.
type image struct {
	addr    layout.Addr
	version record.TxID
}

// findSuccessors notes which images were read, and locked, by a transaction that has
// come to its log.
func (r *run) findSuccessors() {
	if !r.claim.Promoted {
		return
	}
	r.successors = map[image]bool{}
	for _, x := range r.txs {
		for i := range x.entries {
			e := &x.entries[i]
			r.successors[image{e.Addr, e.Prev}] = true
		}
	}
}

// holds reports whether a transaction still has the lock of a record that it was about to write.
//
// After the loss of a blade the primary may be a former backup, which never had the lock. Then the
// transaction has the lock if the primary's image is the one that it was to replace, or its own,
// which some of the copies may lack. An image of its own that is not whole, behind another guard,
// is the first line of the block: the process was killed in the middle of the WRITE. If another
// transaction has locked the record since, the first one had released it. Nothing was written since
// the blade was lost, and no version comes back.
func (r *run) holds(x *tx, e *entry) bool {
	line := record.Image(e.lines[0])
	g := line.Guard()
	switch {
	case g == record.HeldBy(x.Tx):
		return true
	case !r.claim.Promoted || g.Held() || r.successors[image{e.Addr, x.Tx}]:
		return false
	case g == record.FreeAt(e.Prev):
		return true
	case e.frees():
		return x.unfreed(e)
	case g == record.FreeAt(x.Tx):
		return x.Kind == log.Undo || len(e.Image) > record.LineSize || r.v.Written(e.Addr) > 1
	}
	return line.Version() == x.Tx
}

// unreleased reports whether a record is still what a transaction was to replace, whose guard says
// that it is at rest: then the guard is damaged. No version comes back.
func (r *run) unreleased(x *tx, e *entry) bool {
	return x.Kind == log.Redo && !r.claim.Promoted && record.Image(e.lines[0]).Version() == e.Prev
}

// askCopies finds out which records are still what a transaction was to replace on a copy, though
// what the primary has can be no record: it is damaged. All copies come before the primary, and no
// version comes back, so that the transaction has its lock still.
func (r *run) askCopies() error {
	if r.claim.Promoted {
		return nil
	}
	type copied struct {
		x *tx
		e *entry
		f *fetch
	}
	var lines []copied
	var list []*fetch
	for _, x := range r.txs {
		for i := range x.entries {
			e := &x.entries[i]
			if e.lost || x.Kind != log.Redo || e.Kind != log.Update || !r.senseless(e.Addr, e.lines[0]) {
				continue
			}
			for k := 1; k < r.v.Copies(e.Addr); k++ {
				f := &fetch{at: r.v.At(e.Addr, k), n: record.LineSize}
				lines, list = append(lines, copied{x, e, f}), append(list, f)
			}
		}
	}
	if err := r.read(list); err != nil {
		return err
	}
	for _, y := range lines {
		img := record.Image(y.f.out)
		y.e.behindOnCopy = y.e.behindOnCopy || img.Version() == y.e.Prev && img.Meta().State() != record.Free
	}
	return nil
}

// senseless reports whether a line of a primary that has had a record is damaged, as far as it
// tells by itself: it was never used, which somebody may have locked since, its guard is nobody's,
// and not of its version, or it is no record's.
func (r *run) senseless(a layout.Addr, line record.Image) bool {
	g := line.Guard()
	need, damage := line.Check(a)
	return line.Version() == 0 || damage != nil && need <= record.LineSize ||
		g.Held() && !r.o.Space.Registered(g.Owner().Coordinator()) || !g.Held() && !line.Stable()
}

// compare verifies, for records of undo logs that are still held, whether all copies
// have the new image.
func (r *run) compare() error {
	type candidate struct {
		e    *entry
		addr layout.Addr
		f    *fetch
	}
	var images []candidate
	var list []*fetch
	for _, x := range r.txs {
		if x.Kind != log.Undo {
			continue
		}
		for i := range x.entries {
			e := &x.entries[i]
			if e.lost || !e.held {
				continue
			}
			a := e.Addr
			n := r.v.Copies(a)
			e.whole = n > 0
			for k := range n {
				img := record.Image(e.lines[k])
				m := img.Meta()
				if img.Version() != x.Tx || m.Class() >= layout.NumClasses || m.KeyLen() > record.MaxKey ||
					m.ValueLen() > record.MaxValue {
					e.whole = false
					break
				}
				size := uint32(record.Size(m.KeyLen(), m.ValueLen()))
				if !r.v.Contains(a, size) {
					e.whole = false
					break
				}
				f := &fetch{at: r.v.At(a, k), n: size}
				images, list = append(images, candidate{e, a, f}), append(list, f)
			}
		}
	}
	if err := r.read(list); err != nil {
		return err
	}
	for _, x := range images {
		if _, err := record.Image(x.f.out).Check(x.addr); err != nil {
			x.e.whole = false
		}
	}
	return nil
}

// freed is the number of the last freeing of the block of an entry, of which a copy is free: that
// of a block of before, if the number of its segment was used again.
func (r *run) freed(e *entry, free record.Image) uint64 { return max(free.Freed(), r.v.Freed(e.Addr)) }

// persist makes the verdicts durable, before anything is done about them.
func (r *run) persist() error {
	byID := map[uint32]*layout.Verdict{}
	var ids []uint32
	for _, co := range r.claim.Coordinators {
		byID[co.ID] = &layout.Verdict{Coordinator: co.ID, Last: r.marks[co.ID]}
		// Its clients have their answers; or what its logs do not list may have had one.
		if co.Closing || co.FewLogs && r.claim.Promoted {
			byID[co.ID].Last = record.MaxSequence
		}
		ids = append(ids, co.ID)
	}
	for _, x := range r.txs {
		v := byID[x.Tx.Coordinator()]
		v.Last = max(v.Last, x.Tx.Seq()+x.Ahead)
		switch {
		case x.Kind == log.Redo || x.state == toFinish:
			v.Committed = append(v.Committed, x.Tx.Seq())
			r.committed = append(r.committed, x.Tx)
		case x.state == toUndo:
			v.Aborted = append(v.Aborted, x.Tx.Seq())
			r.aborted = append(r.aborted, x.Tx)
		}
	}
	for _, t := range r.o.Asked {
		v := byID[t.Coordinator()]
		if v != nil && !slices.Contains(v.Committed, t.Seq()) && !slices.Contains(v.Aborted, t.Seq()) {
			v.Aborted = append(v.Aborted, t.Seq())
			r.aborted = append(r.aborted, t)
		}
	}
	var all []layout.Verdict
	for _, id := range ids {
		slices.Sort(byID[id].Aborted)
		all = append(all, *byID[id])
	}
	if err := r.claim.Decide(all); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}
