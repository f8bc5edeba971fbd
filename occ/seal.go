package occ

import (
	"txnode/memory/record"
)

// seal completes the new images and their log entries.
func (tx *Tx) seal() error {
	buf, v := tx.logBytes(), tx.view
	tx.homes, tx.behind = 0, 0
	freed := tx.freed()
	for i := range tx.items {
		it := &tx.items[i]
		if it.write == writeNone {
			continue
		}
		if it.wlen > it.class.Size() {
			if err := tx.sealMove(it); err != nil {
				return err
			}
			continue
		}
		tx.sealImage(it)
		kind, prev := it.logged()
		tx.log.Set(buf, int(it.w), kind, it.addr, prev, freed, int(it.wlen))
		tx.spread(it)
	}
	if tx.view != v { // a move has met a segment that is newer than the map
		for i := range tx.items {
			if it := &tx.items[i]; it.write != writeNone && it.from == 0 {
				tx.spread(it)
			}
		}
	}
	return nil
}

// freed is what the log says of the blocks of a transaction that inserts or deletes: see
// log.Entry. Of records that were there before, and stay, their versions say enough.
func (tx *Tx) freed() uint64 {
	if !tx.linked && !tx.deletes && !tx.edits {
		return 0
	}
	return tx.s.eng.space.Frees()
}

// sealImage completes an item's new image, for the block at it.addr.
func (tx *Tx) sealImage(it *item) {
	state := record.Live
	if it.write == writeDelete {
		state = record.Absent
	}
	if it.state == record.Node {
		state = record.Node
	}
	m := record.MakeMeta(state, it.table.ID, it.class, int(it.klen), int(it.vlen))
	at := tx.logAt + uint32(it.w)
	if it.vacates {
		record.Image(tx.bytes(at, it.wlen)).PutFree(it.addr, tx.id, it.table.ID, it.class,
			tx.s.eng.space.CountFree(it.addr))
		return
	}
	if it.klen == 8 && it.wlen == record.LineSize {
		record.SealShort(tx.line(at), it.addr, tx.id, m)
		return
	}
	img := record.Image(tx.bytes(at, it.wlen))
	img.SetGuard(record.FreeAt(tx.id))
	img.Seal(it.addr, tx.id, m)
}
