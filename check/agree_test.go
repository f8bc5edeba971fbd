package check

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"txnode/history"
)

// seedsFlag is raised for a longer search: go test ./check -run Agree -seeds 3000000
var seedsFlag = flag.Int("seeds", 10000, "random histories per comparison with brute force")

// TestAgreesWithBruteForce compares Check with bruteForce on random small
// histories: made by a simulated store, and mutated. A violation that Check
// reports must be one; one that it misses is allowed only where it says so (Ambiguous).
func TestAgreesWithBruteForce(t *testing.T) {
	agreesWithBruteForce(t, func(rng *rand.Rand) []history.Txn {
		txns := simulate(rng, false)
		for range rng.IntN(4) {
			mutate(rng, txns)
		}
		return txns
	})
}

// TestRangesAgreeWithBruteForce does the same with transactions that read ranges, too.
func TestRangesAgreeWithBruteForce(t *testing.T) {
	agreesWithBruteForce(t, func(rng *rand.Rand) []history.Txn {
		txns := simulate(rng, true)
		for range rng.IntN(4) {
			if rng.IntN(2) == 0 {
				mutate(rng, txns)
			} else {
				mutateRange(rng, txns)
			}
		}
		return txns
	})
}

// setPositions gives each key its place.
func setPositions(txns []history.Txn) {
	for i := range txns {
		for j := range txns[i].Ops {
			op := &txns[i].Ops[j]
			op.Position = history.Position(keyName(op.Key))
		}
	}
}

func agreesWithBruteForce(t *testing.T, generate func(*rand.Rand) []history.Txn) {
	seeds := *seedsFlag
	var tally agreement
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		txns := generate(rng)
		o := Options{
			Level: Level(rng.IntN(2)), FromEmpty: rng.IntN(8) == 0, Placeholders: rng.IntN(4) == 0, KeyName: keyName,
		}
		if err := tally.compare(txns, o); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%+v", tally)
	// The comparison must have had something to compare.
	if tally.Violations < seeds/10 || tally.Clean < seeds/10 || tally.Exact < seeds/2 ||
		tally.Missed > tally.Violations/20 {
		t.Fatalf("the generator is out of balance: %+v", tally)
	}
}

// TestAgreesWithBruteForceRapid does the same with histories that have no
// structure, and shrinks a disagreement.
func TestAgreesWithBruteForceRapid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := rapid.Custom(func(t *rapid.T) history.Op {
			op := history.Op{
				Key: history.Key(rapid.IntRange(1, 2).Draw(t, "key")),
				Kind: rapid.SampledFrom([]history.Kind{
					history.Read, history.ReadAbsent, history.Write, history.Delete,
				}).Draw(t, "kind"),
				Version: history.Version(rapid.IntRange(0, 4).Draw(t, "version")),
			}
			if isWrite(op.Kind) {
				op.Prev = history.Version(rapid.IntRange(0, 4).Draw(t, "prev"))
			}
			if op.Version == 0 && op.Kind != history.ReadAbsent || op.Version == op.Prev && isWrite(op.Kind) {
				op.Version = 5
			}
			return op
		})
		txns := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) history.Txn {
			start := rapid.Int64Range(0, 6).Draw(t, "start")
			x := history.Txn{Start: start, End: start + rapid.Int64Range(0, 6).Draw(t, "length"),
				Outcome: rapid.SampledFrom([]history.Outcome{
					history.Committed, history.Committed, history.Unknown,
				}).Draw(t, "outcome"),
				Ops: rapid.SliceOfN(op, 1, 3).Draw(t, "ops")}
			for first := 0; first < len(x.Ops) && rapid.Bool().Draw(t, "range"); {
				// Reads that follow each other are an answer, perhaps out of bounds or order.
				r := history.Range{From: history.Position(rune(rapid.IntRange(1, 2).Draw(t, "from"))),
					To:    history.Position(rune(rapid.IntRange(1, 3).Draw(t, "to"))),
					First: first, Descending: rapid.Bool().Draw(t, "descending"), Cut: rapid.Bool().Draw(t, "cut")}
				for ; first < len(x.Ops) && !isWrite(x.Ops[first].Kind); first++ {
					r.Len++
				}
				x.Ranges = append(x.Ranges, r)
				first++
			}
			return x
		}), 1, 6).Draw(t, "history")
		for i := range txns {
			txns[i].ID = uint64(i + 1)
		}
		setPositions(txns)
		o := Options{Level: Level(rapid.IntRange(0, 1).Draw(t, "level")), FromEmpty: rapid.Bool().Draw(t, "empty"),
			Placeholders: rapid.Bool().Draw(t, "placeholders"), KeyName: keyName}
		var tally agreement
		if err := tally.compare(txns, o); err != nil {
			t.Fatal(err)
		}
	})
}

// agreement counts outcomes of the comparison.
type agreement struct {
	Clean, Violations int // by brute force
	Exact             int // reports without ambiguity
	Missed            int // violations that an ambiguous report missed
	Classes           map[Class]int
}

func (a *agreement) compare(txns []history.Txn, o Options) error {
	r := Check(txns, o)
	order, ok := bruteForce(txns, o)
	if a.Classes == nil {
		a.Classes = map[Class]int{}
	}
	for i := range r.Violations {
		a.Classes[r.Violations[i].Class]++
	}
	if r.Ambiguous == 0 {
		a.Exact++
	}
	if ok {
		a.Clean++
	} else {
		a.Violations++
	}
	switch {
	case ok && !r.OK():
		return fmt.Errorf("false alarm (%+v), the serial order %v explains:\n%s\n%s",
			o.Level, order, formatHistory(txns), r)
	case !ok && r.OK() && r.Ambiguous == 0:
		return fmt.Errorf("missed (%s, from empty: %v, placeholders: %v), no serial order explains:\n%s\n%s",
			o.Level, o.FromEmpty, o.Placeholders, formatHistory(txns), r)
	case !ok && r.OK():
		a.Missed++
	}
	return nil
}

// simulate runs up to 7 transactions on a store that is strictly serializable: each
// takes effect at one instant within its bounds. Tombstones may lose their trace at any time.
func simulate(rng *rand.Rand, ranges bool) []history.Txn {
	type record struct {
		ver    history.Version
		absent bool
	}
	n, keys := 1+rng.IntN(7), 1+rng.IntN(3)
	state := map[history.Key]record{}
	used := map[history.Version]bool{0: true}
	fresh := func() history.Version {
		for {
			if v := history.Version(rng.IntN(200)); !used[v] {
				used[v] = true
				return v
			}
		}
	}
	for k := range keys {
		state[history.Key('x'+k)] = record{absent: true}
		if rng.IntN(2) == 0 {
			state[history.Key('x'+k)] = record{ver: fresh(), absent: rng.IntN(4) == 0}
		}
	}
	spread := 1 + rng.IntN(12) // how much transactions overlap
	txns := make([]history.Txn, n)
	for i := range txns {
		at := int64(10 * (i + 1))
		txn := history.Txn{
			ID: uint64(i + 1), Start: at - int64(rng.IntN(5*spread)),
			End: at + int64(rng.IntN(5*spread)), Outcome: history.Committed,
		}
		happens := true
		if rng.IntN(6) == 0 {
			txn.Outcome, happens = history.Unknown, rng.IntN(2) == 0
			if rng.IntN(2) == 0 {
				txn.End = txn.Start // it takes effect after its call ended
			}
		}
		mine := map[history.Key]record{}
		for range 1 + rng.IntN(3) {
			if ranges && rng.IntN(2) == 0 {
				from := rng.IntN(keys + 1)
				r := history.Range{
					From: history.Position(rune('x' + from)),
					To:   history.Position(rune('x' + from + rng.IntN(keys+1-from))), First: len(txn.Ops),
				}
				r.Descending = rng.IntN(3) == 0
				limit := 1 + rng.IntN(2*keys)
				for i := range keys {
					if r.Descending {
						i = keys - 1 - i
					}
					k := history.Key('x' + i)
					p := history.Position(rune(k))
					if p < r.From || p >= r.To {
						continue
					}
					cur, own := mine[k]
					if !own || rng.IntN(3) == 0 {
						cur = state[k]
					}
					if cur.absent && (cur.ver == 0 || rng.IntN(3) > 0) {
						continue // a tombstone that the reader did not report
					}
					op := history.Op{Key: k, Version: cur.ver, Kind: history.Read}
					if cur.absent {
						op.Kind = history.ReadAbsent
					}
					txn.Ops = append(txn.Ops, op)
					if r.Len++; r.Len == limit {
						r.Cut = true
						break
					}
				}
				txn.Ranges = append(txn.Ranges, r)
				continue
			}
			k := history.Key('x' + rng.IntN(keys))
			cur, own := mine[k]
			if !own {
				cur = state[k]
				if cur.absent && rng.IntN(2) == 0 {
					cur.ver = 0
					state[k] = cur // its tombstone is removed
				}
			}
			op := history.Op{Key: k, Version: cur.ver, Kind: history.Read}
			if cur.absent {
				op.Kind = history.ReadAbsent
			}
			if rng.IntN(2) == 0 {
				op = history.Op{Key: k, Prev: cur.ver, Version: fresh(), Kind: history.Write}
				if rng.IntN(3) == 0 {
					op.Kind = history.Delete
				}
				mine[k] = record{op.Version, op.Kind == history.Delete}
			}
			txn.Ops = append(txn.Ops, op)
		}
		if happens {
			for k, r := range mine {
				state[k] = r
			}
		}
		txns[i] = txn
	}
	rng.Shuffle(n, func(i, j int) { txns[i], txns[j] = txns[j], txns[i] })
	setPositions(txns)
	return txns
}

// mutateRange changes one thing about ranges.
func mutateRange(rng *rand.Rand, txns []history.Txn) {
	txn := &txns[rng.IntN(len(txns))]
	if len(txn.Ranges) == 0 {
		return
	}
	n := rng.IntN(len(txn.Ranges))
	r := &txn.Ranges[n]
	switch rng.IntN(4) {
	case 0: // a row is left out
		if r.Len == 0 || len(txn.Ops) == 1 {
			return
		}
		at := r.First + rng.IntN(r.Len)
		txn.Ops = append(txn.Ops[:at:at], txn.Ops[at+1:]...)
		r.Len--
		for i := range txn.Ranges[n+1:] {
			txn.Ranges[n+1+i].First--
		}
	case 1: // two rows change places
		if r.Len > 1 {
			i := r.First + rng.IntN(r.Len-1)
			txn.Ops[i], txn.Ops[i+1] = txn.Ops[i+1], txn.Ops[i]
		}
	case 2:
		r.From, r.To = history.Position(rune('w'+rng.IntN(3))), history.Position(rune('y'+rng.IntN(3)))
	case 3:
		r.Cut = !r.Cut
	}
}

// mutate changes one thing, keeping every record well formed.
func mutate(rng *rand.Rand, txns []history.Txn) {
	defer setPositions(txns)
	txn := &txns[rng.IntN(len(txns))]
	other := txns[rng.IntN(len(txns))].Ops
	if len(txn.Ops) == 0 || len(other) == 0 {
		return // it has read an empty range
	}
	op := &txn.Ops[rng.IntN(len(txn.Ops))]
	from := other[rng.IntN(len(other))]
	seen := from.Version
	if isWrite(from.Kind) && rng.IntN(2) == 0 {
		seen = from.Prev
	}
	switch rng.IntN(8) {
	case 0, 1, 2: // another version is read
		if !isWrite(op.Kind) && (seen != 0 || op.Kind == history.ReadAbsent) {
			op.Version = seen
			op.Key = from.Key
		}
	case 3: // another version is replaced
		if isWrite(op.Kind) && seen != op.Version {
			op.Prev, op.Key = seen, from.Key
		}
	case 4: // another time
		by := int64(rng.IntN(60) - 30)
		txn.Start, txn.End = txn.Start+by, txn.End+by
	case 5:
		if txn.Outcome == history.Committed {
			txn.Outcome = history.Unknown
		} else {
			txn.Outcome = history.Committed
		}
	case 6: // present instead of absent, and the reverse
		switch {
		case op.Kind == history.Read:
			op.Kind = history.ReadAbsent
			if rng.IntN(2) == 0 {
				op.Version = 0
			}
		case op.Kind == history.ReadAbsent && op.Version != 0:
			op.Kind = history.Read
		case op.Kind == history.Write:
			op.Kind = history.Delete
		case op.Kind == history.Delete:
			op.Kind = history.Write
		}
	case 7: // another version is installed
		if isWrite(op.Kind) && seen != 0 && seen != op.Prev {
			op.Version = seen
		}
	}
}
