package memory

import (
	"encoding/binary"
	"errors"
	"slices"
)

// Mend is the right of a process to recover the index of a table.
type Mend struct {
	Table   uint16
	Process uint32 // that has joined
}

func mendEntry(m Mend) Entry {
	return seal(keyOf(prefixMend, uint32(m.Table)), entryMend, binary.LittleEndian.AppendUint32(nil, m.Process))
}

// errMending: another process recovers the index.
var errMending = errors.New("memory: the index is being recovered")

// BeginMend reports whether the caller may recover the index of a table now, and then
// it calls EndMend when it has: one at a time does, so that what a recoverer meets of
// another one's is left over. Among processes that have joined, the catalog says who: it is changed then. That of one that
// is gone ends with its registration, in a new epoch. Safe for concurrent use.
func (s *Space) BeginMend(table uint16) bool {
	if _, busy := s.mending.LoadOrStore(table, struct{}{}); busy {
		return false
	}
	if s.opts.Join && s.update(func() error { return s.claimMend(table) }) != nil {
		s.mending.Delete(table)
		return false
	}
	s.menders.Add(1)
	return true
}

// claimMend notes in the catalog that this process recovers an index. The caller holds the lock, in a change.
func (s *Space) claimMend(table uint16) error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.enroll(); err != nil {
		return err
	}
	i, ok := s.layout.mend(table)
	if ok && s.layout.Mends[i].Process == s.process { // it could not be given back
		return nil
	}
	if ok {
		return errMending
	}
	m := Mend{table, s.process}
	if err := s.commit(mendEntry(m)); err != nil {
		return err
	}
	s.layout.Mends = slices.Insert(s.layout.Mends, i, m)
	return nil
}

// mend is where the right to recover the index of a table is, or would be.
func (l *Layout) mend(table uint16) (int, bool) {
	return slices.BinarySearchFunc(l.Mends, table, func(m Mend, table uint16) int { return int(m.Table) - int(table) })
}

// EndMend ends what BeginMend has begun. If the catalog cannot be changed, no other process recovers the index
// before this one has done it again, or is gone.
func (s *Space) EndMend(table uint16) {
	if s.opts.Join {
		_ = s.update(func() error { // see above
			i, ok := s.layout.mend(table)
			if err := s.writable(); err != nil || !ok || s.layout.Mends[i].Process != s.process {
				return err
			}
			if err := s.commit(Entry{Key: keyOf(prefixMend, uint32(table))}); err != nil {
				return err
			}
			s.layout.Mends = slices.Delete(s.layout.Mends, i, i+1)
			return nil
		})
	}
	s.mending.Delete(table)
	s.menders.Add(-1)
}

// Mending reports whether this process recovers an index. It takes no lock.
func (s *Space) Mending() bool { return s.menders.Load() > 0 }
