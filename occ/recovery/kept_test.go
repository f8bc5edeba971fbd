package recovery_test

import (
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestKeptIsLinked: while a backup is made, a transaction replaces a record that it locked when it
// read it. What it keeps for the backup is linked.
func TestKeptIsLinked(t *testing.T) {
	for _, policy := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		w := processes(t, setting{policy, 1, strong}, occ.Options{}, 1, 6<<20, false)[0]
		kept := w.another("kept")
		w.eng = occ.NewEngine(w.space, occ.Options{
			Policy: policy, CacheBytes: 64 << 10, Kept: func(*rdma.Coro) (*occ.Table, error) { return kept, nil },
		})
		ours, own := w.session()
		w.sure(ours, own, put("a", "1"), put("b", "1"))
		own.Coro().Sleep(10_000)
		cut, change, err := w.space.BeginCut()
		must(t, err)
		o := w.eng.Recovery()
		o.Steal, o.Change = true, change
		_, err = recovery.Recover(w.ctl.Plain(), o, ours.Coordinator())
		must(t, err)
		w.sure(ours, own, put("a", "2"))
		w.sure(ours, own, put("b", ""))
		own.Coro().Sleep(10_000)
		table := w.table
		w.table = kept
		n := 0
		w.blocks(w.ctl.Plain(), func(_ layout.Addr, line record.Image) {
			k, part, err := occ.ParseKept(line.Key(), line.Value())
			must(t, err)
			if n++; part || string(k.Value) != "1" || k.Cut != cut.Number {
				t.Errorf("%v: kept is %+v", policy, k)
			}
		})
		if n != 2 {
			t.Errorf("%v: %d records are kept", policy, n)
		}
		w.table = table
		must(t, w.space.EndCut(cut))
		must(t, ours.Close())
		w.sweep()
		verified(t, w)
	}
}
