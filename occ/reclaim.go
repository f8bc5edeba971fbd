package occ

import (
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// reclaimer frees the blocks of deleted records, some time after the delete: a
// key that is deleted and inserted again soon keeps its block and its slot, which
// makes the insert as cheap as an update.
type reclaimer struct {
	queue []tombstone // oldest first
	batch rdma.Batch
	query *index.Query
	buf   uint32
	size  int
}

type tombstone struct {
	table   *Table
	key     []byte
	hash    uint64
	spot    uint64
	addr    memory.Addr
	class   memory.Class
	version record.TxID
}

// reclaimBatch is how many tombstones one Maintain reclaims at most.
const reclaimBatch = 16

func (r *reclaimer) add(it *item, v record.TxID) {
	r.queue = append(r.queue, tombstone{it.table, append([]byte(nil), it.key...), it.hash, it.spot, it.addr, it.class, v})
}

// run reclaims what is due: what exceeds Options.ReclaimAfter, or everything.
func (r *reclaimer) run(s *Session, c *rdma.Coro, all bool) error {
	keep := s.eng.opts.ReclaimAfter
	if all {
		keep = 0
	}
	for n := 0; len(r.queue) > keep && (all || n < reclaimBatch); n++ {
		t := r.queue[0]
		if err := r.one(s, c, &t); err != nil {
			return fmt.Errorf("occ: reclaiming a deleted record of table %q: %w", t.table.Name, err)
		}
		r.queue = r.queue[1:]
	}
	if len(r.queue) == 0 {
		r.queue = nil
	}
	if all && r.size > 0 {
		s.thread.Free(r.buf, r.size)
		r.size = 0
	}
	return nil
}

func (r *reclaimer) one(s *Session, c *rdma.Coro, t *tombstone) error {
	need := t.table.Index.BufferSize() + record.LineSize
	if r.size < need {
		at, err := s.thread.Alloc(need)
		if err != nil {
			return err
		}
		if r.size > 0 {
			s.thread.Free(r.buf, r.size)
		}
		r.buf, r.size = at, need
	}
	if r.query == nil {
		r.query = &index.Query{}
	}
	id, err := s.nextTx()
	if errors.Is(err, ErrConflict) {
		return nil
	}
	if err != nil {
		return err
	}
	v := s.eng.space.View()
	b := &r.batch
	g := v.At(t.addr, 0)
	g.Off += record.GuardOff
	b.Reset()
	cas := b.CAS(g, uint64(record.FreeAt(t.version)), uint64(record.HeldBy(id)))
	if err := c.Do(b); err != nil {
		return s.fail(err)
	}
	if record.Guard(b.Result(cas)) != record.FreeAt(t.version) {
		return nil // used again since, or locked: not ours to free
	}
	q := r.query
	q.Key, q.Hash, q.Local, q.View = t.key, t.hash, r.buf+record.LineSize, v
	err = lookup(c, t.table, q)
	if err == nil {
		s.eng.cache.Drop(t.spot, t.addr)
		err = t.table.Index.Remove(c, q, t.addr)
	}
	if err != nil {
		return s.fail(err) // the lock stays
	}
	b.Reset()
	record.Image(s.thread.Bytes(r.buf, record.LineSize)).Put(t.addr, id, record.Free, t.table.ID, t.class, 0, nil, nil)
	for k := range v.Copies(t.addr) {
		b.Write(v.At(t.addr, k), r.buf, record.LineSize)
	}
	if err := c.Do(b); err != nil {
		return s.fail(err)
	}
	s.alloc.Free(t.addr, t.class)
	return nil
}

// lookup runs a query to its end.
func lookup(c *rdma.Coro, t *Table, q *index.Query) error {
	var b rdma.Batch
	for range maxSearches {
		b.Reset()
		t.Index.Search(&b, q)
		if err := c.Do(&b); err != nil {
			return err
		}
		again, err := t.Index.Resolve(c, q)
		if err != nil || !again {
			return err
		}
	}
	return conflictErrors[AbortStale]
}
