package check

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/history"
)

// workload makes the history of n transactions on keys records by 64 workers
// whose transactions overlap: two reads, one update, and one more update, insert
// or delete each. Tombstones of deletes lose their trace half of the time. The order of
// the slice is that of a Recorder, worker by worker.
func workload(n, keys int, seed uint64) []history.Txn {
	const workers = 64
	rng := rand.New(rand.NewPCG(seed, 2))
	type record struct {
		ver    history.Version
		absent bool
	}
	state := make([]record, keys)
	for k := range state {
		state[k] = record{ver: history.Version(1 + k)}
		if k%8 == 0 {
			state[k] = record{absent: true}
		}
	}
	txns := make([]history.Txn, n)
	ops := make([]history.Op, 0, 4*n)
	last := make([]int64, workers)
	for i := range n {
		w := i % workers
		at := int64(10 * (i + 1))
		txn := history.Txn{ID: uint64(i + 1), Outcome: history.Committed,
			Start: max(last[w]+1, at-int64(rng.IntN(300))), End: at + int64(rng.IntN(300))}
		last[w] = txn.End
		first := len(ops)
		id := history.Version(rng.Uint64()>>32<<32 | uint64(i+1)) // unique, without order
		for j := range 4 {
			k := rng.IntN(keys)
			cur := &state[k]
			key := history.Key(hashVersion(history.Key(k), 7))
			switch {
			case containsOp(ops[first:], key):
			case j >= 2 && cur.absent, j >= 2 && k%8 != 0, j == 2 && rng.IntN(2) == 0:
				ops = append(ops, history.Op{Key: key, Kind: history.Write, Prev: cur.ver, Version: id})
				*cur = record{ver: id}
			case j >= 2:
				ops = append(ops, history.Op{Key: key, Kind: history.Delete, Prev: cur.ver, Version: id})
				*cur = record{ver: id, absent: true}
				if rng.IntN(2) == 0 {
					cur.ver = 0
				}
			case cur.absent:
				ops = append(ops, history.Op{Key: key, Kind: history.ReadAbsent, Version: cur.ver})
			default:
				ops = append(ops, history.Op{Key: key, Kind: history.Read, Version: cur.ver})
			}
		}
		txn.Ops = ops[first:len(ops):len(ops)]
		txns[i%workers*(n/workers)+i/workers] = txn
	}
	return txns
}

func containsOp(ops []history.Op, k history.Key) bool {
	for _, op := range ops {
		if op.Key == k {
			return true
		}
	}
	return false
}

// breakReads makes every every-th transaction read versions that are long gone.
func breakReads(txns []history.Txn, every int) {
	old := map[history.Key]history.Version{}
	for i := range txns {
		for j := range txns[i].Ops {
			op := &txns[i].Ops[j]
			if op.Kind != history.Read {
				continue
			}
			if v, ok := old[op.Key]; ok && i%every == 0 {
				op.Version = v
			} else if !ok {
				old[op.Key] = op.Version
			}
		}
	}
}

func TestLargeHistory(t *testing.T) {
	txns := workload(64_000, 8_000, 1)
	r := Check(txns, Options{})
	if !r.OK() || r.Txns != len(txns) || r.Edges.WW == 0 || r.Edges.WR == 0 || r.Edges.RW == 0 {
		t.Fatal(r)
	}
	if r.Edges.RT > 3*len(txns) {
		t.Fatalf("%d real-time edges for %d transactions", r.Edges.RT, len(txns))
	}
	if r.Ambiguous*100 > len(txns) {
		t.Fatalf("%d ambiguous observations: real time resolves too little", r.Ambiguous)
	}
	if r := Check(txns, Options{Level: Serializable}); !r.OK() || r.Edges.RT != 0 {
		t.Fatal(r)
	}
}

// One stale read across the whole history ties nearly all of it into one
// component. The cycle of two is reported first, and after it the one that needs no
// real time, though it is longer.
func TestShortCycleInLargeComponent(t *testing.T) {
	txns := workload(20_032, 4_000, 1)
	late := &txns[len(txns)-1]
	early := history.Op{Key: 99, Kind: history.Write, Prev: 5, Version: 6}
	txns[0].Ops = append(txns[0].Ops[:len(txns[0].Ops):len(txns[0].Ops)], early)
	late.Ops = append(late.Ops[:len(late.Ops):len(late.Ops)], history.Op{Key: 99, Kind: history.Read, Version: 5})
	r := Check(txns, Options{})
	if r.Found != 2 || r.Violations[0].Class != StaleRead || len(r.Violations[0].Cycle) != 2 {
		t.Fatal(r)
	}
	if v := &r.Violations[1]; v.Class != ReadSkew || len(v.Cycle) < 3 {
		t.Fatal(r)
	}
	if r := Check(txns, Options{Level: Serializable}); r.Found != 1 || r.Violations[0].Class != ReadSkew {
		t.Fatal(r)
	}
}

func TestManyViolations(t *testing.T) {
	var txns []history.Txn
	for i := range history.Key(10) {
		x, y := 2*i, 2*i+1
		for _, w := range []history.Key{x, y} {
			txns = append(txns, history.Txn{ID: uint64(w), End: 1, Outcome: history.Committed, Ops: []history.Op{
				{Kind: history.Read, Key: x, Version: 1}, {Kind: history.Read, Key: y, Version: 1},
				{Kind: history.Write, Key: w, Prev: 1, Version: 2}}})
		}
	}
	r := Check(txns, Options{MaxViolations: 3})
	if r.Found != 10 || len(r.Violations) != 3 {
		t.Fatal(r)
	}
	for i := range r.Violations {
		if r.Violations[i].Class != WriteSkew {
			t.Fatal(r)
		}
	}
	if r := Check(txns, Options{}); r.Found != 10 || len(r.Violations) != 10 {
		t.Fatal(r)
	}
}

// BenchmarkCheck checks a correct history; one operation of the benchmark is a
// whole check. B/op is what a check allocates beside the history.
func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{128_000, 1_024_000} {
		for _, level := range []Level{StrictSerializable, Serializable} {
			b.Run(fmt.Sprintf("txns=%d/%s", n, []string{"strict", "serializable"}[level]), func(b *testing.B) {
				txns := workload(n, n/8, 1)
				b.ReportAllocs()
				b.ResetTimer()
				for b.Loop() {
					if r := Check(txns, Options{Level: level}); !r.OK() {
						b.Fatal(r)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/txn")
			})
		}
	}
}

// BenchmarkCheckBroken checks histories in which nearly everything is one component.
func BenchmarkCheckBroken(b *testing.B) {
	txns := workload(1_024_000, 128_000, 1)
	breakReads(txns, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if r := Check(txns, Options{}); r.OK() {
			b.Fatal(r)
		}
	}
}

// BenchmarkCheckLists checks lists of up to 64 elements; a transaction appends to one
// and reads another.
func BenchmarkCheckLists(b *testing.B) {
	const n = 128_000
	rng := rand.New(rand.NewPCG(1, 6))
	lists := map[history.Key][]uint64{}
	txns := make([]ListTxn, n)
	for i := range txns {
		// A key gets 64 appends and is then replaced by a fresh one.
		k, l := history.Key(i/6400*100+rng.IntN(100)), history.Key(i/6400*100+rng.IntN(100))
		read := lists[l]
		lists[k] = append(lists[k], uint64(i+1))
		txns[i] = ListTxn{ID: uint64(i), Start: int64(10 * i), End: int64(10*i + rng.IntN(100)),
			Outcome: history.Committed,
			Ops:     []ListOp{{Key: l, List: read}, {Key: k, Append: uint64(i + 1)}}}
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := CheckLists(txns, Options{}); !r.OK() {
			b.Fatal(r)
		}
	}
}
