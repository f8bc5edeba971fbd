package shm

import (
	"math"
	"sync/atomic"

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

// Claim has a process, by its id and start, take the last line, which announces itself if odd.
func (f *Fabric) Claim(id int, start uint64, odd bool) {
	x := &f.lanes.lines[linesMax-1]
	x.owner.Store(uint64(id)<<startBits | start)
	if odd {
		x.announced |= 1
	}
	f.lanes.header.taken.Store(math.MaxUint64)
}

// Claimed reports whether the last line is taken.
func (f *Fabric) Claimed() bool { return f.lanes.lines[linesMax-1].owner.Load() != 0 }

// Settle is a key fence.
func (f *Fabric) Settle() error { return f.lanes.Settle() }

// StartOf tells when a process started.
var StartOf = startOf

// WithoutBarrier has the processes that open a directory do without membarrier until the function that
// it returns is called.
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
