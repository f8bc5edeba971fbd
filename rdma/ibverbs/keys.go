package ibverbs

import (
	"errors"
	"fmt"
	"sync"

	"txnode/internal/eintr"
	"txnode/rdma"
)

// keyring are the access keys of one blade. A key is a registration of the blade's memory: an rkey,
// masked, since a device gives the same rkeys again to the next process. So a key of an earlier
// incarnation opens nothing, but by a chance of 1 in 2^32.
//
// To register a region takes long: the system pins its pages. So one spare registration is made in
// the background, and Grant takes that.
type keyring struct {
	dev    device
	mem    []byte
	rights access
	mask   uint32

	mu     sync.Mutex
	open   []opened          // the oldest first; at most rdma.MaxKeys
	used   map[uint32]bool   // rkeys of this incarnation
	ending []registration    // that Revoke has to end, and could not
	spare  chan registration // has one, or gets one
	closed bool
}

// opened is a key that opens the blade.
type opened struct {
	key rdma.Key
	reg registration
}

// newKeyring grants the first key.
func newKeyring(dev device, mem []byte, rights access, mask uint32) (*keyring, error) {
	k := &keyring{
		dev: dev, mem: mem, rights: rights, mask: mask, used: map[uint32]bool{}, spare: make(chan registration, 1),
	}
	r, err := k.register()
	if err != nil {
		return nil, err
	}
	k.open = []opened{{k.keyOf(r), r}}
	k.prepare()
	return k, nil
}

func (k *keyring) keyOf(r registration) rdma.Key { return rdma.Key(r.remote() ^ k.mask) }

// register makes a registration with an rkey that this incarnation has not had. k.mu is held, or k
// is nobody else's.
func (k *keyring) register() (registration, error) {
	var again []registration // held, so that the device gives others
	defer func() {
		for _, r := range again {
			_ = r.end() // nobody knows its key
		}
	}()
	for range 64 {
		var r registration
		err := eintr.Repeat(func() (err error) {
			r, err = k.dev.register(k.mem, k.rights)
			return err
		})
		if err != nil {
			return nil, err
		}
		if !k.used[r.remote()] && k.keyOf(r) != 0 {
			k.used[r.remote()] = true
			return r, nil
		}
		again = append(again, r)
	}
	return nil, fmt.Errorf("%w: it gives the same keys again and again: start the process anew", ErrDevice)
}

// prepare makes the spare registration in the background.
func (k *keyring) prepare() {
	go func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.closed || len(k.spare) > 0 {
			return
		}
		if r, err := k.register(); err == nil { // else Grant says why not
			k.spare <- r
		}
	}()
}

// oldest is the key that the last Revoke has named, or the first one.
func (k *keyring) oldest() rdma.Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open[0].key
}

func (k *keyring) grant() (rdma.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return 0, rdma.ErrClosed
	}
	if len(k.open) == rdma.MaxKeys {
		if err := k.open[1].reg.end(); err != nil {
			return 0, fmt.Errorf("ibverbs: ending a key that was never used: %w", err)
		}
		k.open = append(k.open[:1], k.open[2:]...)
	}
	var r registration
	select {
	case r = <-k.spare:
	default:
		var err error
		if r, err = k.register(); err != nil {
			return 0, err
		}
	}
	k.open = append(k.open, opened{k.keyOf(r), r})
	k.prepare()
	return k.keyOf(r), nil
}

// revoke ends the keys that are older than before. It has succeeded when their registrations are
// gone.
func (k *keyring) revoke(before rdma.Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := -1
	for i := range k.open {
		if k.open[i].key == before {
			at = i
		}
	}
	if at < 0 {
		return fmt.Errorf("ibverbs: key %#x opens nothing: %w", before, rdma.ErrStaleKey)
	}
	for _, o := range k.open[:at] {
		k.ending = append(k.ending, o.reg)
	}
	k.open = append(k.open[:0], k.open[at:]...)
	return k.end()
}

// end ends what revoke has to end. k.mu is held.
func (k *keyring) end() error {
	var errs []error
	left := k.ending[:0]
	for _, r := range k.ending {
		if err := eintr.Repeat(r.end); err != nil {
			errs = append(errs, err)
			left = append(left, r)
		}
	}
	k.ending = left
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: the device keeps a registration: %w", rdma.ErrUnfenced, err)
	}
	return nil
}

// close ends all keys.
func (k *keyring) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	k.closed = true
	for _, o := range k.open {
		k.ending = append(k.ending, o.reg)
	}
	if len(k.spare) > 0 {
		k.ending = append(k.ending, <-k.spare)
	}
	return k.end()
}
