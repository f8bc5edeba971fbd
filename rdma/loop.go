package rdma

// Driver is a Port whose fabric can let the coroutines of Thread.Run take their turns
// on the goroutine on which it runs everything else, as a simulator does: that saves
// two switches of goroutines, there and back, each time that a thread waits.
type Driver interface {
	Port
	// Drive runs a loop to its end, or panics with what a coroutine has panicked with. It
	// returns false, and has done nothing, when the port cannot.
	Drive(l *Loop) bool
}

// Loop is the turns that the coroutines of a Thread.Run take. Its methods are for the Driver. The
// Driver calls Run repeatedly. As Run says, it then calls Poll or Wait of the Port, or something of
// the same effect, and then After.
type Loop struct {
	t    *Thread
	cur  *Coro // runs, or was interrupted by Hang
	hung bool
}

// LoopState is what has to happen next.
type LoopState uint8

// States of a Loop.
const (
	LoopPoll LoopState = iota // a coroutine waits or has returned: Poll, After and Run
	LoopIdle                  // none is ready: Wait(Until), After and Run
	LoopHung                  // the one that runs called Hang: Run, when it is to go on
	LoopDone                  // all have returned
)

// Run lets the coroutine that has been ready longest run until it waits, or the one that
// hangs go on.
func (l *Loop) Run() LoopState {
	c := l.cur
	if c == nil {
		if l.t.live == 0 {
			return LoopDone
		}
		if c = l.t.ready.pop(); c == nil {
			return LoopIdle
		}
		l.cur = c
	}
	c.next()
	if l.hung {
		l.hung = false
		return LoopHung
	}
	l.cur = nil
	return LoopPoll
}

// Until is when the first of the coroutines that sleep is to be woken.
func (l *Loop) Until() int64 {
	if s := l.t.sleepers; len(s) > 0 {
		return s[0].wake
	}
	return forever
}

// After takes note of the time.
func (l *Loop) After() {
	l.t.tick()
	if len(l.t.sleepers) > 0 {
		l.t.wakeSleepers()
	}
}

// Hang interrupts the coroutine that runs, in the middle of a call of its port: the Run
// in progress returns LoopHung, and the next one makes Hang return: false when
// the coroutine is being unwound.
func (l *Loop) Hang() bool {
	l.hung = true
	return l.cur.yield(struct{}{})
}
