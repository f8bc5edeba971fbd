package race

import (
	"errors"
	"iter"
	"testing"

	"txnode/index"
	"txnode/rdma"
)

// turnBack has client 1 insert a key, which splits a sub-table, and client 3 recover the index
// from nobody, before verb n of that. Both are slow: the first compare-and-swap of client 3, with
// which it turns back a copy that was ahead, comes when client 1 is done. It is its last one.
// done: there are fewer verbs.
func (r *lossy) turnBack(n, last int) (done bool) {
	r.t.Helper()
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		r.f.Before(2, func(w *rdma.WR) {
			if w.Op == rdma.OpCAS {
				r.f.Before(2, nil)
				r.f.Stop(2, 1)
				yield(struct{}{})
			}
		})
		_ = r.ix[2].Recover(r.k[2].C, func(uint64) bool { return false })
	})
	defer stop()
	verbs := 0
	r.f.Before(0, func(*rdma.WR) {
		if verbs == n {
			next()
		}
		verbs++
	})
	if err := r.insert(r.k[0], last); err != nil {
		r.t.Fatalf("verb %d: %v", n, err)
	}
	r.fate[last] = there
	r.f.Before(0, nil)
	next()
	r.f.Stop(2, -1) // for what the test looks at
	return verbs <= n
}

// TestTurnedBackLate: a recoverer meets a copy of a sub-table that is ahead, since somebody who
// splits it clears slots on the backups first, and turns it back when the splitter has released
// the lock. Before the copies are compared once more, the primary is lost. No slot stays
// marked, or leads to another key's block, whoever comes next: one who recovers, or one who
// splits the sub-table again.
func TestTurnedBackLate(t *testing.T) {
	stepwise(t)
	last := splitAt(t)
	for _, mode := range []string{"recovered", "used again", "split again"} {
		t.Run(mode, func(t *testing.T) {
			turned := 0
			for n := 0; ; n++ {
				r := &lossy{t: t, rig: newRig(t, 2, last), fate: map[int]fate{}}
				for i := range last {
					r.fate[i] = there
				}
				if r.turnBack(n, last) {
					break
				}
				d, err := r.ix[1].readDirectory(r.k[1].C, nil)
				if err != nil {
					t.Fatal(err)
				}
				if p := r.m.Copies(t, r.k[1].C.Thread(), d.entries[0].Table(),
					r.ix[1].size); string(p[0]) == string(p[1]) {
					continue
				}
				turned++
				if mode != "recovered" {
					r.goOn(1)
				}
				r.m.Lose(0)
				if mode == "split again" {
					for i := range 60 {
						r.fate[5000+i] = there
						// a change of the dead is in the way
						if err := r.insert(r.k[1], 5000+i); errors.Is(err, index.ErrBusy) {
							r.fate[5000+i] = open
						} else if err != nil {
							t.Fatalf("verb %d: %v", n, err)
						}
					}
				}
				r.recover(-1)
				r.look(1)
				r.linkedOnce(t, n)
				r.end()
				if t.Failed() {
					t.Fatalf("verb %d", n)
				}
			}
			if turned < 5 {
				t.Errorf("%d copies were turned back", turned)
			}
		})
	}
}
