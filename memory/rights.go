package memory

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"txnode/memory/layout"
)

// errRightTaken: another process has the right, or another act of this one.
var errRightTaken = errors.New("memory: another one is at it")

// keeps returns ErrEnded if an act of this process has a right by what it was told, and has it no
// more: others have taken this process for dead since, and go on without what was to be done. The
// caller holds the lock, in a change which is made under that right.
func (s *membership) keeps(of uint32) error {
	if process, ok := s.rights[of]; ok && s.opts.Shared && s.layout.Holder(of) != process {
		return fmt.Errorf("%w: process %d had the right to do this, and is ended: nothing was changed, try again",
			ErrEnded, process)
	}
	return nil
}

// has reports whether an act of this process has a right. The caller holds the lock.
func (s *membership) has(of uint32) bool { return s.acts(of) && s.keeps(of) == nil }

// acts reports whether an act of this process has a right, as far as it was told. The
// caller holds the lock.
func (s *membership) acts(of uint32) bool {
	_, ok := s.rights[of]
	return ok
}

// note notes that an act has a right that was taken under the registration of this process. The
// caller holds the lock.
func (s *membership) note(of uint32) {
	if s.rights == nil {
		s.rights = map[uint32]uint32{}
	}
	s.rights[of] = s.process
}

// enterRight notes in the catalog that this process has a right. The caller holds the lock, in a
// change, and the process is registered.
func (s *membership) enterRight(of uint32) error {
	i, ok := s.layout.FindRight(of)
	if ok && s.layout.Rights[i].Process == s.process { // it could not be given back
		return nil
	}
	if ok || of == layout.RightDrop && s.layout.Holder(layout.RightBackup) != 0 {
		return errRightTaken
	}
	if s.unrevoked.Load() {
		return ErrUnrevoked
	}
	m := layout.Right{Of: of, Process: s.process}
	if err := s.commit(layout.EntryOfRight(m)); err != nil {
		return err
	}
	s.layout.Rights = slices.Insert(s.layout.Rights, i, m)
	return nil
}

// dropRight ends a right of this process, if it still has it. The caller holds the lock, in a
// change.
func (s *membership) dropRight(of uint32) error {
	i, ok := s.layout.FindRight(of)
	if err := s.writable(); err != nil || !ok || s.layout.Rights[i].Process != s.process {
		return err
	}
	if err := s.commit(layout.Entry{Key: layout.KeyOf(layout.PrefixRight, of)}); err != nil {
		return err
	}
	s.layout.Rights = slices.Delete(s.layout.Rights, i, i+1)
	return nil
}

// AcquireRight reports whether the caller has the right now to recover the index of a table, or
// that of RightCopies, RightLoad or RightDrop, and then it calls ReleaseRight when it has done so:
// one at a time does, so that what a recoverer meets of another one's is left over. In a shared
// database the catalog says which process has it: it is changed then. The caller acts under the
// right on a thread by Hold. Safe for concurrent use.
func (s *allocation) AcquireRight(of uint32) bool {
	if s.opts.Shared && s.EndKeys() != nil {
		return false
	}
	if s.update(func() error {
		switch {
		case s.acts(of):
			return errRightTaken
		case !s.opts.Shared:
			s.note(of)
			return nil
		}
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.enroll(); err != nil {
			return err
		}
		if err := s.enterRight(of); err != nil {
			return err
		}
		s.note(of)
		return nil
	}) != nil {
		return false
	}
	if of < layout.RightCopies {
		s.indexRights.Add(1)
	}
	return true
}

// HasRight reports whether this process has a right that AcquireRight has given it: not if others
// have taken it for dead since, even if it has registered anew.
func (s *membership) HasRight(of uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has(of)
}

// RightElsewhere reports whether another process has a right, by what this one knows.
func (s *membership) RightElsewhere(of uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.layout.Holder(of)
	return p != 0 && p != s.process
}

// ReleaseRight ends what AcquireRight has begun. If the catalog cannot be changed, no other process
// has the right before this one has had it again, or is gone.
func (s *membership) ReleaseRight(of uint32) {
	if s.opts.Shared {
		_ = s.update(func() error { return s.dropRight(of) }) // see above
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rights, of)
	if of < layout.RightCopies {
		s.indexRights.Add(-1)
	}
}

// RecoversIndex reports whether this process recovers an index. It takes no lock.
func (s *membership) RecoversIndex() bool { return s.indexRights.Load() > 0 }

// First reports whether no other process had the database open when this one opened it. If it is
// shared, this process has been alone since then, and is until EndAlone.
func (s *membership) First() bool { return !s.opts.Shared || s.first }

// BeginAlone has this process be alone with a shared database: it is the only one that has joined,
// and others wait in Open until EndAlone. ErrShared: others have joined, or have died and their
// registrations have not expired, or their sessions are not recovered, or this process is alone
// already. If others take this process for dead, neither tables nor their indexes can be changed by
// it until EndAlone. In a database that is not shared it does nothing. Safe for concurrent use.
func (s *allocation) BeginAlone() error {
	if !s.opts.Shared {
		return nil
	}
	if err := s.EndKeys(); err != nil {
		return err
	}
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.alone(); err != nil {
			return err
		}
		if s.acts(layout.RightAlone) {
			return fmt.Errorf("%w: this process is alone with it already: wait until that has ended", ErrShared)
		}
		if err := s.enroll(); err != nil {
			return err
		}
		var others []string
		for _, p := range s.layout.Processes {
			if p.ID != s.process && !p.Resigned() {
				others = append(others, fmt.Sprint(p.ID))
			}
		}
		if len(others) > 0 {
			return fmt.Errorf("%w: as processes %s: it needs to be alone with the database: close it there",
				ErrShared, strings.Join(others, ", "))
		}
		// A process that was taken for dead may be late, and its sessions run until they are
		// recovered.
		if ids := s.strangers(); len(ids) > 0 {
			return fmt.Errorf("%w: coordinators %v of processes that are gone are not recovered yet: try again",
				ErrShared, ids)
		}
		if err := s.enterRight(layout.RightAlone); err != nil {
			return err
		}
		s.note(layout.RightAlone)
		return nil
	})
}

// strangers lists the open coordinators that are neither this process's nor were there when it
// opened the database as the only one. The caller holds the lock.
func (s *membership) strangers() (ids []uint32) {
	for i := range s.layout.Coordinators {
		if id := s.layout.Coordinators[i].ID; !s.owns(id) && !(s.first && id < s.since) {
			ids = append(ids, id)
		}
	}
	return ids
}

// alone returns ErrShared if this process has begun to be alone with the database, and is so no
// more. The caller holds the lock, in a change that it makes because it is alone.
func (s *membership) alone() error {
	if err := s.keeps(layout.RightAlone); err != nil {
		return fmt.Errorf("%w: this one was alone with it, and is so no more: %w", ErrShared, err)
	}
	return nil
}

// Alone returns ErrShared if this process has begun to be alone, and is so no more, as far
// as it has followed.
func (s *membership) Alone() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone()
}

// EndAlone ends what BeginAlone, or Open, has begun. ErrShared: the process was not alone all the
// time, since others have taken it for dead. After another error the right ends when the
// registration is renewed.
func (s *membership) EndAlone() error {
	if !s.opts.Shared {
		return nil
	}
	var lost error
	err := s.update(func() error {
		if lost = s.alone(); lost == nil {
			if err := s.dropRight(layout.RightAlone); err != nil {
				return err
			}
		}
		delete(s.rights, layout.RightAlone)
		return nil
	})
	if err != nil { // giveBack does it
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.rights, layout.RightAlone)
		return err
	}
	return lost
}

// giveBack gives back rights that this process has and does not use: the catalog could not be
// changed then. The caller holds the lock, in a change.
func (s *membership) giveBack() error {
	for _, m := range slices.Clone(s.layout.Rights) {
		if m.Process != s.process || s.acts(m.Of) || m.Of == layout.RightSweep && s.layout.Unswept {
			continue
		}
		if err := s.dropRight(m.Of); err != nil {
			return err
		}
	}
	return nil
}
