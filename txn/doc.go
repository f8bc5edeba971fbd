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
// [DB.Update] and [DB.View] run a function in a transaction, again after each
// conflict; what the function has seen existed at one moment, always, so it may
// trust its reads. [DB.Begin] is for frameworks that can not pass a function.
//
// # Round trips
//
// Every Get of a key that the transaction has not touched costs a round trip.
// [Table.Stage] announces keys, and the next Get fetches all that were announced in
// one. A key that will be written should be staged, or got, for update: then the
// lock is taken by the same round trip; otherwise Commit spends another on it.
//
// # Concurrency
//
// A DB is safe for concurrent use. A Tx belongs to the function it is passed to.
// Values are copied out by the codec; those of tables of bytes alias engine
// memory and are valid until the function returns.
//
// # Workers
//
// Update and View borrow a [Worker] (a thread of the fabric with its queue pairs)
// for one transaction. A program with its own long-running loops takes its own
// with [DB.NewWorker], or runs threads x coroutines with [DB.Run].
package txn
