package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"txnode/benchmarks/workload"
)

// tables of every test.
var tables = []workload.Table{
	{Name: "first", MaxValue: 64, Expect: 1000},
	{Name: "second", MaxValue: 16, Expect: 1000, Text: true},
	{Name: "third", MaxValue: 16, Expect: 1000, Ordered: true},
	{Name: "fourth", MaxValue: 16, Expect: 1000, Ordered: true, Text: true},
}

// checks are the parts of the suite. Each gets a store with the tables, and
// nothing in them.
var checks = []struct {
	name string
	run  func(ctx context.Context, s workload.Store) error
}{
	{"Tables", checkTables},
	{"Operations", checkOperations},
	{"OwnWrites", checkOwnWrites},
	{"Fetch", checkFetch},
	{"Rollback", checkRollback},
	{"Copies", checkCopies},
	{"ManyKeys", checkManyKeys},
	{"Run", checkRun},
	{"Counter", checkCounter},
	{"Snapshot", checkSnapshot},
	{"WriteSkew", checkWriteSkew},
	{"InsertRace", checkInsertRace},
	{"Ranges", checkRanges},
	{"RangesAndInserts", checkRangesAndInserts},
}

// Test runs the suite. open returns a new, empty store each time, which the
// suite closes.
func Test(t *testing.T, open func(t *testing.T) workload.Store) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			if existed, err := s.Tables(t.Context(), tables); err != nil || existed {
				t.Fatalf("Tables of a new store: existed %v, error %v", existed, err)
			}
			defer func() {
				if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Errorf("Close: %v", err)
				}
			}()
			if err := c.run(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

// single runs fn in one worker.
func single(ctx context.Context, s workload.Store, fn func(ctx context.Context, w workload.Worker) error) error {
	return s.Run(ctx, 1, 1, func(ctx context.Context, _ int, w workload.Worker) error { return fn(ctx, w) })
}

// expect is an error unless the key has the value; nil means absent.
func expect(tx workload.Tx, table int, key uint64, want []byte) error {
	got, err := tx.Get(table, key)
	switch {
	case want == nil && errors.Is(err, workload.ErrNotFound):
		return nil
	case err != nil:
		return err
	case want == nil:
		return fmt.Errorf("table %d key %d is %q; it must be absent", table, key, got)
	case !bytes.Equal(got, want):
		return fmt.Errorf("table %d key %d is %q; it must be %q", table, key, got, want)
	}
	return nil
}

// refuse turns the error of an operation that must fail with want into nil.
func refuse(err, want error) error {
	switch {
	case errors.Is(err, want):
		return nil
	case err == nil:
		return fmt.Errorf("the operation succeeded; it must fail: %v", want)
	}
	return err
}

// first returns the first error of the steps, unchanged, as a transaction must.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
