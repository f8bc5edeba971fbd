package ycsb

import (
	"fmt"

	"txnode/benchmarks/workload"
)

// RowError is returned by a transaction that finds a record missing, or with a value that is not
// its own. It is a workload.ErrInconsistent: the store has lost or damaged it.
type RowError struct {
	Number uint64 // of the record
	Key    uint64
	Length int // bytes found; -1 if there is no record
	Want   int // bytes that it must have
}

func (e *RowError) Error() string {
	switch {
	case e.Length < 0:
		return fmt.Sprintf("ycsb: record %d (key %#x) is not there, and no transaction removes one", e.Number, e.Key)
	case e.Length != e.Want:
		return fmt.Sprintf("ycsb: record %d (key %#x) has %d bytes, not %d", e.Number, e.Key, e.Length, e.Want)
	}
	return fmt.Sprintf("ycsb: record %d (key %#x) has a value that nobody has written for it", e.Number, e.Key)
}

// Unwrap makes errors.Is(e, workload.ErrInconsistent) true.
func (e *RowError) Unwrap() error { return workload.ErrInconsistent }
