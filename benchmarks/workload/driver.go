package workload

import (
	"context"
	"fmt"
	"strings"
)

// Outcome is how a transaction that the store did not fail has ended.
type Outcome uint8

// Outcomes, in the order in which reports print them. Conflicts are not among
// them: a Worker retries those, and its Counters tell how many there were.
const (
	// Committed: everything that the transaction read and wrote took effect.
	Committed Outcome = iota
	// RolledBack: the transaction decided against itself, by a rule of the
	// application (insufficient funds; a row to insert exists).
	RolledBack
	// RowAbsent: a row that the transaction needs does not exist, which the
	// workload expects to happen (TATP draws keys of rows that may be absent).
	RowAbsent
	NumOutcomes
)

// String returns the outcome in the words that reports use.
func (o Outcome) String() string {
	return [...]string{"committed", "rolled back", "row absent"}[o]
}

// Driver is one benchmark: its tables, its data and its transactions.
//
// The order of calls is Load once, then any number of rounds of Store.Run with
// one NewClient per worker, then Verify while no client runs; rounds and Verify
// may alternate. NewClient may be called concurrently. A Driver belongs to one
// store for its whole life, because it keeps the books of what its clients
// have done there.
type Driver interface {
	// Name is the workload's name on the command line: "smallbank", "tatp".
	Name() string
	// Schema returns the tables, in the order of their numbers.
	Schema() []Table
	// Types returns the names of the transaction types, in the order of their
	// numbers, which is the order of Mix.
	Types() []string
	// Mix returns the percentage of each type.
	Mix() []float64
	// Load creates the tables and fills them, or, if they exist, reads them as
	// the state to start from, without writing. progress, if not nil, is called
	// now and then, by one goroutine at a time, with numbers of units (accounts,
	// subscribers) done and in total. Errors: ErrForeign, ErrInconsistent,
	// or the store's.
	Load(ctx context.Context, store Store, progress func(done, total int)) (LoadReport, error)
	// NewClient returns a client that runs its transactions on w. The same seed
	// and id draw the same sequence of transactions.
	NewClient(id int, seed uint64, w Worker) Client
	// Verify reads all data and checks the rules of the workload, among them
	// that the data is what was loaded and what clients have recorded since,
	// no more and no less. The error wraps ErrInconsistent if a rule is broken
	// (the report is complete then), or is the store's.
	Verify(ctx context.Context, store Store) (VerifyReport, error)
}

// Client draws and runs transactions, one after another. It belongs to the
// goroutine (or coroutine) of its Worker and allocates nothing per transaction.
type Client interface {
	// Next draws a transaction type by the mix, and its parameters, and returns
	// the type's number.
	Next() int
	// Draw draws parameters for a given type.
	Draw(typ int)
	// Run runs the transaction drawn last, including retries after conflicts.
	// Calling it again runs the same transaction again. A non-nil error is the
	// store's (or the context's) and ends the run.
	Run(ctx context.Context) (Outcome, error)
}

// LoadReport says what Load has loaded or found.
type LoadReport struct {
	Existed bool   // the data was there already
	Records int    // over all tables
	Summary string // for people: "100000 accounts, balance 2000000000.0000"
}

// Check is one rule and whether the data keeps it.
type Check struct {
	Rule   string // what must hold
	Holds  bool
	Detail string // the numbers compared; the first offenders if it does not hold
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	Records int // records read
	Checks  []Check
}

// Add appends a check.
func (r *VerifyReport) Add(rule string, holds bool, format string, args ...any) {
	r.Checks = append(r.Checks, Check{Rule: rule, Holds: holds, Detail: fmt.Sprintf(format, args...)})
}

// Err returns nil if every check holds, else an error that wraps
// ErrInconsistent and names the checks that do not.
func (r *VerifyReport) Err() error {
	var broken []string
	for _, c := range r.Checks {
		if !c.Holds {
			broken = append(broken, fmt.Sprintf("%s (%s)", c.Rule, c.Detail))
		}
	}
	if broken == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInconsistent, strings.Join(broken, "; "))
}
