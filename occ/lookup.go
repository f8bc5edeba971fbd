package occ

import (
	"math/bits"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// query gives the item a query object.
func (tx *Tx) query(it *item) (*index.Query, error) {
	if it.query != nil {
		return it.query, nil
	}
	var q *index.Query
	if n := len(tx.queries); n > 0 {
		q, tx.queries = tx.queries[n-1], tx.queries[:n-1]
	} else {
		q = &index.Query{}
	}
	at, err := tx.alloc(uint32(it.table.Index.BufferSize()) + 64)
	if err != nil {
		return nil, err
	}
	q.Key, q.Hash, q.Local, q.View = it.key(), it.keyHash(), (at+63)&^63, tx.view
	it.query = q
	tx.queried = true
	return q, nil
}

func (tx *Tx) searched(it *item) error {
	q := it.query
	again, err := it.table.Index.Resolve(tx.c, q)
	if err != nil {
		return tx.indexError(it, "looking up in", err)
	}
	if again {
		return tx.searchAgain(it)
	}
	switch len(q.Candidates) {
	case 0:
		return tx.absent(it)
	case 1:
		it.addr, it.class = q.Candidates[0].Addr, q.Candidates[0].Class
		if !tx.reaches(it.addr) || it.class >= layout.NumClasses {
			return tx.lost(it, it.addr)
		}
		it.bufLen = 0
		it.step = stepProbe
	default:
		it.step = stepMany
	}
	return nil
}

func (tx *Tx) searchAgain(it *item) error {
	it.tries++
	if it.tries > maxSearches {
		return tx.giveUp(it)
	}
	if it.tries > 2 {
		tx.c.Yield()
	}
	it.step = stepSearch
	return nil
}

// giveUp is the conflict with whatever has kept an item's lookup from coming to an end: see
// Unblock.
func (tx *Tx) giveUp(it *item) error {
	if tx.readCopies(it) {
		return nil
	}
	switch {
	case tx.dangling != 0 || tx.ragged.addr == 0:
		tx.met = meeting{addr: tx.dangling, table: it.table, key: it.key()}
	default:
		tx.met, it.addr = tx.ragged, tx.ragged.addr
	}
	tx.dangling, tx.ragged = 0, meeting{}
	return tx.conflict(AbortStale, it)
}

// looks is how much of a candidate of a class is read.
func (it *item) looks(c layout.Class) uint32 {
	return min(c.Size(), max(readLen(c), 1<<it.looksFar))
}

// readMany looks for the key among several candidates, which were read without locks.
func (tx *Tx) readMany(it *item) error {
	first := int(it.rd) - len(it.query.Candidates) + 1
	tx.dangling, tx.ragged = 0, meeting{}
	torn, far := false, uint8(0) // being written; how far is to be read, if one is longer than what was read
	for k, x := range it.query.Candidates {
		w := tx.batch.WR(first + k)
		img := record.Image(tx.bytes(w.Local, w.Len))
		need, err := img.Check(x.Addr)
		if err != nil {
			torn = true
			if need > int(w.Len) {
				far = max(far, uint8(bits.Len32(uint32(need-1)))) // its block may be much larger
			} else {
				tx.ragged = meeting{addr: x.Addr, guard: img.Guard()}
			}
			continue
		}
		if tx.matches(it, img) {
			it.addr, it.class = x.Addr, x.Class
			it.buf, it.bufLen = w.Local, w.Len
			it.backup = it.copy > 0
			if img.Guard().Held() || !img.Stable() {
				it.step = stepProbe // decides by itself what that means
				return nil
			}
			return tx.found(it, img)
		}
		if img.Meta().State() == record.Free {
			torn, tx.dangling = true, x.Addr
		}
		it.query.Candidates[k].Version = img.Version()
	}
	if torn {
		if far > it.looksFar {
			it.looksFar = far // and stays at this step
			return nil
		}
		return tx.searchAgain(it)
	}
	it.step = stepConfirm
	return nil
}

// notThis notes that the only candidate of the item's key has been seen not to hold
// it. A block that is free is about to leave its slot, or its slot to get another: the
// lookup is repeated. One of another key stays what it is as long as slot and
// version do, which is confirmed before the absence is believed. One of several
// candidates, that seemed to be the one, tells nothing about the others.
func (tx *Tx) notThis(it *item, img record.Image) error {
	if it.table.Ordered != nil {
		return tx.notHere(it, img)
	}
	it.addr = 0
	if img.Meta().State() == record.Free {
		tx.dangling = it.query.Candidates[0].Addr
		return tx.searchAgain(it)
	}
	if len(it.query.Candidates) > 1 {
		return tx.searchAgain(it)
	}
	it.query.Candidates[0].Version = img.Version()
	it.step = stepConfirm
	return nil
}

// absent accepts that the key has no block.
func (tx *Tx) absent(it *item) error {
	it.addr, it.version, it.state = 0, 0, record.Free
	it.step = stepDone
	return nil
}
