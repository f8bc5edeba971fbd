package txn

import (
	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
)

// vacateAtOnce is how many blocks a transaction makes free at most. Fewer fit a small log.
const vacateAtOnce = 64

// vacate makes all blocks of an ordered table free, which no transaction uses any more. Nodes come last: where
// recovery meets a deleted record it looks up what leads to it.
func (d *dropper) vacate() error {
	d.left, d.nodes = 0, d.nodes[:0]
	l := d.w.db.space.Layout()
	for id := range l.Segments {
		g := &l.Segments[id]
		if g.Kind != memory.KindBlocks || g.Placement.N == 0 {
			continue
		}
		size := g.Class.Size()
		for first, all := uint32(0), l.Backed(memory.SegmentID(id))/size; first < all; first += headsAtOnce {
			if err := d.heads(memory.MakeAddr(memory.SegmentID(id), first*size), g.Class, int(min(headsAtOnce, all-first))); err != nil {
				return err
			}
			if err := d.free(&d.rows); err != nil {
				return err
			}
		}
	}
	if d.left > 0 {
		return nil
	}
	return d.free(&d.nodes)
}

// heads reads the first lines of n blocks, and notes those that are the table's.
func (d *dropper) heads(first memory.Addr, class memory.Class, n int) error {
	w := d.w
	th, v := w.thread, w.db.space.ViewOn(w.thread)
	if d.ctx.Err() != nil {
		return canceled(d.ctx)
	}
	if !v.Valid(first) {
		return nil // its last copy is lost
	}
	buf, err := th.Alloc(n * record.LineSize)
	if err != nil {
		return err
	}
	defer th.Free(buf, n*record.LineSize)
	b := &d.batch
	b.Reset()
	for i := range n {
		b.Read(v.At(first+memory.Addr(uint32(i)*class.Size()), 0), buf+uint32(i*record.LineSize), record.LineSize)
	}
	if err := w.coro.Do(b); err != nil {
		return err
	}
	d.rows = d.rows[:0]
	for i := range n {
		img := record.Image(th.Bytes(buf+uint32(i*record.LineSize), record.LineSize))
		m := img.Meta()
		if m.Table() != d.meta.ID || m.State() == record.Free {
			continue
		}
		x := occ.Remnant{Addr: first + memory.Addr(uint32(i)*class.Size()), Class: class, Version: img.Version()}
		switch {
		case !img.Stable():
			d.left++
		case m.State() == record.Node:
			d.nodes = append(d.nodes, x)
		default:
			d.rows = append(d.rows, x)
		}
	}
	return nil
}

// free makes blocks free, some by each transaction, and counts those that are not.
func (d *dropper) free(blocks *[]occ.Remnant) error {
	for list := *blocks; len(list) > 0; {
		if err := d.stands(); err != nil {
			return err
		}
		looked, locked := 0, 0
		err := d.w.Update(d.ctx, func(tx *Tx) (err error) {
			looked, locked, err = tx.o.Vacate(d.t, list[:min(len(list), vacateAtOnce)])
			return tx.note(err)
		})
		if err != nil {
			return err
		}
		d.left += looked - locked
		list = list[looked:]
	}
	return nil
}
