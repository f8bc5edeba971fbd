package race

import (
	"cmp"
	"slices"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// mover carries slots from the old sub-table of a split to the new one, some
// groups at a time. For each slot that moves:
//
//  1. it is marked as moving in the old sub-table: from now on nobody else
//     changes it, and its block keeps its key;
//  2. the block is read, again, to be sure of its key;
//  3. if it is in its second choice, the mark that says so is made in the new
//     sub-table; then the slot is set there, at the same place, which others leave
//     free as long as the old one's is in use;
//  4. it is cleared in the old sub-table, on the primary last.
//
// A reader that looks into the old sub-table first and the new one afterwards
// meets it at least once.
//
// A slot stays if its block holds a key that stays. The block may have been freed
// and used for another key since the slot was read, so a slot that stays must be
// seen twice, with the same version of its block, which no two images share: in
// between, it was what it seemed to be.
type mover struct {
	*split
	items []item
	stay  []item // those of the groups in work that were seen to stay
	spare []item
	// needed are the marks that the slots which stay need, by bucket.
	needed []Header
}

// item is a slot of the old sub-table.
type item struct {
	off     uint32 // in the sub-table
	value   Slot
	version record.TxID // of the block
	hash    uint64
	known   bool // the hash is that of the block's key
	late    bool // the key has its places here, but in another sub-table: see late.go
	undone  bool // it is of an insert whose client is dead
	free    bool // the block is free
	hollow  bool // it was when everything else had been moved: see vacate.go
	carried bool // before, by a client whose clearing of the slot is lost: see carried.go
	misled  bool // the block is in use, and not by a key that only this slot leads to
	astray  bool // lookups of the block's key do not read this sub-table; known of marked ones
}

// maxUnclear is how often a slot is looked at whose block does not hold a key
// that belongs there. The slot must be about to change, or is damaged.
const maxUnclear = 16

func (m *mover) run() error {
	m.needed = make([]Header, m.ix.geo.Groups*groupLines)
	groups := max(uint32(m.ix.window)/groupSlots, 1)
	for g := uint32(0); g < m.ix.geo.Groups; g += groups {
		n := min(groups, m.ix.geo.Groups-g)
		w := waiting{}
		m.stay = m.stay[:0]
		for tries := 0; ; tries++ {
			done, err := m.groups(tableHeader+g*groupSize, n*groupSize, tries >= maxUnclear)
			if err != nil {
				return err
			}
			if done {
				m.count()
				break
			}
			if tries == 0 {
				continue
			}
			if tries <= maxUnclear { // it may take that many to make out what a slot is
				pause(m.c, tries)
				continue
			}
			if err := m.ix.waitFor(m.c, &w, m.from, 0, "an insert into a sub-table that has been split"); err != nil {
				return err
			}
		}
	}
	return nil
}

// groups moves what moves of the n bytes at off of the old sub-table. It reports
// false when something has changed meanwhile and it has to be done again. With
// last, it leaves alone what it cannot understand.
func (m *mover) groups(off, n uint32, last bool) (done bool, err error) {
	if err := m.read(off, n); err != nil {
		return false, err
	}
	if err := m.hashes(m.items); err != nil {
		return false, err
	}
	if err := m.elsewhere(m.items, last); err != nil {
		return false, err
	}
	done = true
	stay := m.spare[:0]
	moving := m.items[:0]
	for _, it := range m.items {
		switch {
		case it.value.Moving():
			it.hollow = it.free
			moving = append(moving, it) // from a split that was interrupted
		case !it.known && last && it.free:
			// Nobody frees a block that is linked, or links one that is free: its
			// insert was undone after the block had died with a blade.
			it.hollow = true
			moving = append(moving, it)
		case !it.known && last && it.late:
			// Whoever undoes the insert takes it out.
		case !it.known && last:
			m.damage = m.ix.corrupt(m.from+layout.Addr(it.off), "%v: the block does not hold a key that belongs here",
				it.value)
		case !it.known:
			done = false
		case uint32(it.hash)&m.bit() != 0:
			moving = append(moving, it)
		default:
			done = done && m.stayed(it)
			stay = append(stay, it)
		}
	}
	m.stay, m.spare = stay, m.stay
	m.items = moving
	all, err := m.carry(last)
	return done && all, err
}

// count notes the marks that the slots of the groups in work need which stay.
func (m *mover) count() {
	for i := range m.stay {
		it := &m.stay[i]
		if o1, _ := m.ix.geo.place(it.hash); it.known && spilled(it.off, o1) {
			m.needed[(MarkAt(o1)-tableHeader)/lineSize] |= SpillBit(it.value.Fingerprint())
		}
	}
}

// stayed reports whether the pass before has seen the same of a slot.
func (m *mover) stayed(it item) bool {
	i, ok := slices.BinarySearchFunc(m.stay, it.off, func(x item, off uint32) int { return cmp.Compare(x.off, off) })
	return ok && m.stay[i] == it
}

// read lists the slots in use of the n bytes at off.
func (m *mover) read(off, n uint32) error {
	t := m.c.Thread()
	buf, err := t.Alloc(int(n))
	if err != nil {
		return err
	}
	defer t.Free(buf, int(n))
	b := &m.s.batch
	b.Reset()
	b.Read(m.ix.space.ViewOn(m.c.Thread()).At(m.from+layout.Addr(off), 0), buf, n)
	if err := m.c.Do(b); err != nil {
		return err
	}
	m.items = m.items[:0]
	for o := uint32(0); o < n; o += 8 {
		if w := t.Word(buf + o); o%lineSize != headerOff && !Slot(w).Empty() {
			m.items = append(m.items, item{off: off + o, value: Slot(w)})
		}
	}
	return nil
}

// hashes reads the keys of the items' blocks.
func (m *mover) hashes(items []item) error {
	if len(items) == 0 {
		return nil
	}
	t := m.c.Thread()
	v := m.ix.space.ViewOn(m.c.Thread())
	size := len(items) * record.LineSize
	buf, err := t.Alloc(size)
	if err != nil {
		return err
	}
	defer t.Free(buf, size)
	b := &m.s.batch
	b.Reset()
	for i := range items {
		it := &items[i]
		it.known, it.late = false, false
		a := it.value.Addr()
		if it.value.Check() == nil && m.ix.fits(v, a, it.value.Class().Size()) {
			b.Read(v.At(a, 0), buf+uint32(i)*record.LineSize, record.LineSize)
		} else {
			clear(t.Bytes(buf+uint32(i)*record.LineSize, record.LineSize))
		}
	}
	if err := m.c.Do(b); err != nil {
		return err
	}
	var long []int
	for i := range items {
		img := record.Image(t.Bytes(buf+uint32(i)*record.LineSize, record.LineSize))
		items[i].version, items[i].free = img.Version(), img.Meta().State() == record.Free
		items[i].undone = m.dead != nil && img.Meta().State() == record.Absent && img.Guard().Held() &&
			m.dead(uint64(img.Guard().Owner().Coordinator()))
		n, ok := m.keyLen(img, items[i].value)
		switch {
		case !ok:
		case record.KeyAt(n) < record.LineSize:
			m.know(&items[i], img.Key())
		default:
			long = append(long, i)
		}
	}
	return m.longKeys(items, long, buf)
}

// keyLen is the length of the key that the block of a slot holds, if it can be one.
func (m *mover) keyLen(img record.Image, s Slot) (int, bool) {
	meta := img.Meta()
	n := meta.KeyLen()
	return n, (meta.State() == record.Live || meta.State() == record.Absent) && meta.Table() == m.ix.geo.Table &&
		n <= record.MaxKey && record.KeyAt(n)+n <= int(s.Class().Size())
}

// know notes the hash of an item's key, if the key belongs where the slot is.
func (m *mover) know(it *item, key []byte) {
	h := record.Hash(m.ix.geo.Table, key)
	o1, o2 := m.ix.geo.place(h)
	line := it.off &^ (lineSize - 1)
	here := line-o1 < combinedSize || line-o2 < combinedSize
	it.hash = h
	mine := uint32(h)&suffixMask(m.depth) == m.suffix
	here = here && fingerprint(h) == it.value.Fingerprint()
	it.known, it.late = here && mine, here && !mine
}

// longKeys is hashes for the items whose keys are not in the first line of their
// blocks; the first lines are at heads.
func (m *mover) longKeys(items []item, long []int, heads uint32) error {
	if len(long) == 0 {
		return nil
	}
	const each = record.MaxKey
	const room = 16
	t := m.c.Thread()
	v := m.ix.space.ViewOn(m.c.Thread())
	buf, err := t.Alloc(room * each)
	if err != nil {
		return err
	}
	defer t.Free(buf, room*each)
	for len(long) > 0 {
		part := long[:min(len(long), room)]
		long = long[len(part):]
		b := &m.s.batch
		b.Reset()
		for k, i := range part {
			n := record.Image(t.Bytes(heads+uint32(i)*record.LineSize, record.LineSize)).Meta().KeyLen()
			b.Read(v.At(items[i].value.Addr()+record.LineSize, 0), buf+uint32(k*each), uint32(n+7)&^7)
		}
		if err := m.c.Do(b); err != nil {
			return err
		}
		for k, i := range part {
			n := record.Image(t.Bytes(heads+uint32(i)*record.LineSize, record.LineSize)).Meta().KeyLen()
			m.know(&items[i], t.Bytes(buf+uint32(k*each), uint32(n)))
		}
	}
	return nil
}

// carry moves the items. It reports false when one of them could not be moved now; with last,
// not because of those of inserts that came too late and are undone: see late.go.
func (m *mover) carry(last bool) (all bool, err error) {
	if len(m.items) == 0 {
		return true, nil
	}
	ix, c, s := m.ix, m.c, m.s
	all = true

	s.steps = s.steps[:0]
	for _, it := range m.items {
		// Marks that are there already, from a split that was interrupted, stay.
		s.steps = append(s.steps, step{
			addr: m.from + layout.Addr(it.off), old: uint64(it.value), new: uint64(it.value | slotMoving),
		})
	}
	if err := ix.apply(c, s, ix.space.ViewOn(c.Thread()), s.steps); err != nil {
		return false, err
	}
	pinned := m.items[:0]
	for i, it := range m.items {
		if s.steps[i].ok() {
			pinned = append(pinned, it)
		} else {
			all = false
		}
	}
	m.items = pinned
	return m.carryPinned(all, last)
}

// vacant tells which of the items, all of which are marked, lead to blocks that nobody has.
func (m *mover) vacant() ([]bool, error) {
	gone := make([]bool, len(m.items))
	var at []int
	var blocks []layout.Addr
	for i := range m.items {
		if it := &m.items[i]; it.hollow && it.free {
			at, blocks = append(at, i), append(blocks, it.value.Addr())
		}
	}
	if len(blocks) == 0 {
		return gone, nil
	}
	known, err := m.ix.vacancy(m.c, blocks)
	for i, k := range known {
		gone[at[i]] = k
	}
	return gone, err
}

// set applies the steps in the scratch, which set slots of the new sub-table: those
// that are empty, whatever trace is in them.
func (m *mover) set(v *layout.View) error {
	ix, c, s := m.ix, m.c, m.s
	if err := ix.primary(c, s, v, s.steps); err != nil {
		return err
	}
	var again []step
	for _, t := range s.steps {
		if !t.ok() && Slot(t.prior).Empty() {
			t.old = t.prior
			again = append(again, t)
		}
	}
	if len(again) > 0 {
		if err := ix.primary(c, s, v, again); err != nil {
			return err
		}
		for _, t := range again {
			i := slices.IndexFunc(s.steps, func(x step) bool { return x.addr == t.addr })
			s.steps[i] = t
		}
	}
	return ix.backups(c, s, v, s.steps)
}

func (m *mover) carryPinned(all, last bool) (bool, error) {
	ix, c, s := m.ix, m.c, m.s
	if err := m.hashes(m.items); err != nil {
		return false, err
	}
	if err := m.elsewhere(m.items, last); err != nil {
		return false, err
	}
	v := ix.space.ViewOn(c.Thread())
	if err := m.findCarried(v); err != nil {
		return false, err
	}
	if err := m.mark(v); err != nil {
		return false, err
	}
	s.steps = s.steps[:0]
	for _, it := range m.items {
		if it.known && uint32(it.hash)&m.bit() != 0 {
			// What is there already has been set by a client before, though the mark in the old
			// sub-table may be lost: nobody else puts a slot there that leads to this block.
			s.steps = append(s.steps, step{
				addr: m.to + layout.Addr(it.off), old: 0, new: uint64(it.value &^ slotMoving), once: true,
			})
		}
	}
	// The slots of the items that do not move now get their mark taken off: those
	// whose block has turned out to hold another key, and those whose place is
	// taken, by a key that its inserter will take back.
	if err := m.set(v); err != nil {
		return false, err
	}
	k := 0
	for i := range m.items {
		it := &m.items[i]
		if it.known && uint32(it.hash)&m.bit() != 0 {
			it.known = s.steps[k].ok()
			k++
		} else {
			it.known = false
		}
	}
	gone, err := m.vacant()
	if err != nil {
		return false, err
	}
	s.steps = s.steps[:0]
	for i, it := range m.items {
		to := trace(c)
		if !it.known && !it.carried && !gone[i] {
			to = uint64(it.value &^ slotMoving)
			spoilt := false
			if last && it.hollow && it.free && ix.spoilt != nil {
				if spoilt, err = ix.spoilt(c, it.value.Addr()); err != nil {
					return false, err
				}
			}
			if spoilt && !it.value.Moving() {
				m.damage = ix.corrupt(m.from+layout.Addr(it.off), "%v: the block is free, and had a record", it.value)
			}
			// One whose block is free, and may yet get a record, is waited for: it is not
			// known where its key belongs.
			leave := it.value.Moving() && it.late && !it.undone
			all = all && last && (it.undone || leave || spoilt)
			if leave || it.value.Moving() && it.free {
				continue // see unmark
			}
		}
		s.steps = append(s.steps, step{addr: m.from + layout.Addr(it.off), old: uint64(it.value | slotMoving), new: to})
	}
	// Whoever sees that a slot is cleared may change the new one, and use the block for
	// something else.
	if err := ix.backwards(c, s, v, s.steps); err != nil {
		return false, err
	}
	if err := m.took("moving slot"); err != nil {
		return false, err
	}
	ix.moved.Add(uint64(len(m.items)))
	return all, nil
}
