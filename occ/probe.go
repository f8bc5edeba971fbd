package occ

import (
	"bytes"
	"errors"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// readLen is how much of a block is read at first.
func readLen(c layout.Class) uint32 { return min(c.Size(), probeLen) }

// probed looks at a block that was read, perhaps locked.
func (tx *Tx) probed(it *item) error {
	held := it.locked
	lost := false // the lock was wanted and somebody else has it
	if it.cas >= 0 {
		prior := record.Guard(tx.batch.Result(int(it.cas)))
		if prior.Held() {
			lost = true
		} else {
			it.locked, it.prior = true, prior
			held = true
		}
	}
	img := tx.image(it)
	if it.klen == 8 && !lost {
		if _, _, ok := record.CheckShort((*record.Line)(img), it.addr, it.table.ID, it.short); ok &&
			accepts(img, it, held, tx.id) {
			return tx.found(it, img)
		}
	}
	need, err := img.Check(it.addr)
	if err == nil && !tx.matches(it, img) {
		if it.backup {
			// A block that is being inserted is on the primary alone, until it is committed.
			it.backup, it.primary = false, true
			it.step = stepProbe
			return nil
		}
		// Another key's block, or nobody's: the address is stale.
		if held {
			if err := tx.unlockForeign(it); err != nil {
				return err
			}
		}
		if it.cached {
			tx.forget(it, it.addr)
			it.addr = 0
			it.step = stepSearch
			return nil
		}
		return tx.notThis(it, img)
	}
	if g := record.HeldBy(tx.id); !held && (img.Guard() == g || lost && tx.batch.Result(int(it.cas)) == uint64(g)) &&
		it.tries < maxRereads {
		// Another item has taken it for its own key's, and gives it back: see unlockForeign.
		it.tries++
		it.step = stepProbe
		return nil
	}
	if lost {
		if err != nil && it.tries < maxRereads {
			// Being written by the holder of the lock: whose key it is decides whether
			// that is a conflict.
			return tx.reread(it, need)
		}
		return tx.meet(AbortLocked, it, record.Guard(tx.batch.Result(int(it.cas))))
	}
	g := img.Guard()
	switch {
	case errors.Is(err, record.ErrForm) && it.tries >= maxRereads && !it.cached:
		return tx.unreadable(it, err)
	case err != nil:
		return tx.reread(it, need)
	case held:
		if img.Version() != it.prior.Version() || g != record.HeldBy(tx.id) {
			return tx.reread(it, need) // its last lines are still on their way
		}
	case g.Held():
		if it.update {
			return tx.meet(AbortLocked, it, g)
		}
		return tx.meet(AbortReadLocked, it, g)
	case !img.Stable():
		return tx.reread(it, need)
	}
	return tx.found(it, img)
}

// accepts reports whether the guard of a verified image lets it be used: free at
// its version, or held by this transaction since that version.
func accepts(img record.Image, it *item, held bool, id record.TxID) bool {
	if held {
		return img.Guard() == record.HeldBy(id) && img.Version() == it.prior.Version()
	}
	return img.Stable()
}

// matches reports whether a verified image is that of the item's key.
func (tx *Tx) matches(it *item, img record.Image) bool {
	m := img.Meta()
	return m.State() != record.Free && m.Table() == it.table.ID && m.KeyLen() == int(it.klen) &&
		bytes.Equal(img.Key(), it.key())
}

// found accepts a verified image, and locks it if that is still to be done.
func (tx *Tx) found(it *item, img record.Image) error {
	m := img.Meta()
	if m.State() != record.Live && it.cached && it.query == nil && tx.locksLost(it) {
		return tx.doubt(it)
	}
	it.version, it.class = img.Version(), m.Class()
	it.sees(m)
	if !it.cached {
		tx.remember(it)
	}
	it.step = stepDone
	if it.update && !it.locked {
		it.step = stepLock
	}
	return nil
}

// reread reads the block again, all of it, unless it has been read too often.
func (tx *Tx) reread(it *item, need int) error {
	if int(it.bufLen) < need {
		n := max(uint32(need), min(it.class.Size(), uint32(need+need/4))) // it may be a little larger by then
		at, err := tx.alloc(n)
		if err != nil {
			return err
		}
		it.buf, it.bufLen = at, n
	}
	it.tries++
	if it.tries > maxRereads {
		if it.cached {
			return tx.doubt(it)
		}
		return tx.unreadable(it, record.ErrTorn)
	}
	it.step = stepReread
	if it.tries > 2 {
		tx.c.Yield()
	}
	return nil
}

// locksLost reports whether the lock of an item's block may have been lost with a blade. If it is
// that of a deleted record, somebody may have been about to free it: then no slot leads there any
// more, and who knows its address from before must not use it.
func (tx *Tx) locksLost(it *item) bool {
	return tx.view.LocksLost(it.addr)
}

// doubt looks a key up whose block, found by a cached address, does not become whole, or may have
// lost its lock: perhaps nobody has it any more, and its header was torn by somebody who died.
func (tx *Tx) doubt(it *item) error {
	if it.locked {
		if err := tx.unlockForeign(it); err != nil {
			return err
		}
	}
	tx.forget(it, it.addr)
	it.addr, it.tries = 0, 0
	it.step = stepSearch
	return nil
}

// unlockForeign releases a lock that was taken on a block that turned out not to
// hold the key. The block may be in other hands by now, so it is a
// compare-and-swap: only our own lock is replaced.
func (tx *Tx) unlockForeign(it *item) error {
	g := tx.view.At(it.addr, 0)
	g.Off += record.GuardOff
	f := &tx.flights[tx.flight]
	f.bg.CAS(g, uint64(record.HeldBy(tx.id)), uint64(it.prior))
	tx.c.Post(&f.bg)
	it.locked = false
	return nil
}
