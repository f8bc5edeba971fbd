package occ_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/check"
	"txnode/history"
	"txnode/index"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// TestRangesAreRecorded: the history of ranges beside changes of their own transaction is
// serializable, and one row less in it is not.
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
			wrote := slices.ContainsFunc(x.Ops, func(op history.Op) bool {
				return op.Key == first.Key && op.Kind >= history.Write
			})
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

// TestRangeOverDamage: a row whose primary is torn is read from another copy, as an item, which
// validates what the walk has read by then. The rows behind it are read as before.
func TestRangeOverDamage(t *testing.T) {
	for _, down := range []bool{false, true} {
		b := newBed(t, 2, 1, occ.Options{})
		_, tx := b.session()
		b.table = b.ordered(tx, 2, 0)
		for k := range uint64(20) {
			must(t, b.do(tx, put(string(key8(k)), "value")))
			must(t, tx.Posts(b.table))
		}
		must(t, tx.Begin())
		i, err := tx.Stage(b.table, key8(7), false)
		must(t, err)
		must(t, tx.Execute())
		at := b.space.View().At(tx.ItemAddr(i), 0)
		must(t, tx.Rollback())
		buf, err := b.ctl.Alloc(8)
		must(t, err)
		var batch rdma.Batch
		b.ctl.PutWord(buf, uint64(record.MakeTxID(7, 7)))
		batch.Write(at, buf, 8) // the version, which the checksum covers
		must(t, b.ctl.Plain().Do(&batch))
		b.ctl.Free(buf, 8)

		_, other := b.session() // which has no address cached
		must(t, other.Begin())
		keys, values := b.scanKeys(other, index.Bound{}, index.Bound{End: true}, down, 0)
		must(t, other.Commit())
		if len(keys) != 20 || keys[0] != map[bool]uint64{false: 0, true: 19}[down] || slices.Contains(values, "") {
			t.Errorf("down %v: %d, %q", down, keys, values)
		}
	}
}

// TestRangeBehindDeletedRows: the first row of a queue is found in a few round trips, however many
// rows in front of it were deleted: a walk that has met nothing else reads farther ahead each time.
func TestRangeBehindDeletedRows(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{})
	_, tx := b.session()
	b.table = b.ordered(tx, 2, 0)
	for k := range uint64(300) {
		must(t, b.do(tx, put(string(key8(k)), "value")))
		must(t, tx.Posts(b.table))
	}
	for k := range uint64(250) {
		must(t, b.do(tx, del(string(key8(k)))))
	}
	before := total(tx)
	must(t, tx.Begin())
	keys, _ := b.scanKeys(tx, index.Bound{}, index.Bound{End: true}, false, 1)
	must(t, tx.Commit())
	if trips := total(tx)[1] - before[1]; len(keys) != 1 || keys[0] != 250 || trips > 40 {
		t.Errorf("%d in %d round trips", keys, trips)
	}
}
