package smallbank

import (
	"errors"
	"fmt"

	"txnode/benchmarks/workload"
)

// ErrInsufficientFunds is what a transaction function returns to roll back. A
// Client turns it into the outcome workload.RolledBack.
var ErrInsufficientFunds = errors.New("smallbank: insufficient funds")

// RecordError is returned by a transaction that finds an account's record
// missing or too short. It is a workload.ErrInconsistent: no transaction
// removes a record, so the store has.
type RecordError struct {
	Table   int
	Account uint64
	Length  int // bytes found; -1 if there is no record
}

func (e *RecordError) Error() string {
	if e.Length < 0 {
		return fmt.Sprintf("smallbank: account %d has no %s record, and no transaction removes one",
			e.Account, tableNames[e.Table])
	}
	return fmt.Sprintf("smallbank: the %s record of account %d has %d bytes, too few for a balance",
		tableNames[e.Table], e.Account, e.Length)
}

// Unwrap makes errors.Is(e, workload.ErrInconsistent) true.
func (e *RecordError) Unwrap() error { return workload.ErrInconsistent }
