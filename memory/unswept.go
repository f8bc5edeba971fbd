package memory

import "txnode/memory/layout"

// bereft notes the loss of a blade with which nobody was declared dead, since no coordinator
// was open: nobody is forgotten later. What dead ones have left, and no sweep has come to,
// may have been on the blade all the same. The caller holds the lock.
func (s *membership) bereft() {
	s.hollow = true
	s.losses++
	s.sweeps++
	s.torn.Store(true)
}

// Unswept reports whether something of dead coordinators may be left on the blades,
// and a number for Swept: which sweep would find it.
func (s *membership) Unswept() (generation uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweeps, s.layout.Unswept || s.owing
}

// Hollow reports whether slots of an index may lead to free blocks. They do when a blade is lost: a
// placeholder is on the primary alone, and its block is free on the copy that takes over, while its slot
// stays. Hollow is true from the loss of a blade on, and from Open if one was lost before and no sweep has
// come to its end since. It stays true then until the database is closed, though a sweep ends: sessions of
// that time may leave such slots behind later.
func (s *membership) Hollow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hollow
}

// Single reports whether a block has never had another copy that was read: there are no backups, and no primary was
// replaced by a copy that was built for it (Hollow).
func (s *membership) Single() bool { return s.opts.Backups == 0 && !s.Hollow() }

// Torn reports whether changes of indexes may be half-done whose clients are gone: a
// coordinator was forgotten since the indexes were swept last, or may be declared dead
// at the time given. It takes no lock.
func (s *membership) Torn(now int64) bool {
	if s.torn.Load() {
		return true
	}
	r := s.regs.Load()
	for i := range r.ids {
		if r.until[i] != 0 && now > r.until[i] {
			return true
		}
	}
	return false
}

// SweptIndexes notes that the indexes were swept for what coordinators have left that
// were gone when Unswept returned the number.
func (s *membership) SweptIndexes(generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweeps == generation {
		s.torn.Store(false)
	}
}

// sweepAgain makes a sweep due; the caller holds the lock, in a change.
func (s *membership) sweepAgain() error {
	if err := s.writable(); err != nil {
		return err
	}
	if !s.layout.Unswept || s.layout.Spared {
		if err := s.commit(layout.EntryOfSweep(s.hollow, false)); err != nil {
			return err
		}
		s.layout.Unswept, s.layout.Hollow, s.layout.Spared = true, s.hollow, false
	}
	s.sweeps++
	return nil
}

// Swept notes that a sweep is over which began when Unswept returned the number.
func (s *membership) Swept(generation uint64) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if s.sweeps != generation {
			return nil
		}
		if s.owing = false; !s.layout.Unswept {
			return nil
		}
		if err := s.commit(Entry{Key: layout.KeySweep}); err != nil {
			return err
		}
		s.layout.Unswept, s.layout.Hollow, s.layout.Spared = false, false, false
		s.withheld = false
		return nil
	})
}

// SweptBeside notes that a sweep which began when Unswept returned the number has left nothing but
// what is damaged. Another one is due.
func (s *membership) SweptBeside(generation uint64) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		l := s.layout
		if s.sweeps != generation {
			return nil
		}
		if s.owing = false; !l.Unswept || l.Spared {
			return nil
		}
		if err := s.commit(layout.EntryOfSweep(l.Hollow, true)); err != nil {
			return err
		}
		l.Spared = true
		return nil
	})
}

// Tidy reports whether nothing is left to be swept of dead coordinators, but what is damaged.
func (s *store) Tidy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tidy()
}

func (s *store) tidy() bool { return !s.layout.Unswept || s.layout.Spared }

// Spared reports whether all that is to be swept is what is damaged.
func (s *store) Spared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout.Spared
}

// Loose reports whether extents may be allocated that nothing leads to: a coordinator
// has died since Fastened was called last, in any process, or since it was in this one, which alone knows the extents of its own, or this
// process has adopted a segment of extents.
func (s *membership) Loose() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout.Loose || s.loose != s.fastened
}

// Fastened notes that nothing is left of the extents that Loose is about. generation is what
// Unswept returned before the extents were looked for. If coordinators have died since, nothing
// changes.
func (s *membership) Fastened(generation uint64) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if s.sweeps != generation {
			return nil
		}
		if s.fastened = s.listed; !s.layout.Loose {
			return nil
		}
		if err := s.commit(Entry{Key: layout.KeyLoose}); err != nil {
			return err
		}
		s.layout.Loose = false
		return nil
	})
}
