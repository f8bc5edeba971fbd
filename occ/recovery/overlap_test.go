package recovery_test

import (
	"fmt"
	"slices"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestOverlappingRecords: of two transactions of a session the one that has begun last
// comes to its end first, and its log space is used again by the other, whose record is on
// one blade when the session stops, and the blade is lost that has the lock. So no number
// says which of the two records is newer. Whoever recovers stops after any verb, and then
// the blade is lost, too, that had the record: with f = 2 the transaction is committed, and
// whole, or not.
func TestOverlappingRecords(t *testing.T) {
	for survivor, long := range map[int]bool{1: false, 2: true} { // survivor: the copy whose blade alone is reached
		t.Run(fmt.Sprintf("copy %d, long: %v", survivor, long), func(t *testing.T) {
			committed := 0
			step := 1
			if testing.Short() {
				step = 3
			}
			for k := 0; ; k += step {
				if over := overlap(t, survivor, long, k, &committed); over || t.Failed() {
					break
				}
			}
			if committed == 0 {
				t.Error("nothing was committed when the second blade was lost")
			}
		})
	}
}

// overlap stops the recoverer after k verbs. over: there were no more.
func overlap(t *testing.T, survivor int, long bool, k int, committed *int) (over bool) {
	value := "new"
	if long {
		value = fmt.Sprintf("%0150d", 7)
	}
	before := value[:len(value)-1] + "-"
	w := newWorldOn(t, 4, setting{occ.PolicyDefault, 2, strong}, occ.Options{}, 64<<10)
	victim, first := w.session()
	second, err := victim.NewTx(first.Coro())
	must(t, err)
	must(t, w.do(first, put("p", before)))
	keys, all := []string{"p"}, []op{}
	for i := range 4 { // blocks of sessions are on different blades
		s, tx := w.session()
		keys, all = append(keys, fmt.Sprint("q", i)), append(all, put(fmt.Sprint("q", i), value))
		w.sure(s, tx, put(fmt.Sprint("q", i), before))
	}
	first.Coro().Sleep(10_000)
	must(t, w.open(first, put("p", value)))
	must(t, w.do(second, all...))
	first.Coro().Sleep(10_000)
	if a, b := first.ID(), second.ID(); a >= b {
		t.Fatalf("%v was to begin before %v", a, b)
	}
	var on []rdma.BladeID // copies of p
	w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
		if line.Guard().Held() {
			for k := range 3 {
				on = append(on, w.space.View().At(a, k).Blade)
			}
		}
	})
	home, reached := on[0], on[survivor]
	w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool { return wr.Blade != reached }}
	told := first.Commit()
	if !w.disarm() || told == nil {
		t.Fatalf("told %v", told)
	}
	must(t, w.f.StopBlade(home))
	w.arm(k)
	_, err = recovery.FailOver(w.newThread().Plain(), w.eng.Recovery(), w.space.DeclareDead(home))
	if over = !w.disarm(); over {
		must(t, err)
	}
	v, _ := w.space.Verdict(first.ID().Coordinator())
	was := v.Of(first.ID().Seq())
	must(t, w.f.StopBlade(reached))
	_, err = recovery.FailOver(w.ctl.Plain(), w.eng.Recovery(), w.space.DeclareDead(reached))
	must(t, err)
	w.sweep()
	what := fmt.Sprintf("stopped after %d verbs", k)
	w.check(what)
	v, _ = w.space.Verdict(first.ID().Coordinator())
	now := v.Of(first.ID().Seq())
	if was == layout.OutcomeCommitted {
		*committed++
		if now != was {
			t.Errorf("%s: committed, and then %v", what, now)
		}
	}
	ours, own := w.session()
	want := []string{before, value, value, value, value}
	if now == layout.OutcomeCommitted {
		want[0] = value
	}
	if got := w.values(ours, own, keys...); !slices.Equal(got, want) {
		t.Errorf("%s: %v: %.9q instead of %.9q", what, now, got, want)
	}
	return over
}

// TestNewerRecordStays: the log space of a transaction is used again by the second one after
// it, whose record goes to one of the blades of the first, and to a third. The blade that both
// were on is lost, and the primary of the first was there: so its image seems not to be in place
// yet, and its log record is to be on one more blade. On the third, in its place, is the last
// copy of the newer one, and nothing else says that it was committed. Whoever recovers stops
// after any verb.
func TestNewerRecordStays(t *testing.T) {
	for k, over := 0, false; !over && !t.Failed(); k++ {
		over = newerStays(t, k)
	}
}

// newerStays stops the recoverer after k verbs. over: there were no more.
func newerStays(t *testing.T, k int) (over bool) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	older, newer, lost, other := "", "", rdma.BladeID(0), rdma.BladeID(0)
	for i := 0; newer == "" && i < 12; i++ { // blocks of sessions are on different blades
		se, tx := w.session()
		key := fmt.Sprint("q", i)
		if older == "" {
			w.sure(se, tx, put(key, long+"old")) // not in one line, whose image would be whole
			at := w.copiesOf(key)
			older, lost, other = key, at[0].Blade, at[1].Blade
			continue
		}
		w.sure(se, tx, put(key, "old"))
		at := w.copiesOf(key)
		on := []rdma.BladeID{at[0].Blade, at[1].Blade}
		if slices.Contains(on, lost) && !slices.Contains(on, other) {
			newer = key
		}
	}
	if newer == "" {
		t.Fatal("no other record is on the blade and not on that of its backup")
	}
	ours, own := w.session()
	own.Coro().Sleep(10_000)
	for _, o := range []op{put(older, long+"new"), put(newer, "between"), put(newer, "new")} {
		must(t, w.do(own, o))
		own.Coro().Sleep(10_000) // until its log space may be used again
	}
	must(t, w.f.StopBlade(lost))
	w.arm(k)
	o := w.eng.Recovery()
	o.Steal = true
	_, err := recovery.FailOver(w.newThread().Plain(), o, w.space.DeclareDead(lost))
	if over = !w.disarm(); !over {
		must(t, recovery.Reconnect(w.ctl.Plain(), w.space))
		_, err = recovery.FailOver(w.ctl.Plain(), o, nil)
	}
	must(t, err)
	_, err = recovery.Sweep(w.ctl.Plain(), o)
	must(t, err)
	what := fmt.Sprintf("stopped after %d verbs", k)
	w.check(what)
	if v, ok := w.space.Verdict(ours.Coordinator()); !ok || v.Of(own.ID().Seq()) != layout.OutcomeCommitted {
		t.Errorf("%s: %v is committed, its verdict is %+v", what, own.ID(), v)
	}
	third, tx := w.session()
	if got := w.values(third, tx, older, newer); got[0] != long+"new" || got[1] != "new" {
		t.Errorf("%s: %.9q", what, got)
	}
	return over
}
