package occ_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/check"
	"txnode/history"
	"txnode/occ"
)

// TestRangesAreRecorded: the history of ranges beside changes of their own transaction is serializable, and
// one row less in it is not.
func TestRangesAreRecorded(t *testing.T) {
	const most = 60
	b := newBed(t, 2, 1, occ.Options{})
	_, tx := b.session()
	b.table = b.ordered(tx, 2, 4)
	var recorder history.Recorder
	now := int64(0)
	tx.Record(recorder.Session(), func() int64 { now++; return now })
	committed := map[uint64]string{}
	r := rand.New(rand.NewPCG(3, 3))
	for range 400 {
		must(t, tx.Begin())
		model := maps.Clone(committed)
		for range 1 + r.IntN(4) {
			k := r.Uint64N(most)
			n, err := tx.Stage(b.table, key8(k), r.IntN(2) == 0)
			must(t, err)
			if r.IntN(2) == 0 {
				must(t, tx.Execute())
			}
			switch r.IntN(4) {
			case 0:
				must(t, tx.Delete(n))
				delete(model, k)
			case 1:
				model[k] = "v"
				must(t, tx.Put(n, []byte("v")))
			}
			b.compareRange(tx, model, r, most)
		}
		if r.IntN(5) == 0 {
			must(t, tx.Rollback())
		} else {
			must(t, tx.Commit())
			committed = model
		}
		must(t, tx.Posts(b.table))
	}
	txns := recorder.Txns()
	report := check.Check(txns, check.Options{FromEmpty: true, Placeholders: true})
	if !report.OK() || report.Ranges < 400 || report.Ambiguous > 0 {
		t.Fatal(report)
	}
	found, tried := 0, 0
	for i := range txns {
		x := &txns[i]
		for j := range x.Ranges {
			rg := &x.Ranges[j]
			if rg.Len < 2 || tried == 50 {
				continue
			}
			first := x.Ops[rg.First]
			wrote := slices.ContainsFunc(x.Ops, func(op history.Op) bool { return op.Key == first.Key && op.Kind >= history.Write })
			if first.Kind != history.Read || wrote {
				continue // a tombstone, or a row whose absence the transaction's own delete would explain
			}
			rg.First, rg.Len = rg.First+1, rg.Len-1
			if tried++; !check.Check(txns, check.Options{}).OK() {
				found++
			}
			rg.First, rg.Len = rg.First-1, rg.Len+1
		}
	}
	if tried == 0 || found < tried {
		t.Errorf("%d of %d rows that were left out are missed", found, tried)
	}
}
