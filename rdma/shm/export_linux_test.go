package shm

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Interrupted takes a lane and calls fn while that announces itself, as in the middle of a batch.
func Interrupted(f *Fabric, fn func()) {
	word, _, err := f.lanes.Take(nil)
	if err != nil {
		panic(err)
	}
	atomic.AddUint64(word, 1)
	fn()
	atomic.AddUint64(word, 1)
	f.lanes.Leave(word)
}

// Lanes counts the lines that are taken in a directory.
func (f *Fabric) Lanes() (n int) {
	for i := range f.lanes.lines {
		if f.lanes.lines[i].owner.Load() != 0 {
			n++
		}
	}
	return n
}

// LanesMax is how many lanes a directory has.
const LanesMax = linesMax

// LanesSize is the size of the file of lanes.
const LanesSize = lanesSize

// Claim has a member take the last line, which announces itself if odd, and says that it is of a
// process.
func (f *Fabric) Claim(m uint64, process int, odd bool) {
	x := &f.lanes.lines[linesMax-1]
	x.owner.Store(m)
	x.process.Store(uint64(process))
	x.announced += 2
	if odd {
		x.announced |= 1
	}
	f.lanes.header.taken.Store(math.MaxUint64)
}

// Claimed reports whether the last line is taken.
func (f *Fabric) Claimed() bool { return f.lanes.lines[linesMax-1].owner.Load() != 0 }

// Settle is a key fence.
func (f *Fabric) Settle(ctx context.Context) error { return f.lanes.Settle(ctx) }

// Join has another member of a directory, which is no client of a server, until end.
func Join(dir string) (m uint64, end func() error, err error) {
	l, err := openLanes(dir, false, DefaultControl)
	if err != nil {
		return 0, nil, err
	}
	return uint64(l.me), l.close, nil
}

// WithoutBarrier has the processes that open a directory do without membarrier until the function
// that it returns is called.
func WithoutBarrier() (restore func()) {
	was := registerBarrier
	registerBarrier = func() error { return unix.ENOSYS }
	return func() { registerBarrier = was }
}

// SetFallocate replaces what reserves space for files until the function that it returns is called.
func SetFallocate(fn func(fd int, mode uint32, off, n int64) error) (restore func()) {
	was := fallocate
	fallocate = fn
	return func() { fallocate = was }
}

// Clients counts the clients that a server knows.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// MaxRefused is how many connections are told at a time why they are refused.
const MaxRefused = maxRefused

// Stopped reports whether the first blade is stopped.
func (f *Fabric) Stopped() bool { return f.set.Stopped(0) }

// SetKillWait replaces how long a fence waits for a client that was killed until the function that
// it returns is called.
func SetKillWait(d time.Duration) (restore func()) {
	was := killWait
	killWait = d
	return func() { killWait = was }
}
