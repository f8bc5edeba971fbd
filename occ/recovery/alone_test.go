package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestRejoinsAlone: a client dies in the middle of a split, and the only one there is beside it is
// broken since it cannot move its records: nor can the recovery of its own coordinator, before the
// split is finished.
func TestRejoinsAlone(t *testing.T) {
	fill := rejoinsAlone(t, -1, 1000)
	broken, step := 0, byRun(37, 19, 57)
	for stop := 0; ; stop += step {
		switch rejoinsAlone(t, stop, fill) {
		case 0:
			if broken == 0 {
				t.Error("no split was in the way of a session")
			}
			return
		case 2:
			broken++
		}
	}
}

// rejoinsAlone is TestRejoinsAlone of a client that dies after so many verbs of the insert that
// splits the sub-table: the one with the number fill. stop negative: the number is returned; else
// 0: nobody has died, 1: he has, 2: and the other one was broken.
func rejoinsAlone(t *testing.T, stop, fill int) int {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	ix := w.table.Index.(*race.Index)
	ours, own := w.session()
	const keys = 12
	var all, values []string
	var grow []op
	for i := range keys {
		k, v := fmt.Sprint("key ", i), strings.Repeat("v", 300)
		w.sure(ours, own, put(k, "1"))
		all, values, grow = append(all, k), append(values, v), append(grow, put(k, v))
	}
	for i := range fill {
		if w.sure(ours, own, put(fmt.Sprint("new ", i), "1")); stop < 0 && ix.Events().Splits > 0 {
			return i
		}
	}
	own.Coro().Sleep(10_000) // until its locks are released
	dead, dying := w.session()
	w.arm(stop)
	_ = w.do(dying, put(fmt.Sprint("new ", fill), "1"))
	if !w.disarm() {
		return 0
	}
	if err := w.do(own, grow...); err != nil && !errors.Is(err, occ.ErrConflict) && !errors.Is(err, index.ErrBusy) {
		t.Errorf("stop %d: %v", stop, err)
	}
	if ours.Broken() != nil { // while nobody may recover the other one, it does not keep its own from others
		_, err := recovery.Recover(own.Coro(), ours.Recovery(), ours.Coordinator())
		if now := ours.Thread().Now() + 1; errors.Is(err, index.ErrBusy) &&
			!slices.Contains(w.space.Expired(now), ours.Coordinator()) {
			t.Errorf("stop %d: the claim on coordinator %d, who waits for another's split, has not expired",
				stop, ours.Coordinator())
		}
	}
	w.space.Abandon(dead.Coordinator())
	result := 1
	for n := 0; ours.Broken() != nil; n++ {
		result = 2
		if err := ours.Rejoin(own.Coro()); err != nil && n == 3 {
			t.Fatalf("stop %d: %v", stop, err)
		}
	}
	w.sure(ours, own, grow...)
	if got := w.values(ours, own, all...); fmt.Sprint(got) != fmt.Sprint(values) {
		t.Errorf("stop %d: the values are %.8q", stop, got)
	}
	own.Coro().Sleep(10_000)
	w.recover(dead.Coordinator())
	_, err := recovery.FreeDeadExtents(w.ctl.Plain(), w.eng.Recovery())
	must(t, err)
	w.check(fmt.Sprint("stop ", stop))
	return result
}
