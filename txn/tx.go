package txn

import (
	"context"
	"errors"
	"fmt"

	"txnode/occ"
)

// Tx is a transaction. It belongs to the function that it was passed to, or, from DB.Begin, to one
// goroutine at a time; only the race detector notices a breach. When the transaction has ended,
// every operation with it returns ErrTxDone.
type Tx struct {
	o          *occ.Tx
	open       *DB     // the database, as long as the attempt can go on
	w          *Worker // nil: the transaction has ended
	ctx        context.Context
	err        error  // the conflict or failure that has ended the attempt
	id         uint64 // once ended
	borrowed   bool   // by DB.Begin
	readOnly   bool
	insists    bool // locks what it reads: see Worker.lockReads
	encloses   bool // locks what its loops over tables read
	told       bool // an error of the engine's was returned that has not ended the attempt
	committing bool
}

// Mode says what a staged key is for.
type Mode uint8

// Modes of Stage.
const (
	ForRead   Mode = iota // only read
	ForUpdate             // read and probably written: locked when it is fetched
)

// ID is the transaction's id: what DB.Update's error names when the outcome is
// unknown. Each attempt has its own.
func (tx *Tx) ID() uint64 {
	if tx.o == nil {
		return tx.id
	}
	return uint64(tx.o.ID())
}

// over reports whether the transaction has ended. The zero Tx has.
func (tx *Tx) over() bool { return tx.w == nil }

// end makes the handle that of a transaction that has ended, for good.
func (tx *Tx) end() {
	tx.id = uint64(tx.o.ID())
	tx.o, tx.open, tx.w, tx.ctx = nil, nil, nil, nil
}

// usable returns why the transaction can not go on, or nil.
func (tx *Tx) usable() error {
	if tx.over() {
		return ErrTxDone
	}
	return tx.err
}

// refuse ends the attempt, if it has not ended, because t is a table of another database.
func (tx *Tx) refuse(t *occ.Table) {
	if !tx.over() && tx.err == nil {
		_ = tx.stop(fmt.Errorf("%w: %q", ErrOtherDatabase, t.Name))
	}
}

// note remembers that the engine has returned err.
func (tx *Tx) note(err error) error {
	if err != nil {
		tx.told = true
	}
	return err
}

// ValidateAtEnd is for transactions that read very many keys one by one, where each key tells the
// next, so that they cannot be staged. Without it every fetch validates all earlier reads again,
// which costs the square of their number. From this call on, reads are validated once: when the
// transaction commits, or before the function's own error counts.
//
// The outcome is as strictly serializable as any. Until the end, however, the function may see a
// state that never existed. It must end all the same, and not panic. What it has found counts only
// when Update, View or Commit has returned nil, or when Update or View has returned the function's
// own error. After a Rollback of a transaction of DB.Begin nothing that was read counts.
func (tx *Tx) ValidateAtEnd() {
	if tx.usable() == nil {
		tx.o.ValidateAtEnd()
	}
}

// Execute fetches everything that was staged. Get does it by itself.
func (tx *Tx) Execute() error {
	if err := tx.usable(); err != nil {
		return err
	}
	if tx.ctx.Err() != nil {
		return tx.stop(canceled(tx.ctx))
	}
	if err := tx.o.Execute(); err != nil {
		return tx.stop(err)
	}
	return nil
}

// stop makes err stick: whatever the caller does with it, the attempt is over. The caller of
// DB.Begin retries itself. So if the worker has to rejoin, it does so before it returns the error.
func (tx *Tx) stop(err error) error {
	if tx.borrowed && tx.w.session.Broken() != nil {
		tx.rollback()
		x, e := &became{}, err
		tx.id = uint64(tx.o.ID()) // of a worker that is left behind
		if tx.w.within(tx.ctx, func() { x.err = tx.w.settle(tx.ctx, e) }, nil) {
			x.err = tx.w.leftWith(tx.ctx, 1, e)
		}
		err = x.err
	}
	tx.err, tx.open = err, nil
	return err
}

func (tx *Tx) stage(t *occ.Table, key []byte, update bool) (int, error) {
	if err := tx.usable(); err != nil {
		return 0, err
	}
	if update && tx.readOnly {
		return 0, keyError(ErrReadOnly, t, key)
	}
	i, err := tx.o.Stage(t, key, update || tx.insists)
	return i, tx.note(err)
}

// announce is stage for a Mode of the caller's.
func (tx *Tx) announce(t *occ.Table, key []byte, m Mode) (int, error) {
	if m > ForUpdate && tx.usable() == nil {
		return 0, fmt.Errorf("%w: a key of table %q is staged with Mode %d: ForRead and ForUpdate are possible",
			ErrOptions, t.Name, m)
	}
	return tx.stage(t, key, m == ForUpdate)
}

// fetch stages a key and makes sure that its state is known.
func (tx *Tx) fetch(t *occ.Table, key []byte, update bool) (int, error) {
	i, err := tx.stage(t, key, update)
	if err != nil {
		return 0, err
	}
	if !tx.o.Executed(i) {
		if err := tx.Execute(); err != nil {
			return 0, err
		}
	}
	return i, nil
}

func (tx *Tx) get(t *occ.Table, key []byte, update bool) ([]byte, error) {
	if tx.open != nil && tx.o.Staged(t, key, update) {
		if err := tx.Execute(); err != nil {
			return nil, err
		}
		if v, ok := tx.o.Get(t, key); ok {
			return v, nil
		}
		return nil, keyError(ErrNotFound, t, key)
	}
	i, err := tx.fetch(t, key, update)
	if err != nil {
		return nil, err
	}
	v, ok := tx.o.Read(i)
	if !ok {
		return nil, keyError(ErrNotFound, t, key)
	}
	return v, nil
}

func (tx *Tx) put(t *occ.Table, key, value []byte) error {
	if err := tx.usable(); err != nil {
		return err
	}
	if tx.readOnly {
		return keyError(ErrReadOnly, t, key)
	}
	return tx.note(tx.o.Set(t, key, value))
}

func (tx *Tx) insert(t *occ.Table, key, value []byte) error {
	i, err := tx.stage(t, key, true)
	if err != nil {
		return err
	}
	if !tx.o.Executed(i) {
		if tx.o.Exists(i) { // put blindly before
			return keyError(ErrExists, t, key)
		}
		if err := tx.o.Insert(i, value); err != nil {
			return tx.note(err)
		}
		if err := tx.Execute(); err != nil {
			return err
		}
		if tx.o.Found(i) {
			tx.o.Withdraw(i)
			return keyError(ErrExists, t, key)
		}
		return nil
	}
	if tx.o.Exists(i) {
		return keyError(ErrExists, t, key)
	}
	return tx.note(tx.o.Put(i, value))
}

func (tx *Tx) delete(t *occ.Table, key []byte) error {
	i, err := tx.stage(t, key, true)
	if err != nil {
		return err
	}
	if !tx.o.Executed(i) {
		tx.o.Blind(i)
		if err := tx.Execute(); err != nil {
			return err
		}
	}
	if !tx.o.Exists(i) {
		return keyError(ErrNotFound, t, key)
	}
	return tx.note(tx.o.Delete(i))
}

// Commit ends a transaction of DB.Begin. A conflict is ErrConflict: nothing
// happened, and the caller begins again. A canceled context aborts. In Update and
// View it is ErrManaged, and ends the attempt.
func (tx *Tx) Commit() error {
	if tx.over() {
		return ErrTxDone
	}
	if !tx.borrowed {
		return tx.managed()
	}
	if tx.w.left != nil {
		return tx.giveUp()
	}
	err := tx.commit()
	if err != nil {
		x, e := &became{}, err
		tx.id = uint64(tx.o.ID()) // of a worker that is left behind
		if tx.w.within(tx.ctx, func() {
			x.err = tx.w.settle(tx.ctx, tx.w.unblock(e))
			tx.w.repairDamage(x.err) // for the next attempt
		}, nil) {
			tx.err = tx.w.leftWith(tx.ctx, 1, e)
			return tx.giveUp()
		}
		err = x.err
	}
	if err == nil {
		tx.w.committed++
	} else {
		tx.w.gaveUp(err)
	}
	tx.release(err)
	return err
}

// giveUp ends a transaction of DB.Begin whose worker was left behind, and returns why.
func (tx *Tx) giveUp() error {
	w, ctx, readOnly := tx.w, tx.ctx, tx.readOnly
	left, o := w.left, tx.o
	tx.o, tx.open, tx.w, tx.ctx = nil, nil, nil, nil
	over := make(chan struct{})
	w.left = over
	go func() {
		defer close(over)
		<-left
		_ = o.Rollback() // if that was not done
		if w.began != untimed {
			w.timed(readOnly)
		}
	}()
	w.db.putIn(ctx, w)
	return tx.err
}

// Rollback ends a transaction of DB.Begin without effect. After Commit it does
// nothing, so that it can be deferred. In Update and View it is ErrManaged, and ends
// the attempt.
func (tx *Tx) Rollback() error {
	if tx.over() {
		return nil
	}
	if !tx.borrowed {
		return tx.managed()
	}
	if tx.w.left != nil {
		_ = tx.giveUp() // the operation has returned why
		return nil
	}
	err := tx.o.Rollback()
	if tx.err == nil {
		tx.w.rolledBack++
	} else {
		tx.w.repairDamage(tx.err)
		tx.w.gaveUp(tx.err)
	}
	tx.release(tx.err)
	return err
}

// managed ends the attempt of a function that wants to end it by itself: what it
// did not want to commit must not be committed because it ignores an error.
func (tx *Tx) managed() error {
	if tx.err == nil {
		_ = tx.stop(ErrManaged)
	}
	return ErrManaged
}

// commit is the end of a transaction of DB.Begin that its caller commits.
func (tx *Tx) commit() error {
	if tx.ended() {
		return tx.refrain()
	}
	return tx.o.Commit()
}

// ended reports whether the attempt must not be committed.
func (tx *Tx) ended() bool { return tx.err != nil || tx.ctx.Err() != nil }

// refrain rolls back what was to be committed, because the attempt had ended or its
// context is canceled, and returns which.
func (tx *Tx) refrain() error {
	tx.rollback()
	if tx.err != nil {
		return tx.err
	}
	return canceled(tx.ctx)
}

// canceled is why a context is done: context.Canceled or context.DeadlineExceeded, and the
// cause, if there is one.
func canceled(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// rollback releases what the attempt holds. An error in it has broken the
// session, which the worker notices.
func (tx *Tx) rollback() { _ = tx.o.Rollback() }

// release ends a transaction of DB.Begin for its caller, and gives the worker back.
// err is what it has failed with.
func (tx *Tx) release(err error) {
	w, ctx, readOnly := tx.w, tx.ctx, tx.readOnly
	tx.end()
	trail := func() {
		if errors.Is(err, ErrNoSpace) {
			w.makeRoom(ctx, err) // for the next attempt
		}
		w.rejoinIfBroken()
		w.trail()
		if w.began != untimed {
			w.timed(readOnly)
		}
		if w.ticks%maintainEvery == 0 || w.session.Due() {
			w.maintain()
		}
		w.heed(once)
	}
	due := err != nil || w.missing || w.session.Broken() != nil || w.o.HasServed() || w.o.Owing() != nil ||
		w.ticks%maintainEvery == 0 || w.session.Due()
	if !due || !w.db.hears(ctx) {
		trail()
	} else if !w.within(ctx, trail, nil) {
		w.heed(once)
	}
	w.db.putIn(ctx, w)
}
