package occ

import (
	"cmp"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// BulkRecord is a record that WriteBulk writes, and the block that it was given.
type BulkRecord struct {
	Table      *Table
	Key, Value []byte

	Addr    layout.Addr // 0: none yet
	Class   layout.Class
	Version record.TxID // later records have larger ones

	node bool
}

// bulkWrite is how many bytes one WRITE of WriteBulk has at most, unless a block is larger.
const bulkWrite = 64 << 10

// WriteBulk writes records to blocks of their own, of tables which nobody uses and nothing leads
// into yet: see memory.Space.LoadTable. Blocks beside each other are written by one WRITE to each
// copy, without locks and logs: a stop at any verb leaves blocks of tables that are being dropped.
// When it returns nil the records are placed on all copies. It changes the order of the list. The
// transaction does nothing else.
//
// After an error, the blocks of records that have one may have been written, or may be anybody's:
// unless they have the version of the record, and are no node, they are not the caller's.
func (tx *Tx) WriteBulk(list []BulkRecord) error { return tx.writeBulk(list, nil) }

// WriteNodes is WriteBulk of nodes of indexes that nothing leads to yet. The caller says which
// class their blocks have. When all have blocks, value says what the value of each is, by its
// number in the list as it was passed.
func (tx *Tx) WriteNodes(list []BulkRecord, value func(i int) []byte) error {
	for i := range list {
		list[i].node = true
	}
	return tx.writeBulk(list, value)
}

func (tx *Tx) writeBulk(list []BulkRecord, value func(i int) []byte) error {
	switch {
	case !tx.active:
		return ErrDone
	case tx.s.alloc == nil:
		return ErrReadOnly
	}
	tx.c.Count = &tx.phases[PhaseCommit]
	size, err := tx.bulkBlocks(list)
	if err != nil {
		return err
	}
	if value != nil {
		for i := range list {
			list[i].Value = value(i)
		}
	}
	slices.SortFunc(list, func(x, y BulkRecord) int { return cmp.Compare(x.Addr, y.Addr) })
	buf, err := tx.extra(int(size))
	if err != nil {
		tx.unbulk(list)
		return err
	}
	runs, held := bulkRuns(list), false
	for _, run := range runs {
		held = held || tx.view.Written(run[0].Addr) > tx.view.Copies(run[0].Addr)
	}
	if held { // see Tx.hold
		version, err := tx.s.nextTx()
		if err != nil {
			tx.unbulk(list)
			return err
		}
		if err := tx.writeRuns(runs, buf, true, func(img record.Image, x *BulkRecord) {
			img.Put(x.Addr, version, record.Absent, x.Table.ID, x.Class, tx.id, x.Key, nil)
		}); err != nil {
			return err
		}
	}
	if err := tx.writeRuns(runs, buf, false, func(img record.Image, x *BulkRecord) {
		state := record.Live
		if x.node {
			state = record.Node
		}
		img.Put(x.Addr, x.Version, state, x.Table.ID, x.Class, 0, x.Key, x.Value)
	}); err != nil {
		return err
	}
	for i := range list {
		tx.s.alloc.Used(list[i].Addr)
	}
	return nil
}

// bulkBlocks gives records blocks and versions, and returns how many bytes the blocks have.
func (tx *Tx) bulkBlocks(list []BulkRecord) (size uint32, err error) {
	for i := range list {
		list[i].Addr = 0
	}
	defer func() {
		if err != nil {
			tx.unbulk(list)
		}
	}()
	for i := range list {
		x := &list[i]
		class, ok := record.ClassFor(len(x.Key), len(x.Value))
		if !ok {
			return 0, &TooLargeError{
				What: "record", Got: record.Size(len(x.Key), len(x.Value)), Limit: int(layout.MaxBlock),
			}
		}
		if x.Version, err = tx.s.nextTx(); err != nil {
			return 0, err
		}
		if x.node { // the index says of which class they are
			x.Addr, err = tx.s.alloc.Alloc(tx.c, x.Class)
		} else {
			x.Addr, x.Class, err = tx.block(tx.c, class)
		}
		if err != nil {
			x.Addr = 0
			return 0, tx.s.failed(fmt.Errorf("txn: a block for a new record of table %q: %w", x.Table.Name, err))
		}
		if !tx.reaches(x.Addr) {
			return 0, fmt.Errorf("%w: the memory map has changed", ErrConflict)
		}
		size += x.Class.Size()
	}
	return size, nil
}

// unbulk gives back the blocks of records of which none was written.
func (tx *Tx) unbulk(list []BulkRecord) {
	for i := range list {
		if x := &list[i]; x.Addr != 0 {
			tx.s.alloc.Free(x.Addr, x.Class)
			x.Addr = 0
		}
	}
}

// bulkRuns divides records, which are in the order of their blocks, into those whose blocks are
// beside each other.
func bulkRuns(list []BulkRecord) (runs [][]BulkRecord) {
	for len(list) > 0 {
		n, size := 1, list[0].Class.Size()
		for n < len(list) && list[n].Addr == list[n-1].Addr+layout.Addr(size) &&
			list[n].Addr.Segment() == list[0].Addr.Segment() &&
			uint32(n+1)*size <= bulkWrite { // one WRITE has few blocks
			n++
		}
		runs, list = append(runs, list[:n]), list[n:]
	}
	return runs
}

// writeRuns writes images of records to their blocks, and waits until they are placed. primary:
// to no other copies.
func (tx *Tx) writeRuns(runs [][]BulkRecord, buf uint32, primary bool,
	put func(img record.Image, x *BulkRecord)) error {
	b, v := &tx.batch, tx.view
	b.Reset()
	for _, run := range runs {
		size, first := run[0].Class.Size(), run[0].Addr
		n := uint32(len(run)) * size // see bulkWrite
		for i := range run {
			img := tx.bytes(buf+uint32(i)*size, size) // i is less than n
			clear(img)
			put(record.Image(img), &run[i])
		}
		copies := v.Written(first)
		if primary {
			copies = 1
		}
		for k := range copies {
			b.Write(v.At(first, k), buf, n)
		}
		buf += n
	}
	if err := tx.c.Do(b); err != nil {
		return tx.s.fail(err)
	}
	if err := tx.c.Fence(rdma.FenceThread, 0, b); err != nil {
		return tx.s.fail(err)
	}
	return nil
}
