package memory

// Whoever frees a block numbers it, and log records say how many had been numbered when
// they were written. So of a record in a log, whose block is free, it can be told whether
// the block was freed since, as one that has had the record's image; or was so before, and
// has lost with a blade what its transaction had put there. Numbers grow as long as the
// database lives, since the upper bits are the next coordinator's number, and 40 bits are
// enough for what is freed before there is another one.

// FreesShift is where the number of a coordinator begins in that of a freeing: the last
// one, plus one, that was registered then.
const FreesShift = 40

// CountFree numbers a block that the caller is about to free, before any verb that frees
// it is posted. Safe for concurrent use; it takes no lock.
func (s *Space) CountFree() uint64 { return s.frees.Add(1) }

// Frees is the largest number that CountFree has returned. Safe for concurrent use; it takes no lock.
func (s *Space) Frees() uint64 { return s.frees.Load() }

// raiseFrees makes the numbers larger than those of anybody who had the database open
// before the last coordinator was registered. The caller holds the lock, or is the only
// one.
func (s *Space) raiseFrees() {
	least := uint64(s.layout.NextCoordinator) << FreesShift
	for n := s.frees.Load(); n < least && !s.frees.CompareAndSwap(n, least); n = s.frees.Load() {
	}
}
