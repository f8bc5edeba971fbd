package occ

import (
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// While a backup is made beside several processes, a transaction that replaces or deletes a record
// keeps it, if it was written before the cut of the backup (memory.Cut): by a record of a table of
// their own, Options.Kept, which it inserts. Both are of one transaction, so that after a crash,
// too, either the old record is in its place, or it is kept. Only the first one after the cut does
// so: what it leaves has a version of after the cut.
//
// The key is the address of the block, which is that of one record of before the cut at most:
// another that gets the block is written after the cut. The value is
//
//	offset 0   uint32   the cut
//	       4   uint16   the table
//	       6   uint16   length of the key
//	       8   uint32   length of the value
//	      12            the key, and as much of the value as there is room for
//
// The rest of a value has the same key with keptRest. All integers are little-endian.

const (
	keptHead = 12
	// keptRest is the bit of the key of what is left of a value. Addresses have 48 bits.
	keptRest = 1 << 63
)

// Kept is a record that was replaced while a backup was made.
type Kept struct {
	Cut        uint32
	Block      layout.Addr // where it was
	Table      uint16
	Key, Value []byte
	// Rest is how many bytes of the value are missing, which are the value of the key
	// that RestOf returns.
	Rest int
}

// ParseKept takes a record of the table Options.Kept apart. part: it is the rest of another one.
func ParseKept(key, value []byte) (k Kept, part bool, err error) {
	if len(key) == 8 && binary.LittleEndian.Uint64(key)&keptRest != 0 {
		return k, true, nil
	}
	if len(key) != 8 || len(value) < keptHead {
		return k, false, fmt.Errorf("%w: what was kept for a backup under %x has %d bytes", ErrCorrupt, key, len(value))
	}
	le := binary.LittleEndian
	at := keptHead + int(le.Uint16(value[6:]))
	n := int(le.Uint32(value[8:]))
	if at > len(value) || n < len(value)-at || n > record.MaxValue {
		return k, false, fmt.Errorf("%w: what was kept for a backup under %x has %d bytes", ErrCorrupt, key, len(value))
	}
	return Kept{
		Cut: le.Uint32(value), Block: layout.Addr(le.Uint64(key)), Table: le.Uint16(value[4:]),
		Key: value[keptHead:at], Value: value[at:], Rest: n - (len(value) - at),
	}, false, nil
}

// FirstOf is the key of the record whose rest, or itself, is under key.
func FirstOf(key []byte) (first []byte, isRest bool) {
	k := binary.LittleEndian.Uint64(key)
	return binary.LittleEndian.AppendUint64(nil, k&^keptRest), k&keptRest != 0
}

// RestOf is the key of the rest of a value that was kept under key.
func RestOf(key []byte) []byte {
	return binary.LittleEndian.AppendUint64(nil, binary.LittleEndian.Uint64(key)|keptRest)
}

// keep has the transaction keep what it replaces, if a backup wants it. Everything that it writes
// is locked, and lies where it was. A transaction of a coordinator that is not declared dead knows
// the cut: its session has joined after it.
func (tx *Tx) keep() error {
	if tx.s.eng.opts.Kept == nil {
		return nil
	}
	cut := tx.s.eng.space.CutNumber()
	if cut == 0 || tx.writes == 0 {
		return nil
	}
	return tx.keepFor(cut)
}

func (tx *Tx) keepFor(cut uint32) error {
	n := len(tx.items)
	var kept *Table
	for i := range n {
		it := &tx.items[i]
		if it.write == writeNone || it.state != record.Live || it.inserted || it.prior.Version().Coordinator() >= cut {
			continue
		}
		if kept == nil {
			var err error
			if kept, err = tx.s.eng.opts.Kept(tx.c); err != nil {
				return tx.cannotKeep(cut, err)
			}
		}
		if it.table.ID == kept.ID {
			continue // of an earlier backup
		}
		img := tx.image(it)
		if need, err := img.Check(it.addr); err != nil || need > len(img) || img.Version() != it.prior.Version() ||
			img.Meta().Table() != it.table.ID {
			tx.keeps = cut
			return errKeptDamaged
		}
		if err := tx.keepImage(kept, cut, it.addr, img); err != nil {
			return tx.cannotKeep(cut, err)
		}
	}
	if len(tx.items) == n {
		return nil
	}
	tx.keeps = cut
	if err := tx.Execute(); err != nil {
		return tx.cannotKeep(cut, err)
	}
	return nil
}

// keepImage stages the record of an image.
func (tx *Tx) keepImage(kept *Table, cut uint32, a layout.Addr, img record.Image) error {
	key, value := img.Key(), img.Value()
	n := min(len(value), record.MaxValue-keptHead-len(key))
	le := binary.LittleEndian
	p := le.AppendUint32(tx.kept[:0], cut)
	p = le.AppendUint16(p, img.Meta().Table())
	p = le.AppendUint16(p, uint16(len(key)))
	p = le.AppendUint32(p, uint32(len(value)))
	p = append(append(p, key...), value[:n]...)
	tx.kept = p
	if err := tx.keepRow(kept, uint64(a), p); err != nil || n == len(value) {
		return err
	}
	return tx.keepRow(kept, uint64(a)|keptRest, value[n:])
}

// keepRow stages a record. One that is there is left over from an earlier backup, and is replaced.
func (tx *Tx) keepRow(kept *Table, key uint64, value []byte) error {
	i, err := tx.Stage(kept, binary.LittleEndian.AppendUint64(nil, key), true)
	if err != nil {
		return err
	}
	return tx.Insert(i, value)
}

// Reasons why nothing can be kept.
var (
	errKeptDamaged = errors.New("txn: a record that is replaced is damaged, and cannot be kept for the backup that " +
		"is being made")
	errKeptLost = errors.New("txn: what is replaced cannot be kept for the backup that is being made")
)

// cannotKeep is the error of an attempt that could not keep what it replaces. Where it is not the
// attempt's, it is the backup's.
func (tx *Tx) cannotKeep(cut uint32, err error) error {
	tx.keeps = cut
	if errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrBladeDown) {
		return tx.s.failed(err)
	}
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrBroken) {
		return err
	}
	return fmt.Errorf("%w: %w", errKeptLost, err)
}

// unkept ends the backup if the transaction, which has ended without effect, was in want of what it
// takes to keep what it replaces: room on the blades, in its log area or in its arena. The next
// attempt keeps nothing then.
func (tx *Tx) unkept(err error) error {
	why := layout.CutTable
	switch {
	case errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrConflict) || errors.Is(err, ErrBroken):
		return err
	case errors.Is(err, memory.ErrNoSpace):
		why = layout.CutRoom
	case errors.Is(err, ErrTooLarge) || errors.Is(err, rdma.ErrArenaFull):
		why = layout.CutLarge
	case errors.Is(err, errKeptDamaged):
		why = layout.CutDamage
	case !errors.Is(err, errKeptLost):
		return err
	}
	if e := tx.s.eng.space.BreakCut(tx.keeps, why); e != nil {
		return fmt.Errorf("%w: %w: %w", ErrConflict, err, e)
	}
	return fmt.Errorf("%w: %w", ErrConflict, err)
}
