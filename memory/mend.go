package memory

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"txnode/memory/layout"
)

// errMending: another process has the right.
var errMending = errors.New("memory: another process is at it")

// takeMend notes in the catalog that this process has a right. The caller holds the lock, in a change, and the process is registered.
func (s *membership) takeMend(of uint32) error {
	i, ok := s.layout.FindMend(of)
	if ok && s.layout.Mends[i].Process == s.process { // it could not be given back
		return nil
	}
	if ok {
		return errMending
	}
	if s.unrevoked.Load() {
		return ErrUnrevoked
	}
	m := Mend{Of: of, Process: s.process}
	if err := s.commit(layout.EntryOfMend(m)); err != nil {
		return err
	}
	s.layout.Mends = slices.Insert(s.layout.Mends, i, m)
	return nil
}

// giveMend ends a right of this process, if it still has it. The caller holds the lock, in a change.
func (s *membership) giveMend(of uint32) error {
	i, ok := s.layout.FindMend(of)
	if err := s.writable(); err != nil || !ok || s.layout.Mends[i].Process != s.process {
		return err
	}
	if err := s.commit(Entry{Key: layout.KeyOf(layout.PrefixMend, of)}); err != nil {
		return err
	}
	s.layout.Mends = slices.Delete(s.layout.Mends, i, i+1)
	return nil
}

// BeginMend reports whether the caller has the right now to recover the index of a table, or that of MendCopies, and then
// it calls EndMend when it has done so: one at a time does, so that what a recoverer meets of
// another one's is left over. In a shared database the catalog says which process has it: it is changed then. Safe
// for concurrent use.
func (s *allocation) BeginMend(of uint32) bool {
	if _, busy := s.mending.LoadOrStore(of, struct{}{}); busy {
		return false
	}
	claim := func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.enroll(); err != nil {
			return err
		}
		return s.takeMend(of)
	}
	if s.opts.Shared && s.EndKeys() != nil {
		s.mending.Delete(of)
		return false
	}
	if s.opts.Shared && s.update(claim) != nil {
		s.mending.Delete(of)
		return false
	}
	if of != MendCopies {
		s.menders.Add(1)
	}
	return true
}

// HasMend reports whether this process has a right that BeginMend has given it: not if others have taken it for dead since.
func (s *membership) HasMend(of uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.mending.Load(of)
	return ok && (!s.opts.Shared || s.process != 0 && s.layout.Mender(of) == s.process)
}

// MendElsewhere reports whether another process has a right, by what this one knows.
func (s *membership) MendElsewhere(of uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.layout.Mender(of)
	return p != 0 && p != s.process
}

// EndMend ends what BeginMend has begun. If the catalog cannot be changed, no other process has the right
// before this one has had it again, or is gone.
func (s *membership) EndMend(of uint32) {
	if s.opts.Shared {
		_ = s.update(func() error { return s.giveMend(of) }) // see above
	}
	s.mending.Delete(of)
	if of != MendCopies {
		s.menders.Add(-1)
	}
}

// Mending reports whether this process recovers an index. It takes no lock.
func (s *membership) Mending() bool { return s.menders.Load() > 0 }

// First reports whether no other process had the database open when this one opened it. If it is shared, this process has
// been alone since then, and is until EndAlone.
func (s *membership) First() bool { return !s.opts.Shared || s.first }

// BeginAlone has this process be alone with a shared database: it is the only one that has joined, and others wait in Open
// until EndAlone. Calls nest. ErrShared: others have joined, or have died and their registrations have not
// expired, or their sessions are not recovered. In a database that is not shared it does nothing. Safe for concurrent use.
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
			return fmt.Errorf("%w: as processes %s: it needs to be alone with the database: close it there", ErrShared, strings.Join(others, ", "))
		}
		// A process that was taken for dead may be late, and its sessions run until they are recovered.
		if ids := s.strangers(); len(ids) > 0 {
			return fmt.Errorf("%w: coordinators %v of processes that are gone are not recovered yet: try again", ErrShared, ids)
		}
		if err := s.takeMend(MendAlone); err != nil {
			return err
		}
		s.alones++
		return nil
	})
}

// strangers lists the open coordinators that are neither this process's nor were there when it opened the database as the only one. The
// caller holds the lock.
func (s *membership) strangers() (ids []uint32) {
	for i := range s.layout.Coordinators {
		if id := s.layout.Coordinators[i].ID; !s.own[id] && !(s.first && id < s.since) {
			ids = append(ids, id)
		}
	}
	return ids
}

// EndAlone ends what BeginAlone, or Open, has begun. ErrShared: the process was not alone all the time, since others have taken it for
// dead. After another error the right ends when the registration is renewed.
func (s *membership) EndAlone() error {
	if !s.opts.Shared {
		return nil
	}
	s.mu.Lock()
	nested := s.alones > 1
	s.mu.Unlock()
	var err error
	if nested { // else the change itself finds out
		err = s.Follow()
	}
	lost := false
	end := func() error {
		if s.alones == 0 {
			return nil
		}
		lost = s.layout.Mender(MendAlone) != s.process
		if s.alones > 1 {
			s.alones--
			return nil
		}
		if err := s.giveMend(MendAlone); err != nil {
			return err
		}
		s.alones = 0
		return nil
	}
	if err == nil {
		err = s.update(end)
	}
	if err != nil { // giveBack does it
		s.mu.Lock()
		defer s.mu.Unlock()
		s.alones = max(s.alones-1, 0)
		return err
	}
	if lost {
		return fmt.Errorf("%w: others have taken this process for dead meanwhile", ErrShared)
	}
	return nil
}

// giveBack gives back rights that this process has and does not use: the catalog could not be changed then. The caller holds the
// lock, in a change.
func (s *membership) giveBack() error {
	for _, m := range slices.Clone(s.layout.Mends) {
		if _, used := s.mending.Load(m.Of); m.Process != s.process || used || m.Of == MendAlone && s.alones > 0 || m.Of == MendSweep && s.layout.Unswept {
			continue
		}
		if err := s.giveMend(m.Of); err != nil {
			return err
		}
	}
	return nil
}
