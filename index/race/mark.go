package race

import (
	"slices"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// mark is a wish for bits in the header of the main bucket of a first choice: they
// say that keys with certain fingerprints may be in their second choice.
type mark struct {
	addr layout.Addr // of the header, 0: no mark
	bits Header
	have Header // what the primary was seen to hold last
}

// good reports whether a header says what the mark wishes, and nobody who counts
// slots will take it for superfluous.
func (m *mark) good(h Header) bool { return h&m.bits == m.bits && !h.Recount() }

// isSecond reports whether a line of a query's buffer is of the second choice.
func isSecond(line int) bool { return line%queryLines >= firstLines }

// markFor is the mark that the query's key needs in a line of its second choice.
func (ix *Index) markFor(c *rdma.Coro, q *index.Query, line int) mark {
	base := line / queryLines * queryLines
	main := int(mainLine(uint32(q.State[stPlaces])))
	return mark{
		addr: slotAddr(q, base+main, slotsPerLine),
		bits: SpillBit(fingerprint(q.Hash)),
		have: markOf(q, words(c.Thread(), q.Local), base),
	}
}

// holds reports whether the mark m, which was made for a slot before the slot was
// set, still holds for it, in the line where it was found after it was set: nobody
// can have taken it back meanwhile, nor will as long as the slot is there.
func (ix *Index) holds(c *rdma.Coro, q *index.Query, line int, m *mark) bool {
	now := ix.markFor(c, q, line)
	return now.good(now.have) && now.addr == m.addr && now.have.Base() == m.have.Base()
}

// mark makes marks, on all copies, and returns when they are there. It reports false
// when one of the headers is not of the sub-table and depth any more that it was of
// when it was read: then the caller has to look again. Not more than the window of
// them are asked for at once.
//
// A mark that is there already may be on its way to the backups, by a client that
// may die: so they are asked, too. A slot is set, on any copy, only when its mark
// is on all; so whatever copy survives, a slot in a second choice comes with its mark.
func (ix *Index) mark(c *rdma.Coro, s *scratch, v *layout.View, marks []mark) (bool, error) {
	if ok, err := ix.markPrimary(c, s, v, marks); !ok || err != nil {
		return false, err
	}
	if err := ix.backups(c, s, v, s.steps); err != nil {
		return false, err
	}
	// Those that were there already, or are to be on a copy that is further than the primary:
	// as it should be if it has had the mark, or else what a lost primary has left there.
	rest := slices.DeleteFunc(marks, func(m mark) bool {
		return slices.ContainsFunc(s.steps, func(t step) bool { return t.addr == m.addr && t.ok() && !t.passed })
	})
	return ix.awaitMarks(c, s, v, rest)
}

// markPrimary makes marks on the primary; the steps that it took to do so are left in
// s.steps. It sets what the marks have.
func (ix *Index) markPrimary(c *rdma.Coro, s *scratch, v *layout.View, marks []mark) (bool, error) {
	s.steps = s.steps[:0]
	for {
		made := len(s.steps)
		for i := range marks {
			m := &marks[i]
			if !m.good(m.have) {
				s.steps = append(s.steps, step{
					addr: m.addr, old: uint64(m.have), new: uint64((m.have | m.bits) &^ headerRecount), header: true,
				})
			}
		}
		if len(s.steps) == made {
			return true, nil
		}
		if err := ix.primary(c, s, v, s.steps[made:]); err != nil {
			return false, err
		}
		same := true
		for k, i := made, 0; i < len(marks); i++ {
			m := &marks[i]
			if m.good(m.have) {
				continue
			}
			t := &s.steps[k]
			k++
			if t.ok() {
				m.have = Header(t.new)
				continue
			}
			now := Header(t.prior)
			if err := now.Check(ix.geo.Table); err != nil {
				return false, ix.corrupt(m.addr, "%w", err)
			}
			same = same && now.Base() == m.have.Base()
			m.have = now
		}
		s.steps = slices.DeleteFunc(s.steps, func(t step) bool { return !t.ok() })
		if !same {
			return false, ix.backups(c, s, v, s.steps)
		}
	}
}

// awaitMarks waits until marks that somebody else has made are on all copies. It brings
// them to those that are being built.
func (ix *Index) awaitMarks(c *rdma.Coro, s *scratch, v *layout.View, marks []mark) (bool, error) {
	copies := 0
	for i := range marks {
		m := &marks[i]
		copies = max(copies, v.Copies(m.addr))
		// Who has made it may not come to do this; and who builds copies, past it.
		if err := memory.SyncWords(c, v, m.addr, 8); err != nil {
			return false, err
		}
	}
	if copies < 2 {
		return true, nil
	}
	size := 8 * len(marks) * copies
	t := c.Thread()
	buf, err := t.Alloc(size)
	if err != nil {
		return false, err
	}
	defer t.Free(buf, size)
	for w := (waiting{}); ; {
		s.batch.Reset()
		for i := range marks {
			for k := range v.Copies(marks[i].addr) {
				s.batch.Read(v.At(marks[i].addr, k), buf+uint32(8*(i*copies+k)), 8)
			}
		}
		if err := c.Do(&s.batch); err != nil {
			return false, err
		}
		late := layout.Addr(0)
		for i := range marks {
			m := &marks[i]
			for k := range v.Copies(m.addr) {
				h := Header(t.Word(buf + uint32(8*(i*copies+k))))
				switch {
				case k == 0 && (!m.good(h) || h.Base() != m.have.Base()):
					return false, nil
				case !m.good(h) || h.Base() != m.have.Base():
					late = m.addr
				}
			}
		}
		if late == 0 {
			return true, nil
		}
		if err := ix.waitFor(c, &w, late, 0, "a mark that has not reached all copies"); err != nil {
			return false, err
		}
	}
}

// mark makes, in the new sub-table, the marks of the items that are to be moved and
// are in their second choice.
func (m *mover) mark(v *layout.View) error {
	s := m.s
	base := MakeHeader(m.ix.geo.Table, m.depth+1, m.suffix|m.bit())
	s.marks = s.marks[:0]
	for i := range m.items {
		it := &m.items[i]
		o1, _ := m.ix.geo.place(it.hash)
		if !it.known || uint32(it.hash)&m.bit() == 0 || !spilled(it.off, o1) {
			continue
		}
		at := m.to + layout.Addr(MarkAt(o1))
		k := slices.IndexFunc(s.marks, func(x mark) bool { return x.addr == at })
		if k < 0 {
			k = len(s.marks)
			s.marks = append(s.marks, mark{addr: at, have: base})
		}
		s.marks[k].bits |= SpillBit(it.value.Fingerprint())
	}
	if len(s.marks) == 0 {
		return nil
	}
	ok, err := m.ix.mark(m.c, s, v, s.marks)
	if err == nil && !ok {
		err = m.ix.corrupt(s.marks[0].addr, "the headers of a sub-table have changed while it was being filled")
	}
	return err
}

// recount takes back, in the old sub-table, the marks that no slot needs any more.
// All slots were seen since its headers said that this is being found out; who has
// made use of a mark since then has cleared that (see confirm), and its marks stay.
func (m *mover) recount() error {
	ix, s := m.ix, m.s
	unknown := m.damage != nil // there are slots whose keys are not known
	return m.eachHeader(func(at layout.Addr, h Header) (Header, error) {
		if !h.Recount() {
			return h, nil
		}
		if unknown {
			return h &^ headerRecount, nil
		}
		return h.Base() | m.needed[(at-m.from-tableHeader)/lineSize], nil
	}, func() error {
		return ix.apply(m.c, s, ix.space.ViewOn(m.c.Thread()), s.steps)
	})
}
