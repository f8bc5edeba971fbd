package occ

import (
	"bytes"
	"fmt"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// Bounds on how a block is looked at that cannot be read.
const (
	examineLooks   = 3
	examinePauseNs = 10_000
)

// Examine looks at a block that could not be read although nobody alive seems to have locked
// it. It says something only if the block stays as it is, and whoever has written it
// last was closed, or recovered: nobody will write the rest of it then. The error is
// ErrCorrupt if its checksum does not match, or its guard, and free reports that it is nobody's block,
// so that a slot which leads to it leads nowhere. Otherwise it can be read after all, or
// may be before long. The transaction is not open.
func (tx *Tx) Examine(a memory.Addr) (free bool, err error) {
	s := tx.s
	if s.broken != nil {
		return false, nil // it rejoins first
	}
	s.chores++
	defer func() { s.chores-- }()
	var first record.Image
	size := uint32(record.LineSize)
	for looks := 0; looks < examineLooks; looks++ {
		img, err := tx.look(a, size)
		if err != nil || img == nil {
			return false, err
		}
		need, bad := img.Check(a)
		if uint32(need) > size {
			first, size, looks = nil, uint32(need), -1
			continue
		}
		switch {
		case bad == nil && img.Meta().State() != record.Free && img.Stable(), first != nil && !bytes.Equal(first, img):
			return false, nil
		case img.Guard().Held() && (bad == nil || !tx.gone(img.Guard().Owner())): // what is no record may be locked by nobody who ever was
			return false, nil
		case !tx.gone(img.Version()) || !img.Stable() && !tx.gone(img.Guard().Version()):
			return false, nil
		case looks < examineLooks-1:
		case bad == nil && img.Meta().State() == record.Free:
			return true, nil
		case bad == nil:
			return false, fmt.Errorf("%w: block %v, of version %v, is unlocked at version %v; the database, closed, can be checked, and repaired from another copy", ErrCorrupt, a, img.Version(), img.Guard().Version())
		default:
			return false, fmt.Errorf("%w: block %v: %w, and nobody is writing it; the database, closed, can be checked, and repaired from another copy", ErrCorrupt, a, bad)
		}
		first = img
		tx.c.Sleep(examinePauseNs)
	}
	return false, nil
}

// gone reports whether nobody will write anything more in the name of t's coordinator.
func (tx *Tx) gone(t record.TxID) bool {
	return tx.s.eng.space.Lease(t.Coordinator(), tx.s.thread.Now()) == memory.LeaseGone
}

// look copies the first bytes of a block's primary; nil: they cannot be had now.
func (tx *Tx) look(a memory.Addr, size uint32) (record.Image, error) {
	s, v := tx.s, tx.s.eng.space.ViewOn(tx.s.thread)
	if !v.Valid(a) {
		return nil, nil
	}
	buf, err := s.thread.Alloc(int(size))
	if err != nil {
		return nil, nil // a large block, and little of the arena left: it is looked at another time
	}
	defer s.thread.Free(buf, int(size))
	var b rdma.Batch
	b.Read(v.At(a, 0), buf, size)
	if err := tx.c.Do(&b); err != nil {
		return nil, s.failed(err)
	}
	return bytes.Clone(s.thread.Bytes(buf, size)), nil
}
