package occ

import (
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// Remnant is a block of a table that is being dropped, as its header was read: in use, and not
// locked.
type Remnant struct {
	Addr    layout.Addr
	Class   layout.Class
	Version record.TxID
}

// Vacate locks blocks of table t, which the commit makes free, as many of them as the log has room
// for. It returns how many it has looked at, the first of the list, and how many of these it has
// locked: the others are locked by another session, or have another version. What leads to the
// blocks is left as it is: the caller knows that no transaction uses the table any more (Rest). The
// transaction does nothing else.
//
// A commit is what makes them free, so copies, logs, recovery and the loss of power need no
// further mechanism.
func (tx *Tx) Vacate(t *Table, blocks []Remnant) (looked, locked int, err error) {
	switch {
	case !tx.active:
		return 0, 0, ErrDone
	case tx.s.alloc == nil:
		return 0, 0, ErrReadOnly
	}
	c, b, first := tx.c, &tx.batch, len(tx.items)
	c.Count = &tx.phases[PhaseExecute]
	b.Reset()
	for _, x := range blocks {
		if !tx.reaches(x.Addr) {
			return 0, 0, fmt.Errorf("%w: the memory map has changed", ErrConflict)
		}
		at, err := tx.reserve(record.LineSize)
		if err != nil && looked > 0 {
			break // the next transaction's
		}
		buf := uint32(0)
		if err == nil {
			buf, err = tx.alloc(record.LineSize)
		}
		if err != nil {
			return 0, 0, err
		}
		tx.items = append(tx.items, item{})
		it := &tx.items[len(tx.items)-1]
		tx.nodeItem(it, t)
		it.addr, it.class, it.version, it.prior, it.buf = x.Addr, x.Class, x.Version, record.FreeAt(x.Version), buf
		it.w, it.wlen = int32(at), record.LineSize
		g := tx.view.At(x.Addr, 0)
		g.Off += record.GuardOff
		it.cas = int32(b.CAS(g, uint64(it.prior), uint64(record.HeldBy(tx.id))))
		looked++
	}
	if err := c.Do(b); err != nil {
		return 0, 0, tx.s.fail(err)
	}
	for i := first; i < len(tx.items); i++ {
		it := &tx.items[i]
		if record.Guard(b.Result(int(it.cas))) != it.prior {
			tx.log.Kill(tx.logBytes(), int(it.w))
			it.write, it.w = writeNone, -1
			continue
		}
		it.locked, it.vacates = true, true
		tx.s.alloc.Hold(it.addr)
		tx.writes++
		locked++
	}
	tx.fetched = len(tx.items)
	tx.edits, tx.odd, tx.vacates = locked > 0, true, locked > 0
	return looked, locked, nil
}
