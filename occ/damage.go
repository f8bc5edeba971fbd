package occ

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Bounds on how a block is looked at that cannot be read.
const (
	examineLooks   = 3
	examinePauseNs = 10_000
)

// Examine looks at a block that could not be read although nobody alive seems to have locked it.
// It says something only if the block stays as it is, and whoever has written it last was closed,
// or recovered: nobody will write the rest of it then. The error is ErrCorrupt if its checksum
// does not match, or its guard, and free reports that it is nobody's block, so that a slot which
// leads to it leads nowhere. Otherwise it can be read after all, or may be before long. The
// transaction is not open.
func (tx *Tx) Examine(a layout.Addr) (free bool, err error) {
	s := tx.s
	if s.broken != nil {
		return false, nil // it rejoins first
	}
	s.background++
	defer func() { s.background-- }()
	var first record.Image
	size := uint32(record.LineSize)
	for looks := 0; looks < examineLooks; looks++ {
		img, err := tx.look(a, 0, size)
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
		case img.Guard().Held() && bad == nil:
			return false, nil
		case tx.writing(a, img, bad):
			return false, nil
		case looks < examineLooks-1:
		case bad == nil && img.Meta().State() == record.Free:
			return true, nil
		case bad == nil:
			return false, fmt.Errorf("%w: block %v, of version %v, is unlocked at version %v; the database, closed, "+
				"can be checked, and repaired from another copy", ErrCorrupt, a, img.Version(), img.Guard().Version())
		default:
			return false, fmt.Errorf("%w: block %v: %w, and nobody is writing it; the database, closed, can be "+
				"checked, and repaired from another copy", ErrCorrupt, a, bad)
		}
		first = img
		tx.c.Sleep(examinePauseNs)
	}
	return false, nil
}

// writing reports whether somebody who is alive may be at a block that was the same in some looks:
// who has written it last, or has locked it, who may never have been where it is no record.
func (tx *Tx) writing(a layout.Addr, img record.Image, bad error) bool {
	version, guard := img.Version(), record.TxID(img.Guard())&^record.HeldBit
	switch {
	case tx.gone(version) && tx.gone(guard):
		return false
	case bad == nil && img.Meta().State() == record.Free:
		return true
	}
	return !tx.ownersDeny(a, [2]uint64{uint64(version), uint64(img.Guard())}, version, guard)
}

// gone reports whether t's coordinator has ended, so that nothing more is written in its name. It
// may have to ask the catalog.
func (tx *Tx) gone(t record.TxID) bool {
	now := tx.s.thread.Now()
	gone := errors.New("gone")
	err := tx.c.Await(func() error {
		if tx.s.eng.space.Lease(t.Coordinator(), now) == memory.LeaseGone {
			return gone
		}
		return nil
	}, nil)
	return err == gone //nolint:errorlint // it is that, or the context has ended, and it is not known
}

// Contradicted reports whether a block that Examine has found free, and to which a slot still
// leads, is damaged. It is if another copy has a record there, and the writer of that is gone or
// the primary is wiped. It also is if another copy is damaged; and without backups, as no
// placeholder is lost without its slot then. While something may be left of a dead client it says
// no. The transaction is not open.
func (tx *Tx) Contradicted(a layout.Addr) (bool, error) {
	s := tx.s
	space := s.eng.space
	if !space.Tidy() || space.FailoverPending() || s.broken != nil {
		return false, nil
	}
	s.background++
	defer func() { s.background-- }()
	v := space.ViewOn(s.thread)
	damaged := space.Single()
	// A block is written before a slot leads to it. So one that looks unused was wiped.
	unused := false
	if img, err := tx.look(a, 0, record.LineSize); err != nil || img == nil {
		return false, err
	} else if wiped(img) {
		unused = true
	}
	for k := 1; v.Valid(a) && k < v.Copies(a); k++ {
		size := uint32(record.LineSize)
		img, err := tx.look(a, k, size)
		if err != nil || img == nil {
			return false, err
		}
		need, bad := img.Check(a)
		if uint32(need) > size {
			if img, err = tx.look(a, k, uint32(need)); err != nil || img == nil {
				return false, err
			}
			_, bad = img.Check(a)
		}
		if bad == nil && img.Meta().State().Valued() && img.Stable() && (unused || tx.gone(img.Version())) {
			return true, nil
		}
		damaged = damaged || bad != nil && img.Meta().State() != record.Free
	}
	return damaged, nil
}

// contradicted is ErrCorrupt if a block to which a slot has led in every look of this attempt
// and of the one before is free in both, and contradicted.
func (tx *Tx) contradicted(a layout.Addr) error {
	before := tx.mayBeDamaged
	tx.mayBeDamaged = 0
	if a == 0 {
		return nil
	}
	free, err := tx.Examine(a)
	if err == nil && free {
		free, err = tx.Contradicted(a)
	}
	if err != nil || !free {
		return err
	}
	if tx.mayBeDamaged = a; before != a {
		return nil
	}
	return fmt.Errorf("%w: block %v is free, though a slot leads to it, and was not freed; the database, closed, can "+
		"be checked, and repaired from another copy", ErrCorrupt, a)
}

// look copies the first bytes of a copy of a block; nil: they cannot be had now.
func (tx *Tx) look(a layout.Addr, replica int, size uint32) (record.Image, error) {
	s, v := tx.s, tx.s.eng.space.ViewOn(tx.s.thread)
	if !v.Valid(a) || replica >= v.Copies(a) {
		return nil, nil
	}
	buf, err := s.thread.Alloc(int(size))
	if err != nil {
		return nil, nil // a large block, and little of the arena left: it is looked at another time
	}
	defer s.thread.Free(buf, int(size))
	var b rdma.Batch
	b.Read(v.At(a, replica), buf, size)
	if err := tx.c.Do(&b); err != nil {
		return nil, s.failed(err)
	}
	return bytes.Clone(s.thread.Bytes(buf, size)), nil
}
