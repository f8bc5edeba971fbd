package occ_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/occ"
	"txnode/rdma"
)

// TestExpect runs the same transactions, drawn at random, with and without telling before
// each what the next will use, and what not: every byte on the blades and every count of
// verbs is the same.
func TestExpect(t *testing.T) {
	const keys = 200
	run := func(expect bool) (blades [][]byte, phases [occ.NumPhases]rdma.Counters) {
		b := newBed(t, 2, 1, occ.Options{})
		if expect {
			b.eng.Far()
		}
		_, tx := b.session()
		key := func(k int) string {
			switch {
			case k < 100:
				return string(binary.BigEndian.AppendUint64(nil, uint64(k)))
			case k < 150:
				return fmt.Sprintf("key%05d", k*k)
			}
			return fmt.Sprint("a longer key ", k)
		}
		for k := range keys - 5 { // some are absent
			must(t, b.do(tx, put(key(k), "v")))
		}
		if able := expect && b.ctl.Prefetches(); tx.Expects() != able {
			t.Fatalf("Expects() = %v with far memory: %v", tx.Expects(), able)
		}
		r := rand.New(rand.NewPCG(7, 2))
		most := 0
		for range 2000 {
			ops := []op{get(key(r.IntN(keys))), put(key(r.IntN(keys)), fmt.Sprint(r.Uint64()))}
			for range r.IntN(12) {
				tx.Expect(b.table, []byte(key(r.IntN(keys))), r.IntN(2) == 0)
			}
			most = max(most, tx.Expecting())
			must(t, b.do(tx, ops...))
			if n := tx.Expecting(); n != 0 {
				t.Fatalf("%d keys are still expected behind the transaction", n)
			}
		}
		if (most > 4) != tx.Expects() {
			t.Errorf("up to %d keys were expected", most)
		}
		return b.blades(), *tx.Phases()
	}
	told, counts := run(true)
	untold, want := run(false)
	alike(t, told, untold, counts, want)
}
