package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// buildRestNs bounds how long Build waits for workers of other processes.
const buildRestNs = int64(10_000_000_000)

// begin builds the index if the table has no record yet: of one that has, Build may take long.
func (x *Index[K, V, I]) begin() error {
	t, ctx := x.table, context.Background()
	if t.db.built(t.t.Name, x.name) || t.db.readOnly() {
		return nil
	}
	empty := true
	if err := t.db.View(ctx, func(tx *Tx) error {
		for range t.Keys(tx) {
			empty = false
			break
		}
		return nil
	}); err != nil || !empty {
		return err
	}
	return x.Build(ctx, nil)
}

// Build makes an index that was defined when the table had records. It goes on beside transactions, in small ones of its own;
// progress, if not nil, is told how many records it has looked at. If it is stopped, or the process dies, another call begins
// again, and has less to do. A second record with a key of a unique index is ErrUnique. Build of an index that is built does nothing.
func (x *Index[K, V, I]) Build(ctx context.Context, progress func(records uint64)) (err error) {
	if x.table == nil {
		return fmt.Errorf("%w: index %q belongs to no table: create or open one with it", ErrOptions, x.name)
	}
	if err := x.alive(); err != nil {
		return err
	}
	t, db := x.table, x.table.db
	if db.built(t.t.Name, x.name) {
		return nil
	}
	if db.readOnly() {
		return fmt.Errorf("%w: index %q of table %q can not be built", ErrReadOnly, x.name, t.t.Name)
	}
	w, err := db.NewWorker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	// Transactions that do not keep the index may be under way. None begins, since the catalog has it.
	since, from := db.since(t.t.Name, x.name), w.thread.Now()
	for rest := occ.NewRest(w.thread.Now(), since); since > 0 && !rest.Ended(w.session, w.coro); w.coro.Sleep(dropPauseNs) {
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		db.askIdle()
		if !db.space.Shared() {
			continue
		}
		if err := db.learn(t.t.Name); err != nil || db.built(t.t.Name, x.name) {
			return err
		}
		if w.thread.Now()-from > buildRestNs {
			return fmt.Errorf("%w: index %q of table %q: workers of other processes have been at work since before it was defined: let the process build it that has defined it, or close that", memory.ErrShared, x.name, t.t.Name)
		}
	}
	var keys []K
	done := uint64(0)
	flush := func() error {
		err := w.Update(ctx, func(tx *Tx) error {
			if err := t.StageAll(tx, ForUpdate, keys...); err != nil {
				return err
			}
			for _, k := range keys {
				v, found, err := t.Lookup(tx, k)
				if err != nil {
					return err
				}
				if !found {
					continue
				}
				if err := (&Table[K, V]{t: t.t, db: db, key: t.key, value: t.value, indexes: []TableIndex[K, V]{x}}).keep(tx, k, nil, &v); err != nil {
					return err
				}
			}
			return nil
		})
		done += uint64(len(keys))
		keys = keys[:0]
		if err == nil && progress != nil {
			progress(done)
		}
		return err
	}
	walker, ok := t.t.Index.(index.Walker)
	if !ok {
		return fmt.Errorf("%w: table %q", occ.ErrNoScan, t.t.Name)
	}
	heads := keyReader{w: w, table: t.t}
	walk := func(_ memory.Addr, c index.Candidate) error {
		p, err := heads.key(c)
		if err != nil || p == nil {
			return err
		}
		k, err := t.decodeKey(p)
		if err != nil {
			return err
		}
		if keys = append(keys, k); len(keys) < rowsAtOnce {
			return nil
		}
		return flush()
	}
	err = w.insist(ctx, func() error {
		keys = keys[:0]
		return walker.Walk(w.coro, walk)
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return fmt.Errorf("txn: building index %q of table %q: %w", x.name, t.t.Name, err)
	}
	return db.noteBuilt(t.t.Name, x.name, x.alive)
}

// keyReader reads keys of records outside of transactions.
type keyReader struct {
	w     *Worker
	table *occ.Table
}

// key returns the key of the record in a block, nil: it is none of the table's just now.
func (r *keyReader) key(c index.Candidate) ([]byte, error) {
	th, v := r.w.thread, r.w.db.space.ViewOn(r.w.thread)
	if !v.Valid(c.Addr) {
		return nil, nil
	}
	n := int(min(c.Class.Size(), record.LineSize+record.MaxKey))
	buf, err := th.Alloc(n)
	if err != nil {
		return nil, err
	}
	defer th.Free(buf, n)
	var b rdma.Batch
	b.Read(v.At(c.Addr, 0), buf, uint32(n))
	if err := r.w.coro.Do(&b); err != nil {
		return nil, err
	}
	img := record.Image(th.Bytes(buf, uint32(n)))
	m := img.Meta()
	at := record.KeyAt(m.KeyLen())
	if m.State() != record.Live || m.Table() != r.table.ID || at+m.KeyLen() > n {
		return nil, nil
	}
	return bytes.Clone(img[at : at+m.KeyLen()]), nil
}
