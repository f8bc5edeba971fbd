package txn_test

import (
	"context"
	"errors"
	"hash/fnv"
	"strings"
	"testing"

	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/txn"
)

// tiny are options of a database that tests can afford, and fill.
func tiny() txn.Options {
	return txn.Options{
		SegmentSize: 256 << 10, LogArea: 64 << 10, BladeSize: 16 << 20, Arena: 1 << 20,
		CacheBytes: 64 << 10, IndexGroups: 4, Workers: 4, Seed: 7,
	}
}

// onFabric are those of one on a fabric, with one worker whose lease does not end.
func onFabric(f rdma.Fabric, p txn.Policy) txn.Options {
	o := tiny()
	o.BladeSize, o.Fabric, o.Catalog, o.Policy, o.Workers, o.Retries, o.LeaseTerm = 0, f, &catalog.Mem{}, p, 1, 5, -1
	return o
}

// reopen opens a database that the test closes, or leaves to itself.
func reopen(t testing.TB, o txn.Options) *txn.DB {
	t.Helper()
	db, err := txn.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func mustOpen(t testing.TB, o txn.Options) *txn.DB {
	t.Helper()
	db, err := txn.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(context.Background()); err != nil && !errors.Is(err, txn.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

// policies are those that a test runs with: both, and with -short one of them, which the
// test's name draws.
func policies(t testing.TB) []txn.Policy {
	all := []txn.Policy{txn.PolicyDefault, txn.PolicyFORD}
	if !testing.Short() {
		return all
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	return all[h.Sum32()%2:][:1]
}

// says demands that an error is the sentinel and has all the texts.
func says(t testing.TB, what string, err, sentinel error, texts ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("%s: %v, want %v", what, err, sentinel)
		return
	}
	for _, x := range texts {
		if !strings.Contains(err.Error(), x) {
			t.Errorf("%s: %q does not say %q", what, err, x)
		}
	}
}

// as runs fn in an Update, and returns the error of the operation, not of Update.
func as(t testing.TB, db *txn.DB, fn func(tx *txn.Tx) error) (op error) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		op = fn(tx)
		return nil
	}); err != nil {
		t.Errorf("the transaction of a refused operation: %v", err)
	}
	return op
}

// Fabrics whose verbs have taken effect when they are posted, and later.
var (
	atOnce = rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true}
	later  = rdma.Caps{OrderedLine: true, MaskedCAS: true}
)

// newWorker is a worker of the test's own.
func newWorker(t testing.TB, db *txn.DB) *txn.Worker {
	t.Helper()
	w, err := db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	return w
}
