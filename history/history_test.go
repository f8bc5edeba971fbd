package history_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
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
	// 99 1000 2000 [{1 42 0 1 } {1 99 42 3 }]
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
	if len(got) != 2 || got[0].Outcome != history.Unknown || got[0].End != 1 || got[1].ID != 2 ||
		got[1].Outcome != history.Committed || got[1].End != 100 || len(got[1].Ops) != 1 || got[1].Ops[0].Key != 2 {
		t.Errorf("%+v", got)
	}
}

func TestRanges(t *testing.T) {
	var r history.Recorder
	s := r.Session()
	rows := []history.Op{op(1, 10), op(2, 20)}
	x := history.Range{From: history.TableStart(7), To: history.TableEnd(7), Cut: true}
	s.Op(op(9, 90))
	s.Range(x, rows)
	s.Drop() // aborted
	s.Op(op(9, 90))
	s.Range(x, rows)
	s.Range(x, nil)
	s.End(1, 0, 1, history.Committed)
	s.End(2, 2, 3, history.Committed)
	s.Range(x, rows[:1])
	s.End(3, 4, 5, history.Unknown)
	s.Resolve(3, 6, false)
	s.Range(x, rows[1:])
	s.Fail(4, 7, 8)
	s.Range(x, rows[1:])
	s.End(5, 9, 10, history.Committed)
	(*history.Session)(nil).Range(x, rows)

	at := func(first, n int) history.Range { y := x; y.First, y.Len = first, n; return y }
	want := []history.Txn{
		{
			ID: 1, Start: 0, End: 1, Outcome: history.Committed, Ops: []history.Op{op(9, 90), op(1, 10), op(2, 20)},
			Ranges: []history.Range{at(1, 2), at(3, 0)},
		},
		{ID: 2, Start: 2, End: 3, Outcome: history.Committed, Ops: []history.Op{}},
		{
			ID: 5, Start: 9, End: 10, Outcome: history.Committed, Ops: []history.Op{op(2, 20)},
			Ranges: []history.Range{at(0, 1)},
		},
	}
	if got := r.Txns(); !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

func TestCovered(t *testing.T) {
	place := func(key string) history.Position { return history.PositionOf(7, []byte(key)) }
	ops := []history.Op{{}, {Position: place("b")}, {Position: place("c")}}
	for _, c := range []struct {
		r        history.Range
		from, to history.Position
	}{
		{history.Range{First: 1, Len: 2}, place("a"), place("z")},
		{history.Range{First: 1, Len: 2, Cut: true}, place("a"), place("c\x00")},
		{history.Range{First: 1, Len: 2, Cut: true, Descending: true}, place("c"), place("z")},
		{history.Range{First: 1, Cut: true}, place("a"), place("a")},
	} {
		c.r.From, c.r.To = place("a"), place("z")
		if from, to := c.r.Covered(ops); from != c.from || to != c.to {
			t.Errorf("%+v covers %q to %q, want %q to %q", c.r, from, to, c.from, c.to)
		}
	}
}

func TestPositions(t *testing.T) {
	in := []history.Position{
		history.TableStart(1), history.PositionOf(1, []byte{0}), history.PositionOf(1, []byte("a")),
		history.PositionOf(1, []byte("a")).After(),
		history.PositionOf(1, []byte("a\x00\x00")), history.PositionOf(1, []byte("b")),
		history.PositionOf(1, []byte{255, 255, 255, 255, 255}), history.TableEnd(1),
		history.PositionOf(256, nil), history.TableEnd(1<<32 - 2),
	}
	if !slices.IsSorted(in) || len(slices.Compact(slices.Clone(in))) != len(in) {
		t.Fatalf("not in order: %q", in)
	}
}

// Histories that were written before there were ranges are read as they were.
func TestOlderJSON(t *testing.T) {
	var x history.Txn
	err := json.Unmarshal([]byte(
		`{"ID":7,"Start":100,"End":200,"Outcome":1,"Ops":[{"Key":1,"Version":10,"Prev":0,"Kind":1}]}`), &x)
	want := history.Txn{ID: 7, Start: 100, End: 200, Outcome: history.Committed, Ops: []history.Op{op(1, 10)}}
	if err != nil || !reflect.DeepEqual(x, want) {
		t.Fatalf("%v, %v", x, err)
	}
	if out, err := json.Marshal(want); err != nil ||
		string(out) != `{"ID":7,"Start":100,"End":200,"Outcome":1,"Ops":[{"Key":1,"Version":10,"Prev":0,"Kind":1}]}` {
		t.Fatalf("%s, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"Ops":[{"Position":"0g"}]}`), &x); err == nil {
		t.Fatal("a place that is not hexadecimal is accepted")
	}
}

// FuzzJSON: a history in JSON is what it was.
func FuzzJSON(f *testing.F) {
	f.Add([]byte("a\xff\x00"), []byte("\x80"), uint64(1), uint64(2), 3, 4, true, false)
	f.Fuzz(func(t *testing.T, key, bound []byte, k, v uint64, first, n int, descending, cut bool) {
		in := history.Txn{
			ID: k, Start: int64(v), End: int64(k), Outcome: history.Committed,
			Ops: []history.Op{{
				Key: history.Key(k), Version: history.Version(v), Kind: history.Read,
				Position: history.PositionOf(uint32(v), key),
			}},
			Ranges: []history.Range{{
				From: history.Position(bound), To: history.Position(key), First: first, Len: n,
				Descending: descending, Cut: cut,
			}},
		}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out history.Txn
		if err := json.Unmarshal(text, &out); err != nil || !reflect.DeepEqual(in, out) {
			t.Fatalf("%v, then %v (%v): %s", in, out, err, text)
		}
	})
}
