package memory_test

import (
	"errors"
	"sync"
	"testing"

	"txnode/memory"
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
