package txn

import (
	"context"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// vacateAtOnce is how many blocks a transaction makes free at most. Fewer fit a small log.
const vacateAtOnce = 64

// vacate makes all blocks of an ordered table free, which no transaction uses any more. Nodes come
// last: where recovery meets a deleted record it looks up what leads to it.
func (d *dropper) vacate() error {
	d.left, d.rows, d.nodes = 0, d.rows[:0], d.nodes[:0]
	if err := d.w.headers(d.ctx, func(a layout.Addr, class layout.Class, img record.Image) {
		m := img.Meta()
		if m.Table() != d.meta.ID || m.State() == record.Free {
			return
		}
		x := occ.Remnant{Addr: a, Class: class, Version: img.Version()}
		switch {
		case !img.Stable():
			d.left++
		case m.State() == record.Node:
			d.nodes = append(d.nodes, x)
		default:
			d.rows = append(d.rows, x)
		}
	}, func() error {
		err := d.free(&d.rows)
		d.rows = d.rows[:0]
		return err
	}); err != nil {
		return err
	}
	if d.left > 0 {
		return nil
	}
	return d.free(&d.nodes)
}

// headers calls fn with the first line of each block of the database, and next after some of them,
// again and again.
func (w *Worker) headers(ctx context.Context, fn func(a layout.Addr, class layout.Class, line record.Image),
	next func() error) error {
	l := w.db.space.Layout()
	for id := range l.Segments {
		g := &l.Segments[id]
		if g.Kind != layout.KindBlocks || g.Placement.N == 0 {
			continue
		}
		size := g.Class.Size()
		for first, all := uint32(0), l.Backed(layout.SegmentID(id))/size; first < all; first += headsAtOnce {
			if ctx.Err() != nil {
				return canceled(ctx)
			}
			if err := w.heads(layout.MakeAddr(layout.SegmentID(id), first*size), g.Class,
				int(min(headsAtOnce, all-first)), fn); err != nil {
				return err
			}
			if err := next(); err != nil {
				return err
			}
		}
	}
	return nil
}

// heads reads the first lines of n blocks.
func (w *Worker) heads(first layout.Addr, class layout.Class, n int,
	fn func(a layout.Addr, class layout.Class, line record.Image)) error {
	th, v := w.thread, w.db.space.ViewOn(w.thread)
	if !v.Valid(first) {
		return nil // its last copy is lost
	}
	buf, err := th.Alloc(n * record.LineSize)
	if err != nil {
		return err
	}
	defer th.Free(buf, n*record.LineSize)
	var b rdma.Batch
	at := func(i int) layout.Addr { return first + layout.Addr(uint32(i)*class.Size()) }
	for i := range n {
		b.Read(v.At(at(i), 0), buf+uint32(i*record.LineSize), record.LineSize)
	}
	if err := w.coro.Do(&b); err != nil {
		return err
	}
	for i := range n {
		fn(at(i), class, record.Image(th.Bytes(buf+uint32(i*record.LineSize), record.LineSize)))
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
