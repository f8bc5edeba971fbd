package race

import (
	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// lookup resolves a query to its end. It reads both choices whatever the marks say:
// who changes slots must see those, too, whose mark is not there yet.
func (ix *Index) lookup(c *rdma.Coro, s *scratch, q *index.Query) error {
	for {
		s.batch.Reset()
		ix.search(&s.batch, q, true)
		if err := c.Do(&s.batch); err != nil {
			return err
		}
		if again, err := ix.Resolve(c, q); err != nil || !again {
			return err
		}
	}
}

// matches lists the slots of a resolved query that have its fingerprint.
func (ix *Index) matches(c *rdma.Coro, s *scratch, q *index.Query) []found {
	l := words(c.Thread(), q.Local)
	s.found = s.found[:0]
	lines := ix.lines(q)
	if q.State[stSecond] != 0 {
		lines = 2 * queryLines
	}
	for i := range lines {
		for j := range slotsPerLine {
			if w := l[i*lineWords+j]; w>>fpShift == q.Hash>>fpShift && !Slot(w).Empty() {
				s.found = append(s.found, found{line: i, at: slotAddr(q, i, j), value: Slot(w)})
			}
		}
	}
	return s.found
}

// covers reports whether the line of a resolved query is responsible for its key.
func (ix *Index) covers(c *rdma.Coro, q *index.Query, line int) bool {
	return Header(words(c.Thread(), q.Local)[line*lineWords+slotsPerLine]).Covers(q.Hash)
}

// firstUpTo is how many slots of its first choice are taken at most when a key goes
// there without a look at the second. More would leave fewer keys in their second
// choice, at the price of splits at lower loads: with 8, sub-tables of the default
// size are 88 % full when they are split for the first time, and of the lookups of
// keys that do not exist 0.2 % read the second choice at a load of 0.4, 2 % at 0.6,
// 6 % at 0.75 and 10 % at 0.85 (TestSpillRate).
const firstUpTo = 8

// chosen is where a key can be put.
type chosen struct {
	at   layout.Addr // the slot, 0: there is no room
	was  uint64      // what it holds
	line int         // of the query's buffer
	// unsure: the second choice has to be read before that can be said.
	unsure bool
}

// choose returns an empty slot for the query's key: in its first choice, as long as
// that has many, otherwise in the less loaded of its two choices; main bucket first
// (RACE, section 3.2, takes the less loaded always).
//
// While the sub-table is being filled, a key goes to the old one as long as any
// of its buckets there is still responsible, and there into a bucket that is; to
// the new one afterwards, but not into a slot whose like in the old one is in use,
// because that is where the split carries a slot that it moves. For the same reason it does
// not go into a slot of the old one whose like in the new one is in use, or has been: one that is
// or was there although buckets of the old one are responsible still has come when they were
// not, on a primary that is lost. What is at such a place of the old one counts as carried
// (see carried.go).
func (ix *Index) choose(c *rdma.Coro, q *index.Query) chosen {
	l := words(c.Thread(), q.Local)
	base := 0
	old := [queryLines]bool{true, true, true, true}
	if q.State[stSecond] != 0 {
		base = queryLines
		for i := range queryLines {
			if old[i] = ix.covers(c, q, i); old[i] {
				base = 0
			}
		}
		if base != 0 {
			old = [queryLines]bool{true, true, true, true}
		}
	}
	other := base // where the like of a slot is
	if q.State[stSecond] != 0 {
		other = queryLines - base
	}
	free := func(i, j int) bool {
		if !Slot(l[(base+i)*lineWords+j]).Empty() {
			return false
		}
		like := l[(other+i)*lineWords+j]
		switch {
		case other == base:
			return true
		case base != 0:
			return Slot(like).Empty()
		}
		return like == 0
	}
	best, bestUsed := -1, 0
	for k := range 2 {
		if k == 1 && q.State[stBoth] == 0 {
			return chosen{unsure: true}
		}
		used, room := 0, false
		for i := 2 * k; i < 2*k+2; i++ {
			for j := range slotsPerLine {
				if !free(i, j) {
					used++
				} else if old[i] {
					room = true
				}
			}
		}
		if room && (best < 0 || used < bestUsed) {
			best, bestUsed = k, used
		}
		if best == 0 && used <= firstUpTo {
			break
		}
	}
	if best < 0 {
		return chosen{}
	}
	main := int(mainLine(uint32(q.State[stPlaces] >> (32 * best))))
	for _, i := range [2]int{2*best + main, 2*best + 1 - main} {
		for j := range slotsPerLine {
			if old[i] && free(i, j) {
				return chosen{at: slotAddr(q, base+i, j), was: l[(base+i)*lineWords+j], line: base + i}
			}
		}
	}
	return chosen{}
}

// Insert links a block (RACE, algorithm 1).
func (ix *Index) Insert(c *rdma.Coro, q *index.Query, a layout.Addr, class layout.Class) error {
	s := ix.get()
	defer ix.put(s)
	want := MakeSlot(fingerprint(q.Hash), class, a)
	full := waiting{}
	for tries := 0; ; tries++ {
		to := ix.choose(c, q)
		if to.unsure {
			if err := ix.readSecond(c, q); err != nil {
				return err
			}
			// A damaged directory can have led here: what is no bucket has no room.
			again, err := ix.responsible(c, q, words(c.Thread(), q.Local), firstLines, queryLines)
			if err != nil {
				return err
			}
			if !again {
				to = ix.choose(c, q)
			}
			if again || to.at == 0 {
				if err := ix.lookup(c, s, q); err != nil { // for a split: of what is there now
					return err
				}
				to = ix.choose(c, q)
			}
		}
		if to.at == 0 {
			if err := ix.grow(c, s, q, &full); err != nil {
				return err
			}
			if err := ix.lookup(c, s, q); err != nil {
				return err
			}
			continue
		}
		var m mark
		if isSecond(to.line) {
			m = ix.markFor(c, q, to.line)
			s.marks = append(s.marks[:0], m)
			if ok, err := ix.mark(c, s, q.View, s.marks); err != nil {
				return err
			} else if !ok {
				// A split has begun or gone on.
				if err := ix.lookup(c, s, q); err != nil {
					return err
				}
				continue
			}
		}
		s.steps = append(s.steps[:0], step{addr: to.at, old: to.was, new: uint64(want)})
		if err := ix.primary(c, s, q.View, s.steps); err != nil {
			return err
		}
		if !s.steps[0].ok() {
			// Somebody else has taken the slot.
			if tries > 4 {
				pause(c, tries-4)
			}
			if err := ix.lookup(c, s, q); err != nil {
				return err
			}
			continue
		}
		linked, err := ix.confirm(c, s, q, want, m)
		if err != nil || linked {
			return err
		}
	}
}

// confirm completes an insert whose slot has been set on the primary (the step in
// s.steps): it sets the backups, and reads the buckets again, to find duplicates
// and splits that were concurrent. It reports false when the slot had to be
// cleared because its bucket is not responsible any more. m is the mark that was
// made for the slot, if it needs one.
func (ix *Index) confirm(c *rdma.Coro, s *scratch, q *index.Query, want Slot, m mark) (bool, error) {
	at := s.steps[0].addr
	s.batch.Reset()
	ix.appendBackups(s, q.View, s.steps)
	ix.search(&s.batch, q, true)
	if err := c.Do(&s.batch); err != nil {
		return false, err
	}
	settle(s, s.steps)
	if err := ix.backups(c, s, q.View, s.steps); err != nil {
		return false, err
	}
	again, err := ix.Resolve(c, q)
	if err != nil {
		return false, err
	}
	wait := waiting{}
	polls := 0
	s.others = s.others[:0]
	for {
		if again {
			if err := ix.lookup(c, s, q); err != nil {
				return false, err
			}
		}
		again = true
		all := ix.matches(c, s, q)
		own, n := ownSlot(all, want.Addr())
		switch {
		case n == 0:
			// The directory has moved on, and lookups do not read the bucket any more
			// that the slot was put into: take it back from there. If it is not there
			// either, it was being moved while the buckets were read.
			ok, err := ix.one(c, s, q.View, at, uint64(want), trace(c))
			if err != nil {
				return false, err
			}
			if ok {
				return false, ix.lookup(c, s, q)
			}
			if err := ix.waitFor(c, &wait, at, 0, "a slot that has vanished during its insertion"); err != nil {
				return false, err
			}
			continue
		case n > 1 || own.value.Moving():
			if wait.tries > 0 {
				if err := ix.oneOfTwo(c, s, q, own, n); err != nil {
					return false, err
				}
			}
			if err := ix.waitFor(c, &wait, own.at, 0, "the move of a slot"); err != nil {
				return false, err
			}
			continue
		case !ix.covers(c, q, own.line):
			// The split of the sub-table has passed by: the slot is in the wrong one.
			if ok, err := ix.one(c, s, q.View, own.at, uint64(own.value), trace(c)); err != nil {
				return false, err
			} else if ok {
				return false, ix.lookup(c, s, q)
			}
			continue // it is being moved after all
		case isSecond(own.line) && !ix.holds(c, q, own.line, &m):
			// A split that was counting had not seen the slot.
			m = ix.markFor(c, q, own.line)
			s.marks = append(s.marks[:0], m)
			if _, err := ix.mark(c, s, q.View, s.marks); err != nil {
				return false, err
			}
			continue
		case len(all) == 1:
			return true, nil
		}
		v, err := ix.judge(c, s, q, all, own)
		if err != nil {
			return false, err
		}
		switch {
		case v == unique:
			return true, nil
		case v == likely:
			s.others = append(s.others[:0], all...)
			continue
		case v == undecided && polls < maxPolls:
			pause(c, polls)
			polls++
			continue
		}
		if ok, err := ix.one(c, s, q.View, own.at, uint64(own.value), trace(c)); err != nil {
			return false, err
		} else if ok && s.unclear != 0 {
			return false, &index.UnclearError{Block: s.unclear}
		} else if ok {
			return false, index.ErrDuplicate
		}
	}
}

// ownSlot returns the slot of the block at a, and how many there are: two while
// it is being moved. The one that is moving comes first.
func ownSlot(m []found, a layout.Addr) (*found, int) {
	var own *found
	n := 0
	for i := range m {
		if m[i].value.Addr() == a {
			n++
			if own == nil || m[i].value.Moving() {
				own = &m[i]
			}
		}
	}
	return own, n
}

// oneOfTwo empties a slot of a block to which several lead, and none of them is marked: one that
// was there, marked, when the block came to be this insert's, and that somebody took for its slot
// when that was not set yet. The caller holds the block's lock, for an insert that is under way or
// undone. If the slot is being moved after all, from the sub-table that was read first, it is
// marked, and nothing happens.
func (ix *Index) oneOfTwo(c *rdma.Coro, s *scratch, q *index.Query, own *found, n int) error {
	if n < 2 || own.value.Moving() {
		return nil
	}
	_, err := ix.one(c, s, q.View, own.at, uint64(own.value), trace(c))
	return err
}

// waiting is how long an operation has been waiting.
type waiting struct {
	since int64
	tries int
}

// waitFor pauses, and fails when it has done so for too long.
func (ix *Index) waitFor(c *rdma.Coro, w *waiting, at layout.Addr, owner uint64, what string) error {
	now := c.Thread().Now()
	if w.since == 0 {
		w.since = now
	} else if now-w.since > ix.stall || ix.hopeless(owner, w.tries) {
		return &BusyError{Table: ix.geo.Table, Addr: at, Owner: owner, What: what}
	}
	linger(c, w.tries)
	w.tries++
	return nil
}
