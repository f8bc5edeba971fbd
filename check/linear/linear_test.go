package linear

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"txnode/check"
	"txnode/history"
)

func read(v history.Version) history.Op {
	return history.Op{Key: 1, Kind: history.Read, Version: v}
}

func absent(v history.Version) history.Op {
	return history.Op{Key: 1, Kind: history.ReadAbsent, Version: v}
}

func write(prev, v history.Version) history.Op {
	return history.Op{Key: 1, Kind: history.Write, Prev: prev, Version: v}
}

func remove(prev, v history.Version) history.Op {
	return history.Op{Key: 1, Kind: history.Delete, Prev: prev, Version: v}
}

func txn(start, end int64, ops ...history.Op) history.Txn {
	return history.Txn{Start: start, End: end, Outcome: history.Committed, Ops: ops}
}

func lost(start, end int64, ops ...history.Op) history.Txn {
	return history.Txn{Start: start, End: end, Outcome: history.Unknown, Ops: ops}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		txns []history.Txn
		ok   bool
	}{
		{"empty", nil, true},
		{"in order", []history.Txn{txn(0, 1, write(7, 8)), txn(2, 3, read(8))}, true},
		{"stale read", []history.Txn{txn(0, 1, write(7, 8)), txn(2, 3, read(7))}, false},
		{"concurrent", []history.Txn{txn(0, 2, write(7, 8)), txn(2, 3, read(7))}, true},
		{"two initial versions", []history.Txn{txn(0, 1, read(7)), txn(2, 3, read(8))}, false},
		{"lost update", []history.Txn{txn(0, 9, read(7), write(7, 8)), txn(0, 9, read(7), write(7, 9))}, false},
		{"non-repeatable read", []history.Txn{txn(0, 9, read(7), read(8)), txn(0, 9, write(7, 8))}, false},
		{
			"own writes", []history.Txn{txn(0, 9, read(7), write(7, 8), read(8), write(8, 9)), txn(10, 19, read(9))},
			true,
		},
		{"intermediate read", []history.Txn{txn(0, 9, write(7, 8), write(8, 9)), txn(0, 9, read(8))}, false},
		{"own writes not a chain", []history.Txn{txn(0, 9, write(7, 8), write(7, 9))}, false},
		{"insert, delete, insert", []history.Txn{
			txn(0, 1, absent(0), write(0, 1)), txn(2, 3, remove(1, 2)),
			txn(4, 5, absent(2)), txn(6, 7, absent(0)), txn(8, 9, write(0, 3)),
		}, true},
		{"insert over a record", []history.Txn{txn(0, 1, write(0, 1)), txn(2, 3, write(0, 3))}, false},
		{"tombstone read as present", []history.Txn{txn(0, 1, remove(1, 2)), txn(2, 3, read(2))}, false},
		{
			"replaced behind its removal",
			[]history.Txn{txn(0, 1, remove(1, 2)), txn(2, 3, absent(0)), txn(4, 5, write(2, 3))}, false,
		},
		{
			"unknown, did not happen", []history.Txn{
				lost(0, 1, write(7, 8)), txn(2, 3, read(7)), txn(4, 5, write(7, 9)),
			},
			true,
		},
		{
			"unknown, happened late", []history.Txn{lost(0, 1, write(7, 8)), txn(2, 3, read(7)), txn(4, 5, read(8))},
			true,
		},
		{
			"unknown, happened and undone",
			[]history.Txn{lost(0, 1, write(7, 8)), txn(2, 3, read(8)), txn(4, 5, read(7))},
			false,
		},
		{
			"unknown, seen by an unknown one",
			[]history.Txn{lost(0, 1, write(7, 8)), lost(0, 1, write(8, 9)), txn(4, 5, read(9))}, true,
		},
		{
			"unknown delete explains absence",
			[]history.Txn{txn(0, 0, read(7)), lost(0, 1, remove(7, 8)), txn(2, 3, absent(0))}, true,
		},
		{
			"no delete explains absence",
			[]history.Txn{txn(0, 0, read(7)), lost(0, 1, write(7, 8)), txn(2, 3, absent(0))},
			false,
		},
	} {
		for _, window := range []int{1, 100} {
			r := Check(c.txns, Options{Window: window})
			if err := r.Err(); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrViolation) {
				t.Errorf("%s, window %d: %v", c.name, window, err)
			}
		}
	}
}

// A long history is cut, and a violation inside of a window or between two is still found.
func TestWindows(t *testing.T) {
	var txns []history.Txn
	for i := range history.Version(1000) {
		at := 10 * int64(i)
		txns = append(txns, txn(at, at+12, write(i+1, i+2)), txn(at+1, at+5, read(i+1)))
		if i%7 == 0 {
			txns[len(txns)-2].End = at + 8 // nothing is under way here
		}
	}
	r := Check(txns, Options{Window: 10})
	if r.Err() != nil || r.Keys != 1 || r.Windows < 50 || r.Undecided != 0 {
		t.Fatalf("%+v", r)
	}
	for _, i := range []int{501, 701, 1501} {
		old := txns[i].Ops[0]
		txns[i].Ops[0] = read(old.Version - 3)
		r := Check(txns, Options{Window: 10, KeyName: func(history.Key) string { return "the key" }})
		if len(r.Violations) != 1 || !strings.Contains(r.Err().Error(), "the key has no linearization from version") {
			t.Fatalf("%d: %v", i, r.Err())
		}
		txns[i].Ops[0] = old
	}
}

// On one key linearizability is strict serializability, so the two checkers must agree.
func TestAgreesWithCheck(t *testing.T) {
	const seeds = 5000
	violations, undecided := 0, 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 4))
		txns := simulate(rng)
		for range rng.IntN(3) {
			mutate(rng, txns)
		}
		want := check.Check(txns, check.Options{})
		if !want.OK() {
			violations++
		}
		if want.Ambiguous > 0 {
			undecided++
		}
		whole, cut := Check(txns, Options{Window: 100}), Check(txns, Options{Window: 2})
		switch {
		case want.OK() && want.Ambiguous == 0 && (whole.Err() != nil || cut.Err() != nil):
			t.Fatalf("seed %d: %+v\n%v\n%v\n%v", seed, txns, want, whole.Err(), cut.Err())
		case !want.OK() && want.Violations[0].Class != check.DuplicateVersion && whole.Err() == nil:
			t.Fatalf("seed %d: %+v\n%v: found nothing", seed, txns, want)
		case cut.Err() != nil && whole.Err() == nil:
			t.Fatalf("seed %d: windows make a false alarm: %v", seed, cut.Err())
		}
	}
	if violations < seeds/10 || violations > seeds*9/10 || undecided > seeds/5 {
		t.Fatalf("the generator is out of balance: %d violations, %d ambiguous", violations, undecided)
	}
}

// simulate runs a few transactions on a register that is strictly serializable.
func simulate(rng *rand.Rand) []history.Txn {
	cur, next := state{ver: 1, absent: rng.IntN(3) == 0}, history.Version(1)
	var txns []history.Txn
	for i := range 1 + rng.IntN(8) {
		at := 10 * int64(i)
		x := txn(at-rng.Int64N(30), at+rng.Int64N(30))
		happens := true
		if rng.IntN(8) == 0 {
			x.Outcome, happens = history.Unknown, rng.IntN(2) == 0
		}
		if cur.absent && rng.IntN(2) == 0 {
			cur.ver = 0
		}
		if cur.absent {
			x.Ops = append(x.Ops, absent(cur.ver))
		} else {
			x.Ops = append(x.Ops, read(cur.ver))
		}
		after := cur
		for range rng.IntN(3) {
			next++
			v := next*7919%1009 + 2 // no order
			if rng.IntN(3) == 0 {
				x.Ops = append(x.Ops, remove(after.ver, v))
				after = state{ver: v, absent: true}
			} else {
				x.Ops = append(x.Ops, write(after.ver, v))
				after = state{ver: v}
			}
		}
		if happens {
			cur = after
		}
		txns = append(txns, x)
	}
	rng.Shuffle(len(txns), func(i, j int) { txns[i], txns[j] = txns[j], txns[i] })
	return txns
}

// mutate changes what one operation saw, or moves a transaction in time.
func mutate(rng *rand.Rand, txns []history.Txn) {
	x := &txns[rng.IntN(len(txns))]
	other := txns[rng.IntN(len(txns))].Ops
	from := other[rng.IntN(len(other))]
	op := &x.Ops[rng.IntN(len(x.Ops))]
	switch {
	case rng.IntN(3) == 0:
		x.Start, x.End = x.Start+50, x.End+50
	case op.Kind == history.Read && from.Version != 0 || op.Kind == history.ReadAbsent:
		op.Version = from.Version
	case (op.Kind == history.Write || op.Kind == history.Delete) && op.Version != from.Version:
		op.Prev = from.Version
	}
}

func ExampleCheck() {
	r := Check([]history.Txn{
		txn(0, 10, write(7, 8)),
		txn(20, 30, read(7)),
	}, Options{})
	fmt.Println(r.Err())
	// Output:
	// linear: not linearizable: 1 window(s), the first:
	// key 0x1 has no linearization from any version:
	//   transaction #0 [0,10] replaced 7 left version 8
	//   transaction #1 [20,30] read 7
}
