package check

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"txnode/history"
)

func TestEmpty(t *testing.T) {
	for _, txns := range [][]history.Txn{nil, {}, {{}}, {{Outcome: history.Committed}}} {
		for _, level := range []Level{StrictSerializable, Serializable} {
			r := Check(txns, Options{Level: level})
			if len(txns) == 1 && txns[0].Outcome == 0 {
				if r.Found != 1 || r.Violations[0].Class != Malformed {
					t.Errorf("%v: %v", txns, r)
				}
			} else if !r.OK() || r.Err() != nil {
				t.Errorf("%v: %v", txns, r)
			}
		}
	}
	if r := CheckLists(nil, Options{}); !r.OK() {
		t.Error(r)
	}
}

// Whatever a history holds, Check returns; and a record that makes no sense is reported.
func TestGarbage(t *testing.T) {
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		kinds := []history.Kind{0, 1, 2, 3, 4, 3, 4, 5, 255}
		times := []int64{0, 1, 2, 3, math.MaxInt64, math.MinInt64, -1}
		txns := make([]history.Txn, rng.IntN(8))
		malformed := false
		for i := range txns {
			x := history.Txn{
				ID: rng.Uint64N(3), Start: times[rng.IntN(len(times))], End: times[rng.IntN(len(times))],
				Outcome: history.Outcome(rng.IntN(4)),
			}
			malformed = malformed || x.End < x.Start || x.Outcome == 0
			for range rng.IntN(5) {
				op := history.Op{
					Key: history.Key(rng.IntN(2)), Version: history.Version(rng.IntN(5)),
					Prev: history.Version(rng.IntN(5)), Kind: kinds[rng.IntN(len(kinds))],
				}
				malformed = malformed || op.Kind == 0 || op.Kind > history.Delete ||
					op.Version == 0 && op.Kind != history.ReadAbsent || isWrite(op.Kind) && op.Version == op.Prev
				op.Position = []history.Position{"", "a", "b"}[rng.IntN(3)]
				x.Ops = append(x.Ops, op)
			}
			if rng.IntN(3) == 0 {
				x.Ranges = append(x.Ranges, history.Range{From: "a", To: []history.Position{"", "b", "c"}[rng.IntN(3)],
					First: rng.IntN(5) - 1, Len: []int{-1, 0, 1, 2, math.MaxInt}[rng.IntN(5)], Cut: rng.IntN(2) == 0,
					Descending: rng.IntN(2) == 0})
			}
			txns[i] = x
		}
		for _, o := range []Options{
			{}, {Level: Serializable}, {FromEmpty: true, MaxViolations: 1}, {Placeholders: true}, {Level: 77},
		} {
			r := Check(txns, o)
			_ = r.String()
			if malformed && r.OK() {
				t.Fatalf("seed %d: %s", seed, formatHistory(txns))
			}
		}
		if err := WriteElle(io.Discard, txns); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHistoryIsNotChanged(t *testing.T) {
	txns := workload(6_400, 500, 3)
	before := make([]history.Txn, len(txns))
	for i, x := range txns {
		before[i] = x
		before[i].Ops = append([]history.Op(nil), x.Ops...)
	}
	Check(txns, Options{Placeholders: true})
	if !reflect.DeepEqual(txns, before) {
		t.Fatal("Check changed the history")
	}
}

// The verdict does not depend on the order of the slice.
func TestOrderOfHistory(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 8))
		txns := simulate(rng, seed%2 == 0)
		mutate(rng, txns)
		r := Check(txns, Options{})
		rng.Shuffle(len(txns), func(i, j int) { txns[i], txns[j] = txns[j], txns[i] })
		if s := Check(txns, Options{}); r.OK() != s.OK() || r.Ambiguous != s.Ambiguous || r.Edges != s.Edges {
			t.Fatalf("seed %d:\n%s\n%s\n%s", seed, formatHistory(txns), r, s)
		}
	}
}

// An edge of a cycle joins the transactions that the cycle says, and a cycle closes.
func TestCyclesClose(t *testing.T) {
	cycles := 0
	for seed := range uint64(6000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		txns := simulate(rng, seed%2 == 0)
		for range 3 {
			mutate(rng, txns)
		}
		for _, v := range Check(txns, Options{}).Violations {
			for i, e := range v.Cycle {
				cycles++
				if next := v.Cycle[(i+1)%len(v.Cycle)]; e.To != next.From || e.From == e.To {
					t.Fatalf("seed %d: %s", seed, v.String())
				}
				if e.Kind == RT && txns[e.From].End >= txns[e.To].Start {
					t.Fatalf("seed %d: %s", seed, v.String())
				}
				if e.Kind != RT && !(touches(txns[e.From], e.Key) && touches(txns[e.To], e.Key)) {
					t.Fatalf("seed %d: %s", seed, v.String())
				}
			}
		}
	}
	if cycles < 500 {
		t.Fatalf("only %d edges of cycles", cycles)
	}
}

func touches(x history.Txn, k history.Key) bool {
	for _, op := range x.Ops {
		if op.Key == k {
			return true
		}
	}
	return false
}

func TestPlaceholders(t *testing.T) {
	txns := parseHistory(t, `
T1 0 10 ok absent(x)=0
T2 20 30 ok absent(x)=71
T3 40 50 ok w(x)=72->1
T4 60 70 ok d(x)=1->2
T5 80 90 ok absent(x)=73 r(y)=1`)
	if r := Check(txns, Options{}); r.Violations[0].Class != DirtyRead {
		t.Fatal(r)
	}
	if r := Check(txns, Options{Placeholders: true}); !r.OK() || r.Ambiguous != 0 {
		t.Fatal(r)
	}
	// A placeholder is an absence, not a licence: T5 reads one while x is there.
	txns[4].Start, txns[4].End = 52, 54
	if r := Check(txns, Options{Placeholders: true}); r.Found != 1 || r.Violations[0].Class != StaleRead {
		t.Fatal(r)
	}
	// What was read as present is no placeholder.
	txns[1].Ops[0].Kind = history.Read
	if r := Check(txns, Options{Placeholders: true, FromEmpty: true}); r.OK() || r.Violations[0].Class != DirtyRead {
		t.Fatal(r)
	}
}

func TestErr(t *testing.T) {
	txns := parseHistory(t, "T1 0 9 ok r(x)=1 w(y)=1->2\nT2 0 9 ok r(y)=1 w(x)=1->2")
	r := Check(txns, Options{KeyName: keyName})
	var e *Error
	if err := r.Err(); !errors.Is(err, ErrViolation) || !errors.As(err, &e) || e.Report != r ||
		!strings.Contains(err.Error(), "write skew") {
		t.Fatal(err)
	}
	if err := Check(nil, Options{}).Err(); err != nil {
		t.Fatal(err)
	}
}

// A long transaction is printed with the operations that matter.
func TestLongTransactionsAreCut(t *testing.T) {
	txns := parseHistory(t, "T1 0 9 ok r(x)=1 w(y)=1->2\nT2 0 9 ok r(y)=1 w(x)=1->2")
	for k := range history.Key(50) {
		txns[0].Ops = append(txns[0].Ops, history.Op{Kind: history.Read, Key: 1000 + k, Version: 1})
	}
	s := Check(txns, Options{KeyName: keyName}).Violations[0].String()
	if !strings.Contains(s, "T1 0 9 ok r(x)=1 w(y)=1->2 (and 50 operations on other keys)") {
		t.Fatal(s)
	}
}

func TestClassNames(t *testing.T) {
	seen := map[string]bool{}
	for c := range classNames {
		if s := c.String(); s == "unknown class" || seen[s] {
			t.Errorf("class %d: %q", c, s)
		} else {
			seen[s] = true
		}
	}
	if Class(200).String() != "unknown class" {
		t.Error(Class(200).String())
	}
}

func TestTooLarge(t *testing.T) {
	ops := make([]history.Op, 1<<20)
	txns := make([]history.Txn, maxOps/len(ops))
	for i := range txns {
		txns[i].Ops = ops // shared, so that the test needs no memory
	}
	r := Check(txns, Options{})
	if r.Found != 1 || r.Violations[0].Class != Malformed || !strings.Contains(r.String(), "check it in parts") {
		t.Fatal(r)
	}
}

// A violation that a caller made prints itself, too.
func TestViolationByHand(t *testing.T) {
	v := Violation{Class: StaleRead, Cycle: []Edge{
		{From: 0, To: 1, Kind: RT}, {From: 1, To: 0, Kind: RW, Key: 3, Version: 4, Next: 5},
	}}
	if s := v.String(); !strings.Contains(s, "read version 4 of key 0x3, then T0 installed 5") {
		t.Fatal(s)
	}
}

type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriteElleError(t *testing.T) {
	if err := WriteElle(fullDisk{}, workload(640, 64, 1)); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	if err := WriteElleLists(fullDisk{}, []ListTxn{{}}); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
}

// Keys on both sides of 2^63 are numbers of one type in EDN, and no two keys become one: Elle
// refuses a history that has longs and big integers for keys.
func TestElleKeys(t *testing.T) {
	var txns []history.Txn
	keys := []history.Key{0, 1, 1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64}
	for i, k := range keys {
		txns = append(txns, history.Txn{ID: uint64(i), Start: int64(i), End: int64(i), Outcome: history.Committed,
			Ops: []history.Op{{Key: k, Version: history.Version(k) + 7, Kind: history.Write}}})
	}
	var out strings.Builder
	if err := WriteElle(&out, txns); err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	for _, m := range regexp.MustCompile(`:w (\S+) (\S+?)\]`).FindAllStringSubmatch(out.String(), -1) {
		key, err1 := strconv.ParseInt(m[1], 10, 64)
		_, err2 := strconv.ParseInt(m[2], 10, 64)
		if err1 != nil || err2 != nil {
			t.Errorf("%q: %v, %v", m[0], err1, err2)
		}
		seen[key] = true
	}
	if len(seen) != len(keys) {
		t.Errorf("%d keys are %d in EDN", len(keys), len(seen))
	}
}
