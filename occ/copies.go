package occ

import (
	"bytes"
	"errors"
	"slices"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// A primary image that stays unreadable is damaged, or its writer is slow. The transaction then
// reads the other copies. The guard of the primary decides whether a copy counts: it names the
// version of the record, and no two images of a block share one. So an intact copy of that version
// is the record.
//
//   - The transaction holds the lock: no writer can be at work, and the copy is the current image.
//   - It only reads: the copy counts if the guard is still the same when the reads are validated.
//
// If the guard is damaged, no copy has its version, and Repair has to decide (repair.go). If every
// copy is damaged, a write that needs nothing of the old value goes on: see overwrite.

// proof says what the copies of a damaged record still show.
type proof uint8

const (
	proofKey     proof = 1 << iota // the key of the item, byte for byte
	proofVersion                   // the version that the guard names
	proofTried                     // the block was one of several candidates
	proofOther                     // an intact copy has another version: the guard is damaged
	proven       = proofKey | proofVersion
)

// unreadable goes on with the next copy of an item's block, whose image was unreadable for
// maxRereads READs because of err.
func (tx *Tx) unreadable(it *item, err error) error {
	g := tx.image(it).Guard()
	switch {
	case it.backup: // Options.ReadBackups: the copy is damaged, or the block is new
		tx.serve(it.addr)
		it.backup, it.primary, it.tries, it.copy = false, true, 0, 0
		it.step = stepProbe
		return nil
	case it.locked:
		it.version = it.prior.Version()
	case !g.Held():
		it.version = g.Version()
	case errors.Is(err, record.ErrForm):
		return tx.damaged(it, err)
	default:
		return tx.meet(AbortReadLocked, it, g)
	}
	tx.proves(it)
	return tx.nextCopy(it, err)
}

// nextCopy reads the next copy of an item's block. Without one it replaces the record, or fails.
func (tx *Tx) nextCopy(it *item, err error) error {
	if k := int(it.copy) + 1; k < tx.view.Copies(it.addr) {
		it.copy, it.step = uint8(k), stepCopy
		return nil
	}
	if tx.overwrites(it) {
		return tx.overwrite(it)
	}
	if it.locked || errors.Is(err, record.ErrForm) {
		return tx.damaged(it, err)
	}
	return tx.meet(AbortReadLocked, it, record.FreeAt(it.version))
}

// copyRead looks at a copy of an item's block that was read because the primary is unreadable.
func (tx *Tx) copyRead(it *item) error {
	img := tx.image(it)
	need, err := img.Check(it.addr)
	if n := uint32(need); n > it.bufLen && n <= it.class.Size() {
		at, err := tx.alloc(n)
		if err != nil {
			return err
		}
		it.buf, it.bufLen = at, n
		return nil // and stays at this step
	}
	if err == nil && img.Stable() && img.Version() == it.version && tx.matches(it, img) {
		tx.serve(it.addr)
		if it.locked {
			img.SetGuard(record.HeldBy(tx.id)) // as the primary has it
		} else {
			it.backup = true // validated at the primary
		}
		return tx.found(it, img)
	}
	tx.proves(it)
	if err == nil {
		it.proof |= proofOther
		err = record.ErrTorn
	}
	return tx.nextCopy(it, err)
}

// proves notes what a damaged image in the item's buffer still shows.
func (tx *Tx) proves(it *item) {
	img := tx.image(it)
	m, at := img.Meta(), record.KeyAt(int(it.klen))
	if m.State() != record.Free && m.Table() == it.table.ID && m.KeyLen() == int(it.klen) &&
		at+int(it.klen) <= len(img) && bytes.Equal(img[at:at+int(it.klen)], it.key()) {
		it.proof |= proofKey
	}
	if img.Version() == it.version {
		it.proof |= proofVersion
	}
}

// Blind says of item i, which was staged for update and not executed, that the caller will replace
// or remove what is stored and needs nothing of it.
func (tx *Tx) Blind(i int) {
	if i >= tx.fetched {
		tx.items[i].blind = true
	}
}

// Unreadable reports whether item i, which was executed, has a record that could not be read and
// that the transaction has not replaced yet. It must replace or remove that, or end: its value
// is not that of Read.
func (tx *Tx) Unreadable(i int) bool { return tx.items[i].unread && tx.items[i].write == writeNone }

// overwrites reports whether an item of which every copy is damaged may be replaced: the
// write needs nothing of the old value, a copy shows the item's key, and a copy shows the
// version of the guard.
func (tx *Tx) overwrites(it *item) bool {
	blind := it.blind || it.write != writeNone && !it.insert
	class, ok := tx.s.eng.space.ClassAt(it.addr)
	return it.update && blind && it.proof&(proven|proofOther) == proven && ok && class == it.class
}

// overwrite takes a record of which every copy is damaged for one that has a value, and locks it.
// The new image replaces all copies. The log record needs no old image: policy ford logs the new
// one for this transaction.
func (tx *Tx) overwrite(it *item) error {
	tx.serve(it.addr)
	tx.blind = true
	it.state, it.unread = record.Live, true
	if it.write == writeNone {
		it.val, it.vlen, it.has = it.buf, 0, true
	}
	it.step = stepDone
	if !it.locked {
		it.step = stepLock
	}
	return nil
}

// readCopies has a lookup go on that found several candidates, of which one stays unreadable: with
// the next copy of each, or, if the item may be overwritten, with that one.
func (tx *Tx) readCopies(it *item) bool {
	bad := tx.ragged.addr
	if bad == 0 || tx.dangling != 0 {
		return false
	}
	if k := int(it.copy) + 1; k < tx.view.Copies(bad) {
		tx.serve(bad)
		it.copy, it.tries, it.step = uint8(k), 0, stepSearch
		return true
	}
	i := slices.IndexFunc(it.query.Candidates, func(c index.Candidate) bool { return c.Addr == bad })
	if i < 0 || !it.update || it.proof&proofTried != 0 || !it.blind && it.write == writeNone {
		return false
	}
	it.addr, it.class = bad, it.query.Candidates[i].Class
	it.copy, it.bufLen, it.tries, it.backup = 0, 0, 0, false
	it.proof = proofTried
	it.step = stepProbe
	return true
}

// maxServed bounds how many damaged blocks are remembered.
const maxServed = 16

// serve notes that a copy of a block is damaged, and another one has served.
func (tx *Tx) serve(a layout.Addr) {
	if tx.s.alloc != nil && len(tx.served) < maxServed && !slices.Contains(tx.served, a) {
		tx.served = append(tx.served, a)
	}
}
