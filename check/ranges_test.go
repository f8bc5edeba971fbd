package check

import (
	"encoding/binary"
	"testing"

	"txnode/history"
)

// queue makes the history of a queue: each transaction inserts at the tail, or reads from the
// start of the table and deletes the first row. Up to four of them overlap, which exclude
// each other in fact.
func queue(n int) []history.Txn {
	var txns []history.Txn
	head, tail := 0, 0
	version := func(id int) history.Version { return history.Version(id)<<20 | 1 }
	at := func(k int) (history.Key, history.Position) {
		return history.Key(k + 1), history.PositionOf(1, binary.BigEndian.AppendUint64(nil, uint64(k)))
	}
	wrote := map[int]history.Version{}
	for i := range n {
		x := history.Txn{ID: uint64(i + 1), Start: int64(10*i - 20), End: int64(10*i + 20), Outcome: history.Committed}
		v := version(i + 1)
		if i%2 == 0 {
			key, place := at(tail)
			x.Ops = append(x.Ops, history.Op{Key: key, Position: place, Version: v, Kind: history.Write})
			wrote[tail] = v
			tail++
		} else {
			key, place := at(head)
			x.Ranges = append(x.Ranges, history.Range{
				From: history.TableStart(1), To: history.TableEnd(1), Len: 1, Cut: true,
			})
			x.Ops = append(x.Ops, history.Op{Key: key, Position: place, Version: wrote[head], Kind: history.Read},
				history.Op{Key: key, Position: place, Version: v, Prev: wrote[head], Kind: history.Delete})
			head++
		}
		txns = append(txns, x)
	}
	return txns
}

// A read from the start of a table is not compared with all that was ever there.
func TestQueueIsNotQuadratic(t *testing.T) {
	const n = 200_000
	txns := queue(n)
	r := Check(txns, Options{FromEmpty: true})
	if !r.OK() || r.Ranges != n/2 || r.Missing > 2*n {
		t.Fatal(r)
	}
	// A row that nobody takes is found missing by those that come after it, and by nothing else.
	txns = append(txns, history.Txn{ID: n + 1, Start: 10*n/2 + 1, End: 10*n/2 + 2,
		Outcome: history.Committed, Ops: []history.Op{
			{Key: 1 << 40, Position: history.PositionOf(1, nil), Version: 7, Kind: history.Write},
		}})
	r = Check(txns, Options{FromEmpty: true, MaxViolations: n})
	if r.Found < n/4-5 || r.Found > n/4+5 || r.Violations[0].Class != MissingRow {
		t.Fatalf("%d found, first: %v", r.Found, r.Violations[0].String())
	}
}

func TestKeysAndPlacesAreOneToOne(t *testing.T) {
	read := func(id uint64, k history.Key, p history.Position) history.Txn {
		return history.Txn{ID: id, Outcome: history.Committed,
			Ops:    []history.Op{{Key: k, Version: 5, Kind: history.Read, Position: p}},
			Ranges: []history.Range{{From: "a", To: "z", Len: 1}}}
	}
	for _, txns := range [][]history.Txn{
		{read(1, 1, "b"), read(2, 1, "c")},
		{read(1, 1, "b"), read(2, 2, "b")},
	} {
		if r := Check(txns, Options{}); r.OK() || r.Violations[0].Class != Malformed {
			t.Error(r)
		}
	}
}

// A chain that is a loop is reported, and a range read that comes by does not follow it.
func TestRangeOverLoop(t *testing.T) {
	r := Check([]history.Txn{
		{ID: 1, Outcome: history.Committed, Ops: []history.Op{
			{Key: 1, Position: "b", Prev: 5, Version: 6, Kind: history.Write},
			{Key: 1, Position: "b", Prev: 6, Version: 5, Kind: history.Write}}},
		{ID: 2, Outcome: history.Committed, Ops: []history.Op{
			{Key: 1, Position: "b", Prev: 5, Version: 6, Kind: history.Write},
			{Key: 1, Position: "b", Prev: 6, Version: 5, Kind: history.Write}}},
		{ID: 3, Outcome: history.Committed, Ranges: []history.Range{{From: "a", To: "z"}}},
	}, Options{})
	if r.OK() {
		t.Error(r)
	}
}
