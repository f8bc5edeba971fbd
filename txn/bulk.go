package txn

import (
	"bytes"
	"context"
	"fmt"

	"txnode/index/race"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// bulkBytes is how many bytes of keys and values a transaction of bulk writes at most, if they are
// of several records.
const bulkBytes = 128 << 10

// bulk loads tables with hash indexes that nobody can find yet (memory.Space.LoadTable): records
// are written block beside block, and the index of a table is built when all of its records are
// there. A later record replaces an earlier one of its key. It belongs to one goroutine.
type bulk struct {
	ctx  context.Context
	w    *Worker
	done uint64 // records that are written

	pending []occ.BulkRecord
	bytes   []byte // their keys and values
	links   map[uint16][]race.Linked
	hashes  map[uint16][]tree.Hashed // of tables of hashes, whose index is of nodes
	strays  map[uint16][]occ.Remnant // blocks that no index is to lead to, and may be in use
}

func newBulk(ctx context.Context, w *Worker) bulk {
	return bulk{
		ctx: ctx, w: w, links: map[uint16][]race.Linked{}, hashes: map[uint16][]tree.Hashed{},
		strays: map[uint16][]occ.Remnant{},
	}
}

func (l *bulk) add(t *occ.Table, key, value []byte) error {
	if n := len(key) + len(value); len(l.bytes)+n > cap(l.bytes) {
		if err := l.flush(); err != nil {
			return err
		}
		if n > cap(l.bytes) {
			l.bytes = make([]byte, 0, max(n, bulkBytes))
		}
	}
	at := len(l.bytes)
	l.bytes = append(append(l.bytes, key...), value...)
	p := l.bytes[at:]
	l.pending = append(l.pending, occ.BulkRecord{Table: t, Key: p[:len(key)], Value: p[len(key):]})
	return nil
}

// flush writes what was added, by several transactions if the arena has no room for it.
func (l *bulk) flush() error {
	err := inHalves(l.pending, func(records []occ.BulkRecord) error {
		err := l.w.Update(l.ctx, func(tx *Tx) error {
			if err := l.w.db.space.Alone(); err != nil {
				return err
			}
			for _, x := range records { // of an attempt before
				l.stray(x)
			}
			return tx.note(tx.o.WriteBulk(records))
		})
		if err != nil {
			return err
		}
		for _, x := range records {
			id, hash := x.Table.ID, record.Hash(x.Table.ID, x.Key)
			if x.Table.Hashed {
				l.hashes[id] = append(l.hashes[id], tree.Link(hash, x.Addr, x.Class))
			} else {
				l.links[id] = append(l.links[id], race.Link(hash, x.Addr, x.Class))
			}
		}
		l.done += uint64(len(records))
		return nil
	}, ErrTooLarge)
	l.pending, l.bytes = l.pending[:0], l.bytes[:0]
	return err
}

// stray notes that no index is to lead to the block of a record.
func (l *bulk) stray(x occ.BulkRecord) {
	if x.Addr != 0 {
		l.strays[x.Table.ID] = append(l.strays[x.Table.ID], occ.Remnant{
			Addr: x.Addr, Class: x.Class, Version: x.Version,
		})
	}
}

// index builds the index of a table, all of whose records are written.
func (l *bulk) index(t *occ.Table) (root layout.Addr, err error) {
	if t.Hashed {
		return l.leaves(t)
	}
	db, links := l.w.db, l.links[t.ID]
	delete(l.links, t.ID)
	o := race.Options{Groups: db.opts.IndexGroups, Keys: race.KeysAtLeast(uint64(len(links)))}
	if o.Validate() != nil {
		o.Keys = 0 // more than it can have: Build says so
	}
	twice := map[layout.Addr]occ.Remnant{}
	db.ctlMu.Lock()
	err = db.withBlades(func(c *rdma.Coro) error {
		clear(twice)
		root, _, err = race.Build(c, db.space, t.ID, o, links, func(x, y layout.Addr) (layout.Addr, error) {
			out, err := earlier(c, db.space, x, y)
			if out.Addr != 0 {
				twice[out.Addr] = out
			}
			return out.Addr, err
		}, func() error {
			if l.ctx.Err() != nil {
				return canceled(l.ctx)
			}
			return nil
		})
		return err
	})
	db.ctlMu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("the index of table %q: %w", t.Name, err)
	}
	for _, x := range twice {
		l.strays[t.ID] = append(l.strays[t.ID], x)
	}
	return root, l.free(t)
}

// earlier returns the earlier one of two records of one key; none: they have different keys.
func earlier(c *rdma.Coro, s *memory.Space, x, y layout.Addr) (out occ.Remnant, err error) {
	th, v, l := c.Thread(), s.View(), s.Layout()
	var images [2]record.Image
	var classes [2]layout.Class
	var b rdma.Batch
	for i, a := range [2]layout.Addr{x, y} {
		classes[i] = l.Segments[a.Segment()].Class
		size := classes[i].Size()
		at, err := th.Alloc(int(size))
		if err != nil {
			return out, err
		}
		defer th.Free(at, int(size))
		images[i] = th.Bytes(at, size)
		b.Read(v.At(a, 0), at, size)
	}
	if err := c.Do(&b); err != nil {
		return out, err
	}
	for i, a := range [2]layout.Addr{x, y} {
		if _, err := images[i].Check(a); err != nil {
			return out, fmt.Errorf("%w: block %v: %w", ErrCorrupt, a, err)
		}
	}
	if !bytes.Equal(images[0].Key(), images[1].Key()) {
		return out, nil
	}
	i, a := 0, x
	if images[1].Version() < images[0].Version() {
		i, a = 1, y
	}
	return occ.Remnant{Addr: a, Class: classes[i], Version: images[i].Version()}, nil
}

// free makes the blocks free that no index is to lead to.
func (l *bulk) free(t *occ.Table) error {
	for list := l.strays[t.ID]; len(list) > 0; {
		looked := 0
		err := l.w.Update(l.ctx, func(tx *Tx) (err error) {
			looked, _, err = tx.o.Vacate(t, list[:min(len(list), vacateAtOnce)])
			return tx.note(err)
		})
		if err != nil {
			return err
		}
		list = list[looked:]
	}
	delete(l.strays, t.ID)
	return nil
}
