package occ

import (
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Reading of what an index leads to: see Scan.

// scanBuffer allocates what a scan reads blocks into: scanRoom bytes, or less if the arena is almost
// full, but not less than scanLeast.
func scanBuffer(t *rdma.Thread) (buf uint32, room int, err error) {
	room = scanRoom
	buf, err = t.Alloc(room)
	for errors.Is(err, rdma.ErrArenaFull) && room > scanLeast {
		room /= 2
		buf, err = t.Alloc(room)
	}
	return buf, room, err
}

// read reads the blocks that the scan does not know. dangling: one is free, which counts for
// absent in the last look.
func (s *Scan) read(blocks []index.Candidate, last bool) (dangling bool, err error) {
	tx, t := s.tx, s.tx.s.thread
	buf, room, err := scanBuffer(t)
	if err != nil {
		return false, s.indexError(err)
	}
	defer func() { t.Free(buf, room) }()
	if s.o != nil {
		return s.readJoined(blocks, buf, uint32(room), last)
	}
	for len(blocks) > 0 {
		b := &s.batch
		b.Reset()
		s.reading = s.reading[:0]
		n, used := 0, uint32(0)
		for ; n < len(blocks) && b.Len() < scanBatch; n++ {
			x := blocks[n]
			if _, ok := s.known[x.Addr]; ok {
				continue
			}
			if !tx.reaches(x.Addr) || x.Class >= layout.NumClasses {
				return false, tx.lost(&item{table: s.table}, x.Addr)
			}
			size := readLen(x.Class)
			if used+size > uint32(room) {
				break
			}
			b.Read(tx.view.At(x.Addr, 0), buf+used, size)
			used += size
			s.reading = append(s.reading, x)
		}
		if err := tx.c.Do(b); err != nil {
			return false, tx.s.stopped(err)
		}
		at := buf
		for _, x := range s.reading {
			img := record.Image(t.Bytes(at, readLen(x.Class)))
			at += readLen(x.Class)
			if _, ok := s.known[x.Addr]; ok {
				continue // two slots lead to it: one is being moved
			}
			if dangling, err = s.take(x, img, last); err != nil || dangling {
				return dangling, err
			}
		}
		blocks = blocks[n:]
	}
	return false, nil
}

// take accepts the image of a block that was read, or looks at the block for longer.
func (s *Scan) take(x index.Candidate, img record.Image, last bool) (dangling bool, err error) {
	if _, err := img.Check(x.Addr); err != nil || !img.Stable() && img.Guard() != record.HeldBy(s.tx.id) {
		return s.pursue(x, last)
	}
	return s.accept(x, img, last)
}

// accept notes a block whose image is whole, and unlocked or locked by the transaction.
func (s *Scan) accept(x index.Candidate, img record.Image, last bool) (dangling bool, err error) {
	tx, m, g := s.tx, img.Meta(), img.Guard()
	e := evidence{addr: x.Addr, guard: g, own: g.Held()}
	switch {
	case m.State() == record.Free:
		if !last {
			return true, nil
		}
	case m.Table() != s.table.ID:
		if !last {
			return true, nil
		}
		return false, fmt.Errorf("%w: index of table %q leads to block %v of table %d",
			ErrCorrupt, s.table.Name, x.Addr, m.Table())
	}
	e.row = m.State() == record.Live && !e.own
	before := len(s.seen)
	if s.o != nil && tx.hist != nil {
		s.seen = append(s.seen, s.table.op(img.Key(), img.Version(), m.State()))
	}
	if s.o != nil && m.State() == record.Absent && !e.own {
		tx.addTombstone(s.table, x, img)
	}
	if err := s.note(e); err != nil || !e.row && !(s.o != nil && m.State() == record.Live) {
		return false, err
	}
	key, value := img.Key(), img.Value()
	s.rows = append(s.rows, scanRow{before, len(s.data), len(key), len(value), int32(len(s.found) - 1)})
	s.data = append(append(s.data, key...), value...)
	if tx.hist != nil && s.o == nil {
		s.seen = append(s.seen, s.table.op(key, img.Version(), m.State()))
	}
	return false, nil
}

// note adds what the scan has met to what is validated.
func (s *Scan) note(e evidence) error {
	if limit := s.tx.s.thread.ArenaSize(); (len(s.found)+1)*evidenceSize > limit {
		return &TooLargeError{
			What: "scan", Got: (len(s.found) + 1) * evidenceSize, Limit: limit,
			Remedy: fmt.Sprintf("a scan counts %d bytes of Arena for each record of table %q: raise Arena, or read "+
				"the keys in several transactions", evidenceSize, s.table.Name),
		}
	}
	if s.o == nil {
		s.known[e.addr] = int32(len(s.found))
	}
	s.found = append(s.found, e)
	return nil
}

// pursue looks at a block that is being written, or is locked, until it is neither. If that takes
// too long, it stages the key: then the block is an item's, with all that is done for those.
func (s *Scan) pursue(x index.Candidate, last bool) (dangling bool, err error) {
	tx := s.tx
	size := int(readLen(x.Class))
	var img record.Image
	var bad error
	for tries := range maxRereads {
		if img, err = s.look(x.Addr, 0, size); err != nil {
			return false, err
		}
		var need int
		if need, bad = img.Check(x.Addr); need > size && need <= int(x.Class.Size()) {
			size = need
			continue
		}
		if bad == nil && (img.Stable() || img.Guard() == record.HeldBy(tx.id)) {
			return s.accept(x, img, last)
		}
		if tries > 2 {
			tx.c.Sleep(int64(min(tries, 16)) * scanPauseNs)
		}
	}
	g := img.Guard()
	if bad != nil && g.Held() {
		return false, tx.meet(AbortReadLocked, &item{table: s.table, addr: x.Addr}, g)
	}
	for k := 1; bad != nil && k < tx.view.Copies(x.Addr); k++ {
		// The primary is damaged: another copy knows whose block it is.
		if img, err = s.look(x.Addr, k, int(x.Class.Size())); err != nil {
			return false, err
		}
		if _, bad = img.Check(x.Addr); bad == nil && (img.Meta().Table() != s.table.ID || img.Meta().KeyLen() == 0) {
			bad = record.ErrTorn
		}
	}
	if it := (&item{table: s.table, addr: x.Addr}); errors.Is(bad, record.ErrForm) {
		return false, tx.damaged(it, bad)
	} else if bad != nil {
		return false, tx.meet(AbortReadLocked, it, g) // Unblock tells damage from a writer that is slow
	}
	if img.Meta().State() == record.Free || img.Meta().Table() != s.table.ID {
		return true, nil // its guard is damaged, or it is being used again
	}
	return s.stand(x, img.Key(), g)
}

// scanPauseNs is the pause between two looks at a block that is locked, times how many there were.
const scanPauseNs = 1000

// stand has an item stand for a block. dangling: the key has no block by now, or another one.
func (s *Scan) stand(x index.Candidate, key []byte, g record.Guard) (dangling bool, err error) {
	tx := s.tx
	it := &item{table: s.table, addr: x.Addr, klen: uint32(len(key)), long: key}
	if s.checking || s.claimed {
		return false, tx.meet(AbortReadLocked, it, g)
	}
	i, err := tx.Stage(s.table, append([]byte(nil), key...), false)
	if err != nil {
		return false, err
	}
	if err := tx.Execute(); err != nil {
		return false, err
	}
	if tx.items[i].addr != x.Addr {
		return true, nil
	}
	if err := s.note(evidence{addr: x.Addr, own: true}); err != nil || s.o == nil {
		return false, err
	}
	return false, s.stands(i)
}

// stands takes an item for a row of a range, which has its place among the others.
func (s *Scan) stands(i int) error {
	it := &s.tx.items[i]
	before := len(s.seen)
	if s.tx.hist != nil {
		s.seen = append(s.seen, it.seen())
	}
	if it.state != record.Live {
		return nil
	}
	value, _, err := s.Read(i) // if it was deleted Next finds that
	if err != nil {
		return err
	}
	s.rows = append(s.rows, scanRow{before, len(s.data), len(it.key()), len(value), int32(len(s.found) - 1)})
	s.data = append(append(s.data, it.key()...), value...)
	return nil
}

// look copies the first bytes of a copy of a block.
func (s *Scan) look(a layout.Addr, replica, size int) (record.Image, error) {
	tx, t := s.tx, s.tx.s.thread
	buf, err := t.Alloc(size)
	if err != nil {
		return nil, s.indexError(err)
	}
	defer t.Free(buf, size)
	s.batch.Reset()
	s.batch.Read(tx.view.At(a, replica), buf, uint32(size))
	if err := tx.c.Do(&s.batch); err != nil {
		return nil, tx.s.stopped(err)
	}
	return append(record.Image(nil), t.Bytes(buf, uint32(size))...), nil
}

func (s *Scan) indexError(err error) error {
	return s.tx.indexError(&item{table: s.table}, "walking", err)
}
