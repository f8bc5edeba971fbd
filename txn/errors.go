package txn

import (
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/txn/supervisor"
)

// Errors of transactions; test with errors.Is. Errors from layers below carry their own words: what
// happened, to what, and what to do.
var (
	// ErrConflict: other transactions were in the way at every attempt.
	ErrConflict = occ.ErrConflict
	// ErrNotFound: the key has no value; errors.As with *KeyError gives table and key.
	ErrNotFound = errors.New("txn: key not found")
	// ErrExists: Insert found a value; errors.As with *KeyError gives table and key.
	ErrExists = errors.New("txn: key exists already")
	// ErrTooLarge: a key, value or transaction is beyond a limit. errors.As with *TooLargeError
	// gives size and limit in bytes, unless the transaction has too many keys.
	ErrTooLarge = occ.ErrTooLarge
	// ErrReadOnly: a write in View, in a transaction begun read-only, or to a
	// database that was opened with ReadOnly.
	ErrReadOnly = errors.New("txn: read-only: a transaction of View, or of Begin with readOnly, can not write, nor " +
		"any of a database that was opened with ReadOnly; write in Update")
	// ErrTxDone: the transaction has ended.
	ErrTxDone = occ.ErrDone
	// ErrManaged: Commit or Rollback was called in Update or View. Nothing of the
	// transaction has happened, whatever its function returned.
	ErrManaged = errors.New("txn: Update and View commit when their function returns nil, and roll back when it " +
		"returns an error: Commit and Rollback are for DB.Begin")
	// ErrClosed: the database was closed, or the worker.
	ErrClosed = supervisor.ErrClosed
	// ErrClosing: the context of Close has ended, and closing goes on: see DB.Close.
	ErrClosing = errors.New("txn: the database closes itself when the blades and the catalog answer; call Close " +
		"again to wait for that")
	// ErrNoWorker: Update, View or Begin found all workers in use, and waited for one for
	// Options.WorkerWait. Or the caller's own transaction holds one, and every other worker is held
	// by such a caller. Nothing has happened.
	ErrNoWorker = errors.New("txn: no worker is free")
	// ErrNoSpace: the blades are full.
	ErrNoSpace = memory.ErrNoSpace
	// ErrIndexFull: the index of a table cannot grow. Either there is no space, which is ErrNoSpace
	// too, or the index has its largest number of sub-tables.
	ErrIndexFull = index.ErrFull
	// ErrOutcomeUnknown: the fabric failed during the commit, and the worker could not rejoin.
	// errors.As with *UnknownError gives the id, and DB.Outcome the outcome.
	ErrOutcomeUnknown = occ.ErrOutcomeUnknown
	// ErrFenced: before the commit the worker was declared dead, or the fabric failed under it, and
	// the worker has rejoined. Nothing of the transaction has happened. The error is an
	// ErrConflict, too: Update and View retry by themselves.
	ErrFenced = occ.ErrFenced
	// ErrBroken: before the commit the worker was declared dead, or the fabric failed under it, and
	// the worker could not rejoin. The message says why. It is no ErrConflict: an immediate retry
	// is of no use. The worker's locks stay until it rejoins, or until its coordinator is
	// recovered. DB replaces such workers. Workers of NewWorker try to rejoin before their next
	// transaction.
	ErrBroken = occ.ErrBroken
	// ErrNoOutcome: the outcome of this transaction is not kept. It is running, or its client was
	// answered; see DB.Outcome.
	ErrNoOutcome = errors.New("txn: no outcome is kept")
	// ErrNoTable: there is no table of this name.
	ErrNoTable = errors.New("txn: no such table; CreateTable makes it")
	// ErrDropped: the table was dropped.
	ErrDropped = occ.ErrDropped
	// ErrTableType: the table exists with other types of key or value.
	ErrTableType = errors.New("txn: table has other types")
	// ErrNoDecode: a table is to be listed whose Key has no Decode.
	ErrNoDecode = errors.New("txn: keys cannot be decoded; give the Key a Decode")
	// ErrOtherDatabase: a table was used in a transaction of another database.
	ErrOtherDatabase = errors.New("txn: table of another database than the transaction's")
	// ErrLost: every copy of the data was on blades that are lost. errors.As with *memory.LostError
	// names segment and blades. Everything else keeps working.
	ErrLost = layout.ErrLost
	// ErrCutOff: nothing is heard of blades that may serve other processes, or of so many that data
	// would be lost without them. They were not declared dead, and transactions that do not need
	// them go on: errors.As with *memory.CutOffError names them. It comes with ErrBroken if so few
	// are left that no transaction can.
	ErrCutOff = supervisor.ErrCutOff
	// ErrCorrupt: stored data is damaged: a record, an index, a blade's header, the catalog. The
	// message says where. txnode check reports all damage, and repairs what another copy proves.
	ErrCorrupt = layout.ErrCorrupt
	// ErrUnrecovered: a process left the database without closing it, or closed it soon after the
	// loss of a blade, and it is opened ReadOnly. Open it once for writing.
	ErrUnrecovered = errors.New("txn: there is something to be recovered")
	// ErrOptions: options are wrong; the message lists every fault.
	ErrOptions = errors.New("txn: wrong options")

	// ErrLocked: another process has the directory open, or this one twice.
	ErrLocked = embedded.ErrLocked
	// ErrGeometry: the database in the directory has other blades, backups or sizes than the
	// options ask for. Options that are zero take what is there. Or one of its regions is a copy
	// from before the last opening.
	ErrGeometry = layout.ErrGeometry
	// ErrMissing: a file of the database is gone, or shorter than it was.
	ErrMissing = embedded.ErrMissing
	// ErrForeign: a file belongs to another database, or to none; or the catalog is behind
	// what a process or a blade has seen of it, which a *layout.BehindError says: an old
	// copy was brought back.
	ErrForeign = layout.ErrForeign

	errGoexit = errors.New("txn: a function of Run has ended its goroutine (runtime.Goexit, or FailNow of a " +
		"test), and with it the others of its thread")
	errOpenTx      = errors.New("txn: close: a transaction of the worker is open: end it first")
	errCloseInside = errors.New("txn: close: called by a function of Update or View, for which it would wait: close " +
		"the database outside of it")
	errNested = errors.New("txn: the worker is in a transaction already: use DB.Update, or another worker, " +
		"inside of it")
)

// shutError is the ErrClosed of a worker.
type shutError struct{}

// Error says what to do.
func (shutError) Error() string { return "txn: the worker is closed: DB.NewWorker makes another one" }

// Is matches ErrClosed.
func (shutError) Is(target error) bool { return target == ErrClosed }

// runPanicError is what DB.Run panics with when a coroutine has: a coroutine has a stack of its
// own, which a crash does not show.
type runPanicError struct {
	value any
	stack []byte
}

// Error is what a crash prints.
func (p *runPanicError) Error() string {
	return fmt.Sprintf("%v\n\ntxn: in a function of Run:\n%s", p.value, p.stack)
}

// Unwrap returns the panic's value, if it is an error.
func (p *runPanicError) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// spentError is the ErrConflict of a transaction that has made all of its attempts. What it
// is returned to, if that is the function of another, need not try again: its own attempts
// would be multiplied by these.
type spentError struct {
	attempts int
	last     error
}

// Error says how many they were, and what the last one met.
func (e *spentError) Error() string {
	return fmt.Sprintf("txn: gave up after %d attempts: %v", e.attempts, e.last)
}

// Unwrap returns what the last attempt met.
func (e *spentError) Unwrap() error { return e.last }

// TooLargeError is an ErrTooLarge with what was too large, its size, and the limit.
type TooLargeError = occ.TooLargeError

// UnknownError is an ErrOutcomeUnknown with the transaction to ask DB.Outcome for.
type UnknownError = occ.UnknownError

// unjoinedError is an ErrBroken: what broke a session, and why it could not rejoin.
type unjoinedError struct{ broken, rejoining error }

// Error tells both.
func (e *unjoinedError) Error() string {
	return e.broken.Error() + "; " + e.rejoining.Error() + "; it is tried again before the worker's next transaction"
}

// Is matches both, but for what asks to try again: that takes a session which has rejoined.
func (e *unjoinedError) Is(target error) bool {
	return target != ErrFenced && target != ErrConflict && (errors.Is(e.broken, target) ||
		errors.Is(e.rejoining, target))
}

// As finds what is in either, but for a conflict.
func (e *unjoinedError) As(target any) bool {
	if _, ok := target.(**occ.ConflictError); ok {
		return false
	}
	return errors.As(e.broken, target) || errors.As(e.rejoining, target)
}
