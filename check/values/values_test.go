package values

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/history"
)

func TestCounter(t *testing.T) {
	const ok, unknown = history.Committed, history.Unknown
	add := func(id uint64, start, end int64, outcome history.Outcome) CounterOp {
		return CounterOp{ID: id, Start: start, End: end, Outcome: outcome, Add: 1}
	}
	read := func(id uint64, start, end, value int64) CounterOp {
		return CounterOp{ID: id, Start: start, End: end, Outcome: ok, Seen: true, Value: value}
	}
	update := func(id uint64, start, end, value int64) CounterOp {
		return CounterOp{ID: id, Start: start, End: end, Outcome: ok, Add: 1, Seen: true, Value: value}
	}
	for _, c := range []struct {
		name string
		ops  []CounterOp
		want string // part of the error; empty: none
	}{
		{"empty", nil, ""},
		{"initial value", []CounterOp{read(1, 0, 1, 100)}, ""},
		{"wrong initial value", []CounterOp{read(1, 0, 1, 99)}, "T1 [0,1] saw 99, expected 100 to 100"},
		{"all increments", []CounterOp{add(1, 0, 5, ok), add(2, 0, 5, ok), read(3, 6, 7, 102)}, ""},
		{
			"lost increment", []CounterOp{add(1, 0, 5, ok), add(2, 0, 5, ok), read(3, 6, 7, 101)},
			"T3 [6,7] saw 101, expected 102 to 102",
		},
		{"increment from nowhere", []CounterOp{add(1, 0, 5, ok), read(3, 6, 7, 102)}, "saw 102"},
		{"increment of the future", []CounterOp{read(3, 0, 4, 101), add(1, 5, 6, ok)}, "saw 101"},
		{"concurrent, seen", []CounterOp{add(1, 0, 5, ok), read(3, 5, 7, 101)}, ""},
		{"concurrent, not seen", []CounterOp{add(1, 0, 5, ok), read(3, 5, 7, 100)}, ""},
		{"unknown, seen late", []CounterOp{add(1, 0, 5, unknown), read(2, 6, 7, 100), read(3, 8, 9, 101)}, ""},
		{"unknown, seen before it started", []CounterOp{add(1, 5, 6, unknown), read(2, 0, 4, 101)}, "saw 101"},
		{
			"decreasing", []CounterOp{add(1, 0, 90, ok), read(2, 6, 7, 101), read(3, 8, 9, 100)},
			"T3 [8,9] saw 100 after T2 [6,7] had seen 101",
		},
		{"decreasing, but concurrent", []CounterOp{add(1, 0, 90, ok), read(2, 6, 8, 101), read(3, 8, 9, 100)}, ""},
		{
			"lost update", []CounterOp{update(1, 0, 9, 101), update(2, 0, 9, 101)},
			"T1 and T2 both added to the counter and wrote 101",
		},
		{"two updates", []CounterOp{update(1, 0, 9, 102), update(2, 0, 9, 101)}, ""},
		{"update that wrote too little", []CounterOp{update(1, 0, 9, 100)}, "saw 100, expected 101 to 101"},
		{"withdrawal", []CounterOp{
			{Add: -30, Start: 0, End: 5, Outcome: ok},
			{ID: 2, Add: 7, Start: 4, End: 9, Outcome: ok}, read(3, 6, 7, 70), read(4, 10, 11, 77),
		}, ""},
		{"withdrawal lost", []CounterOp{
			{Add: -30, Start: 0, End: 5, Outcome: ok},
			{ID: 2, Add: 7, Start: 4, End: 9, Outcome: ok}, read(3, 6, 7, 78),
		}, "expected 70 to 77"},
	} {
		err := CheckCounter(100, c.ops)
		switch {
		case c.want == "" && err != nil, c.want != "" && err == nil:
			t.Errorf("%s: %v", c.name, err)
		case err != nil && (!errors.Is(err, ErrViolation) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// What a counter in memory does is accepted, and not accepted any more after any value that was
// seen is moved out of the reach of the concurrent additions.
func TestCounterRandom(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		value, signs := int64(5), rng.IntN(2)
		var ops []CounterOp
		for i := range int64(2 + rng.IntN(12)) {
			at := 10 * i
			op := CounterOp{
				ID: uint64(i), Start: at - rng.Int64N(25), End: at + rng.Int64N(25), Outcome: history.Committed,
			}
			happens := true
			if rng.IntN(2) == 0 {
				op.Add = 1 + rng.Int64N(9)
				if signs == 1 && rng.IntN(2) == 0 {
					op.Add = -op.Add
				}
				if rng.IntN(5) == 0 {
					op.Outcome, happens = history.Unknown, rng.IntN(2) == 0
				}
				if happens {
					value += op.Add
				}
			}
			op.Seen, op.Value = op.Add == 0 || rng.IntN(2) == 0, value
			ops = append(ops, op)
		}
		rng.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
		if err := CheckCounter(5, ops); err != nil {
			t.Fatalf("seed %d: %v\n%+v", seed, err, ops)
		}
		i := slices.IndexFunc(ops, func(op CounterOp) bool { return op.Seen && op.Outcome == history.Committed })
		if i < 0 {
			continue
		}
		ops[i].Value += 10_000
		if err := CheckCounter(5, ops); !errors.Is(err, ErrViolation) {
			t.Fatalf("seed %d: not found: %+v", seed, ops)
		}
	}
}

func TestFindingsAreCut(t *testing.T) {
	ops := make([]CounterOp, 25)
	for i := range ops {
		ops[i] = CounterOp{Seen: true, Outcome: history.Committed}
	}
	err := CheckCounter(1, ops)
	var e *Error
	if !errors.As(err, &e) || e.Found != 25 || len(e.Findings) != maxFindings ||
		!strings.Contains(err.Error(), "and 15 more") {
		t.Fatal(err)
	}
}

func ExampleCheckCounter() {
	err := CheckCounter(0, []CounterOp{
		{ID: 1, Start: 0, End: 10, Outcome: history.Committed, Add: 1},
		{ID: 2, Start: 5, End: 15, Outcome: history.Committed, Add: 1},
		{ID: 3, Start: 20, End: 30, Outcome: history.Committed, Seen: true, Value: 1},
	})
	fmt.Println(err)
	// Output:
	// values: counter: 1 violation(s):
	//   T3 [20,30] saw 1, expected 2 to 2
}
