package memory

import (
	"slices"

	"txnode/memory/layout"
)

// noteLocksLost notes the loss of a blade with which nobody was declared dead, since no coordinator
// was open: nobody is forgotten later. What dead ones have left, and no sweep has come to,
// may have been on the blade all the same. The caller holds the lock.
func (s *membership) noteLocksLost() {
	s.dangling = true
	s.losses++
	s.sweeps++
	s.owing = true
	s.halfDone.Store(true)
}

// What is to be swept is swept by one of the processes that have joined. The other ones wait:
//
//	locks, deleted records and half-done     are on the blades, and any process can finish them or
//	                                         take them back. The one that has the right of
//	changes that dead coordinators left      RightSweep does. It gets the right with the change of
//	                                         the catalog that makes the sweep
//	                                         due, and loses it with the one that ends the sweep,
//	                                         or its registration
//	strays                                   are in segments of a process, which alone can tell
//	                                         that no allocator has them. It sweeps
//	                                         these itself, when the other sweep is over. It owes
//	                                         that when a coordinator of its own is
//	                                         gone, or one is that it has recovered, or tried to,
//	                                         since recovery frees blocks; and when it
//	                                         has adopted a segment, or a blade was lost. Of no
//	                                         other death it has strays: only its own
//	                                         allocators hand out its blocks, and those that
//	                                         another process frees are found in another
//	                                         way (rescan)
//	locks in the name of a process           that failed while it recovered or swept are known to
//	                                         be left over to that process alone.
//	                                         So it sweeps all, also while another process has the
//	                                         right
//
// The right only saves work. Two processes that sweep do each other no harm, so one that has waited
// for long takes the right over, and the one that had it may come to its end all the same.

// Sweeping is what a process is to sweep.
type Sweeping uint8

// What there is to sweep.
const (
	SweepNothing Sweeping = iota // or another process is at it
	SweepOwn                     // strays in segments of this process
	SweepAll
)

// A process lets another one sweep for all for sweepPatience times the term of its own
// registration, as long as that of the other one lasts; and for sweepPatienceNs if
// registrations last for ever.
const (
	sweepPatience   = 8
	sweepPatienceNs = int64(80_000_000_000)
)

// BeginSweep says what this process is to sweep at a time of the fabric's clock. It may take the
// right of RightSweep, which is a change of the catalog. If the catalog cannot be changed, nothing
// is to be swept now. Safe for concurrent use.
func (s *allocation) BeginSweep(now int64) Sweeping {
	s.mu.Lock()
	due, take := s.sweepDue(now)
	s.mu.Unlock()
	if !take {
		return due
	}
	if s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.enroll(); err != nil {
			return err
		}
		if due, take = s.sweepDue(now); !take {
			return nil
		}
		m := layout.Right{Of: layout.RightSweep, Process: s.process}
		if err := s.commit(layout.EntryOfRight(m)); err != nil {
			return err
		}
		s.layout.SetRight(m)
		return nil
	}) != nil {
		return SweepNothing
	}
	return due
}

// sweepDue is what is to be swept at a time; take: the right to do so is to be taken before. The
// caller holds the lock.
func (s *membership) sweepDue(now int64) (due Sweeping, take bool) {
	l := s.layout
	holder := l.Holder(layout.RightSweep)
	switch {
	case !l.Unswept && !s.owing && !s.failing:
		return SweepNothing, false
	case !s.opts.Shared || s.failing || l.Unswept && l.Process(s.process) != nil && holder == s.process:
		return SweepAll, false
	case !l.Unswept:
		for i := range l.Coordinators {
			if l.Coordinators[i].Recovering {
				return SweepNothing, false // what is a stray cannot be told: see ClaimStrays
			}
		}
		return SweepOwn, false
	case holder == 0:
		return SweepAll, true
	case s.waits.holder != holder:
		s.waits.holder, s.waits.since = holder, now
	case now-s.waits.since > s.sweepPatience():
		return SweepAll, true
	}
	if s.owing && l.OnlyDamage { // the other sweep is over, but for what is damaged
		return SweepAll, false
	}
	return SweepNothing, false
}

func (s *membership) sweepPatience() int64 {
	if s.lasts > 0 {
		return sweepPatience * s.lasts
	}
	return sweepPatienceNs
}

// takeSweep has this process have the right of RightSweep in l, whose coordinators it has
// recovered, or processes ended, unless another process has it, or this one is cut off a blade. It
// returns the entry for the catalog, if there is one. The caller holds the lock.
func (s *membership) takeSweep(l *layout.Layout) []layout.Entry {
	if !s.opts.Shared || l.Process(s.process) == nil || l.Holder(layout.RightSweep) != 0 || len(s.without(l)) > 0 {
		return nil
	}
	m := layout.Right{Of: layout.RightSweep, Process: s.process}
	l.SetRight(m)
	return []layout.Entry{layout.EntryOfRight(m)}
}

// OweSweep says that there may be strays in segments of this process: it sweeps these when no
// other sweep is due. all: it has failed while it resolved locks under its own number, and
// sweeps everything.
func (s *membership) OweSweep(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owing, s.failing = true, s.failing || all
	if all {
		s.halfDone.Store(true)
	}
}

// OwesSweep reports whether this process has to sweep segments of its own, and no other sweep is
// due.
func (s *membership) OwesSweep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.layout.Unswept && (s.owing || s.failing)
}

// SweptOwn notes that a sweep of the segments of this process is over which began when Unswept
// returned the number.
func (s *membership) SweptOwn(generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweeps == generation {
		s.owing = false
	}
}

// Unswept reports whether something of dead coordinators may be left on the blades,
// and a number for Swept: which sweep would find it.
func (s *membership) Unswept() (generation uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweeps, s.layout.Unswept || s.owing || s.failing
}

// Dangling reports whether slots of an index may lead to free blocks. They do when a blade is lost:
// a placeholder is on the primary alone, and its block is free on the copy that takes over, while
// its slot stays. Dangling is true from the loss of a blade on, and from Open if one was lost
// before and no sweep has come to its end since. It stays true then until the database is closed,
// though a sweep ends: sessions of that time may leave such slots behind later.
func (s *membership) Dangling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dangling
}

// Single reports whether a block has never had another copy that was read: there are no backups,
// and no primary was replaced by a copy that was built for it (Dangling).
func (s *membership) Single() bool { return s.opts.Backups == 0 && !s.Dangling() }

// HalfDone reports whether changes of indexes may be half-done whose clients are gone: a
// coordinator was forgotten since the indexes were swept last, or may be declared dead
// at the time given. It takes no lock.
func (s *membership) HalfDone(now int64) bool {
	if s.halfDone.Load() {
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
		s.halfDone.Store(false)
	}
}

// sweepAgain makes a sweep due; the caller holds the lock, in a change.
func (s *membership) sweepAgain() error {
	if err := s.writable(); err != nil {
		return err
	}
	if !s.layout.Unswept || s.layout.OnlyDamage {
		l := s.layout.Clone()
		l.Unswept, l.Dangling, l.OnlyDamage = true, s.dangling, false
		if err := s.commit(append(s.takeSweep(l), layout.EntryOfSweep(s.dangling, false))...); err != nil {
			return err
		}
		s.layout = l
	}
	s.sweeps++
	s.owing = true
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
		if s.owing, s.failing = false, false; !s.layout.Unswept {
			return nil
		}
		changes := []layout.Entry{{Key: layout.KeySweep}}
		if s.layout.Holder(layout.RightSweep) != 0 {
			changes = append(changes, layout.Entry{Key: layout.KeyOf(layout.PrefixRight, layout.RightSweep)})
		}
		if err := s.commit(changes...); err != nil {
			return err
		}
		s.layout.DropRight(layout.RightSweep)
		s.layout.Unswept, s.layout.Dangling, s.layout.OnlyDamage = false, false, false
		s.withheld = false
		return nil
	})
}

// SweptButDamage notes that a sweep which began when Unswept returned the number has left nothing
// but what is damaged. Another one is due.
func (s *membership) SweptButDamage(generation uint64) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		l := s.layout
		if s.sweeps != generation {
			return nil
		}
		if s.owing, s.failing = false, false; !l.Unswept || l.OnlyDamage {
			return nil
		}
		if err := s.commit(layout.EntryOfSweep(l.Dangling, true)); err != nil {
			return err
		}
		l.OnlyDamage = true
		return nil
	})
}

// Tidy reports whether nothing is left to be swept of dead coordinators, but what is damaged.
func (s *store) Tidy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tidy()
}

func (s *store) tidy() bool { return !s.layout.Unswept || s.layout.OnlyDamage }

// OnlyDamage reports whether all that is to be swept is what is damaged.
func (s *store) OnlyDamage() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout.OnlyDamage
}

// Leaked reports whether extents may be allocated that nothing leads to: a coordinator has died
// since LeaksFreed was called last, in any process, or since it was in this one, which alone knows
// the extents of its own, or this process has adopted a segment of extents.
func (s *membership) Leaked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout.Leaked || s.leaked != s.freed
}

// LeaksFreed notes that nothing is left of the extents that Leaked is about. generation is what
// Unswept returned before the extents were looked for. If coordinators have died since, nothing
// changes.
func (s *membership) LeaksFreed(generation uint64) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if s.sweeps != generation {
			return nil
		}
		if s.freed = s.listed; !s.layout.Leaked {
			return nil
		}
		if err := s.commit(layout.Entry{Key: layout.KeyLeaked}); err != nil {
			return err
		}
		s.layout.Leaked = false
		return nil
	})
}

// orphaned reports whether coordinators are gone, since an earlier layout, that were this
// process's, or that it has recovered, or tried to. The caller holds the lock.
func (s *membership) orphaned(old *layout.Layout) bool {
	return slices.ContainsFunc(old.Coordinators, func(c layout.CoordinatorEntry) bool {
		_, claimed := s.claimed[c.ID]
		return (c.Process == s.process || claimed) && s.layout.Coordinator(c.ID) == nil
	})
}
