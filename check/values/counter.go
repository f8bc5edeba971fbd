package values

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"txnode/history"
)

// CounterOp is one transaction on a counter: it added something, saw the
// value, or both. Start, End and Outcome mean what they mean in [history.Txn].
type CounterOp struct {
	ID         uint64
	Start, End int64
	Outcome    history.Outcome
	// Add is what was added, of either sign; zero for a read.
	Add int64
	// Seen says that Value is what the transaction read, or, if it added
	// something, what it wrote. What a transaction of unknown outcome saw is ignored.
	Seen  bool
	Value int64
}

// CheckCounter checks that every value seen is the initial one plus everything
// added by transactions that had ended, plus possibly what was added by those that
// were under way or whose outcome is unknown. If nothing was subtracted, it
// also checks that values never decrease in real time, and that two
// transactions that added something did not both write the same value (a lost update).
//
// A history should end with a read after all else: it then decides whether the final
// value is the number of committed increments. Returns nil or an [*Error].
// O(n log n) for n transactions; sums must fit 64 bits.
func CheckCounter(initial int64, ops []CounterOp) error {
	e := &Error{}
	s := newSums(ops)
	for i := range ops {
		op := &ops[i]
		if !op.Seen || op.Outcome != history.Committed {
			continue
		}
		low, high := s.bounds(op)
		low, high = initial+low, initial+high
		if op.Value < low || op.Value > high {
			e.add("T%d [%d,%d] saw %d, expected %d to %d", op.ID, op.Start, op.End, op.Value, low, high)
		}
	}
	if !s.subtracted {
		checkMonotone(e, ops)
		checkDistinct(e, ops)
	}
	return e.err()
}

// sums answers how much had been added before a point in time.
type sums struct {
	ended, started steps
	subtracted     bool
}

// steps are running totals of positive and negative additions by time.
type steps struct {
	at       []int64
	pos, neg []int64 // totals of the first i steps
}

func newSums(ops []CounterOp) *sums {
	s := &sums{}
	type point struct{ at, add int64 }
	var ended, started []point
	for i := range ops {
		op := &ops[i]
		if op.Add == 0 {
			continue
		}
		s.subtracted = s.subtracted || op.Add < 0
		started = append(started, point{op.Start, op.Add})
		if op.Outcome == history.Committed {
			ended = append(ended, point{op.End, op.Add})
		}
	}
	total := func(points []point) (t steps) {
		slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
		t.pos, t.neg = []int64{0}, []int64{0}
		for i, p := range points {
			t.at = append(t.at, p.at)
			t.pos = append(t.pos, t.pos[i]+max(p.add, 0))
			t.neg = append(t.neg, t.neg[i]+min(p.add, 0))
		}
		return t
	}
	s.ended, s.started = total(ended), total(started)
	return s
}

// until returns the totals of the steps before time t (with: up to and at t).
func (t *steps) until(at int64, with bool) (pos, neg int64) {
	i := sort.Search(len(t.at), func(i int) bool { return t.at[i] > at || !with && t.at[i] == at })
	return t.pos[i], t.neg[i]
}

// bounds of what op can have seen, beside the initial value.
func (s *sums) bounds(op *CounterOp) (low, high int64) {
	certainPos, certainNeg := s.ended.until(op.Start, false)
	maybePos, maybeNeg := s.started.until(op.End, true)
	// Its own addition is certain, though it had not ended.
	certainPos, certainNeg = certainPos+max(op.Add, 0), certainNeg+min(op.Add, 0)
	return certainPos + maybeNeg, maybePos + certainNeg
}

// checkMonotone finds a value smaller than one seen by a transaction that had ended.
func checkMonotone(e *Error, ops []CounterOp) {
	byStart, byEnd := seen(ops), seen(ops)
	slices.SortStableFunc(byStart, func(a, b *CounterOp) int { return cmp.Compare(a.Start, b.Start) })
	slices.SortStableFunc(byEnd, func(a, b *CounterOp) int { return cmp.Compare(a.End, b.End) })
	highest := &CounterOp{Value: math.MinInt64}
	next := 0
	for _, op := range byStart {
		for ; next < len(byEnd) && byEnd[next].End < op.Start; next++ {
			if byEnd[next].Value > highest.Value {
				highest = byEnd[next]
			}
		}
		if op.Value < highest.Value {
			e.add("T%d [%d,%d] saw %d after T%d [%d,%d] had seen %d", op.ID, op.Start, op.End, op.Value,
				highest.ID, highest.Start, highest.End, highest.Value)
		}
	}
}

// checkDistinct finds two additions that wrote the same value.
func checkDistinct(e *Error, ops []CounterOp) {
	writers := map[int64]*CounterOp{}
	for _, op := range seen(ops) {
		if op.Add == 0 {
			continue
		}
		if other := writers[op.Value]; other != nil {
			e.add("T%d and T%d both added to the counter and wrote %d: one update is lost", other.ID, op.ID, op.Value)
			continue
		}
		writers[op.Value] = op
	}
}

func seen(ops []CounterOp) []*CounterOp {
	var out []*CounterOp
	for i := range ops {
		if ops[i].Seen && ops[i].Outcome == history.Committed {
			out = append(out, &ops[i])
		}
	}
	return out
}
