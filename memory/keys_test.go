package memory_test

import (
	"errors"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// key says which key of a blade opens it at present.
func (b *bed) key(blade rdma.BladeID) rdma.Key { return b.inner.Blades()[blade].Key }

// opens reports whether a key opens a blade.
func (b *bed) opens(blade rdma.BladeID, k rdma.Key) bool {
	b.tb.Helper()
	t := must(rdma.NewThread(b.inner, rdma.ThreadOptions{Arena: 4096}))(b.tb)
	defer t.Close()
	var batch rdma.Batch
	batch.Read(rdma.RemoteAddr{Blade: blade, Key: k}, 0, 8)
	err := t.Plain().Do(&batch)
	if err != nil && !errors.Is(err, rdma.ErrStaleKey) {
		b.tb.Fatal(err)
	}
	return err == nil
}

// TestKeysOfTheDead: a process dies while it changes the epoch. Before the catalog is changed
// nothing has happened, and the keys that it was granted end with the next epoch. After that
// the epoch is made, and Open has to end the keys before: until then they open those blades
// that were not told.
func TestKeysOfTheDead(t *testing.T) {
	const blades = 3
	for steps := range 2*blades + 2 {
		b := newBed(t, blades, 4, 1)
		s, _ := b.open()
		old := s.View()
		var granted []rdma.Key
		b.fabric.granting = func(blade rdma.BladeID) error {
			granted = append(granted, 0)
			return nil
		}
		st := &stop{left: steps}
		b.fabric.stop, b.cat.stop = st, st
		err := s.AdvanceEpoch(nil)
		if done := steps == 2*blades+1; done != (err == nil) {
			t.Fatalf("stopped after %d steps: %v", steps, err)
		}
		if len(granted) != min(steps, blades) {
			t.Fatalf("stopped after %d steps: %d keys were granted", steps, len(granted))
		}
		told := steps - blades - 1 // blades that have revoked
		for blade := range rdma.BladeID(blades) {
			if open := b.opens(blade, old.Key(blade)); open != (int(blade) >= told) {
				t.Errorf("stopped after %d steps: the key before opens blade %d: %v", steps, blade, open)
			}
		}
		b.crash()
		s, c := b.open()
		want := old.Epoch
		if told >= 0 {
			want++
		}
		if got := s.View().Epoch; got != want {
			t.Errorf("stopped after %d steps: epoch %d, want %d", steps, got, want)
		}
		for blade := range rdma.BladeID(blades) {
			k := s.View().Key(blade)
			if same := k == old.Key(blade); same != (want == old.Epoch) || k != b.key(blade) || !b.opens(blade, k) {
				t.Errorf("stopped after %d steps: blade %d has key %d, the epoch %d, the one before %d",
					steps, blade, b.key(blade), k, old.Key(blade))
			}
			if want > old.Epoch && b.opens(blade, old.Key(blade)) {
				t.Errorf("stopped after %d steps: opened again, and the key before opens blade %d", steps, blade)
			}
		}
		check(t, s.AdvanceEpoch(nil))
		for blade := range rdma.BladeID(blades) {
			if k := s.View().Key(blade); k != b.key(blade) {
				t.Errorf("stopped after %d steps: the next epoch has key %d, and %d opens blade %d",
					steps, k, b.key(blade), blade)
			}
		}
		check(t, s.Close(c))
	}
}

// TestRaceForTheEpoch: two processes change the epoch, and one of them does not know of the other's
// change. Its keys are named nowhere; it loads the catalog and makes the next epoch, with others.
// Late calls with keys of earlier epochs end nothing, and the winner follows.
func TestRaceForTheEpoch(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	winner, c := b.open()
	loser, _ := b.open()
	first := loser.View()
	check(t, winner.AdvanceEpoch(nil))
	second := winner.View()
	var granted [2][]rdma.Key
	b.fabric.Fabric = &spy{b.inner, func(blade rdma.BladeID, k rdma.Key) { granted[blade] = append(granted[blade], k) }}
	check(t, loser.AdvanceEpoch(nil))
	b.fabric.Fabric = b.inner
	v := loser.View()
	if v.Epoch != first.Epoch+2 {
		t.Errorf("epoch %d after %d", v.Epoch, first.Epoch)
	}
	for blade := range rdma.BladeID(2) {
		if len(granted[blade]) != 2 || granted[blade][1] != v.Key(blade) || v.Key(blade) != b.key(blade) {
			t.Errorf("blade %d has granted %d and has %d, the epoch %d",
				blade, granted[blade], b.key(blade), v.Key(blade))
		}
		for _, old := range []rdma.Key{first.Key(blade), second.Key(blade), granted[blade][0]} {
			if b.opens(blade, old) {
				t.Errorf("blade %d: the key %d of an earlier epoch, or of none, opens it", blade, old)
			}
			if err := b.fabric.Revoke(blade, old); !errors.Is(err, rdma.ErrStaleKey) {
				t.Errorf("blade %d: revoked by %d: %v", blade, old, err)
			}
		}
	}
	check(t, winner.Follow())
	for blade := range rdma.BladeID(2) {
		if winner.View().Epoch != v.Epoch || winner.View().Key(blade) != v.Key(blade) {
			t.Errorf("blade %d: the winner has epoch %d and key %d", blade, winner.View().Epoch,
				winner.View().Key(blade))
		}
	}
	check(t, winner.Close(c))
}

// spy is told of the keys that are granted.
type spy struct {
	rdma.Fabric
	granted func(rdma.BladeID, rdma.Key)
}

func (s *spy) Grant(b rdma.BladeID) (rdma.Key, error) {
	k, err := s.Fabric.Grant(b)
	s.granted(b, k)
	return k, err
}

// TestRestartWithinChange: a blade restarts while the epoch is changed, at any point. It counts as
// restarted, and no view has a key that opens it.
func TestRestartWithinChange(t *testing.T) {
	for _, at := range []string{"asked", "granting", "revoking"} {
		for _, when := range []rdma.BladeID{0, 1, 2} {
			b := newBed(t, 3, 4, 1)
			s, _ := b.open()
			restart := func(asked rdma.BladeID) error {
				if asked == when {
					return errors.Join(b.inner.StopBlade(1), b.inner.RestartBlade(1, true))
				}
				return nil
			}
			switch at {
			case "granting":
				b.fabric.granting = restart
			case "revoking":
				b.fabric.revoking = restart
			default: // before all of it
				check(t, restart(when))
			}
			err := s.AdvanceEpoch(nil)
			late := at == "revoking" && when == 2 // behind its own
			if late != (err == nil) || err != nil && (!errors.Is(err, rdma.ErrBladeDown) ||
				!strings.Contains(err.Error(), "blade 1") || !strings.Contains(err.Error(), "has restarted")) {
				t.Errorf("restarted while blade %d is %s: %v", when, at, err)
			}
			if v := s.View(); v.Epoch != 2 || !s.Restarted(1) || s.Restarted(0) || s.Restarted(2) {
				t.Errorf("restarted while blade %d is %s: epoch %d, known %v", when, at, v.Epoch, s.Restarted(1))
			}
			if k := s.View().Key(1); b.opens(1, k) {
				t.Errorf("restarted while blade %d is %s: key %d of the epoch opens it", when, at, k)
			}
			b.fabric.granting, b.fabric.revoking = nil, nil
			check(t, s.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(1); return nil }))
			for _, blade := range []rdma.BladeID{0, 2} {
				if !b.opens(blade, s.View().Key(blade)) || s.View().Key(blade) != b.key(blade) {
					t.Errorf("restarted while blade %d is %s: blade %d is not fenced in the next epoch",
						when, at, blade)
				}
			}
		}
	}
}

// TestKeyPushedOut: so many keys are granted between Grant and Revoke that the blade has forgotten
// that of the epoch. The epoch is changed again, and has one.
func TestKeyPushedOut(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	old := s.View()
	for open := range 2 {
		calls := 0
		b.fabric.revoking = func(blade rdma.BladeID) error {
			if calls++; calls == 2 {
				for range rdma.MaxKeys {
					must(b.inner.Grant(blade))(t)
				}
			}
			return nil
		}
		if open == 1 { // of a process that has died before it revoked
			b.fabric.revoking = func(rdma.BladeID) error { return errStopped }
			if err := s.AdvanceEpoch(nil); !errors.Is(err, errStopped) {
				t.Fatal(err)
			}
			b.fabric.revoking = nil
			for range rdma.MaxKeys {
				must(b.inner.Grant(1))(t)
			}
			s, c = b.open()
		} else {
			check(t, s.AdvanceEpoch(nil))
		}
		v := s.View()
		if want := old.Epoch + 2; v.Epoch != want {
			t.Errorf("epoch %d, want %d", v.Epoch, want)
		}
		for blade := range rdma.BladeID(2) {
			if b.opens(blade, old.Key(blade)) || v.Key(blade) != b.key(blade) {
				t.Errorf("blade %d has key %d, the epoch %d, the one before %d",
					blade, b.key(blade), v.Key(blade), old.Key(blade))
			}
		}
		old, b.fabric.revoking = v, nil
	}
	check(t, s.Close(c))
}

// TestReaderAwaitsTheEpoch: a space that only reads does not begin while keys of the epoch before
// open a blade, or when its own has ended.
func TestReaderAwaitsTheEpoch(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, _ := b.open()
	ro := b.opts
	ro.ReadOnly = true
	read := func() error {
		_, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, ro)
		return err
	}
	check(t, read())
	b.fabric.revoking = func(blade rdma.BladeID) error {
		if blade == 1 {
			if err := read(); !errors.Is(err, rdma.ErrStaleKey) || !strings.Contains(err.Error(), "epoch is 2") {
				t.Errorf("before the epoch has begun: %v", err)
			}
		}
		return nil
	}
	check(t, s.AdvanceEpoch(nil))
	b.fabric.revoking = nil
	check(t, read())
	entries, _, err := b.cat.Load()
	check(t, err)
	check(t, s.AdvanceEpoch(nil))
	check(t, read())
	rewrite(t, b.cat, entries)
	if err := read(); !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("by a catalog of an earlier epoch: %v", err)
	}
}

// TestBuriedKeys: a blade is given up offline, in an epoch of its own. Blades that have been up all
// the time do not keep their keys.
func TestBuriedKeys(t *testing.T) {
	b := newBed(t, 3, 4, 1)
	s, c := b.open()
	old := s.View()
	check(t, s.Close(c))
	check(t, layout.DeclareDead(b.cat, 1))
	s, c = b.open()
	for _, blade := range []rdma.BladeID{0, 2} {
		if b.opens(blade, old.Key(blade)) || s.View().Key(blade) != b.key(blade) {
			t.Errorf("blade %d: the key before opens it, or that of the epoch does not", blade)
		}
	}
	if s.View().Key(1) != 0 {
		t.Errorf("a blade that was given up has key %d", s.View().Key(1))
	}
	check(t, s.Close(c))
}
