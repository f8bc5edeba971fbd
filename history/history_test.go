package history_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"txnode/history"
)

func op(k history.Key, v history.Version) history.Op {
	return history.Op{Kind: history.Read, Key: k, Version: v}
}

func TestRecorder(t *testing.T) {
	var r history.Recorder
	if got := r.Txns(); len(got) != 0 {
		t.Fatalf("a new recorder has %v", got)
	}
	a, b := r.Session(), r.Session()
	a.Op(op(1, 10))
	b.Op(op(2, 20))
	a.Op(op(3, 30))
	a.End(7, 100, 200, history.Committed)
	b.Drop() // aborted
	b.Op(op(4, 40))
	b.End(8, 150, 250, history.Unknown)
	a.End(9, 300, 400, history.Committed) // did nothing
	a.Op(op(5, 50))
	a.Drop()
	a.Op(op(6, 60))
	a.End(10, 500, 600, history.Committed)
	a.Op(op(9, 90)) // still running

	want := []history.Txn{
		{ID: 7, Start: 100, End: 200, Outcome: history.Committed, Ops: []history.Op{op(1, 10), op(3, 30)}},
		{ID: 9, Start: 300, End: 400, Outcome: history.Committed, Ops: []history.Op{}},
		{ID: 10, Start: 500, End: 600, Outcome: history.Committed, Ops: []history.Op{op(6, 60)}},
		{ID: 8, Start: 150, End: 250, Outcome: history.Unknown, Ops: []history.Op{op(4, 40)}},
	}
	if got := r.Txns(); !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

// What a caller appends to the operations of a transaction does not reach the next one.
func TestTxnsDoNotOverlap(t *testing.T) {
	var r history.Recorder
	s := r.Session()
	s.Op(op(1, 10))
	s.End(1, 0, 1, history.Committed)
	s.Op(op(2, 20))
	s.End(2, 2, 3, history.Committed)
	got := r.Txns()
	got[0].Ops = append(got[0].Ops, op(9, 90))
	if again := r.Txns(); !reflect.DeepEqual(again[1].Ops, []history.Op{op(2, 20)}) {
		t.Fatalf("the second transaction is now %v", again[1])
	}
}

func TestNilSession(t *testing.T) {
	var s *history.Session
	s.Op(op(1, 10))
	s.Drop()
	s.End(1, 0, 1, history.Committed)
}

func TestSessionsAreConcurrent(t *testing.T) {
	const workers, each = 8, 200
	var r history.Recorder
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		wg.Go(func() {
			s := r.Session()
			for i := range uint64(each) {
				s.Op(op(history.Key(w), history.Version(i+1)))
				s.End(w*each+i, int64(i), int64(i), history.Committed)
			}
		})
	}
	wg.Wait()
	txns, next := r.Txns(), map[history.Key]history.Version{}
	if len(txns) != workers*each {
		t.Fatalf("%d transactions", len(txns))
	}
	for _, x := range txns { // each session in program order
		if o := x.Ops[0]; o.Version != next[o.Key]+1 {
			t.Fatalf("session %d: version %d after %d", o.Key, o.Version, next[o.Key])
		}
		next[x.Ops[0].Key]++
	}
}

// A transaction that is recorded costs amortized stores only.
func TestRecordingDoesNotAllocatePerOperation(t *testing.T) {
	var r history.Recorder
	s := r.Session()
	const each = 4096
	allocs := testing.AllocsPerRun(1, func() {
		for i := range uint64(each) {
			s.Op(op(1, history.Version(i+1)))
			s.Op(op(2, history.Version(i+1)))
			s.End(i, 0, 1, history.Committed)
		}
	})
	if allocs > 64 {
		t.Fatalf("%v allocations for %d transactions", allocs, each)
	}
}

func Example() {
	var rec history.Recorder
	s := rec.Session() // one per worker

	// An attempt that aborts leaves nothing behind.
	s.Op(history.Op{Kind: history.Read, Key: 1, Version: 41})
	s.Drop()

	// The attempt that commits.
	s.Op(history.Op{Kind: history.Read, Key: 1, Version: 42})
	s.Op(history.Op{Kind: history.Write, Key: 1, Prev: 42, Version: 99})
	s.End(99, 1000, 2000, history.Committed)

	for _, txn := range rec.Txns() {
		fmt.Println(txn.ID, txn.Start, txn.End, txn.Ops)
	}
	// Output:
	// 99 1000 2000 [{1 42 0 1} {1 99 42 3}]
}

// TestResolve: what is learnt later of a transaction with an unknown outcome.
func TestResolve(t *testing.T) {
	var r history.Recorder
	s := r.Session()
	for id := range uint64(3) {
		s.Op(history.Op{Key: history.Key(id), Version: history.Version(id + 1), Kind: history.Write})
		s.End(id, int64(id), int64(id)+1, history.Unknown)
		s.Resolve(id+7, 90, true) // another one
		if id > 0 {
			s.Resolve(id, 100, id == 2)
		}
	}
	got := r.Txns()
	if len(got) != 2 || got[0].Outcome != history.Unknown || got[0].End != 1 || got[1].ID != 2 || got[1].Outcome != history.Committed || got[1].End != 100 || len(got[1].Ops) != 1 || got[1].Ops[0].Key != 2 {
		t.Errorf("%+v", got)
	}
}
