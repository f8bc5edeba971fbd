package ibverbs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
	"time"
)

// forever is a time that never comes.
const forever = math.MaxInt64

// sleeper has a goroutine wait for completions without a thread of the system: the channel of the
// completion queue is in Go's network poller.
type sleeper struct {
	p     *port
	file  *os.File
	raw   syscall.RawConn
	start time.Time // of the port's clock
	armed int64     // the deadline that file has
	ready func(fd uintptr) bool
}

func newSleeper(p *port) (*sleeper, error) {
	fd, err := p.queue.channel()
	if err != nil {
		return nil, err
	}
	s := &sleeper{p: p, file: os.NewFile(uintptr(fd), "completions"), armed: forever}
	s.start = time.Now().Add(-time.Duration(p.Now()))
	s.ready = func(uintptr) bool { return s.look() }
	if s.raw, err = s.file.SyscallConn(); err == nil {
		err = s.file.SetReadDeadline(time.Time{}) // an error: the network poller does not have it
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ibverbs: waiting for completions: %w", err), s.file.Close())
	}
	return s, nil
}

// look takes events from the channel, asks for the next one, and completes what is there; true:
// something.
func (s *sleeper) look() bool {
	p := s.p
	p.queue.drain()
	if err := p.queue.arm(); err != nil {
		time.Sleep(time.Millisecond) // the device is gone, which expire finds out
		return true
	}
	return p.reap()
}

// sleep returns when something has completed, or at the time, or before.
func (s *sleeper) sleep(until int64) {
	// To set the deadline costs as much as a few verbs, so one that is earlier stays.
	if s.armed > until || s.armed <= s.p.Now() {
		s.armed = until
		_ = s.file.SetReadDeadline(s.start.Add(time.Duration(until))) // it had one before
	}
	_ = s.raw.Read(s.ready) // an error is that the time has come
}

func (s *sleeper) close() error { return s.file.Close() }
