package occ

import (
	"slices"

	"txnode/history"
	"txnode/memory/record"
)

// conclude reports the transaction to the history, and ends it for its caller.
func (tx *Tx) conclude(outcome history.Outcome) {
	if tx.tap != nil {
		tx.tell(outcome == history.Committed)
	}
	tx.concluded = outcome == history.Committed
	if tx.concluded {
		tx.tallyAll()
	}
	if tx.linked && tx.concluded {
		tx.usePlaceholders()
	}
	if tx.edits && tx.concluded {
		tx.usePrivate()
	}
	if tx.hist != nil {
		tx.report(outcome)
	}
	if tx.deletes && (tx.s.eng.opts.Policy == PolicyDefault || outcome == history.Committed) {
		tx.rememberDeleted()
	}
	tx.finish()
}

// usePlaceholders notes that the blocks of inserts are in use.
func (tx *Tx) usePlaceholders() {
	for i := range tx.items {
		if it := &tx.items[i]; it.inserted {
			tx.s.alloc.Used(it.addr)
		}
	}
}

// rememberDeleted remembers deleted records for reclaiming.
func (tx *Tx) rememberDeleted() {
	for i := range tx.items {
		if it := &tx.items[i]; it.write == writeDelete {
			tx.s.reclaim.add(it, tx.id)
		}
	}
	tx.s.due = tx.s.reclaim.heavy()
	if e := tx.s.eng; e.scarce.Load() && tx.s.reclaim.len() >= manyDeleted {
		e.scarce.Store(false)
	}
}

func (tx *Tx) finish() {
	tx.active = false
	if tx.scans != nil {
		tx.endScans()
	}
	if !tx.queried {
		return
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.query != nil && (it.from == 0 || it.write == writeNone) {
			tx.freeQuery(it) // those of records that move are used once more
		}
	}
}

func (tx *Tx) freeQuery(it *item) {
	tx.queries = append(tx.queries, it.query)
	it.query = nil
}

// Abandon records a transaction that has not ended as one of unknown outcome: its
// thread is gone, as a simulated one that was stopped, and nobody will ever be told.
func (tx *Tx) Abandon() {
	if tx.open() && tx.hist != nil {
		tx.report(history.Unknown)
	}
}

// undecided concludes a transaction of which an error leaves open whether it has committed.
func (tx *Tx) undecided(err error) error {
	err = tx.unknown(err)
	tx.conclude(history.Unknown)
	return err
}

// report writes the transaction's operations to the history.
func (tx *Tx) report(outcome history.Outcome) {
	h := tx.hist
	tx.reportScans(h)
	for i := range tx.items {
		it := &tx.items[i]
		if it.state == record.Node {
			continue
		}
		read := it.seen()
		h.Op(read)
		tx.reportWrite(h, it, read)
	}
	h.End(uint64(tx.id), tx.start, tx.clock(), outcome)
}

// reportWrite writes what the transaction does to an item, of which it has seen read.
func (tx *Tx) reportWrite(h *history.Session, it *item, read history.Op) {
	var kind history.Kind
	switch it.write {
	case writePut:
		kind = history.Write
	case writeDelete:
		kind = history.Delete
	default:
		return
	}
	h.Op(history.Op{
		Key: read.Key, Position: read.Position, Version: history.Version(tx.id), Prev: read.Version, Kind: kind,
	})
}

// reportScans writes what the scans have read to the history.
func (tx *Tx) reportScans(h *history.Session) {
	for s := tx.scans; s != nil; s = s.next {
		if s.unvalidated {
			continue
		}
		if s.o == nil {
			for _, op := range s.seen {
				h.Op(op)
			}
			continue
		}
		// What the transaction has written itself is not in the answer.
		answer := slices.DeleteFunc(slices.Clone(s.seen), func(op history.Op) bool {
			return slices.ContainsFunc(tx.items, func(it item) bool {
				return it.write != writeNone && it.state != record.Node && history.Key(it.keyHash()) == op.Key
			})
		})
		if s.table.Hashed { // it is no range of keys
			for _, op := range answer {
				h.Op(op)
			}
			continue
		}
		r := s.o.interval(s.table)
		r.Cut = !s.claimed
		h.Range(r, answer)
	}
}

// op is a read of a key of the table.
func (t *Table) op(key []byte, v record.TxID, s record.State) history.Op {
	op := history.Op{
		Key: history.Key(record.Hash(t.ID, key)), Version: history.Version(v), Kind: history.Read,
		Position: t.position(key),
	}
	if s != record.Live {
		op.Kind = history.ReadAbsent
	}
	return op
}

// position is where a key stands in the table, if that is ordered.
func (t *Table) position(key []byte) history.Position {
	if t.Ordered == nil || t.Hashed {
		return ""
	}
	return history.PositionOf(uint32(t.ID), key)
}

// interval is what a walk is over.
func (o *orderedScan) interval(t *Table) history.Range {
	r := history.Range{
		From: history.PositionOf(uint32(t.ID), o.from.Key),
		To:   history.PositionOf(uint32(t.ID), o.to.Key), Descending: o.down,
	}
	if o.from.After {
		r.From = r.From.After()
	}
	if o.to.After {
		r.To = r.To.After()
	}
	if o.to.End {
		r.To = history.TableEnd(uint32(t.ID))
	}
	return r
}

// reportFailed writes to the history what the transaction would have written, had it not failed.
func (tx *Tx) reportFailed() {
	h := tx.hist
	h.Drop()
	for i := range tx.items {
		it := &tx.items[i]
		if it.state == record.Node {
			continue
		}
		tx.reportWrite(h, it, it.seen())
	}
	h.Fail(uint64(tx.id), tx.start, tx.clock())
}

// seen is what the transaction has read of an item.
func (it *item) seen() history.Op {
	kind := history.Read
	if it.state != record.Live {
		kind = history.ReadAbsent
	}
	return history.Op{
		Key: history.Key(it.keyHash()), Version: history.Version(it.version), Kind: kind,
		Position: it.table.position(it.key()),
	}
}

// Witness reports what a recorded transaction has read by now as one that has only read that,
// whatever becomes of it: for tests of what running transactions see.
func (tx *Tx) Witness(h *history.Session) {
	tx.reportScans(h)
	for i := range tx.items[:tx.fetched] {
		h.Op(tx.items[i].seen())
	}
	h.End(uint64(record.HeldBy(tx.id)), tx.start, tx.clock(), history.Committed) // which is no transaction's id
}
