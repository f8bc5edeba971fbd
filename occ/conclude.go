package occ

import (
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
		tx.scans = nil // they may be large, and the next transaction may not begin for long
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

// Forsake records a transaction that has not ended as one of unknown outcome: its
// thread is gone, as a simulated one that was stopped, and nobody will ever be told.
func (tx *Tx) Forsake() {
	if tx.open() && tx.hist != nil {
		tx.report(history.Unknown)
	}
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
		switch it.write {
		case writePut:
			h.Op(history.Op{Key: read.Key, Version: history.Version(tx.id), Prev: read.Version, Kind: history.Write})
		case writeDelete:
			h.Op(history.Op{Key: read.Key, Version: history.Version(tx.id), Prev: read.Version, Kind: history.Delete})
		}
	}
	h.End(uint64(tx.id), tx.start, tx.clock(), outcome)
}

// reportScans writes what the scans have read to the history.
func (tx *Tx) reportScans(h *history.Session) {
	for s := tx.scans; s != nil; s = s.next {
		for _, op := range s.seen {
			h.Op(op)
		}
	}
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
		op := it.seen()
		switch it.write {
		case writePut:
			h.Op(history.Op{Key: op.Key, Version: history.Version(tx.id), Prev: op.Version, Kind: history.Write})
		case writeDelete:
			h.Op(history.Op{Key: op.Key, Version: history.Version(tx.id), Prev: op.Version, Kind: history.Delete})
		}
	}
	h.Fail(uint64(tx.id), tx.start, tx.clock())
}

// seen is what the transaction has read of an item.
func (it *item) seen() history.Op {
	kind := history.Read
	if it.state != record.Live {
		kind = history.ReadAbsent
	}
	return history.Op{Key: history.Key(it.keyHash()), Version: history.Version(it.version), Kind: kind}
}

// Witness reports what a recorded transaction has read by now as one that has only read that, whatever
// becomes of it: for tests of what running transactions see.
func (tx *Tx) Witness(h *history.Session) {
	tx.reportScans(h)
	for i := range tx.items[:tx.fetched] {
		h.Op(tx.items[i].seen())
	}
	h.End(uint64(record.HeldBy(tx.id)), tx.start, tx.clock(), history.Committed) // which is no transaction's id
}
