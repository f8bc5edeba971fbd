// Package txn is the public API of txnode: an embeddable, strictly serializable, replicated
// transaction engine whose data lives on memory blades.
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
// [DB.Update] and [DB.View] run a function in a transaction, and again after each conflict. So the
// function may run several times. It must not keep tx, and its effects outside the database happen
// with every run. The function sees its own writes. What it reads existed at one moment, even if
// the transaction does not commit.
//
// When the function returns nil, the transaction commits. An error of its own rolls back and is
// returned as it is. A conflict or a failure of the fabric that a method of a table returns ends
// the attempt, whatever the function returns then.
//
// Absent keys are protected like present ones: two transactions that both found a key absent cannot
// both insert it. Locks are tried and never waited for, so there are no deadlocks.
//
// Do not call Update or View of the DB inside a transaction function. That is a second transaction.
// It needs a second worker, and it may meet the locks of the first and give up with ErrConflict. If
// every worker is held by such a caller, the last one gets ErrNoWorker.
//
// [DB.Begin] is for frameworks that cannot pass a function. Its caller commits or rolls back, and
// begins again after ErrConflict.
//
// # Tables
//
// A [Table] maps keys of one Go type to values of another, by a [Key] and a [Codec]. [Plain] stores
// a struct of fixed size as it lies in memory and allocates nothing. [JSON], [Binary], [Text] and
// [Bytes] store anything else. The names of key and codec are kept with the table, and it opens
// with no others. [RawTable] is bytes under bytes. Tables need no schema, and can be created and
// dropped at any time.
//
// Limits:
//
//   - keys of 1 to 1,024 bytes, values of at most 1 MiB
//   - 65,535 keys in a transaction
//   - the images that a transaction writes, with 32 bytes each, fit one Options.LogArea; by default
//     that is 43,689 records of 64 bytes
//   - the records that a transaction touches fit one Options.Arena
//   - 65,535 tables, dropped ones included, with names of 1 to 255 bytes
//
// Segments are cut, as blades fill, into blocks of certain sizes, four to each power of two, and
// stay so until all of their blocks are free: see Options.GiveBack. So on full blades the room of
// deleted records is for records of their size or smaller ones, as long as others lie beside them.
// DB.Backup and RestoreDir make a copy without unused blocks.
//
// # Listing
//
// [Table.All] ranges over all records of a table as a part of a transaction. An [OrderedTable] has
// its keys in order, and ranges of them: [OrderedTable.Range]. An error ends the loop and the
// transaction, so the loop itself has none: [Tx.Err]. All is for tables that fit into the memory of
// the process; an ordered table is read in pages.
//
// # Round trips
//
// A Get of a key that the transaction has not touched costs a round trip. A second one validates
// what was read before. [Table.Stage] announces keys, and the next Get fetches all of them in one
// round trip. Stage or get a key for update if it will be written: the same round trip then takes
// the lock, and nothing is left to validate. [Tx.Fetch] does both for many rows of several raw
// tables in one call.
//
// Validation looks at everything that was read before without a lock. A transaction that reads
// thousands of keys one after the other pays for the square of their number. Stage the keys, or
// validate at the end: [Tx.ValidateAtEnd].
//
// # Concurrency
//
// A DB and its tables are safe for concurrent use. A Tx belongs to the function that it is passed
// to. Codecs copy values out. Values of raw tables alias engine memory and are valid until the
// function returns.
//
// A context that is canceled before the commit aborts the transaction and releases every lock. A
// commit that has begun completes. The error is context.Canceled or context.DeadlineExceeded and,
// by errors.Is, the cause if there is one.
//
// The order in which transactions get a contended key is not promised. A transaction that has had
// dozens of conflicts over reads also locks what it reads, even in View, and in loops over tables.
// A worker that keeps locking a key waits a little after another transaction has tried to lock that
// key some hundred times. If a transaction holds a key for longer than Options.Retries attempts
// take, half a second or more, other transactions give up.
//
// Update and View borrow a [Worker], a thread of the fabric with its queue pairs, for one
// transaction. A program with long-running loops takes its own with [DB.NewWorker], or runs threads
// x coroutines with [DB.Run].
//
// # What lasts
//
// When Update or Commit returns nil, the changes are in the logs of as many blades as there are
// copies of a record. With Options.Dir blades are files. The directory opens again with exactly
// what was committed: after Close, after the process was killed at any moment, and with
// [DurabilityPower] after a loss of power. Other workers recover a worker that stops in the middle
// of a transaction: nothing acknowledged is lost, and no lock stays. Backups replace a blade that
// stops ([DB.Redundancy]).
//
// # Errors
//
// Test errors with errors.Is against the variables of this package. A text says what happened, to
// what, and what to do. After ErrConflict, ErrNoSpace or a canceled context nothing of the
// transaction has happened. Only ErrOutcomeUnknown leaves that open, and [DB.Outcome] answers it.
package txn
