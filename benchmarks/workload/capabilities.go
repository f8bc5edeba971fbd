package workload

import (
	"context"

	"txnode/history"
)

// The interfaces of this file are optional: a runner asks for them with a type
// assertion and does without what a store does not offer.

// Sleeper is a [Worker] that can wait without keeping its thread from running
// other workers. The open loop needs it of every store whose workers share
// threads, or whose clock is virtual.
type Sleeper interface {
	// Sleep returns when Store.Now has advanced by at least ns. It does nothing
	// when ns is not positive.
	Sleep(ns int64)
}

// Pacer is a [Client] that waits between its transactions, as people at terminals do.
type Pacer interface {
	// Pause returns how long to wait before the next transaction, in ns of the store's clock. A
	// closed loop asks before each, and counts the wait for no latency. An open loop does not ask.
	Pause() int64
}

// Expecter is a [Worker] that loads what the transaction after the next one needs while
// that runs. A client that draws one transaction ahead tells it so, as a server does that
// has the next request at hand while it executes one.
type Expecter interface {
	// Expects reports whether Expect does anything at present: mostly, data that does
	// not fit the processor's caches.
	Expects() bool
	// Expect tells that the transaction after the next one will use a key. It is a hint.
	Expect(table int, key uint64, mode Mode)
}

// Ranger is a [Tx] of a store that has ordered tables.
type Ranger interface {
	Tx
	// Range calls do for each record of a table with Ordered whose key is in the bounds, in
	// the order of the keys, until do returns false. It sees what the transaction has
	// written. The value is valid until the transaction function returns, and must not be
	// changed. do must not use tx.
	Range(table int, r Range, do func(key uint64, value []byte) bool) error
}

// EndValidator is a [Tx] of a store that makes sure between reads, at a price, that what it
// has returned so far existed at one moment. A transaction whose reads lead one to the
// other may do without.
type EndValidator interface {
	// ValidateAtEnd leaves that to the end of the transaction. Until then its function may see a
	// state that never was, must end all the same, and the error that it returns counts only if its
	// reads turn out to be of one moment.
	ValidateAtEnd()
}

// Range is what Ranger.Range reads.
type Range struct {
	From, To   uint64 // bounds, both inclusive
	Limit      int    // of records; 0: none
	Descending bool   // the largest key first
}

// RangerOf returns tx as a Ranger, or ErrNoRanges.
func RangerOf(tx Tx) (Ranger, error) {
	r, ok := tx.(Ranger)
	if !ok {
		return nil, ErrNoRanges
	}
	return r, nil
}

// Phase is a part of a transaction, in the order in which a commit protocol
// goes through them.
type Phase uint8

// Phases, in the order in which reports print them.
const (
	PhaseRead     Phase = iota // find, read and lock records
	PhaseValidate              // read again what was only read
	PhaseLog                   // write the log
	PhaseCommit                // write images to replicas, and flush
	PhaseRelease               // unlock, after the commit point
	PhaseOther                 // grow the index, fetch memory blocks, undo an abort
	NumPhases
)

// String returns the phase in the words that reports use.
func (p Phase) String() string {
	return [...]string{"read+lock", "validate", "log", "commit", "release", "other"}[p]
}

// PhaseCounters are totals of one phase. A round trip that two phases share (the
// log and the images under one doorbell) is counted once, in the later one; so
// the sum over all phases is what [Counters] says.
type PhaseCounters struct {
	Verbs      uint64
	RoundTrips uint64
	BytesRead  uint64
	BytesWrite uint64
}

// Sub returns c - d, field by field.
func (c PhaseCounters) Sub(d PhaseCounters) PhaseCounters {
	c.Verbs -= d.Verbs
	c.RoundTrips -= d.RoundTrips
	c.BytesRead -= d.BytesRead
	c.BytesWrite -= d.BytesWrite
	return c
}

// Add adds d to c, field by field.
func (c *PhaseCounters) Add(d PhaseCounters) {
	c.Verbs += d.Verbs
	c.RoundTrips += d.RoundTrips
	c.BytesRead += d.BytesRead
	c.BytesWrite += d.BytesWrite
}

// PhaseCounter is a [Worker] that knows what each phase has cost.
type PhaseCounter interface {
	// Phases returns running totals of this worker since it was made. What a
	// transaction posts in the background (its release) is in them when the
	// call that ran the transaction returns.
	Phases() [NumPhases]PhaseCounters
}

// Recorder is a [Store] that can record which versions its transactions read,
// replace and install.
type Recorder interface {
	// Record makes the workers of later calls of Run record every transaction
	// that commits, or whose outcome is unknown, into r; nil ends that. Start and
	// End of a transaction are points of Now, the start not after its first
	// read, the end not before the call that ran it returns success. Not to be
	// called during Run.
	Record(r *history.Recorder)
}

// Sharer is a [Store] whose data other processes may change at the same time.
type Sharer interface {
	// Others reports whether other processes have had the data open since this store was opened.
	Others() bool
}

// Others reports whether other processes may have changed the data of a store.
func Others(s Store) bool {
	x, ok := s.(Sharer)
	return ok && x.Others()
}

// Loader is a [Store] that keeps its data, and whose data several processes may be about to load.
type Loader interface {
	// BeginLoad returns when no other process loads, and has others wait in it until end is called.
	// Tables then takes tables that a load left unfinished for new ones: they are emptied. waiting,
	// if not nil, is called when there is another process to wait for.
	//
	// end is called once, when the tables are loaded or found (loaded), or Load has failed: then
	// the next BeginLoad empties them. An error of end says that the tables may not be whole. If
	// the process ends instead, it has failed.
	BeginLoad(ctx context.Context, waiting func()) (end func(loaded bool) error, err error)
}

// Overlapper is a [Store] whose requests take time in which other workers of the same thread can go
// on.
type Overlapper interface {
	// Overlap returns how many coroutines of a thread are worth while.
	Overlap() int
}

// Bookkeeper is a [Driver] whose clients can run in several processes, with a driver in each of
// them. Its numbers are of changes since Load; what each is of is the driver's business.
type Bookkeeper interface {
	Driver
	// Books returns what the clients of this driver have changed. No client runs.
	Books() []int64
	// AddBooks adds what Books of another process has returned. From then on Verify takes it that
	// all that has changed the data is in the books. Books of another length are an error.
	AddBooks(books []int64) error
}
