package check

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/history"
)

// TestListsAgreeWithBruteForce compares CheckLists with a search for a serial
// order on lists, on random small histories. CheckLists is exact there.
func TestListsAgreeWithBruteForce(t *testing.T) {
	seeds := *seedsFlag
	clean := 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 5))
		txns := simulateLists(rng)
		for range rng.IntN(8) {
			mutateLists(rng, txns)
		}
		o := Options{Level: Level(rng.IntN(2)), KeyName: keyName}
		r := CheckLists(txns, o)
		order, ok := bruteLists(txns, o.Level)
		if ok != r.OK() || r.Ambiguous != 0 {
			t.Fatalf("seed %d: a serial order exists: %v %v\n%s\n%s", seed, ok, order, formatLists(txns), r)
		}
		if ok {
			clean++
		}
	}
	if clean < seeds/5 || clean > seeds*9/10 {
		t.Fatalf("the generator is out of balance: %d of %d correct", clean, seeds)
	}
}

func formatLists(txns []ListTxn) string {
	var b strings.Builder
	for i := range txns {
		keys := []history.Key{}
		for _, op := range txns[i].Ops {
			keys = append(keys, op.Key)
		}
		fmt.Fprintf(&b, "T%d %s\n", txns[i].ID, formatListTxn(&txns[i], keyName, keys))
	}
	return b.String()
}

func simulateLists(rng *rand.Rand) []ListTxn {
	keys, spread := 1+rng.IntN(2), int64(1+rng.IntN(60))
	lists := map[history.Key][]uint64{}
	next := uint64(0)
	var txns []ListTxn
	for i := range 1 + rng.IntN(6) {
		at := 10 * int64(i+1)
		x := ListTxn{
			ID: uint64(i + 1), Start: at - rng.Int64N(spread), End: at + rng.Int64N(spread), Outcome: history.Committed,
		}
		happens := true
		if rng.IntN(6) == 0 {
			x.Outcome, happens = history.Unknown, rng.IntN(2) == 0
		}
		mine := map[history.Key][]uint64{}
		for range 1 + rng.IntN(3) {
			k := history.Key('x' + rng.IntN(keys))
			if mine[k] == nil {
				mine[k] = slices.Clone(lists[k])
			}
			if rng.IntN(2) == 0 {
				next++
				e := next*7919%1009 + 1
				mine[k] = append(mine[k], e)
				x.Ops = append(x.Ops, ListOp{Key: k, Append: e})
			} else {
				x.Ops = append(x.Ops, ListOp{Key: k, List: slices.Clone(mine[k])})
			}
		}
		if happens {
			for k, l := range mine {
				lists[k] = l
			}
		}
		txns = append(txns, x)
	}
	rng.Shuffle(len(txns), func(i, j int) { txns[i], txns[j] = txns[j], txns[i] })
	return txns
}

func mutateLists(rng *rand.Rand, txns []ListTxn) {
	x := &txns[rng.IntN(len(txns))]
	op := &x.Ops[rng.IntN(len(x.Ops))]
	switch n := len(op.List); rng.IntN(5) {
	case 0: // the end is missing
		if n > 0 {
			op.List = op.List[:rng.IntN(n)]
		}
	case 1: // two elements are swapped, or one is doubled
		if n > 1 {
			i := rng.IntN(n - 1)
			op.List[i], op.List[i+1] = op.List[i+1], op.List[i]
			if rng.IntN(3) == 0 {
				op.List[i] = op.List[i+1]
			}
		}
	case 2: // another time
		by := int64(rng.IntN(60) - 30)
		x.Start, x.End = x.Start+by, x.End+by
	case 3: // an append that another transaction did too, or that nobody saw
		if op.Append != 0 {
			op.Append = uint64(1 + rng.IntN(2000))
		}
	case 4:
		if x.Outcome == history.Committed {
			x.Outcome = history.Unknown
		} else {
			x.Outcome = history.Committed
		}
	}
}

// bruteLists looks for a serial order of the committed transactions and a
// subset of the others. Reads of the others are ignored.
func bruteLists(txns []ListTxn, level Level) ([]int, bool) {
	appended := map[[2]uint64]bool{}
	for i := range txns {
		for _, op := range txns[i].Ops {
			id := [2]uint64{uint64(op.Key), op.Append}
			if op.Append != 0 && appended[id] {
				return nil, false
			}
			appended[id] = true
		}
	}
	var order []int
	var extend func(left int, lists map[history.Key][]uint64) bool
	extend = func(left int, lists map[history.Key][]uint64) bool {
		if left == 0 {
			return true
		}
	next:
		for t := range txns {
			if left>>t&1 == 0 {
				continue
			}
			for u := range txns {
				if level == StrictSerializable && left>>u&1 != 0 && txns[u].Outcome == history.Committed &&
					txns[u].End < txns[t].Start {
					continue next
				}
			}
			after := map[history.Key][]uint64{}
			for k, l := range lists {
				after[k] = slices.Clone(l)
			}
			for _, op := range txns[t].Ops {
				if op.Append != 0 {
					after[op.Key] = append(after[op.Key], op.Append)
				} else if txns[t].Outcome == history.Committed && !slices.Equal(after[op.Key], op.List) {
					continue next
				}
			}
			order = append(order, t)
			if extend(left&^(1<<t), after) {
				return true
			}
			order = order[:len(order)-1]
		}
		return false
	}
	for set := range 1 << len(txns) {
		possible := true
		for t := range txns {
			possible = possible && (txns[t].Outcome != history.Committed || set>>t&1 != 0)
		}
		order = order[:0]
		if possible && extend(set, map[history.Key][]uint64{}) {
			return order, true
		}
	}
	return nil, false
}

func TestLongListsAreCut(t *testing.T) {
	var list []uint64
	txns := []ListTxn{
		{ID: 1, End: 1, Outcome: history.Committed}, {ID: 2, Start: 2, End: 3, Outcome: history.Committed},
	}
	for e := range uint64(100) {
		txns[0].Ops = append(txns[0].Ops, ListOp{Key: 1, Append: e + 1})
		list = append(list, e+1)
	}
	txns[1].Ops = []ListOp{{Key: 1, List: append(slices.Clone(list), 1000)}}
	r := CheckLists(txns, Options{})
	if !errors.Is(r.Err(), ErrViolation) || !strings.Contains(r.String(), "[..85 more..,86,87,") {
		t.Fatal(r)
	}
	txns[1].Ops[0].List = list
	if r := CheckLists(txns, Options{}); !r.OK() {
		t.Fatal(r)
	}
}
