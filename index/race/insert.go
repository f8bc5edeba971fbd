package race

import (
	"txnode/index"
	"txnode/internal/mutant"
	"txnode/memory"
	"txnode/rdma"
)

// lookup resolves a query to its end.
func (ix *Index) lookup(c *rdma.Coro, s *scratch, q *index.Query) error {
	for {
		s.batch.Reset()
		ix.Search(&s.batch, q)
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
	lines := queryLines
	if q.State[stSecond] != 0 {
		lines = 2 * queryLines
	}
	for i := range lines {
		for j := range slotsPerLine {
			if w := l[i*lineWords+j]; w != 0 && w>>fpShift == q.Hash>>fpShift {
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

// choose returns an empty slot for the query's key: in the less loaded of its two
// combined buckets, main bucket first (RACE, section 3.2).
//
// While the sub-table is being filled, a key goes to the old one as long as any
// of its buckets there is still responsible, and there into a bucket that is; to
// the new one afterwards, but not into a slot whose like in the old one is in use,
// because that is where the split carries a slot that it moves.
func (ix *Index) choose(c *rdma.Coro, q *index.Query) (memory.Addr, bool) {
	l := words(c.Thread(), q.Local)
	first := 0
	old := [queryLines]bool{true, true, true, true}
	if q.State[stSecond] != 0 {
		first = queryLines
		for i := range queryLines {
			if old[i] = ix.covers(c, q, i) && !mutant.InsertIntoFilling; old[i] {
				first = 0
			}
		}
		if first != 0 {
			old = [queryLines]bool{true, true, true, true}
		}
	}
	free := func(i, j int) bool {
		return l[(first+i)*lineWords+j] == 0 && (first == 0 || l[i*lineWords+j] == 0)
	}
	best, bestUsed := -1, 0
	for k := range 2 {
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
	}
	if best < 0 {
		return 0, false
	}
	o := uint32(q.State[stPlaces] >> (32 * best))
	main := int(mainLine(o))
	for _, i := range [2]int{2*best + main, 2*best + 1 - main} {
		for j := range slotsPerLine {
			if old[i] && free(i, j) {
				return slotAddr(q, first+i, j), true
			}
		}
	}
	return 0, false
}

// Insert links a block (RACE, algorithm 1).
func (ix *Index) Insert(c *rdma.Coro, q *index.Query, a memory.Addr, class memory.Class) error {
	s := ix.get()
	defer ix.put(s)
	want := MakeSlot(fingerprint(q.Hash), class, a)
	full := waiting{}
	for tries := 0; ; tries++ {
		at, ok := ix.choose(c, q)
		if !ok {
			if err := ix.grow(c, s, q, &full); err != nil {
				return err
			}
			if err := ix.lookup(c, s, q); err != nil {
				return err
			}
			continue
		}
		s.steps = append(s.steps[:0], step{addr: at, new: uint64(want)})
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
		linked, err := ix.confirm(c, s, q, want)
		if err != nil || linked {
			return err
		}
	}
}

// confirm completes an insert whose slot has been set on the primary (the step in
// s.steps): it sets the backups, and reads the buckets again, to find duplicates
// and splits that were concurrent. It reports false when the slot had to be
// cleared because its bucket is not responsible any more.
func (ix *Index) confirm(c *rdma.Coro, s *scratch, q *index.Query, want Slot) (bool, error) {
	at := s.steps[0].addr
	s.batch.Reset()
	ix.appendBackups(s, q.View, s.steps)
	ix.Search(&s.batch, q)
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
		m := ix.matches(c, s, q)
		own, n := ownSlot(m, want.Addr())
		switch {
		case n == 0:
			// The directory has moved on, and lookups do not read the bucket any more
			// that the slot was put into: take it back from there. If it is not there
			// either, it was being moved while the buckets were read.
			ok, err := ix.one(c, s, q.View, at, uint64(want), 0)
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
			if err := ix.waitFor(c, &wait, own.at, 0, "the move of a slot"); err != nil {
				return false, err
			}
			continue
		case !ix.covers(c, q, own.line):
			// The split of the sub-table has passed by: the slot is in the wrong one.
			if ok, err := ix.one(c, s, q.View, own.at, uint64(own.value), 0); err != nil {
				return false, err
			} else if ok {
				return false, ix.lookup(c, s, q)
			}
			continue // it is being moved after all
		case len(m) == 1, mutant.SkipDuplicateCheck:
			return true, nil
		}
		v, err := ix.judge(c, s, q, m, own)
		if err != nil {
			return false, err
		}
		switch {
		case v == unique:
			return true, nil
		case v == likely:
			s.others = append(s.others[:0], m...)
			continue
		case v == undecided && polls < maxPolls:
			pause(c, polls)
			polls++
			continue
		}
		if ok, err := ix.one(c, s, q.View, own.at, uint64(own.value), 0); err != nil {
			return false, err
		} else if ok {
			return false, index.ErrDuplicate
		}
	}
}

// ownSlot returns the slot of the block at a, and how many there are: two while
// it is being moved. The one that is moving comes first.
func ownSlot(m []found, a memory.Addr) (*found, int) {
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

// waiting is how long an operation has been waiting.
type waiting struct {
	since int64
	tries int
}

// waitFor pauses, and fails when it has done so for too long.
func (ix *Index) waitFor(c *rdma.Coro, w *waiting, at memory.Addr, owner uint64, what string) error {
	now := c.Thread().Now()
	if w.since == 0 {
		w.since = now
	} else if now-w.since > ix.stall {
		return &BusyError{Table: ix.geo.Table, Addr: at, Owner: owner, What: what}
	}
	pause(c, w.tries)
	w.tries++
	return nil
}
