package region

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Lines are where lanes announce that they execute, and what waits for them when keys change. Those
// of a Config are of several processes; without, they are of this one. Safe for concurrent use.
type Lines interface {
	// Take returns the word in which a new lane announces itself: it is odd while the lane
	// executes, and another number each time. It lies outside the Go heap, and nothing else
	// on its cache line is written often. own may be it: an even one in memory of the lane.
	// fenced: a lane must announce itself with memory fences.
	Take(own *uint64) (word *uint64, fenced bool, err error)
	// Leave gives a word back, which is even.
	Leave(word *uint64)
	// Settle returns when no request is in progress that was let in by the control words as
	// they were before. After an error some may be. It does not wait for longer than ctx.
	Settle(ctx context.Context) error
}

// own are the lines of a process that has its regions alone.
type own struct {
	barrier barrier
	mu      sync.RWMutex
	words   map[*uint64]struct{}
}

func newOwn() *own {
	o := &own{words: map[*uint64]struct{}{}}
	o.barrier.init()
	return o
}

// Take returns own.
func (o *own) Take(own *uint64) (word *uint64, fenced bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.words[own] = struct{}{}
	return own, !o.barrier.asymmetric, nil
}

// Leave forgets a word.
func (o *own) Leave(word *uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.words, word)
}

// Settle waits for each lane that is executing, at most a chunk of requests long, whatever ctx is.
func (o *own) Settle(context.Context) error {
	o.mu.RLock()
	defer o.mu.RUnlock()
	o.barrier.all()
	for w := range o.words {
		for n := atomic.LoadUint64(w); n%2 == 1 && atomic.LoadUint64(w) == n; {
			runtime.Gosched()
		}
	}
	return nil
}
