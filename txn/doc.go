// Package txn is the public API of txnode: an embeddable, strictly serializable,
// replicated transaction engine whose data lives on memory blades.
//
//	db, err := txn.Open(ctx, txn.Options{})          // two blades in this process
//	accounts, err := txn.CreateTable(db, "accounts", txn.Uint64, txn.Plain[Account]())
//	err = db.Update(ctx, func(tx *txn.Tx) error {
//		a, err := accounts.GetForUpdate(tx, 42)
//		if err != nil {
//			return err
//		}
//		a.Balance -= 100
//		return accounts.Put(tx, 42, a)
//	})
//
// # Transactions
//
// [DB.Update] and [DB.View] run a function in a transaction, again after each
// conflict. The function may therefore run several times: it must not keep tx, and
// what it does outside the database happens with every run. What it has seen
// existed at one moment, always, so it may trust its reads; it sees its own writes.
// When it returns nil the transaction commits; an error of its own rolls back and is
// returned as it is. A conflict, or a failure of the fabric, that a table's method
// returns ends the attempt, whatever the function makes of it.
//
// Keys that are absent are protected like those that are present: two transactions
// cannot both insert a key that both found absent. Locks are tried and never waited
// for, so there are no deadlocks. Inside a transaction function do not call the DB's
// Update or View: that is a second transaction, which may meet the locks of the first, and
// then gives up with ErrConflict, a second or more later, and the first with it; and it
// needs a second worker: if all workers are borrowed by such functions, they wait for ever.
//
// [DB.Begin] is for frameworks that can not pass a function: its caller commits or
// rolls back, and begins again after ErrConflict.
//
// # Tables
//
// A [Table] maps keys of one Go type to values of another, by a [Key] and a [Codec]:
// [Plain] stores a struct of fixed size as it lies in memory and allocates nothing;
// [JSON], [Binary], [Text] and [Bytes] store anything else, or make a codec. The names
// of both are kept with the table, which opens with no others. [RawTable] is bytes
// under bytes. Tables need no schema, are made at any time, and can not be dropped.
//
// Limits: keys of 1 to 1,024 bytes, values of at most 1 MiB, 65,535 keys in a
// transaction, whose writes fit Options.LogArea, with 32 bytes each (43,689 records of 64 bytes
// by default), and whose records fit Options.Arena, and
// 65,535 tables with names of 1 to 255 bytes. Blades are cut, as they fill, into blocks for
// records of certain sizes, four to each power of two, and stay so: on full blades the room
// of deleted records is for others of their size, or smaller ones. DB.Backup and RestoreDir make a copy
// without what is left over.
//
// # Round trips
//
// Every Get of a key that the transaction has not touched costs a round trip, and
// another that makes sure that what was read before is still so. [Table.Stage]
// announces keys, and the next Get fetches all that were announced in one. A key that
// will be written should be staged, or got, for update: then the lock is taken by the
// same round trip, and nothing is left to be made sure of; otherwise Commit spends
// another on it. [Tx.Fetch] is both for many rows, of several tables of bytes, in one
// call.
//
// That other round trip looks at everything that was read before without a lock: a
// transaction that gets thousands of keys one after the other, to read them, pays for the
// square of their number. One that stages them does not, nor one that has them validated
// at its end: [Tx.ValidateAtEnd].
//
// # Concurrency
//
// A DB and its tables are safe for concurrent use. A Tx belongs to the function it is
// passed to. Values are copied out by the codec; those of tables of bytes alias engine
// memory and are valid until the function returns. The context of a transaction that
// is canceled before the commit aborts it and releases every lock; once the commit has
// begun it completes. The error is context.Canceled, or context.DeadlineExceeded, and, by
// errors.Is, the cause as well, if whoever canceled it gave one.
//
// Nothing is promised of the order in which transactions come by that want the same keys.
// One that has had dozens of conflicts, since others change what it reads, locks that, too,
// even in View; and who keeps a key locked waits a little when somebody else has tried to
// lock it some hundred times. Who holds a key for longer than Options.Retries attempts take,
// half a second and more, has others give up all the same.
//
// Update and View borrow a [Worker] (a thread of the fabric with its queue pairs)
// for one transaction. A program with its own long-running loops takes its own
// with [DB.NewWorker], or runs threads x coroutines with [DB.Run].
//
// # What lasts
//
// When Update or Commit returns nil, the changes are in the logs of as many blades as
// there are copies of a record. With Options.Dir blades are files, and the database is
// there again, with exactly what was committed, when its directory is opened again:
// after Close, and after the process was killed at any moment; with
// [DurabilityPower] after a loss of power, too. A worker that stops in the middle of a transaction is
// recovered by others: nothing that was acknowledged is lost, and no lock stays. A
// blade that stops is replaced by its backups ([DB.Redundancy]).
//
// # Errors
//
// Errors are tested with errors.Is against the variables of this package; their texts
// say what happened, to what, and what to do. After ErrConflict, ErrNoSpace, or a
// canceled context nothing of the transaction has happened. Only ErrOutcomeUnknown
// leaves that open, and [DB.Outcome] answers it.
package txn
