package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"txnode/txn"
)

// account is a record.
type account struct{ Balance int64 }

// errPoor is a transaction's own decision not to commit.
var errPoor = errors.New("not enough money")

// bank answers requests by transactions.
type bank struct {
	db       *txn.DB
	accounts *txn.Table[uint64, account]
}

// newBank makes the handler of a database.
func newBank(db *txn.DB) (http.Handler, error) {
	accounts, err := txn.CreateTable(db, "accounts", txn.Uint64, txn.Plain[account]())
	if err != nil {
		return nil, err
	}
	b := &bank{db, accounts}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /accounts/{id}", b.answer(b.balance))
	mux.HandleFunc("POST /accounts/{id}", b.answer(b.deposit))
	mux.HandleFunc("POST /transfer", b.answer(b.transfer))
	return mux, nil
}

// answer runs a handler with the deadline of a request, and answers with what it returns.
func (b *bank) answer(handle func(ctx context.Context, r *http.Request) (int64, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// A client that goes away cancels the transaction, too: r.Context() is done then.
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		amount, err := handle(ctx, r)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		fmt.Fprintln(w, amount)
	}
}

// statusOf is how an error is answered.
func statusOf(err error) int {
	var number *strconv.NumError
	switch {
	case errors.As(err, &number):
		return http.StatusBadRequest
	case errors.Is(err, txn.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, errPoor):
		return http.StatusConflict
	case errors.Is(err, txn.ErrOutcomeUnknown): // first of those below: it must not be tried again blindly
		return http.StatusInternalServerError
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, txn.ErrConflict), errors.Is(err, txn.ErrClosed), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable // nothing has happened, and it may be tried again
	}
	return http.StatusInternalServerError
}

func (b *bank) balance(ctx context.Context, r *http.Request) (balance int64, err error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return 0, err
	}
	err = b.db.View(ctx, func(tx *txn.Tx) error {
		a, err := b.accounts.Get(tx, id)
		balance = a.Balance
		return err
	})
	return balance, err
}

func (b *bank) deposit(ctx context.Context, r *http.Request) (balance int64, err error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return 0, err
	}
	add, err := strconv.ParseInt(r.FormValue("add"), 10, 32)
	if err != nil {
		return 0, err
	}
	err = b.db.Update(ctx, func(tx *txn.Tx) error {
		a, err := b.accounts.GetForUpdate(tx, id)
		if err != nil && !errors.Is(err, txn.ErrNotFound) {
			return err
		}
		balance = a.Balance + add
		return b.accounts.Put(tx, id, account{balance})
	})
	return balance, err
}

// transfer moves money, and returns what is left on the first account.
func (b *bank) transfer(ctx context.Context, r *http.Request) (left int64, err error) {
	from, err1 := strconv.ParseUint(r.FormValue("from"), 10, 64)
	to, err2 := strconv.ParseUint(r.FormValue("to"), 10, 64)
	amount, err3 := strconv.ParseUint(r.FormValue("amount"), 10, 31)
	if err := errors.Join(err1, err2, err3); err != nil {
		return 0, err
	}
	err = b.db.Update(ctx, func(tx *txn.Tx) error {
		if err := b.accounts.StageAll(tx, txn.ForUpdate, from, to); err != nil { // one round trip for both
			return err
		}
		x, err := b.accounts.Get(tx, from)
		if err != nil {
			return err
		}
		if left = x.Balance - int64(amount); left < 0 {
			return errPoor
		}
		if err := b.accounts.Put(tx, from, account{left}); err != nil {
			return err
		}
		y, err := b.accounts.Get(tx, to)
		if err != nil {
			return err
		}
		return b.accounts.Put(tx, to, account{y.Balance + int64(amount)})
	})
	return left, err
}
