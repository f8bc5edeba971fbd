package tpcc

import (
	"errors"
	"fmt"

	"txnode/benchmarks/workload"
)

// ErrUnusedItem is the error with which a New-Order rolls back that names an item which does not
// exist (clause 2.4.1.4). A Client turns it into workload.RolledBack.
var ErrUnusedItem = errors.New("tpcc: the item does not exist")

// RowError is returned by a transaction that finds a row missing that no transaction removes, a row
// of the wrong length, or one that nobody should have inserted. It is a workload.ErrInconsistent:
// the store has lost, damaged or invented it.
type RowError struct {
	Table  int
	Key    uint64
	Length int // bytes found; -1 if there is no row
}

func (e *RowError) Error() string {
	name := tables[e.Table].name
	switch {
	case e.Length < 0:
		return fmt.Sprintf("tpcc: the %s table has no row %#x, and no transaction removes it", name, e.Key)
	case e.Length == sizes[e.Table]:
		return fmt.Sprintf("tpcc: row %#x of the %s table is there, and no transaction has inserted it", e.Key, name)
	}
	return fmt.Sprintf("tpcc: row %#x of the %s table has %d bytes, not %d", e.Key, name, e.Length, sizes[e.Table])
}

// Unwrap makes errors.Is(e, workload.ErrInconsistent) true.
func (e *RowError) Unwrap() error { return workload.ErrInconsistent }
