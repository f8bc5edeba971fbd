package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma/rdmatest"
)

// TestVerdictContradictsNobody: transactions that began early are the last that log, so their
// records lie where those of their neighbours were, which were acknowledged. These are
// not said to be aborted; one that began after them and had not come as far is.
func TestVerdictContradictsNobody(t *testing.T) {
	for _, s := range settings(t) {
		w := newWorld(t, s, occ.Options{})
		w.loaded(put("a", "1"), put("b", "1"), put("c", "1"))
		se, late := w.session()
		c := se.Thread().Plain()
		var early []*occ.Tx
		for _, key := range []string{"a", "b"} { // the newest record stays until there is another one
			tx, err := se.NewTx(c)
			must(t, err)
			must(t, w.open(tx, put(key, "2")))
			early = append(early, tx)
		}
		var acknowledged []record.TxID
		for range 5 {
			must(t, w.do(late, put("c", "2")))
			acknowledged = append(acknowledged, late.ID())
			c.Sleep(10_000) // until its log space may be used again
		}
		for _, tx := range early {
			must(t, tx.Commit())
			c.Sleep(10_000)
		}
		w.recover(se.Coordinator())
		v, ok := w.space.Verdict(se.Coordinator())
		if !ok {
			t.Fatalf("%v: there is no verdict", s)
		}
		for _, id := range acknowledged {
			if o := v.Of(id.Seq()); o == layout.OutcomeAborted {
				t.Errorf("%v: %v was acknowledged, and is said to be %v: %+v", s, id, o, v)
			}
		}
		if o := v.Of(acknowledged[4].Seq() + 4); o != layout.OutcomeAborted {
			t.Errorf("%v: one that was never there is said to be %v: %+v", s, o, v)
		}
		w.check(s.String())
	}
}

// TestUnknownKeepsItsLog: a verb of a commit fails, so its outcome is unknown, while
// other transactions of the session are about to commit. None of them gets the log
// space of the first, whose fate its record decides. Every other time somebody else
// recovers them before the session rejoins.
func TestUnknownKeepsItsLog(t *testing.T) {
	for _, s := range settings(t) {
		w := newWorldIn(t, rdmatest.Options{Blades: 3, Size: 8 << 20}, s, occ.Options{}, 64<<10)
		ours, own := w.session()
		unknown, committed := 0, 0
		for k := 0; ; k++ {
			what := fmt.Sprintf("%v, verb %d fails (%d)", s, k/2, k)
			a, b := fmt.Sprintf("a%d", k), fmt.Sprintf("b%d", k)
			w.sure(ours, own, put(a, "1"), put(b, "1"))
			se, first := w.session()
			var others []*occ.Tx
			// the newest record stays until there is another one
			for _, key := range []string{fmt.Sprintf("c%d", k), fmt.Sprintf("d%d", k)} {
				w.sure(ours, own, put(key, "1"))
				own.Coro().Sleep(10_000) // until the locks are released
				tx, err := se.NewTx(se.Thread().Plain())
				must(t, err)
				must(t, w.open(tx, put(key, "2")))
				others = append(others, tx)
			}
			w.stop = stop{left: k / 2, once: true}
			told := w.do(first, put(a, "2"), put(b, "2"))
			if !w.disarm() {
				break
			}
			id := first.ID()
			for _, tx := range others {
				if err := tx.Commit(); err == nil && errors.Is(told, occ.ErrOutcomeUnknown) {
					t.Errorf("%s: the session is broken (%v), and has committed once more", what, told)
				}
			}
			se.Break(told)
			if k%2 == 1 {
				_, err := recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), se.Coordinator())
				must(t, err)
			}
			must(t, se.Rejoin(se.Thread().Plain()))
			v, _ := w.space.Verdict(id.Coordinator())
			want := "1"
			if o := v.Of(id.Seq()); o == layout.OutcomeCommitted || told == nil {
				want = "2"
				committed++
			} else if o != layout.OutcomeAborted && errors.Is(told, occ.ErrOutcomeUnknown) {
				t.Errorf("%s: the verdict on %v is %v: %+v", what, id, o, v)
			}
			if errors.Is(told, occ.ErrOutcomeUnknown) {
				unknown++
			}
			if got := w.values(ours, own, a, b); !slices.Equal(got, []string{want, want}) {
				t.Errorf("%s: %q instead of %q", what, got, want)
			}
			w.sweep()
			w.check(what)
			if t.Failed() {
				break
			}
		}
		if unknown == 0 || committed == 0 {
			t.Errorf("%v: %d outcomes were unknown, %d committed", s, unknown, committed)
		}
	}
}
