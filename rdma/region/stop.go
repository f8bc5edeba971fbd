package region

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"txnode/rdma"
)

var _ rdma.Stopper = (*Set)(nil)

// stoppedError says that blade b, which is stopped, does not answer; r.mu is held.
func (r *region) stoppedError(b rdma.BladeID) error {
	if r.fault != nil {
		return fmt.Errorf("rdma: blade %d is stopped: %w: %w", b, r.fault, rdma.ErrBladeDown)
	}
	return fmt.Errorf("rdma: blade %d is stopped: %w", b, rdma.ErrBladeDown)
}

// StopBlade stops a blade: rdma.Stopper. Its memory, or file, stays mapped.
func (s *Set) StopBlade(b rdma.BladeID) error {
	return s.control(b, func(r *region) error {
		if r.stopped() && !r.attached { // of another process: it may have stopped it, and ended before it had waited
			return nil
		}
		r.fault = nil
		r.stop()
		return s.lines.Settle(context.Background())
	})
}

// Stopped reports whether a blade is stopped, by whichever process.
func (s *Set) Stopped(b rdma.BladeID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.regions[b].stopped()
}

// RestartBlade brings a blade back: rdma.Stopper.
func (s *Set) RestartBlade(b rdma.BladeID, memory bool) error {
	return s.control(b, func(r *region) error {
		if !r.stopped() {
			return nil
		}
		if !memory {
			if err := r.wipe(); err != nil {
				return fmt.Errorf("rdma: blade %d: giving up what its memory held: %w", b, err)
			}
		}
		r.keys.Renew() // those that it had, clients may still have
		r.incarnation.Add(1)
		r.begin()
		return nil
	})
}

// wipe makes all of a region's memory zero.
func (r *region) wipe() error {
	if r.readOnly {
		return nil
	}
	var err error
	return errors.Join(guard(r.mem, func() { err = r.discard() }), err)
}

// clearPages clears the pages that are not zero already: memory that was never
// touched stays untouched.
func clearPages(mem []byte) {
	zero := make([]byte, pageSize)
	for ; len(mem) > 0; mem = mem[min(pageSize, len(mem)):] {
		if p := mem[:min(pageSize, len(mem))]; !bytes.Equal(p, zero[:len(p)]) {
			clear(p)
		}
	}
}
