package memory_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestAdmitBesideChanges: a blade is taken in again while others change the layout: they add
// segments. With -race it is seen that nothing of it is read behind their back.
func TestAdmitBesideChanges(t *testing.T) {
	b := newBed(t, 3, 20, 1)
	s, c := b.open()
	lose(t, b, s, 1)
	w := b.thread()
	quit := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for size := s.MaxExtent(); ; {
			if _, err := s.AllocExtent(w.Plain(), size); err != nil {
				if !errors.Is(err, memory.ErrNoSpace) {
					t.Error(err)
				}
				return
			}
			select {
			case <-quit:
				return
			default:
			}
		}
	})
	check(t, b.inner.RestartBlade(1, true))
	for range 3 { // it stays down
		check(t, s.Admit(c, 1, func() bool { return true }))
	}
	close(quit)
	others.Wait()
	if s.View().Up(1) {
		t.Error("the blade was taken in by who had enough of it")
	}
	check(t, s.Admit(c, 1, nil))
	copyAll(t, c, s)
	alike(t, c, s)
}

// TestAdmitUsesPlacesAgain: blades are lost and taken in again, by one process and another, many
// times. What the copies need there stays the same.
func TestAdmitUsesPlacesAgain(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 3, 20, 1)
	s, c := b.join(0)
	other, oc := b.join(0)
	p := newProcess(t, b, s, c, k)
	p.insert(t, k, 200, map[layout.Addr]bool{})
	check(t, s.CloseCoordinatorOn(c, p.id))
	most := uint32(0)
	for n := range 9 {
		blade := rdma.BladeID(n % 3)
		check(t, other.Follow())
		lose(t, b, s, blade)
		check(t, b.inner.RestartBlade(blade, true))
		check(t, other.Follow())
		check(t, other.Admit(oc, blade, nil))
		check(t, s.Follow())
		check(t, s.AdvanceEpoch(nil)) // what one process knows of cleared places it forgets
		check(t, other.Follow())
		copyAll(t, oc, other)
		check(t, s.Follow())
		used := s.Layout().Blades[blade].Used
		if n == 2 {
			most = used
		}
		if n > 2 && used > most+2 {
			t.Fatalf("blade %d has taken %d places when it was lost %d times, and %d before", blade, used, n/3+1, most)
		}
	}
	alike(t, c, s)
}

// TestDeclareDeadLate: a process finds a blade dead and is paused; another one declares the blade
// dead meanwhile, and takes it in again. What the first has found counts no more: the blade may
// have the last copy of a segment by now.
func TestDeclareDeadLate(t *testing.T) {
	b := newSharedBed(t, 3, 20, 1)
	s, c := b.join(0)
	other, oc := b.join(0)
	p := newProcess(t, b, s, c, 20)
	p.insert(t, 20, 200, map[layout.Addr]bool{})
	check(t, other.Follow())
	late := s.DeclareDead(1)
	lose(t, b, other, 1)
	check(t, b.inner.RestartBlade(1, true))
	check(t, other.Admit(oc, 1, nil))
	copyAll(t, oc, other)
	check(t, s.Follow())
	_, err := s.Claim(memory.ClaimOptions{Steal: true, Change: late}, slices.Collect(ids(s))...)
	if !errors.Is(err, layout.ErrLayout) || !s.View().Up(1) {
		t.Errorf("%v, and it is up: %v", err, s.View().Up(1))
	}
	lose(t, b, s, 1)
	if s.View().Up(1) {
		t.Error("what is found of it now does not count either")
	}
}
