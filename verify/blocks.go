package verify

import (
	"bytes"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// blocks checks every block of every segment, on all copies.
func (w *walker) blocks() {
	for id := range w.l.Segments {
		s := &w.l.Segments[id]
		if s.Kind != layout.KindBlocks || s.Placement.N == 0 {
			continue
		}
		if s.Leaving { // all of its blocks were free, and some of its copies may be cleared by now
			w.advance(uint64(w.l.SegmentSize))
			continue
		}
		size := s.Class.Size()
		step := max(chunk/size, 1) * size
		end := w.l.SegmentSize / size * size
		for off := uint32(0); off < end; off += step {
			if w.stopped() {
				return
			}
			n := min(step, end-off)
			at := layout.MakeAddr(layout.SegmentID(id), off)
			copies := w.copies(at, n, &w.chunks)
			if copies[0] == nil {
				continue
			}
			for o := uint32(0); o < n && w.err == nil; o += size {
				b := block{addr: at + layout.Addr(o), class: s.Class, n: len(copies)}
				b.linked = w.isLinked(b.addr, s.Class)
				for k, p := range copies {
					if p != nil {
						b.copies[k] = record.Image(p[o : o+size])
					}
				}
				w.block(&b)
			}
			w.advance(uint64(n))
		}
		w.advance(uint64(w.l.SegmentSize - end))
	}
	w.relink()
	w.strayEntries()
}

// block is a block on all its copies; nil where it could not be read.
type block struct {
	addr   layout.Addr
	class  layout.Class
	linked bool
	n      int
	copies [layout.MaxReplicas]record.Image
}

// block checks one block.
func (w *walker) block(b *block) {
	img := b.copies[0]
	need, x := w.image(b, img)
	if k, n := w.movesElsewhere(b, x); k > 0 {
		w.restoreMove(b, x, k, n)
		return
	}
	if x != nil {
		w.damaged(b, x)
		return
	}
	m := img.Meta()
	if k := w.usedOnBackup(b, m); k > 0 {
		w.damaged(b, faultf(KindRecord, "the block is free (%s), but it is linked, and copy %d is in use",
			describe(img), k))
		return
	}
	w.count(b, m)
	if g := img.Guard(); g.Held() {
		if owner := g.Owner(); !w.alive(owner.Coordinator()) {
			w.locked(b, owner)
			if img.Stranded() && owner.Seq() > record.MaxSequence && !b.linked && !w.unwalkedTable(m.Table()) {
				w.orphaned(b, m)
			}
		}
		return // its replicas are whoever finishes the transaction's
	}
	if m.State() != record.Free && !b.linked && !w.unwalkedTable(m.Table()) {
		w.keyed(m.Table(), 0, false)
		if !w.orphaned(b, m) {
			return
		}
	}
	if b.linked {
		w.entry(b, m)
	}
	for k := 1; k < b.n; k++ {
		if b.copies[k] != nil {
			w.backup(b, k, need)
		}
	}
}

// movesElsewhere returns a copy of a block that is one of a record whose move is to be finished,
// and how many bytes of it count, if all of them say so with one voice, and the primary, at which x
// is wrong, nothing that can be true; 0: else. Who leaves such a move to others gets to one of its
// primaries last, and who finishes it to both: the one as long as the catalog knows the client, and
// the other frees or unlocks the copies first.
func (w *walker) movesElsewhere(b *block, x *fault) (from, need int) {
	img := b.copies[0]
	if used := img.Version() != 0 || img.Meta() != 0; x == nil && (img.Stranded() || used && !img.Guard().Held()) {
		return 0, 0
	}
	if _, theirs := w.pending[img.Guard().Owner()]; theirs {
		return 0, 0
	}
	for k := 1; k < b.n; k++ {
		p := b.copies[k]
		if p == nil {
			continue
		}
		n, bad := w.image(b, p)
		if bad != nil || !p.Stranded() || w.registered(p.Lock().Coordinator()) || from > 0 &&
			!bytes.Equal(p[:n], b.copies[from][:need]) {
			return 0, 0
		}
		if from == 0 {
			from, need = k, n
		}
	}
	return from, need
}

// registered reports whether the catalog knows a coordinator: it is alive, or was not closed.
func (w *walker) registered(id uint32) bool {
	return slices.ContainsFunc(w.l.Coordinators, func(c layout.CoordinatorEntry) bool { return c.ID == id })
}

// unswept reports whether the next opening sweeps what coordinators have left that the catalog
// knows no more: locks of which no log tells, and changes of indexes. When a sweep has come to its
// end but for what is damaged, what is left is damage.
func (w *walker) unswept() bool { return w.l.Unswept && !w.l.OnlyDamage }

// restoreMove reports that, and restores the primary.
func (w *walker) restoreMove(b *block, x *fault, from, need int) {
	good := b.copies[from]
	if x == nil {
		x = faultf(KindGuard, "the block of a record whose move is to be finished is locked by %v", b.copies[0].Lock())
	}
	f := w.at(Finding{Kind: x.kind, Table: good.Meta().Table(), What: x.what}, b.addr, 0)
	w.repair(f, fmt.Sprintf("copy %d, %v, is written to the primary", from, describe(good)), good[:need])
	w.count(b, good.Meta())
}

// usedOnBackup returns the copy on which a block is in use that is free on the
// primary although a slot points to it; 0: none, or it is not so.
func (w *walker) usedOnBackup(b *block, m record.Meta) int {
	if m.State() != record.Free || !b.linked {
		return 0
	}
	for k := 1; k < b.n; k++ {
		if img := b.copies[k]; img != nil && img.Meta().State() != record.Free {
			if _, x := w.image(b, img); x == nil && !img.Guard().Held() {
				return k
			}
		}
	}
	return 0
}

// image checks a copy of a block by itself. need is how many of its bytes count.
func (w *walker) image(b *block, img record.Image) (need int, x *fault) {
	need, err := img.Check(b.addr)
	m := img.Meta()
	g := img.Guard()
	switch {
	case err != nil:
		return 0, faultf(KindRecord, "%v (version %v, %v, key of %d and value of %d bytes)",
			err, img.Version(), m.State(), m.KeyLen(), m.ValueLen())
	case m == 0 && img.Version() == 0 && g == 0:
		return need, nil // never used
	case m.Class() != b.class && (m != 0 || img.Version() != 0):
		return 0, faultf(KindRecord, "the block says that it is of class %d, in a segment of class %d",
			m.Class(), b.class)
	case m.State() != record.Free && w.table(m.Table()) == nil:
		return 0, faultf(KindRecord, "a record of %s", w.tableName(m.Table()))
	case img.Version().Coordinator() == 0 || img.Version().Coordinator() >= w.l.NextCoordinator:
		return 0, faultf(KindRecord, "version %v, but there was no coordinator %d",
			img.Version(), img.Version().Coordinator())
	case !unusedZero(img, m):
		return 0, faultf(KindRecord,
			"bytes of the first line that belong neither to the key nor to the value are not zero")
	case g.Held() && !w.plausible(g.Owner()):
		return 0, faultf(KindGuard, "the guard is %#x: held by %v, but there was no such coordinator",
			uint64(g), g.Owner())
	case !g.Held() && !img.Stable():
		return 0, faultf(KindGuard, "the guard is free at version %v, the image has version %v",
			g.Version(), img.Version())
	}
	return need, nil
}

// unusedZero reports whether the bytes of the first line that the checksum does not
// cover, those between key or value and guard, are zero, as every writer leaves them.
func unusedZero(img record.Image, m record.Meta) bool {
	end := record.KeyOff
	if at := record.KeyAt(m.KeyLen()); at < record.GuardOff {
		end = at + m.KeyLen()
	}
	if at := record.ValueAt(m.KeyLen(), m.ValueLen()); at < record.GuardOff {
		end = at + m.ValueLen()
	}
	if m.State() == record.Free {
		end = record.KeyOff + 8 // the number of its freeing
	}
	for _, c := range img[end:record.GuardOff] {
		if c != 0 {
			return false
		}
	}
	return true
}

// plausible reports whether a transaction of this name can have been.
func (w *walker) plausible(t txid) bool {
	return t.Coordinator() > 0 && t.Coordinator() < w.l.NextCoordinator && t.Seq() > 0
}

// count counts a block whose primary is intact.
func (w *walker) count(b *block, m record.Meta) {
	switch m.State() {
	case record.Free:
		w.sum.Free++
		if img := b.copies[0]; w.o.Free != nil && !img.Guard().Held() {
			w.o.Free(b.addr, uint64(img.Version()))
		}
		return
	case record.Live:
		w.sum.Live++
	case record.Node:
		w.sum.Nodes++
	default:
		w.sum.Absent++
	}
	t := w.table(m.Table())
	if !b.linked || t == nil {
		return
	}
	t.Bytes += uint64(m.KeyLen() + m.ValueLen())
	switch m.State() {
	case record.Live:
		t.Records++
	case record.Node:
		t.Nodes++
	default:
		t.Tombstones++
	}
}

// ordered reports whether a table is.
func (w *walker) ordered(id uint16) bool {
	return id > 0 && int(id) <= len(w.l.Tables) && w.l.Tables[id-1].InBlocks()
}

// unwalkedTable reports whether slots of a table may have been overlooked.
func (w *walker) unwalkedTable(id uint16) bool {
	t := w.table(id)
	return t == nil || t.Unwalked
}

// locked reports a lock without a live owner.
func (w *walker) locked(b *block, owner txid) {
	img := b.copies[0]
	what := fmt.Sprintf("locked by %v, whose coordinator is not alive; the image: %v", owner, describe(img))
	if why, ok := w.pending[owner]; ok {
		what += "; " + why
	} else {
		what += "; no log has a record of it"
	}
	if !b.linked && img.Meta().State() != record.Free {
		what += "; no slot points to the block"
	}
	unfinished := w.registered(owner.Coordinator()) || w.unswept()
	w.found(w.at(Finding{Kind: KindLock, Table: img.Meta().Table(), What: what, Unfinished: unfinished}, b.addr, 0))
}

// damaged reports a block whose primary is at fault, and restores it if the backups
// say with one voice what it was.
func (w *walker) damaged(b *block, x *fault) {
	f := w.at(Finding{Kind: x.kind, What: x.what}, b.addr, 0)
	if p, ok := w.nodes[b.addr]; ok {
		f.Table = p.table
		f.What = w.describePlace(p) + ": " + f.What
	} else if !b.linked {
		f.What += "; no slot points to the block"
	}
	if g := b.copies[0].Guard(); g.Held() && w.plausible(g.Owner()) {
		f.What += fmt.Sprintf("; the guard says that %v holds the lock", g.Owner())
		if why, ok := w.pending[g.Owner()]; ok { // its image was being written
			f.Kind, f.Unfinished = KindLock, true
			f.What += "; " + why
		}
		w.found(f)
		return
	}
	if w.filled(b, b.copies[0], &f) {
		return
	}
	from, need := 0, 0
	for k := 1; k < b.n; k++ {
		img := b.copies[k]
		if img == nil {
			continue
		}
		n, bad := w.image(b, img)
		if bad != nil || img.Guard().Held() || (img.Meta().State() != record.Free) != b.linked {
			continue
		}
		if from > 0 && (n != need || !bytes.Equal(img[:n], b.copies[from][:need])) {
			f.What += fmt.Sprintf("; copies %d and %d are intact, and differ", from, k)
			w.found(f)
			return
		}
		if from == 0 {
			from, need = k, n
		}
	}
	if from == 0 {
		w.found(f)
		return
	}
	good := b.copies[from]
	f.Table = good.Meta().Table()
	w.repair(f, fmt.Sprintf("copy %d, %v, is written to the primary", from, describe(good)), good[:need])
	w.count(b, good.Meta())
	if w.o.Repair { // now it can serve as the model of the others
		copy(b.copies[0], good[:need])
		for k := 1; k < b.n; k++ {
			if b.copies[k] != nil {
				w.backup(b, k, need)
			}
		}
	}
}

// filled reports f, and that it is unfinished, if a copy of a block has an image, or a part of one,
// of an undecided transaction that fills the block. Such a block has no lock.
func (w *walker) filled(b *block, img record.Image, f *Finding) bool {
	by, ok := w.fills[b.addr]
	if !ok || img.Version() != by {
		return false
	}
	f.Unfinished = true
	f.What += "; " + w.pending[by]
	w.found(*f)
	return true
}

// backup compares a copy with the primary, which is intact and unlocked. Of a free
// block only that it is free matters: blocks are freed on the primary alone when
// the backups never knew that they were used.
func (w *walker) backup(b *block, k, need int) {
	img, other := b.copies[0], b.copies[k]
	if bytes.Equal(img[:need], other[:need]) {
		return
	}
	if img.Meta().State() == record.Free {
		if _, x := w.image(b, other); x == nil && other.Meta().State() == record.Free && !other.Guard().Held() {
			return
		}
	}
	at := 0
	for img[at] == other[at] {
		at++
	}
	what := fmt.Sprintf("copy %d differs from the primary from byte %d on: ", k, at)
	if _, x := w.image(b, other); x != nil {
		what += x.what
	} else {
		what += describe(other)
	}
	f := Finding{Kind: KindReplica, Table: img.Meta().Table(), What: what + "; the primary has " + describe(img)}
	if g := w.at(f, b.addr, k); w.filled(b, other, &g) { // the primary is the last
		return
	}
	if img.Meta().State() == record.Free && other.Meta().State() != record.Free && w.anyUnwalked() {
		// Perhaps a slot that could not be reached points to the block, and the
		// backup is the only good copy.
		w.found(w.at(f, b.addr, k))
		return
	}
	w.repair(w.at(f, b.addr, k), "the primary is written to the copy", img[:need])
}

// describe is what an intact image holds, in words.
func describe(img record.Image) string {
	m := img.Meta()
	if m == 0 && img.Version() == 0 {
		return "never used"
	}
	if m.State() == record.Free {
		return fmt.Sprintf("free since %v", img.Version())
	}
	if m.State() == record.Node {
		return fmt.Sprintf("%v, version %v, table %d, %d bytes", m.State(), img.Version(), m.Table(), m.ValueLen())
	}
	return fmt.Sprintf("%v, version %v, table %d, key %s, value of %d bytes", m.State(), img.Version(), m.Table(),
		keyText(img.Key()), m.ValueLen())
}
