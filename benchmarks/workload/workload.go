package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Mode says what a transaction will do with a key that it stages.
type Mode uint8

const (
	// Read: the key is only read.
	Read Mode = iota
	// Update: the key is read and then probably written; a store that locks does it now.
	Update
)

// Tx is what a benchmark transaction may do inside Worker.Update or
// Worker.View. Tables are numbered from 0 in the order of the Schema. Values
// returned are valid until the transaction function returns and must not be
// changed; values passed in are copied before the call returns.
//
// Any error other than ErrNotFound and ErrExists must be returned from the
// transaction function unchanged, so that the store can retry.
type Tx interface {
	// Stage announces keys before they are used, so that a store can fetch
	// all staged keys in one round trip at the next Get. It is a hint.
	Stage(table int, key uint64, mode Mode)
	// Get returns the value, or ErrNotFound.
	Get(table int, key uint64) ([]byte, error)
	// Put sets the value of a key, present or not.
	Put(table int, key uint64, value []byte) error
	// Insert sets the value of a key that has none, or returns ErrExists.
	Insert(table int, key uint64, value []byte) error
	// Delete removes the key, or returns ErrNotFound.
	Delete(table int, key uint64) error
}

// Find is Tx.Get of a key that need not have a value.
func Find(tx Tx, table int, key uint64) (value []byte, found bool, err error) {
	value, err = tx.Get(table, key)
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// Worker runs transactions one after another. It belongs to one goroutine (or
// coroutine) at a time.
type Worker interface {
	// Update runs fn in a transaction, again after each conflict until it
	// commits, and returns fn's error if fn decides to roll back. After an error
	// the transaction has had no effect, unless the error is ErrUncertain.
	Update(ctx context.Context, fn func(Tx) error) error
	// View is Update for transactions that write nothing.
	View(ctx context.Context, fn func(Tx) error) error
	// Prepare returns a plan of transactions of this worker that use so many records. A
	// store that does nothing special with plans returns PlanEach.
	Prepare(uses []Use) Plan
	// Counters returns running totals of this worker since it was made.
	Counters() Counters
}

// AbortReason is why an attempt of a transaction did not commit.
type AbortReason uint8

// Abort reasons, in the order in which reports print them.
const (
	AbortLocked     AbortReason = iota // a write lock was held by another transaction
	AbortReadLocked                    // a record to be read was locked by a writer
	AbortValidation                    // a record that was read has changed
	AbortPhantom                       // a key that was absent has been inserted
	AbortStale                         // a cached address was stale
	AbortOther
	NumAbortReasons
)

// String returns the reason in the words that reports use.
func (r AbortReason) String() string {
	return [...]string{"locked", "read-locked", "validation", "phantom", "stale", "other"}[r]
}

// Counters are totals; subtract two snapshots to get an interval. Stores
// without verbs leave those at zero.
type Counters struct {
	Committed  uint64
	Aborts     [NumAbortReasons]uint64 // attempts that ended in a conflict, by reason
	Verbs      uint64                  // work requests, by everything the worker did
	RoundTrips uint64
	BytesRead  uint64
	BytesWrite uint64
}

// Sub returns c - d, field by field.
func (c Counters) Sub(d Counters) Counters {
	c.Committed -= d.Committed
	for i := range c.Aborts {
		c.Aborts[i] -= d.Aborts[i]
	}
	c.Verbs -= d.Verbs
	c.RoundTrips -= d.RoundTrips
	c.BytesRead -= d.BytesRead
	c.BytesWrite -= d.BytesWrite
	return c
}

// Table describes one table of a workload.
type Table struct {
	Name     string
	MaxValue int // bytes, the largest value ever stored
	Expect   int // about how many records, for sizing
	// Text asks for keys of text, "user" and 20 decimal digits, which are ordered as the numbers
	// are. A store whose keys are numbers ignores it.
	Text bool
	// Ordered asks for a table with ranges: see Ranger. A store without ranges ignores it.
	Ordered bool
}

// TextKey is the length of a key of a table with Text.
const TextKey = 24

// AppendText appends the text of a key.
func AppendText(b []byte, key uint64) []byte {
	b = append(b, "user00000000000000000000"...)
	for i := len(b) - 1; key > 0; i-- {
		b[i] = '0' + byte(key%10)
		key /= 10
	}
	return b
}

// ParseText returns the key of a text that AppendText has made.
func ParseText(text []byte) (uint64, error) {
	if len(text) == TextKey && string(text[:4]) == "user" {
		if key, err := strconv.ParseUint(string(text[4:]), 10, 64); err == nil {
			return key, nil
		}
	}
	return 0, fmt.Errorf("workload: %q is no text of a key", text)
}

// Store is a database under test, opened with the tables of a workload.
type Store interface {
	// Name is what reports print: "txnode default", "badger", ...
	Name() string
	// Run starts threads × coroutines workers, calls fn once in each with the
	// worker's number, and returns when all calls have returned: the first
	// error, if any. Stores without coroutines run goroutines. It may be called
	// again after it has returned, but not before. If one call fails the others
	// go on: whoever needs them to stop tells them so.
	Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int, w Worker) error) error
	// Tables creates the tables, or opens them when they exist already;
	// existed tells which.
	Tables(ctx context.Context, tables []Table) (existed bool, err error)
	// Now returns nanoseconds of the store's clock: wall time, or virtual time
	// on a simulated fabric. Safe for concurrent use.
	Now() int64
	// Close releases everything.
	Close(ctx context.Context) error
}
