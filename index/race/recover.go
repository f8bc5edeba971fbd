package race

import (
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Recover completes or takes back what clients that died in the middle of a change have left.
// Splits are finished or taken back, copies made equal to their primaries, locks released. dead
// says which locks may be broken, by the owners that were set with SetOwner. The verbs of these
// owners are fenced: none may arrive any more. Other clients may go on meanwhile. Two may recover
// at once if each has an owner number of its own that is not among the dead of the other.
//
// When it fails, but for a failed verb, it holds no lock: what it had taken over is Nobody's.
//
// What a dead client's transaction has linked or not unlinked is not Recover's business.
func (ix *Index) Recover(c *rdma.Coro, dead func(owner uint64) bool) error {
	s := ix.get()
	defer ix.put(s)
	r := recovery{ix: ix, c: c, s: s, dead: dead, begun: map[layout.Addr]bool{}}
	if err := r.directory(); err != nil {
		return err
	}
	d, err := ix.readDirectory(c, nil)
	if err != nil {
		return err
	}
	var all []span
	for _, i := range d.tables() {
		all = append(all, span{at: d.entries[i].Table(), n: ix.size, table: true})
	}
	for _, x := range all {
		r.begun[x.at] = false
	}
	if err := r.level(all...); err != nil {
		return err
	}
	// A sub-table comes before those that were split from it.
	for _, i := range d.tables() {
		if d.entries[i].Filling() {
			// Its lock is the business of whoever finishes the split that fills it: if not
			// this client, just now, then another one that recovers.
			w, err := r.word(ix.entryAddr(d, i))
			if err != nil {
				return err
			}
			if Entry(w).Filling() {
				continue
			}
		}
		if err := r.table(d.entries[i].Table(), i); err != nil {
			return err
		}
	}
	_, err = ix.refresh(c, ix.dir.Load())
	return err
}

type recovery struct {
	ix   *Index
	c    *rdma.Coro
	s    *scratch
	dead func(owner uint64) bool
	// begun tells which sub-tables had a marked slot, or a child, when level saw them.
	//
	// These come and go under the lock of the sub-table. But a recoverer who has met a copy
	// that was not equal, and is slow, can turn it (force) when a splitter, who is as slow, has
	// come to his end and released the lock; and the primary can be lost before the two are
	// compared once more. Then they are there, and no lock, or that of somebody who came next and
	// died: see childOf.
	begun map[layout.Addr]bool
}

// directory frees the directory if it is locked by the dead.
func (r *recovery) directory() error {
	l := locks{ix: r.ix, c: r.c, s: r.s}
	return l.abandon(r.directoryOf(&l))
}

// directoryOf is directory with the locks that it takes.
func (r *recovery) directoryOf(l *locks) error {
	ix := r.ix
	lock := ix.root + dirLockOff
	if _, err := ix.readDirectory(r.c, nil); err != nil { // what is wrong with it is brought to no copy
		return err
	}
	mine, err := r.takeOver(l, lock)
	if err != nil {
		return err
	}
	if err := r.level(span{at: ix.root, n: dirOff}); err != nil {
		return err
	}
	d, err := ix.readDirectory(r.c, nil)
	if err != nil {
		return err
	}
	all := append(d.spans(), span{at: ix.root + dirOff, n: min(uint32(len(d.entries)), rootEntries) * 8})
	if err := r.level(all...); err != nil || !mine {
		return err
	}
	return l.unlock(lock)
}

// gone reports whether a lock word names an owner that is dead, or has given up.
func (r *recovery) gone(w uint64) bool { return w != 0 && (ownerOf(w) == Nobody || r.dead(ownerOf(w))) }

// living reports whether a lock word names another client, which is alive.
func (r *recovery) living(w uint64) bool { return w != 0 && !r.gone(w) && w != r.ix.lockWord(r.c) }

// takeOver makes the lock word of a dead client this client's. The word may be damaged, and the
// lock that of a live client, which a copy says. Such a client puts the word in order when it
// releases the lock.
func (r *recovery) takeOver(l *locks, lock layout.Addr) (bool, error) {
	v := r.ix.space.ViewOn(r.c.Thread())
	var w uint64
	for wait := (waiting{}); ; {
		var err error
		if w, err = r.word(lock); err != nil || !r.gone(w) {
			return false, err
		}
		owner := uint64(0)
		for k := 1; k < v.Copies(lock); k++ {
			p, err := r.read(lock, 8, k)
			if err != nil {
				return false, err
			}
			if x := word(p, 0); r.living(x) {
				owner = ownerOf(x)
			}
		}
		if owner == 0 {
			break
		}
		if err := r.ix.waitFor(r.c, &wait, lock, owner, "a lock whose copies name a live client"); err != nil {
			return false, err
		}
	}
	r.s.steps = append(r.s.steps[:0], step{addr: lock, old: w, new: r.ix.lockWord(r.c)})
	if err := r.ix.primary(r.c, r.s, v, r.s.steps); err != nil || !r.s.steps[0].ok() {
		return false, err // somebody else has been faster
	}
	l.held = append(l.held, lock)
	// Backups that had come to the dead client's word follow at once; who is still to bring
	// others to one before it, if anybody is, gets the time that he may need.
	r.s.batch.Reset()
	if r.ix.appendBackups(r.s, v, r.s.steps) {
		if err := r.c.Do(&r.s.batch); err != nil {
			return true, err
		}
	}
	return true, r.level(span{at: lock, n: 8})
}

// word reads a word of the primary.
func (r *recovery) word(a layout.Addr) (uint64, error) {
	p, err := r.read(a, 8, 0)
	if err != nil {
		return 0, err
	}
	return word(p, 0), nil
}

// read returns n bytes of copy k.
func (r *recovery) read(a layout.Addr, n uint32, k int) ([]byte, error) {
	t := r.c.Thread()
	buf, err := t.Alloc(int(n))
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, int(n))
	r.s.batch.Reset()
	r.s.batch.Read(r.ix.space.ViewOn(r.c.Thread()).At(a, k), buf, n)
	if err := r.c.Do(&r.s.batch); err != nil {
		return nil, err
	}
	return append([]byte(nil), t.Bytes(buf, n)...), nil
}

// difference is a word whose copies differ.
type difference struct {
	addr    layout.Addr
	copy    int
	primary uint64
	backup  uint64
	slot    bool
	of      layout.Addr // where the span is that it is in
	table   bool        // that is a sub-table
}

// span is n bytes of the index, whose copies should be equal.
type span struct {
	at    layout.Addr
	n     uint32
	table bool // it is a sub-table, or a part of one
}

// chunk is a part of a span that is compared at once, on the primary and on copy.
type chunk struct {
	span
	of   layout.Addr // where the whole span is
	copy int
}

const (
	// levelChunk is how much level compares at once, in bytes.
	levelChunk = walkGroups * groupSize
	// levelPauses is for how many pauses a difference must last to be one that
	// nobody is about to remove: some milliseconds.
	levelPauses = 32
	// levelLeast is shorter than these pauses are together, in nanoseconds.
	levelLeast = 1_000_000
	maxLevels  = 64
	// levelTogether is from how many differences on those before the next are removed first.
	levelTogether = 4096
)

// level makes the copies of the spans equal to their primaries, word by word, where
// they stay different for longer than a client needs from one copy to the next. All of
// them are given that time together: others wait for what the dead have left.
//
// A difference that a slow client removes in the very moment can be turned over;
// level then meets it again, the other way round, until there is none.
func (r *recovery) level(spans ...span) error {
	v := r.ix.space.ViewOn(r.c.Thread())
	var unequal []chunk
	var diffs []difference
	for _, s := range spans {
		if err := r.lone(v, s); err != nil {
			return err
		}
		for k := 1; k < v.Copies(s.at); k++ {
			for o := uint32(0); o < s.n; o += levelChunk {
				ch := chunk{span{s.at + layout.Addr(o), min(s.n-o, levelChunk), s.table}, s.at, k}
				found, err := r.compare(diffs, ch)
				if err != nil {
					return err
				}
				if len(found) > len(diffs) {
					unequal = append(unequal, ch)
				}
				if diffs = found; len(diffs) >= levelTogether {
					if err := r.equalize(unequal, diffs); err != nil {
						return err
					}
					unequal, diffs = unequal[:0], diffs[:0]
				}
			}
		}
	}
	return r.equalize(unequal, diffs)
}

// lone is note for a sub-table that has no copy to be compared with.
func (r *recovery) lone(v *layout.View, s span) error {
	if _, ok := r.begun[s.at]; !ok || v.Copies(s.at) != 1 {
		return nil
	}
	for o := uint32(0); o < s.n; o += levelChunk {
		p, err := r.read(s.at+layout.Addr(o), min(s.n-o, levelChunk), 0)
		if err != nil {
			return err
		}
		r.note(s.at, o, p)
	}
	return nil
}

// note notes whether there is a marked slot, or a child, in what was read of the primary of a
// sub-table at off.
func (r *recovery) note(table layout.Addr, off uint32, p []byte) {
	if _, ok := r.begun[table]; !ok {
		return
	}
	if off == 0 && word(p, tableChildOff) != 0 {
		r.begun[table] = true
	}
	for o := max(tableHeader, off) - off; int(o) < len(p); o += 8 {
		if x := Slot(word(p, int(o))); o%lineSize != headerOff && !x.Empty() && x.Moving() {
			r.begun[table] = true
		}
	}
}

// equalize removes the differences that were found in some chunks, and that others do not
// remove by themselves.
func (r *recovery) equalize(unequal []chunk, diffs []difference) error {
	for tries := 0; len(diffs) > 0; tries++ {
		if tries > maxLevels {
			return &BusyError{
				Table: r.ix.geo.Table, Addr: diffs[0].addr, What: fmt.Sprintf("a change of copy %d", diffs[0].copy),
			}
		}
		for i := range levelPauses {
			pause(r.c, i)
		}
		if err := r.force(diffs); err != nil {
			return err
		}
		left := unequal[:0]
		diffs = diffs[:0]
		for _, ch := range unequal {
			found, err := r.compare(diffs, ch)
			if err != nil {
				return err
			}
			if len(found) > len(diffs) {
				left = append(left, ch)
			}
			diffs = found
		}
		unequal = left
	}
	return nil
}

// compare appends the words of a chunk that differ.
func (r *recovery) compare(out []difference, ch chunk) ([]difference, error) {
	primary, err := r.read(ch.at, ch.n, 0)
	if err != nil {
		return nil, err
	}
	r.note(ch.of, uint32(ch.at-ch.of), primary)
	backup, err := r.read(ch.at, ch.n, ch.copy)
	if err != nil {
		return nil, err
	}
	for o := 0; o < int(ch.n); o += 8 {
		if p, b := word(primary, o), word(backup, o); p != b {
			off := uint32(ch.at-ch.of) + uint32(o)
			out = append(out, difference{ch.at + layout.Addr(o), ch.copy, p, b, ch.table && off >= tableHeader &&
				off%lineSize != headerOff, ch.of, ch.table})
		}
	}
	return out, nil
}

// force sets the backups of those words that are as they were.
//
// Between the look at the primary and the compare-and-swap there can be much time, in which
// somebody who is alive brings the copy up to date by himself, and others go on from there. That
// does no harm to words that hold nothing twice. A slot does, when a block comes back to the
// place from which it was removed: this client would take it away again, from a copy that may be
// the primary the next moment. So a slot that leads elsewhere than on the primary is marked
// first, and the primary looked at once more: as long as the mark is there, nobody else brings
// the copy up to date. If it comes too late, it is one that is taken off (unmark, or the next
// look), and nothing else has changed.
func (r *recovery) force(diffs []difference) error {
	for _, d := range diffs {
		if err := r.believe(&d); err != nil {
			return err
		}
		if d.pins() {
			mark := d.backup | uint64(slotMoving)
			ok, err := r.turn(&d, mark)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			d.backup = mark
		}
		if _, err := r.turn(&d, d.primary); err != nil {
			return err
		}
	}
	return nil
}

// pins reports whether the copy has a slot that is in use, and leads elsewhere than that of the
// primary.
func (d *difference) pins() bool {
	b := Slot(d.backup)
	return d.slot && !b.Empty() && !b.Moving() && b.Addr() != Slot(d.primary).Addr()
}

// turn sets the copy of a word that differs, if that and the primary are as they were, and
// reports whether it has.
func (r *recovery) turn(d *difference, to uint64) (bool, error) {
	w, err := r.word(d.addr)
	if err != nil || w != d.primary {
		return false, err
	}
	r.s.batch.Reset()
	r.s.batch.CAS(r.ix.space.ViewOn(r.c.Thread()).At(d.addr, d.copy), d.backup, to)
	if err := r.c.Do(&r.s.batch); err != nil {
		return false, err
	}
	return r.s.batch.Result(0) == d.backup, nil
}

// table finishes or takes back the split of a sub-table that a dead client has begun.
func (r *recovery) table(from layout.Addr, suffix uint32) error {
	sp := split{locks: locks{ix: r.ix, c: r.c, s: r.s}, from: from, suffix: suffix, dead: r.dead}
	return sp.abandon(r.tableOf(&sp))
}

// tableOf is table as a split, with the locks that it takes.
func (r *recovery) tableOf(sp *split) error {
	from := sp.from
	lock := from + tableLockOff
	free := false // nobody had the lock
	mine, err := r.takeOver(&sp.locks, lock)
	if err == nil && !mine && r.begun[from] {
		mine, err = sp.take(lock) // unless somebody has it, who is at work
		free = mine
	}
	if err != nil || !mine {
		return err
	}
	child, err := r.word(from + tableChildOff)
	if err != nil {
		return err
	}
	to := layout.Addr(child)
	if to != 0 {
		begun, err := r.childOf(sp, to, free)
		if err != nil {
			return err
		}
		if !begun {
			if err := sp.unname(to); err != nil {
				return err
			}
			to = 0
		}
	}
	if to == 0 {
		return firstOf(r.unmark(from), sp.unlock(lock))
	}
	return r.finish(sp)
}

// childOf looks at the child that a sub-table names, whose lock is held, and notes it in the split.
// It reports false if that is of a split which is over, or was taken back (see begun): its memory
// is somebody else's then, or free, and may be anything. free: nobody had the lock.
func (r *recovery) childOf(sp *split, to layout.Addr, free bool) (begun bool, err error) {
	ix := r.ix
	if v := ix.space.ViewOn(r.c.Thread()); !ix.fits(v, to, ix.size) && ix.newer(v, to, ix.size) == nil {
		return false, ix.outside(v, sp.from+tableChildOff, to, "sub-table at %v is in no segment", to)
	}
	head, err := r.read(to, tableHeader, 0)
	if err != nil {
		return false, err
	}
	d, err := ix.readDirectory(r.c, nil)
	if err != nil {
		return false, err
	}
	b, err := ParseBirth(head)
	if err == nil && b.Parent == sp.from && b.Depth != 0 && b.Suffix == sp.suffix|1<<(b.Depth-1) &&
		b.Geometry == ix.geo {
		sp.to, sp.depth = to, b.Depth-1
		if slices.ContainsFunc(d.entries, func(e Entry) bool { return e.Table() == to }) {
			return true, nil
		}
		// Who takes a split back unlocks the new sub-table before its memory is anybody else's.
		// If nobody had the old one's lock, this is a split that is under way, of which a copy of
		// the lock was turned, or one that was taken back: its memory is not this client's
		// business either way.
		return !free && word(head, tableLockOff) != 0, nil
	}
	for i, e := range d.entries {
		if e.Filling() && d.parent(uint64(i), e) == sp.from { // which the sub-table has to name
			return false, ix.corrupt(to, "not the sub-table that the one at %v is split into: %+v, %v", sp.from, b, err)
		}
	}
	return false, nil
}

// disown clears the lock of a sub-table that nobody has seen, whosever it is.
func (r *recovery) disown(lock layout.Addr) error {
	if err := r.level(span{at: lock, n: 8}); err != nil {
		return err
	}
	w, err := r.word(lock)
	if err == nil && w != 0 {
		_, err = r.ix.one(r.c, r.s, r.ix.space.ViewOn(r.c.Thread()), lock, w, 0)
	}
	return err
}

func (r *recovery) finish(sp *split) error {
	ix, c := r.ix, r.c
	made := ix.space.ExtentAt(sp.to) // before the verbs that say whether it is in use still
	if err := sp.lockDirectory(); err != nil {
		return err
	}
	d, err := ix.readDirectory(c, nil)
	if err != nil {
		return err
	}
	i := sp.suffix
	if d.depth > sp.depth {
		i |= sp.bit()
	}
	e := d.entries[i]
	if e.Table() != sp.to && e != MakeEntry(sp.from, sp.depth) {
		return ix.corrupt(ix.entryAddr(d, i),
			"directory: %v is neither before nor after a split into the sub-table at %v", e, sp.to)
	}
	if e.Table() != sp.to {
		// Nobody has seen it.
		if err := firstOf(sp.unlock(ix.root+dirLockOff), sp.unname(sp.to)); err != nil {
			return err
		}
		if err := r.disown(sp.to + tableLockOff); err != nil {
			return err
		}
		_, err := ix.space.FreeExtent(made)
		if err := firstOf(err, r.unmark(sp.from)); err != nil {
			return err
		}
		return sp.unlock(sp.from + tableLockOff)
	}
	if e.Filling() {
		if err := sp.publish(); err != nil {
			return err
		}
	}
	if err := sp.unlock(ix.root + dirLockOff); err != nil {
		return err
	}
	mine, err := r.takeOver(&sp.locks, sp.to+tableLockOff)
	if err != nil {
		return err
	}
	if e.Filling() && !mine {
		// Whoever has given the split up may have failed in the middle of that: it is his
		// still, until he is recovered.
		w, err := r.word(sp.to + tableLockOff)
		if err == nil && w != 0 && w != ix.lockWord(c) {
			err = &BusyError{
				Table: ix.geo.Table, Addr: sp.to + tableLockOff, Owner: ownerOf(w),
				What: "a split that was given up by half",
			}
		}
		if err != nil {
			return err
		}
	}
	if err := r.level(span{at: sp.to, n: ix.size, table: true}); err != nil {
		return err
	}
	if e.Filling() {
		return sp.fill()
	}
	if err := sp.unname(sp.to); err != nil {
		return err
	}
	if err := r.unmark(sp.from); err != nil {
		return err
	}
	// It is filled: another client that recovers may have its lock, or have released it.
	w, err := r.word(sp.to + tableLockOff)
	if err == nil && w == ix.lockWord(c) {
		err = sp.unlock(sp.to + tableLockOff)
	}
	return firstOf(err, sp.unlock(sp.from+tableLockOff))
}
