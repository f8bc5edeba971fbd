package race

import (
	"slices"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// A slot can lead to a block that is free for good: that of an insert which is undone,
// whose placeholder was on the primary alone, and lost with its blade, while the slot is
// replicated; and whose client has died before it could clear it. Who looks for a key
// with this fingerprint meets it again and again, since the block could become that of
// a record at any moment.
//
// Such a slot is emptied beside everything else, in the manner of a split that moves
// it nowhere. Whoever does it has the lock of the sub-table, so that nobody splits it.
//
//  1. The slot is marked as moving, on all copies: from now on nobody else changes it.
//  2. The block is read, on all copies.
//  3. If it is free, the slot is emptied; else the mark is taken off.
//
// Claim: no slot of an insert that is or will be acknowledged is emptied. Blocks are
// placed, locked, before they are linked, and freed only when they have been unlinked. If
// the slot belonged to a live insert, or to a record, when it was marked, its block was
// not free then; it cannot be freed while the mark is there, because that begins with the
// slot (Remove and Replace wait); so it is not free when it is read. This supposes
// that what was placed is still there: hence nobody decides that a block is vacant while
// transactions are undecided which may have lost something with a blade
// (SetVacant).
//
// Who dies in between leaves lock and marks, and no child: Recover takes the marks off.

// SetVacant sets a function that tells which blocks are free on all copies, and are
// known to have nothing in them that a recovery might bring back. nil, as at first: those
// that are free on the primary. The handle is not in use yet.
func (ix *Index) SetVacant(f func(c *rdma.Coro, blocks []layout.Addr) ([]bool, error)) { ix.vacant = f }

// SetSpoilt sets a function that says whether a free block, to which a slot leads, has had a
// record, no log of which is left, so that no recovery will write one there again. A split does not
// wait for such blocks. nil, as at first: no block is known to be one. The handle is not in use
// yet.
func (ix *Index) SetSpoilt(f func(c *rdma.Coro, a layout.Addr) (bool, error)) { ix.spoilt = f }

// vacancy asks which blocks nobody has.
func (ix *Index) vacancy(c *rdma.Coro, blocks []layout.Addr) ([]bool, error) {
	if ix.vacant != nil {
		return ix.vacant(c, blocks)
	}
	return ix.free(c, blocks, false)
}

// free tells which blocks are free on the primary, locked or not.
func (ix *Index) free(c *rdma.Coro, blocks []layout.Addr, locked bool) ([]bool, error) {
	out := make([]bool, len(blocks))
	if len(blocks) == 0 {
		return out, nil
	}
	t := c.Thread()
	v := ix.space.ViewOn(t)
	size := len(blocks) * record.LineSize
	buf, err := t.Alloc(size)
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, size)
	var b rdma.Batch
	for i, a := range blocks {
		if ix.fits(v, a, record.LineSize) {
			b.Read(v.At(a, 0), buf+uint32(i)*record.LineSize, record.LineSize)
			out[i] = true
		}
	}
	if err := c.Do(&b); err != nil {
		return nil, err
	}
	for i := range blocks {
		img := record.Image(t.Bytes(buf+uint32(i)*record.LineSize, record.LineSize))
		out[i] = out[i] && img.Meta().State() == record.Free && (locked || !img.Guard().Held())
	}
	return out, nil
}

// Vacate empties the slots of the query's key, or of another key with its fingerprint, that lead to
// block a, if no client has that block. It reports whether none has. During a split of the
// sub-table it does nothing: a split does the same. Other clients may go on meanwhile. After a
// failed verb locks may be left behind, which are the caller's.
func (ix *Index) Vacate(c *rdma.Coro, q *index.Query, a layout.Addr) (bool, error) {
	s := ix.get()
	defer ix.put(s)
	if err := ix.lookup(c, s, q); err != nil {
		return false, err
	}
	own, n := ownSlot(ix.matches(c, s, q), a)
	if n != 1 || q.State[stSecond] != 0 {
		return false, nil
	}
	emptied, _, err := ix.vacateIn(c, s, tableOf(q, own.line), []hollow{{own.at, own.value}})
	return len(emptied) > 0, err
}

// hollow is a slot whose block seems to be free.
type hollow struct {
	at    layout.Addr
	value Slot
}

// vacateIn empties those slots of a sub-table whose blocks nobody has, and returns these
// blocks. It does nothing, and reports so, while somebody has the sub-table's lock. What is marked
// when nobody has it stays marked if it is not emptied: see unmark.
func (ix *Index) vacateIn(c *rdma.Coro, s *scratch, table layout.Addr, slots []hollow) (emptied []layout.Addr,
	locked bool, err error) {
	v := ix.space.ViewOn(c.Thread())
	lock := table + tableLockOff
	l := locks{ix: ix, c: c, s: s}
	if ok, err := l.take(lock); err != nil {
		return nil, false, l.abandon(err)
	} else if !ok {
		return nil, true, nil
	}
	emptied, err = ix.vacateHeld(&l, v, lock, slots)
	return emptied, false, l.abandon(err)
}

// vacateHeld is vacateIn under the lock of the sub-table.
func (ix *Index) vacateHeld(l *locks, v *layout.View, lock layout.Addr, slots []hollow) (emptied []layout.Addr,
	err error) {
	c, s := l.c, l.s
	s.steps = s.steps[:0]
	for _, x := range slots {
		to := uint64(x.value | slotMoving)
		s.steps = append(s.steps, step{addr: x.at, old: uint64(x.value), new: to})
	}
	if err := ix.apply(c, s, v, s.steps); err != nil {
		return nil, err
	}
	var blocks []layout.Addr
	k := 0
	for i := range s.steps {
		if s.steps[i].ok() {
			slots[k] = slots[i]
			blocks = append(blocks, slots[i].value.Addr())
			k++
		}
	}
	slots = slots[:k]
	gone, err := ix.vacancy(c, blocks)
	if err != nil {
		return nil, err
	}
	s.steps = s.steps[:0]
	for i, x := range slots {
		to := uint64(x.value)
		if gone[i] {
			to = trace(c)
			emptied = append(emptied, x.value.Addr())
		}
		s.steps = append(s.steps, step{addr: x.at, old: uint64(x.value | slotMoving), new: to})
	}
	if err := ix.marked(c, s, v); err != nil {
		return nil, err
	}
	return emptied, l.unlock(lock)
}

// marked applies the steps in the scratch, all of them from slots that are marked, by
// who has the lock of their sub-table.
func (ix *Index) marked(c *rdma.Coro, s *scratch, v *layout.View) error {
	if err := ix.backwards(c, s, v, s.steps); err != nil {
		return err
	}
	for i := range s.steps {
		if t := &s.steps[i]; !t.ok() {
			return ix.corrupt(t.addr,
				"slot %#x instead of %#x, which was marked as moving by who has the lock of its sub-table",
				t.prior, t.old)
		}
	}
	return nil
}

// unmark takes the marks off that somebody has left in a sub-table who was about to
// empty slots, and has died; the caller has taken its lock over. As in carried.go, a slot
// that he has emptied can be there again, marked, when a copy to which that had not come has
// become a full one, and then the primary; and its block another key's. Such slots are emptied.
//
// One that leads to a free block of which it is not known yet that nobody has it may be either: the
// block may be in a pool, and anybody's before long, or about to get a record that was on a lost
// blade, and that this slot leads to. The mark stays, though the lock goes. When it is decided,
// there is another Recover, which tells the two apart by the block; or somebody who meets the
// slot empties it, since nobody has the block.
//
// Nor is the mark taken off a slot that no lookup of the block's key comes by, unless it is that of
// an insert which is undone (late.go): the block may be about to be linked elsewhere, and when it
// is, the slot is emptied by who recovers the index next, or splits the sub-table.
func (r *recovery) unmark(table layout.Addr) error {
	ix, s := r.ix, r.s
	for o := uint32(tableHeader); o < ix.size; o += levelChunk {
		n := min(ix.size-o, levelChunk)
		p, err := r.read(table+layout.Addr(o), n, 0)
		if err != nil {
			return err
		}
		// Depth 0: whatever has its places here counts as known.
		m := mover{split: &split{locks: locks{ix: ix, c: r.c, s: s}, from: table, dead: r.dead}}
		for i := uint32(0); i < n; i += 8 {
			if x := Slot(word(p, int(i))); i%lineSize != headerOff && !x.Empty() && x.Moving() {
				m.items = append(m.items, item{off: o + i, value: x})
			}
		}
		if len(m.items) == 0 {
			continue
		}
		gone, err := m.emptied()
		if err != nil {
			return err
		}
		s.steps = s.steps[:0]
		for i, it := range m.items {
			to := uint64(it.value &^ slotMoving)
			switch {
			case gone[i]:
				to = trace(r.c)
			case it.free:
				continue
			case it.astray && !it.undone:
				continue
			}
			s.steps = append(s.steps, step{addr: table + layout.Addr(it.off), old: uint64(it.value), new: to})
		}
		if err := ix.marked(r.c, s, ix.space.ViewOn(r.c.Thread())); err != nil {
			return err
		}
	}
	return nil
}

// emptied tells which of the items, all of which are marked, are to be empty, or have been:
// nobody has the block, or another slot of its key leads there, or it holds another key.
func (m *mover) emptied() ([]bool, error) {
	if err := m.hashes(m.items); err != nil {
		return nil, err
	}
	var used []int
	for i := range m.items {
		if m.items[i].hollow = m.items[i].free; !m.items[i].free {
			used = append(used, i)
		}
	}
	gone, err := m.vacant()
	if err != nil {
		return nil, err
	}
	err = m.findMisled(used)
	for _, i := range used {
		gone[i] = m.items[i].misled
	}
	return gone, err
}

// bytes reads n bytes of copy k.
func (m *mover) bytes(v *layout.View, a layout.Addr, n uint32, k int) ([]byte, error) {
	t := m.c.Thread()
	buf, err := t.Alloc(int(n))
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, int(n))
	m.s.batch.Reset()
	m.s.batch.Read(v.At(a, k), buf, n)
	if err := m.c.Do(&m.s.batch); err != nil {
		return nil, err
	}
	return slices.Clone(t.Bytes(buf, n)), nil
}

// Scourer empties the slots of an index that lead to blocks which no client has, in small steps. It
// belongs to one goroutine at a time.
type Scourer struct {
	Emptied int // slots
	// Left are the free blocks whose slots were not emptied: the sub-table is locked by another
	// client, or the block may be in use. No allocator may be given one of these: the block would
	// be another key's under that slot.
	Left map[layout.Addr]bool

	ix    *Index
	taken func(layout.Addr) bool
	seen  map[layout.Addr]bool
	table layout.Addr // in work; 0: none
	off   uint32
	tries int // of a sub-table that is locked
}

const (
	// scourGroups is how many bucket groups a step of a Scourer looks at, at most.
	scourGroups = 64
	// scourSlots is how many slots are marked at once.
	scourSlots = 32
	// scourTries is how often a step is put off because somebody has the lock of the
	// sub-table. Who splits it empties such slots, too.
	scourTries = 64
)

// Scour begins to look for slots that lead to blocks which no client has. Blocks that taken names
// are some client's, and are not read: the lost placeholder of a slot is free on all copies that
// are left. taken may be nil: it names none.
func (ix *Index) Scour(taken func(layout.Addr) bool) *Scourer {
	if taken == nil {
		taken = func(layout.Addr) bool { return false }
	}
	return &Scourer{ix: ix, taken: taken, seen: map[layout.Addr]bool{}, Left: map[layout.Addr]bool{}}
}

// Step looks at the next few hundred slots. done: those were all. Sub-tables that a
// split makes meanwhile are looked at, too, and slots in a sub-table that is being split
// are left to the split. After an error the step may be repeated.
func (x *Scourer) Step(c *rdma.Coro) (done bool, err error) {
	ix := x.ix
	if x.table == 0 {
		d, err := ix.readDirectory(c, ix.dir.Load())
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(d.tables(), func(i uint32) bool { return !x.seen[d.entries[i].Table()] })
		if i < 0 {
			return true, nil
		}
		x.table, x.off = d.entries[d.tables()[i]].Table(), tableHeader
		x.seen[x.table] = true
	}
	s := ix.get()
	defer ix.put(s)
	n := min(scourGroups*groupSize, ix.size-x.off)
	slots, blocks, err := x.read(c, s, n)
	if err != nil {
		return false, err
	}
	var gone []bool
	for part := range slices.Chunk(blocks, ix.window) {
		// A lookup locks a block that it meets, and unlocks the block when it has read it.
		free, err := ix.free(c, part, true)
		if err != nil {
			return false, err
		}
		gone = append(gone, free...)
	}
	k := 0
	var left []layout.Addr
	for i := range slots {
		if gone[i] {
			left = append(left, slots[i].value.Addr())
			slots[k] = slots[i]
			k++
		}
	}
	for part := range slices.Chunk(slots[:k], scourSlots) {
		emptied, locked, err := ix.vacateIn(c, s, x.table, part)
		if err != nil {
			return false, err
		}
		x.Emptied += len(emptied)
		left = slices.DeleteFunc(left, func(a layout.Addr) bool { return slices.Contains(emptied, a) })
		if locked && x.tries < scourTries {
			pause(c, x.tries)
			x.tries++
			return false, nil
		}
	}
	for _, a := range left {
		x.Left[a] = true
	}
	x.tries = 0
	if x.off += n; x.off >= ix.size {
		x.table = 0
	}
	return false, nil
}

// read lists the slots of the next n bytes that lead to blocks which are not known to be
// taken, and these blocks.
func (x *Scourer) read(c *rdma.Coro, s *scratch, n uint32) (slots []hollow, blocks []layout.Addr, err error) {
	t := c.Thread()
	buf, err := t.Alloc(int(n))
	if err != nil {
		return nil, nil, err
	}
	defer t.Free(buf, int(n))
	at := x.table + layout.Addr(x.off)
	s.batch.Reset()
	s.batch.Read(x.ix.space.ViewOn(t).At(at, 0), buf, n)
	if err := c.Do(&s.batch); err != nil {
		return nil, nil, err
	}
	for o := uint32(0); o < n; o += 8 {
		w := Slot(t.Word(buf + o))
		if o%lineSize == headerOff || w.Empty() || w.Check() != nil || x.taken(w.Addr()) {
			continue
		}
		slots, blocks = append(slots, hollow{at + layout.Addr(o), w}), append(blocks, w.Addr())
	}
	return slots, blocks, nil
}
