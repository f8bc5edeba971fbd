package runner

import (
	"errors"
	"testing"

	"txnode/check"
	"txnode/history"
)

// A window knows the rows that earlier windows have left: a range read that misses one is a
// violation, and one that misses a row which was deleted is none.
func TestRangesBetweenWindows(t *testing.T) {
	txn := func(at int64, ops []history.Op, ranges ...history.Range) history.Txn {
		return history.Txn{ID: uint64(at), Start: at, End: at + 1, Outcome: history.Committed, Ops: ops, Ranges: ranges}
	}
	all := history.Range{From: "a", To: "z"}
	one := all
	one.Len = 1
	kept := history.Op{Key: 1, Position: "k", Version: 11, Kind: history.Read}
	for name, c := range map[string]struct {
		last history.Txn
		bad  bool
	}{
		"found":   {last: txn(30, []history.Op{kept}, one)},
		"missing": {last: txn(30, nil, all), bad: true},
	} {
		h := newHistoryCheck()
		windows := []history.Txn{
			txn(10, []history.Op{
				{Key: 1, Position: "k", Version: 11, Kind: history.Write},
				{Key: 2, Position: "d", Version: 12, Kind: history.Write}}),
			txn(20, []history.Op{{Key: 2, Position: "d", Version: 13, Prev: 12, Kind: history.Delete}}),
			c.last,
		}
		var err error
		for _, w := range windows {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			err = h.window([]history.Txn{w}, nil)
		}
		if errors.Is(err, check.ErrViolation) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}
