package sim

import (
	"math/rand/v2"
	"testing"
)

// The wheel against the heap: events come out in the same order, whatever the
// distances, and whenever they were pushed.
func TestQueueAgainstHeap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var q eventQueue
		var h eventHeap
		var seq uint64
		for range 20_000 {
			if n := len(h); n == 0 || rng.IntN(100) < 52 && n < 3000 {
				seq++
				reach := int64(1) << rng.IntN(40)
				e := event{t: q.now + rng.Int64N(reach), seq: seq, arg: seq * 3}
				q.push(e)
				h.push(e)
				continue
			}
			if got, want := q.next(), h[0].t; got != want {
				t.Fatalf("seed %d: next event at %d, want %d", seed, got, want)
			}
			if q.next() > q.now && rng.IntN(10) == 0 {
				q.turn(q.now + rng.Int64N(q.next()-q.now+1))
			}
			if got, want := q.pop(), h.pop(); got != want {
				t.Fatalf("seed %d: popped %v, want %v", seed, got, want)
			}
		}
		odd := 0
		for _, e := range h {
			odd += int(e.seq & 1)
		}
		q.filter(func(e event) bool { return e.seq&1 == 1 })
		if q.len() != odd || len(q.all()) != odd {
			t.Fatalf("seed %d: %d events left behind a filter, want %d", seed, q.len(), odd)
		}
		for last := int64(0); q.len() > 0; {
			e := q.pop()
			if e.seq&1 == 0 || e.t < last {
				t.Fatalf("seed %d: popped %v after time %d", seed, e, last)
			}
			last = e.t
		}
		if q.next() != forever {
			t.Fatal("an empty queue has a next event")
		}
	}
}
