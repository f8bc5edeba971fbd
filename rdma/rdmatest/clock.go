package rdmatest

import "container/heap"

// event is something that happens at a virtual time.
type event struct {
	at  int64
	seq uint64 // events of one time happen in the order in which they were planned
	run func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	s := *h
	e := s[len(s)-1]
	s[len(s)-1].run = nil
	*h = s[:len(s)-1]
	return e
}

// clock is the virtual time, what will happen, and the threads that wait for it.
// Whoever runs holds it: the body of one thread, or the caller of run between
// two of them. So nothing in this package is locked.
type clock struct {
	now    int64
	seq    uint64
	events eventHeap
	cur    *body         // the thread that runs; nil outside run
	baton  chan struct{} // given back to run by the thread that waits or ends
}

// body is a thread of Fabric.Run.
type body struct {
	resume chan struct{}
	turn   uint64 // changes whenever the thread is resumed: stale alarms are ignored
}

// at plans run for the given time, or now if that is past.
func (k *clock) at(t int64, run func()) {
	k.seq++
	heap.Push(&k.events, event{max(t, k.now), k.seq, run})
}

// step lets the next event happen; false: there is none.
func (k *clock) step() bool {
	if len(k.events) == 0 {
		return false
	}
	e := heap.Pop(&k.events).(event)
	k.now = e.at
	e.run()
	return true
}

// run executes fn(0) ... fn(n-1), one at a time, until all have returned.
func (k *clock) run(n int, fn func(i int)) {
	if k.cur != nil {
		panic("rdmatest: Fabric.Run inside Fabric.Run")
	}
	k.baton = make(chan struct{})
	left := n
	for i := range n {
		b := &body{resume: make(chan struct{})}
		go func() {
			<-b.resume
			defer func() { // also when fn ends its goroutine
				left--
				k.baton <- struct{}{}
			}()
			fn(i)
		}()
		k.at(k.now, func() { k.resume(b) })
	}
	for left > 0 {
		if !k.step() {
			panic("rdmatest: every thread waits, and nothing is outstanding")
		}
	}
}

// resume lets a thread run until it waits or ends.
func (k *clock) resume(b *body) {
	b.turn++
	k.cur = b
	b.resume <- struct{}{}
	<-k.baton
	k.cur = nil
}

// wait lets time pass, at most until the given time, and returns early, perhaps
// without need, when something happened for which wake was called.
func (k *clock) wait(until int64, wake *func()) {
	b := k.cur
	if b == nil { // outside run: be the event loop
		if len(k.events) > 0 && k.events[0].at <= until {
			k.step()
		} else if until == forever {
			panic("rdmatest: waiting for ever, and nothing is outstanding")
		} else {
			k.now = max(k.now, until)
		}
		return
	}
	turn := b.turn
	alarm := func() {
		if b.turn == turn {
			k.resume(b)
		}
	}
	if until != forever {
		k.at(until, alarm)
	}
	*wake = func() {
		*wake = nil
		k.at(k.now, alarm)
	}
	k.baton <- struct{}{}
	<-b.resume
	*wake = nil
}
