package recovery

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"txnode/index"
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
			if !r.sound(e.Addr, n.class) || e.Kind == log.Move && !r.sound(e.From, 0) {
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
				if e.Kind == log.Move {
					for k := range r.v.Copies(e.From) {
						want(&e.old[k], e.From, k, record.LineSize)
					}
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
	for i := range x.entries {
		if e := &x.entries[i]; !e.lost && (e.held || e.Kind == log.Move && x.moving(e, e.lines[:], e.old[:])) {
			return toFinish
		}
	}
	return atRest
}

// moving reports whether a move whose old block is not locked any more has still
// to be finished: a copy of the new block is locked, or one of the old block is not
// free yet.
func (x *tx) moving(e *entry, to, from [][]byte) bool {
	for _, p := range to {
		if p != nil && guardOf(p) == record.HeldBy(x.Tx) {
			return true
		}
	}
	return freedBy(from[0], x.Tx) && x.left(e, from[1:])
}

// left reports whether one of the copies of the block that a move leaves is still to be
// freed: it has what the move has replaced, or half of that. A copy that has something else
// is somebody's by now, whose first image has reached it before the others.
func (x *tx) left(e *entry, copies [][]byte) bool {
	return slices.ContainsFunc(copies, func(p []byte) bool {
		if p == nil || freedBy(p, x.Tx) {
			return false
		}
		v := record.Image(p).Version()
		return v == e.Prev || v == x.Tx
	})
}

// freedBy reports whether a line is that of a block which a transaction has freed,
// and which has not been used since. Somebody may have locked it, who has taken it for the
// block of a record still: he has seen the guard free.
func freedBy(p []byte, t record.TxID) bool {
	img := record.Image(p)
	by := img.Lock()
	return img.Meta().State() == record.Free && img.Version() == t && (img.Stable() || by != 0 && by != t)
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
		to, from := e.lines[:], e.old[:]
		if e.Kind == log.Move { // of an undo log, Addr is the old block
			to, from = from, to
			// An old block is freed by who has committed; that nothing else is left to be seen
			// may be because the lock of the new one is lost with its blade.
			trace = trace || x.moving(e, to, from) || freedBy(from[0], x.Tx)
			continue
		}
		for _, p := range to {
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

// remnant reports whether a copy of the block of an insert that is undone has its image
// still, though the primary is free: whoever took the insert back has unlinked the block,
// freed some copies or none, and died, and the blade that had the lock was lost. Where none
// was, the primary is damaged.
func (r *run) remnant(x *tx, e *entry) bool {
	if !r.claim.Promoted || x.Kind != log.Undo || e.Kind != log.Update || e.held || e.lost ||
		e.Image.Meta().State() != record.Absent {
		return false
	}
	return soundFree(e.lines[0], e.Addr) && slices.ContainsFunc(e.lines[1:], func(p []byte) bool {
		return p != nil && (record.Image(p).Version() == x.Tx && record.Image(p).Meta().State() != record.Free ||
			guardOf(p) == record.HeldBy(x.Tx))
	})
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

// locate finds out which records are still locked by their transactions, and, of
// those that move, whether their slots have been switched.
func (r *run) locate() error {
	r.findSuccessors()
	if err := r.askCopies(); err != nil {
		return err
	}
	for _, x := range r.txs {
		for i := range x.entries {
			e := &x.entries[i]
			if e.lost {
				continue
			}
			if e.Kind == log.New {
				e.held = r.uninstalled(x, e)
				continue
			}
			old := e.lines[0]
			if e.Kind == log.Move && x.Kind == log.Redo {
				old = e.old[0]
			}
			e.held, e.asks = r.holds(x, e, old)
			e.held = e.held || e.behindOnCopy || r.unreleased(x, e, old)
		}
	}
	return r.each(func(_ *tx, e *entry) bool { return e.asks || e.Kind == log.Move && e.held },
		func(r *run, x *tx, e *entry) error {
			switch {
			case e.stranded: // nobody can look
				e.held = true
				return nil
			case !e.held:
				linked, err := r.linked(e, e.Addr)
				e.held = linked
				return err
			}
			q, err := r.lookup(e.table, e.Image)
			if err != nil {
				return err
			}
			there, here := leadsTo(q, x.goes(e)), leadsTo(q, x.leaves(e))
			switch {
			case x.Kind == log.Redo: // if it leads nowhere, the index is damaged: see replace
				e.switched = there && !here
			default:
				// With an undo log the transaction may have given up, and another one have switched
				// the slot since, even to the block that the first had been about to use.
				e.switched = there && !slices.ContainsFunc(e.old[:r.v.Copies(e.From)], func(p []byte) bool {
					return record.Image(p).Version() != x.Tx
				})
			}
			return nil
		})
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
			r.successors[image{x.leaves(e), e.Prev}] = true
		}
	}
}

// holds reports whether a transaction still has the lock of what it was about to
// write, whose line, or guard, is given.
//
// When a blade has been lost, the primary may be one that was a backup, and never had
// the lock. Then the transaction would have it if the image is the one that it was to
// replace; or its own, which may be on some of the copies only; or if the block is free
// although a slot points to it, since its placeholder was on the lost primary alone. If
// the block was freed since the transaction wrote its log, the transaction had been at
// rest, and somebody else was about to insert the key again, into the same block.
// An image of its own that is not whole, behind a guard that is not its, is the first of
// the block, and its process was killed in the middle of writing it.
// What another transaction has locked since, the first had released. Nobody has
// touched anything since the blade was lost, and no version comes back.
//
// asks: that is so if a slot points to e.Addr.
func (r *run) holds(x *tx, e *entry, line []byte) (held, asks bool) {
	g := guardOf(line)
	switch {
	case g == record.HeldBy(x.Tx):
		return true, false
	case !r.claim.Promoted || g.Held() || r.successors[image{x.goes(e), x.Tx}]:
		return false, false
	case e.Prev != 0 && g == record.FreeAt(e.Prev):
		return true, false
	case e.frees() && len(line) == record.LineSize:
		return x.unfreed(e), false
	case e.Kind == log.Update && g == record.FreeAt(x.Tx) && len(line) == record.LineSize &&
		record.Image(line).Meta().State() == record.Free:
		return false, false // it has taken back its insert, and freed the block
	case e.Kind == log.Update && g == record.FreeAt(x.Tx):
		return x.Kind == log.Undo || len(e.Image) > record.LineSize || r.v.Written(e.Addr) > 1, false
	case e.Kind == log.Update && len(line) == record.LineSize && record.Image(line).Version() == x.Tx:
		return true, false
	case e.Kind == log.Update && len(line) == record.LineSize && record.Image(line).Meta().State() == record.Free:
		if r.freedSince(x, e, record.Image(line)) {
			return false, false // somebody has deleted it since
		}
		return false, e.Prev == 0 || e.Image.Meta().State() == record.Absent
	}
	return false, false
}

// unreleased reports whether a record is still what a transaction was to replace, whose guard says
// that it is at rest: then the guard is damaged. No version comes back.
func (r *run) unreleased(x *tx, e *entry, line []byte) bool {
	img := record.Image(line)
	return x.Kind == log.Redo && !r.claim.Promoted && e.Prev != 0 && img.Version() == e.Prev
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
			if e.lost || x.Kind != log.Redo || e.Prev == 0 {
				continue
			}
			a, old := x.leaves(e), e.lines[0]
			if e.Kind == log.Move {
				old = e.old[0]
			}
			if !r.senseless(a, old) {
				continue
			}
			for k := 1; k < r.v.Copies(a); k++ {
				f := &fetch{at: r.v.At(a, k), n: record.LineSize}
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

// leaves is the block that a record was in, and that a move leaves.
func (x *tx) leaves(e *entry) layout.Addr {
	if e.Kind == log.Move && x.Kind == log.Redo {
		return e.From
	}
	return e.Addr
}

// goes is the block that a record will be in, to which it moves if it does.
func (x *tx) goes(e *entry) layout.Addr {
	if e.Kind == log.Move && x.Kind == log.Undo {
		return e.From
	}
	return e.Addr
}

// linked reports whether a slot of the entry's key points to a block.
func (r *run) linked(e *entry, a layout.Addr) (bool, error) {
	q, err := r.lookup(e.table, e.Image)
	if err != nil {
		return false, err
	}
	return leadsTo(q, a), nil
}

// leadsTo reports whether a slot of a resolved query points to a block.
func leadsTo(q *index.Query, a layout.Addr) bool {
	return slices.ContainsFunc(q.Candidates, func(x index.Candidate) bool { return x.Addr == a })
}

// maxLookups bounds how often a lookup starts again.
const maxLookups = 64

// lookup looks up the key of an image. The query is good until the next lookup.
func (r *run) lookup(table uint16, img record.Image) (*index.Query, error) {
	ix, err := r.index(table)
	if err != nil {
		return nil, err
	}
	if need := ix.BufferSize() + record.LineSize; r.qsize < need {
		if r.qsize > 0 {
			r.t.Free(r.query, r.qsize)
			r.qsize = 0
		}
		if r.query, err = r.t.Alloc(need); err != nil {
			return nil, fmt.Errorf("recovery: buffer of a lookup: %w", err)
		}
		r.qsize = need
	}
	key := img.Key()
	q := &index.Query{
		Key: key, Hash: record.Hash(table, key),
		Local: (r.query + record.LineSize - 1) &^ (record.LineSize - 1), View: r.v,
	}
	for range maxLookups {
		r.batch.Reset()
		ix.Search(&r.batch, q)
		if err := r.do(); err != nil {
			return nil, err
		}
		again, err := ix.Resolve(r.c, q)
		if err != nil {
			return nil, fmt.Errorf("recovery: looking up in the index of table %d: %w", table, err)
		}
		if !again {
			return q, nil
		}
	}
	return nil, fmt.Errorf("recovery: looking up in the index of table %d: %w", table, index.ErrBusy)
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
			if e.whole = e.switched; e.whole {
				continue
			}
			a, lines := e.Addr, &e.lines
			if e.Kind == log.Move {
				a, lines = e.From, &e.old
			}
			n := r.v.Copies(a)
			e.whole = n > 0
			e.reclaimed = r.reclaimed(x, e, a, lines[:n])
			for k := range n {
				if e.reclaimed != nil && r.since(x, e, lines[k]) {
					continue
				}
				img := record.Image(lines[k])
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

// reclaimed returns the image of the free block if the record of e, which the transaction
// has deleted, was being reclaimed, and nil if not. Nobody reclaims the deleted record of a
// transaction that is not committed, and backups come first: so a copy that has something
// else since says that all had the image.
func (r *run) reclaimed(x *tx, e *entry, a layout.Addr, copies [][]byte) record.Image {
	deleted := slices.IndexFunc(copies, func(p []byte) bool {
		img := record.Image(p)
		return img.Version() == x.Tx && img.Meta().State() == record.Absent
	})
	since := slices.IndexFunc(copies, func(p []byte) bool { return r.since(x, e, p) })
	if deleted < 0 || since < 0 {
		return nil
	}
	img := make(record.Image, record.LineSize)
	free := record.Image(copies[since])
	img.PutFree(a, free.Version(), e.table, classOf(copies[deleted]), free.Freed())
	return img
}

// since reports whether a copy of a record has neither the image of the transaction nor
// the one before. A block that was free all the time is one of an insert: only its primary
// had the placeholder.
func (r *run) since(x *tx, e *entry, p []byte) bool {
	img := record.Image(p)
	if v := img.Version(); v == x.Tx || v == e.Prev {
		return false
	}
	return img.Meta().State() != record.Free || r.freedSince(x, e, img)
}

// freedSince reports whether a block that is free was freed since the log was written. What
// replaced a version was in use then. With several processes its number is of another one's count,
// perhaps, than what the log says; but not if the version is that of a placeholder, which may have
// been on a lost primary alone.
func (r *run) freedSince(x *tx, e *entry, free record.Image) bool {
	return r.freed(e, free) > e.Freed || e.Prev != 0 && r.o.Space.Shared() && !x.planted(e)
}

// freed is the number of the last freeing of the block of an entry, of which a copy is free: that
// of a block of before, if the number of its segment was used again.
func (r *run) freed(e *entry, free record.Image) uint64 { return max(free.Freed(), r.v.Freed(e.Addr)) }

// planted reports whether an entry is of an insert, and what it has replaced the placeholder: then
// its process owned the block. Of an undo log the placeholder has a version, which the session has
// drawn in the middle of the transaction.
func (x *tx) planted(e *entry) bool {
	return x.Kind == log.Undo && e.Image.Meta().State() == record.Absent &&
		e.Prev.Coordinator() == x.Tx.Coordinator() && e.Prev.Seq() > x.Tx.Seq()
}

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
