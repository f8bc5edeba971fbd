package region

import (
	"bytes"
	"errors"
	"fmt"
	"math"

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
		if r.stopped() {
			return nil
		}
		r.stop(nil)
		s.settle()
		return nil
	})
}

// stop lets no more verbs in; r.mu is held.
func (r *region) stop(why error) {
	r.stops++
	r.fault = why
	r.key.Store(r.key.Load() | keyStopped)
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
		// A key that no client has: the one it had is known to all of them.
		z := s.seed + (uint64(b)+1)<<32 + uint64(r.stops)
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		k := uint32(z ^ z>>31)
		if uint64(k) == r.key.Load()&math.MaxUint32 {
			k++
		}
		r.key.Store(uint64(k))
		r.life.Add(1)
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
