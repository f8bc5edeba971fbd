package rdmatest

// event is something that happens at a virtual time.
type event struct {
	at  int64
	seq uint64 // events of one time happen in the order in which they were planned
	run func()
}

// before is the order in which events happen.
func (e *event) before(x *event) bool { return e.at < x.at || e.at == x.at && e.seq < x.seq }

// eventHeap is a binary heap with the next event first. It is not container/heap, whose
// interface allocates for every event: runs spend a sixth of their time there.
type eventHeap []event

func (h *eventHeap) push(e event) {
	s := append(*h, e)
	*h = s
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&s[parent]) {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = e
}

// pop takes the next event out of a heap that is not empty.
func (h *eventHeap) pop() event {
	s := *h
	first, last := s[0], s[len(s)-1]
	s[len(s)-1].run = nil
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if child+1 < len(s) && s[child+1].before(&s[child]) {
			child++
		}
		if !s[child].before(&last) {
			break
		}
		s[i] = s[child]
		i = child
	}
	s[i] = last
	return first
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
	k.events.push(event{max(t, k.now), k.seq, run})
}

// step lets the next event happen; false: there is none.
func (k *clock) step() bool {
	if len(k.events) == 0 {
		return false
	}
	e := k.events.pop()
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
