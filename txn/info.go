package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/index"
	"txnode/index/race"
	"txnode/index/tree"
	"txnode/memory/record"
	"txnode/rdma"
)

// TableInfo is what is stored of the definition of a table.
type TableInfo struct {
	Name    string
	Key     string // name of its Key: see KeyNamed
	Value   string // name of its Codec
	Index   string // "race": by hash; "blink": ordered
	Ordered bool
	MaxKey  int // of an ordered table, the length of the longest key in bytes; else 0

	Indexes []IndexInfo // its secondary indexes, in the order in which they were defined
	Of      string      // the table that this one is a secondary index of; else empty
}

// IndexInfo is what is stored of the definition of a secondary index.
type IndexInfo struct {
	Name   string
	Table  string // the ordered table that it is: OpenAnyTable opens it, and its Stats are how large the index is
	Key    string // name of its Key
	Unique bool
	Built  bool // it knows all records; else Index.Build makes it
}

// TableInfo returns the definition of a table, or ErrNoTable.
func (db *DB) TableInfo(name string) (TableInfo, error) {
	if db.isClosed() {
		return TableInfo{}, ErrClosed
	}
	meta, err := db.findTable(name, tableOptions{}, false)
	if err != nil {
		return TableInfo{}, fmt.Errorf("txn: table %q: %w", name, err)
	}
	o, err := decodeTableOptions(meta.Options)
	if err != nil {
		return TableInfo{}, fmt.Errorf("txn: table %q: %w", name, err)
	}
	info := TableInfo{
		Name: name, Key: o.Key, Value: o.Value, Index: o.Index, Ordered: o.Index == indexOrdered,
		MaxKey: o.MaxKey, Of: o.Of,
	}
	for _, x := range o.Indexes {
		info.Indexes = append(info.Indexes, IndexInfo{
			Name: x.Name, Table: indexTable(name, x.Name), Key: x.Key, Unique: x.Unique, Built: x.Built,
		})
	}
	return info, nil
}

// OpenAnyTable opens a table, whatever its types are, as one of encoded keys and values: for tools.
// What is written must be encoded as the table's own Key and Codec would. Without such a table it
// returns ErrNoTable.
func OpenAnyTable(db *DB, name string) (*RawTable, error) {
	i, err := db.TableInfo(name)
	if err != nil {
		return nil, err
	}
	t, err := db.table(name, tableOptions{Key: i.Key, Value: i.Value, Index: i.Index}, false)
	if err != nil {
		return nil, err
	}
	return &RawTable{t, db}, nil
}

// TableStats is how large a table is. Sizes are in bytes, of one copy.
type TableStats struct {
	Rows    uint64 // records that have a value
	Bytes   uint64 // of their keys and values
	Blocks  uint64 // that the index leads to, those of deleted records included
	Stored  uint64 // bytes of these blocks
	Largest uint64 // bytes of key and value of the largest record

	// Of a hash table.
	Buckets   uint64  // of the index, of seven slots each
	Load      float64 // the part of the slots that is in use, from 0 to 1
	SubTables uint64

	// Of an ordered table.
	Height uint64  // levels of nodes; 1: a single leaf
	Leaves uint64  // nodes that lead to records
	Inner  uint64  // nodes of the levels above
	Fill   float64 // the part of the leaves' bytes that is in use, from 0 to 1

	IndexBytes uint64
}

// Stats reads the index and the first 64 bytes of each record of the table, outside of any
// transaction. While transactions write, the figures are about right, and of no one moment.
func (t *Table[K, V]) Stats(ctx context.Context) (TableStats, error) {
	return (&RawTable{t.t, t.db}).Stats(ctx)
}

// Stats is [Table.Stats].
func (r *RawTable) Stats(ctx context.Context) (st TableStats, err error) {
	w, err := r.db.take(ctx)
	if err != nil {
		return st, err
	}
	defer r.db.put(w)
	err = w.insist(ctx, func() error {
		st = TableStats{}
		return w.session.WithSpare(func() error {
			var ix any = r.t.Index
			if r.t.Ordered != nil {
				ix = r.t.Ordered
			}
			if err := st.ofIndex(w.coro, ix); err != nil {
				return err
			}
			h := heads{ctx: ctx, w: w, id: r.t.ID, st: &st}
			return h.walk(ix.(index.Walker)) // all that ofIndex knows are
		})
	})
	if err != nil {
		return st, fmt.Errorf("txn: table %q: %w", r.t.Name, err)
	}
	return st, nil
}

// ofIndex reads an index.
func (st *TableStats) ofIndex(c *rdma.Coro, ix any) error {
	switch ix := ix.(type) {
	case *race.Index:
		s, err := ix.Stats(c)
		st.SubTables, st.IndexBytes = uint64(s.SubTables), s.Bytes
		st.Buckets, st.Load = uint64(s.Slots/race.SlotsPerBucket), float64(s.Used)/float64(max(s.Slots, 1))
		return err
	case *tree.Tree:
		s, err := ix.Stats(c)
		st.Height, st.Leaves, st.Inner, st.IndexBytes = uint64(s.Height), uint64(s.Leaves), uint64(s.Inner), s.Bytes
		st.Fill = float64(s.Used) / float64(max(s.Room, 1))
		return err
	}
	return fmt.Errorf("its index, a %T, cannot be walked: %w", ix, errors.ErrUnsupported)
}

// heads reads first lines of blocks, many at a time.
type heads struct {
	ctx   context.Context
	w     *Worker
	id    uint16
	st    *TableStats
	batch rdma.Batch
	buf   uint32
}

// headsAtOnce is how many lines are read in one round trip.
const headsAtOnce = 128

func (h *heads) walk(ix index.Walker) error {
	th := h.w.thread
	var err error
	if h.buf, err = th.Alloc(headsAtOnce * record.LineSize); err != nil {
		return err
	}
	defer th.Free(h.buf, headsAtOnce*record.LineSize)
	return ix.Pieces(h.w.coro, func(links []index.Linked) error {
		for part := range slices.Chunk(links, headsAtOnce) {
			if err := h.read(part); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *heads) read(blocks []index.Linked) error {
	if h.ctx.Err() != nil {
		return canceled(h.ctx)
	}
	th, v := h.w.thread, h.w.db.space.ViewOn(h.w.thread)
	h.batch.Reset()
	for i, c := range blocks {
		h.st.Blocks++
		h.st.Stored += uint64(c.Class.Size())
		if v.Valid(c.Addr) {
			h.batch.Read(v.At(c.Addr, 0), h.buf+uint32(i*record.LineSize), record.LineSize)
		} else {
			clear(th.Bytes(h.buf+uint32(i*record.LineSize), record.LineSize)) // a segment younger than the view
		}
	}
	if err := h.w.coro.Do(&h.batch); err != nil {
		return err
	}
	for i := range blocks {
		m := record.Image(th.Bytes(h.buf+uint32(i*record.LineSize), record.LineSize)).Meta()
		if m.State() != record.Live || m.Table() != h.id {
			continue
		}
		n := uint64(m.KeyLen() + m.ValueLen())
		h.st.Rows++
		h.st.Bytes += n
		h.st.Largest = max(h.st.Largest, n)
	}
	return nil
}
