package tatp

import (
	"errors"
	"fmt"

	"txnode/benchmarks/workload"
)

// Errors with which a transaction function rolls back; a Client turns them into
// outcomes.
var (
	// ErrRowAbsent: a row that TATP expects to be absent now and then is absent
	// (workload.RowAbsent).
	ErrRowAbsent = errors.New("tatp: row absent")
	// ErrRowExists: the row to insert exists (workload.RolledBack).
	ErrRowExists = errors.New("tatp: row exists")
)

// RowError is returned by a transaction that finds a row missing that no
// transaction removes, or a row of the wrong length. It is a
// workload.ErrInconsistent: the store has lost or damaged it.
type RowError struct {
	Table  int
	Key    uint64
	Length int // bytes found; -1 if there is no row
}

func (e *RowError) Error() string {
	if e.Length < 0 {
		return fmt.Sprintf("tatp: the %s table has no row %#x, and no transaction removes one",
			tables[e.Table].name, e.Key)
	}
	return fmt.Sprintf("tatp: row %#x of the %s table has %d bytes, not %d", e.Key, tables[e.Table].name, e.Length,
		tables[e.Table].size)
}

// Unwrap makes errors.Is(e, workload.ErrInconsistent) true.
func (e *RowError) Unwrap() error { return workload.ErrInconsistent }
