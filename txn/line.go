package txn

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"txnode/memory"
)

// Transactions of this process that have met a conflict over one record again and again wait for it in a line, and try one
// after another. Were each of several hundred to try whenever it likes, hardly any attempt would find the record free, and
// some would be the last of their transactions before they do.
//
//  1. A transaction joins the line after patientAfter conflicts in a row, or at its first one if there is a line. The transaction
//     whose turn it is tries at once, and after each conflict, until it has ended. Then the turn passes on.
//  2. The oldest transaction is next, not the one that came first: a transaction that needs several such records goes from
//     line to line, and is soon the oldest everywhere.
//  3. No transaction has a place in two lines, and none that waits holds a lock of its own. But what a line waits for may wait for
//     it, when transactions are nested. So while a line stands still, its transactions spend attempts as if they made them,
//     and one of them at a time makes one. When the line goes on these do not count.
//  4. A worker whose last transaction has locked the record lets one turn pass before its next one, or would be faster.
//
// A line orders transactions of one process. Others are competed with by attempts alone, and correctness depends on none of it.
type lines struct {
	open atomic.Int32 // how many there are: all that a transaction looks at before it has met a conflict
	mu   sync.Mutex
	of   map[memory.Addr]*line
	ages uint64
}

// line is the transactions that wait for a record, under lines.mu.
type line struct {
	turn    *place
	waiting []*place // by age
	passing []*place // workers that let one turn pass
	turns   uint64   // that have ended with something done
	tried   int64    // when one that waits has made an attempt
}

// place is a worker's, in a line or in none, and the worker's own.
type place struct {
	in     *line       // nil: none
	at     memory.Addr // of its record
	age    uint64      // of the transaction; 0: that has been in no line yet
	tries  int         // since it was its turn
	seen   uint64      // line.turns when the line went on last
	idle   int         // attempts that were spent since then
	unmade int         // attempts of the transaction that were spent and not made
	wake   chan struct{}
	timer  *time.Timer
}

// A transaction that waits looks after stillNs, and so much more for each that waits, whether the line stands still. A
// coroutine looks every pollNs whether it is its turn, since the others of its thread have to run.
const (
	stillNs     = 2_000_000
	stillEachNs = 100_000
	passNs      = 2_000_000
	pollNs      = 100_000
)

// lineUp waits, after the transaction has met its conflict number attempt over the record at a (0: none that is known), until it is
// to try again. It returns how many attempts more have been spent than are made; less than 0: not all that are made count.
func (w *Worker) lineUp(a memory.Addr, attempt int) (spent int) {
	p := w.place
	if p != nil && p.in != nil && a != 0 && p.at != a {
		w.leave(false)
	}
	if (p == nil || p.in == nil) && a != 0 && (attempt >= patientAfter || w.db.lines.open.Load() > 0) {
		w.join(a, attempt < patientAfter)
		p = w.place
	}
	if p == nil || p.in == nil {
		w.backOff(attempt - patientAfter)
		return 0
	}
	l := &w.db.lines
	if l.isTurn(p) {
		w.backOff(p.tries)
		p.tries++
		return 0
	}
	w.coro.BeginOp() // the backoff begins anew when it is its turn
	for {
		l.mu.Lock()
		n := int64(len(p.in.waiting))
		l.mu.Unlock()
		try := w.await(p, stillNs+n*stillEachNs, func() bool { return l.isTurn(p) }) || w.tx.ctx.Err() != nil
		l.mu.Lock()
		x := p.in
		if x.turns != p.seen {
			spent -= p.idle
			p.seen, p.idle = x.turns, 0
		} else if !try {
			k := 1 + int(n*stillEachNs/stillNs)
			spent += k
			p.idle += k
			if now := w.thread.Now(); now-x.tried >= stillNs || attempt+spent >= w.db.opts.Retries {
				try, x.tried = true, now
				p.idle++
			}
		}
		l.mu.Unlock()
		if try {
			p.unmade += spent
			return spent
		}
	}
}

// isTurn reports whether it is the turn of a place.
func (l *lines) isTurn(p *place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.in.turn == p
}

// backOff is the wait of a transaction that is in nobody's way after n conflicts too many.
func (w *Worker) backOff(n int) {
	w.coro.Backoff()
	if n >= 0 {
		// Drawn: two transactions that wait equally long meet again, for ever.
		d := min(backoffStepNs<<min(n/patientAfter, 16), backoffLimitNs)
		w.coro.Sleep(d/2 + int64(w.thread.Rand()%uint64(d)))
	}
}

// seat is the worker's place, which it has from its first line on.
func (w *Worker) seat() *place {
	if w.place == nil {
		w.place = &place{wake: make(chan struct{}, 1)}
	}
	select {
	case <-w.place.wake: // of an earlier wait
	default:
	}
	return w.place
}

// join has the worker take its place in the line of a record, which begins with it, unless only one that is there counts.
func (w *Worker) join(a memory.Addr, there bool) {
	l := &w.db.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.of[a]
	if x == nil {
		if there {
			return
		}
		x = &line{}
		if l.of == nil {
			l.of = map[memory.Addr]*line{}
		}
		l.of[a] = x
		l.open.Add(1)
	}
	p := w.seat()
	if p.age == 0 {
		l.ages++
		p.age = l.ages
	}
	p.in, p.at, p.tries, p.seen, p.idle = x, a, 0, x.turns, 0
	if x.turn == nil {
		x.turn = p
		return
	}
	i, _ := slices.BinarySearchFunc(x.waiting, p, func(a, b *place) int { return int(int64(a.age - b.age)) }) //nolint:gosec // of few that wait
	x.waiting = slices.Insert(x.waiting, i, p)
}

// leave has the worker leave its line; done: the record was to be had.
func (w *Worker) leave(done bool) {
	l, p := &w.db.lines, w.place
	l.mu.Lock()
	defer l.mu.Unlock()
	x := p.in
	if done {
		x.turns++
	}
	if x.turn == p {
		x.turn = nil
		if len(x.waiting) > 0 {
			x.turn = x.waiting[0]
			x.waiting = slices.Delete(x.waiting, 0, 1)
			x.turn.signal()
		}
		for _, q := range x.passing {
			q.signal()
		}
		x.passing = x.passing[:0]
	} else {
		x.waiting = slices.DeleteFunc(x.waiting, func(q *place) bool { return q == p })
	}
	if x.turn == nil {
		delete(l.of, p.at)
		l.open.Add(-1)
	}
	p.in = nil
}

// endLine ends the transaction's place in a line.
func (w *Worker) endLine(err error) {
	if w.place.in != nil {
		w.leave(!errors.Is(err, ErrConflict))
	}
	w.place.age, w.place.unmade = 0, 0
}

// letPass waits before a transaction begins, if the worker's last one has locked a record that others wait for: until one of them
// has had its turn, but not for long.
func (w *Worker) letPass() {
	l := &w.db.lines
	var in *line
	l.mu.Lock()
	w.o.LastLocked(func(a memory.Addr) bool {
		in = l.of[a]
		return in == nil
	})
	if in == nil {
		l.mu.Unlock()
		return
	}
	p := w.seat()
	in.passing = append(in.passing, p)
	l.mu.Unlock()
	w.await(p, passNs, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !slices.Contains(in.passing, p)
	})
	l.mu.Lock()
	in.passing = slices.DeleteFunc(in.passing, func(q *place) bool { return q == p })
	l.mu.Unlock()
}

// signal wakes the worker of a place.
func (p *place) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// await waits for what wakes the place, which is when woken reports so, for at most ns nanoseconds, and reports whether that has come.
func (w *Worker) await(p *place, ns int64, woken func() bool) bool {
	if w.coro != w.thread.Plain() || !w.db.fabric.Caps().RealTime {
		for until := w.thread.Now() + ns; w.thread.Now() < until && !woken(); {
			w.coro.Sleep(pollNs)
		}
		return woken()
	}
	w.thread.Push()
	if p.timer == nil {
		p.timer = time.NewTimer(time.Duration(ns))
	} else {
		p.timer.Reset(time.Duration(ns))
	}
	defer p.timer.Stop()
	var ended <-chan struct{}
	if w.tx != nil && w.tx.ctx != nil {
		ended = w.tx.ctx.Done()
	}
	select {
	case <-p.wake:
	case <-ended:
	case <-p.timer.C:
		w.session.Reply()
	}
	return woken()
}
