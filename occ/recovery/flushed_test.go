package recovery_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestFlushedWhileBuilding: a thread of no session, as that of a sweep, meets the loss of a blade,
// and goes on without it. When the blade is back, and its copies have been compared, the thread
// changes a word of an index. Its queue pair to the blade is in the error state still, so the copy
// does not get the word from it, and the thread goes on in the same epoch. The copy has the word
// when it counts.
func TestFlushedWhileBuilding(t *testing.T) {
	w := newWorldOn(t, 2, setting{occ.PolicyDefault, 1, strong}, occ.Options{}, 64<<10)
	ctl, c := w.ctl.Plain(), w.newThread().Plain()
	extent, err := w.space.NewExtent(ctl, 4<<10)
	must(t, err)
	a := extent.Addr
	buf, err := c.Thread().Alloc(8)
	must(t, err)
	read := func(copyNo int) (uint64, error) {
		var b rdma.Batch
		b.Read(w.space.ViewOn(c.Thread()).At(a, copyNo), buf, 8)
		err := c.Do(&b)
		return c.Thread().Word(buf), err
	}
	must(t, w.f.StopBlade(1))
	for k := range 2 {
		if _, err := read(k); w.space.View().At(a, k).Blade == 1 && !errors.Is(err, rdma.ErrVerb) {
			t.Fatalf("the blade has stopped: %v", err)
		}
	}
	_, err = recovery.FailOver(ctl, w.eng.Recovery(), w.space.DeclareDead(1))
	must(t, errors.Join(err, recovery.Reconnect(c, w.space)))
	was, err := read(0)
	must(t, errors.Join(err, w.f.RestartBlade(1, false), w.space.Admit(ctl, 1, nil), recovery.Reconnect(ctl, w.space)))
	copier := w.space.NewCopier()
	for p := copier.Progress(); p.Total == 0 || p.Done < p.Total; p = copier.Progress() {
		idle, err := copier.Step(ctl)
		if must(t, err); idle {
			t.Fatal("no copy is being built")
		}
	}
	var b rdma.Batch
	v := w.space.ViewOn(c.Thread())
	b.CAS(v.At(a, 0), was, was+1)
	must(t, c.Do(&b))
	if err := memory.SyncWords(c, v, a, 8); !errors.Is(err, rdma.ErrVerb) {
		t.Fatalf("the queue pair works: %v", err)
	}
	must(t, recovery.Reconnect(c, w.space))
	for idle := false; !idle; {
		idle, err = copier.Step(ctl)
		must(t, err)
	}
	if v := w.space.View(); v.Copies(a) != 2 {
		t.Fatalf("there are %d copies", v.Copies(a))
	}
	must(t, recovery.Reconnect(c, w.space)) // the epoch has moved
	for k := range 2 {
		if got, err := read(k); err != nil || got != was+1 {
			t.Errorf("copy %d has %#x, %v; it was changed to %#x", k, got, err, was+1)
		}
	}
}
