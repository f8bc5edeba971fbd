package occ

import (
	"bytes"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// A damaged copy of a block is replaced by an intact one, between two transactions of a session
// that has met it. No log is needed, as no copy gets another version:
//
//  1. Read every copy. Those that are intact have to agree; V is their version.
//  2. Lock the primary by a CAS from "free at V". So V is current, the copies that were read before
//     are the record, and no writer is at work.
//  3. Write the intact image to the copies that differ, the primary last.
//  4. Set the guard free at V.
//
// A crash in between leaves a lock without a log record. Recovery takes it off at the version in
// the primary's first line (recovery.Unlock). If that is damaged too, the guard matches no copy,
// and the next reader repairs it as a damaged guard.
//
// If the guard itself is damaged, step 2 fails. The damaged word may have been a lock, whose
// holder is at work. RepairGuard is called when every session, of all processes, has ended all
// transactions that it had begun when the word was met. Whoever locked the block before has ended
// by then, and the word is still the same. A CAS from that word to "free at V" is safe then: a
// later lock was released with the word that it found, since no writer takes a copy whose version
// differs from its lock's.

// Repaired is what Repair has done to a block.
type Repaired struct {
	Addr   layout.Addr
	Table  uint16
	Key    []byte
	Copies int  // that were damaged
	Guard  bool // only the guard of the primary was
}

// HasServed reports whether Served returns a block.
func (tx *Tx) HasServed() bool { return len(tx.served) > 0 }

// Served returns a block that has served a transaction though a copy of it is damaged, and forgets
// it; 0: there is none.
func (tx *Tx) Served() layout.Addr {
	n := len(tx.served)
	if n == 0 {
		return 0
	}
	a := tx.served[n-1]
	tx.served = tx.served[:n-1]
	return a
}

// ill is what the last ErrCorrupt was about: a block, or the slot of an index that seems to lead to
// it.
type ill struct {
	block layout.Addr
	table *Table
	hash  uint64
}

// Ill returns the block that the last ErrCorrupt was about, and forgets it; 0: it is not
// known. table and near say which index has led there, and where it may be damaged; nil if
// that is not known.
func (tx *Tx) Ill() (block layout.Addr, table *Table, near layout.Addr) {
	x := tx.ill
	tx.ill = ill{}
	if x.table != nil {
		if ix, ok := x.table.Index.(interface{ Near(hash uint64) layout.Addr }); ok {
			return x.block, x.table, ix.Near(x.hash)
		}
	}
	return x.block, nil, 0
}

// Repair replaces damaged copies of a block by an intact one. whole: all copies are intact and
// alike now. It leaves a block whose intact copies disagree, whose guard names another version than
// they have, or of which no copy is intact. The transaction is not open.
func (tx *Tx) Repair(a layout.Addr) (m Repaired, whole bool, err error) {
	if tx.s.alloc == nil || tx.s.broken != nil || tx.open() {
		return m, false, nil
	}
	id, err := tx.s.nextTx()
	if err != nil {
		return m, false, err
	}
	old := tx.id
	tx.id, tx.busy = id, true // so that the session does not say that it is at rest
	tx.s.background++
	tx.s.openSpare()
	defer func() {
		tx.s.closeSpare()
		tx.s.background--
		tx.id, tx.busy = old, false
	}()
	x, err := tx.survey(a)
	if err != nil || x.good == nil {
		return m, false, err
	}
	m = x.repaired()
	if m.Copies == 0 && x.guard == x.good.Guard() {
		return m, true, nil
	}
	if held, err := tx.casGuard(x, x.good.Guard(), record.HeldBy(id)); err != nil || !held {
		return m, false, err
	}
	if err := tx.restore(x); err != nil {
		return m, false, tx.s.fail(err) // it may hold the lock
	}
	return m, true, nil
}

// BadGuard returns the guard of a block if it is damaged: the intact copies say with one voice that
// it is another one. agree: they say so, or that it is right. The transaction is not open.
func (tx *Tx) BadGuard(a layout.Addr) (guard record.Guard, bad, agree bool, err error) {
	if !tx.mayRepair() || !tx.s.eng.space.Tidy() {
		return 0, false, false, nil
	}
	x, err := tx.survey(a)
	if err != nil || x.good == nil {
		return 0, false, false, err
	}
	return x.guard, x.guard != x.good.Guard(), true, nil
}

// RepairGuard sets a guard that BadGuard has returned free at the version that the intact copies
// have with one voice, when everything has ended, in all processes, that had begun before: see
// [Rest]. The transaction is not open.
func (tx *Tx) RepairGuard(a layout.Addr, bad record.Guard) (m Repaired, done bool, err error) {
	if !tx.mayRepair() {
		return m, false, nil
	}
	x, err := tx.survey(a)
	if err != nil || x.good == nil || x.guard != bad {
		return m, false, err
	}
	m = x.repaired()
	m.Guard = m.Copies == 0
	done, err = tx.casGuard(x, x.guard, x.good.Guard())
	return m, done, err
}

// RepairIndex has the index of a table replace what is damaged of its primary, near an address, by
// what a copy has: how many words. Like a guard they may have been changed on the primary and not
// yet on the copies, so it is called when everything has ended, in all processes, that had begun
// when the damage was met. What dead coordinators have left need not be swept: the sweep may wait
// for it. Each step of a split is complete on all copies before the next one begins, so a word of a
// copy is at most one step behind. The transaction is not open.
func (tx *Tx) RepairIndex(t *Table, at layout.Addr) (words int, err error) {
	if !tx.CanRepairIndex(t) {
		return 0, nil
	}
	words, err = t.Index.(healing).Heal(tx.c, at)
	return words, tx.s.failed(err)
}

// CanRepairIndex reports whether RepairIndex can do anything to the index of a table now.
func (tx *Tx) CanRepairIndex(t *Table) bool {
	_, ok := t.Index.(healing)
	return ok && tx.mayRepair()
}

// healing is an index that can be repaired while it is in use.
type healing interface {
	Heal(c *rdma.Coro, at layout.Addr) (words int, err error)
}

// mayRepair reports whether the transaction may repair what is damaged.
func (tx *Tx) mayRepair() bool {
	return tx.s.alloc != nil && tx.s.broken == nil && !tx.open() && !tx.s.eng.space.FailoverPending()
}

// survey is what the copies of a block are.
type survey struct {
	addr   layout.Addr
	view   *layout.View
	guard  record.Guard // of the primary
	good   record.Image // what the intact copies say, as it is when free; nil: they do not, or disagree
	copies []record.Image
	ill    [layout.MaxReplicas]bool // of the copies, those that differ from good, but for the primary's guard
}

// repaired describes what is damaged.
func (x *survey) repaired() Repaired {
	m := Repaired{Addr: x.addr, Table: x.good.Meta().Table(), Key: x.good.Key()}
	for _, ill := range x.ill {
		if ill {
			m.Copies++
		}
	}
	return m
}

// survey reads all copies of a block.
func (tx *Tx) survey(a layout.Addr) (x survey, err error) {
	v := tx.s.eng.space.ViewOn(tx.s.thread)
	x = survey{addr: a, view: v}
	class, ok := tx.s.eng.space.ClassAt(a)
	if !ok || !v.Contains(a, record.LineSize) {
		return x, nil
	}
	for k := range v.Copies(a) {
		img, err := tx.readBlock(v, a, k, record.LineSize)
		if err != nil {
			return x, err
		}
		need, bad := img.Check(a)
		if need > record.LineSize && uint32(need) <= class.Size() && v.Contains(a, uint32(need)) {
			if img, err = tx.readBlock(v, a, k, need); err != nil {
				return x, err
			}
			need, bad = img.Check(a)
		}
		if k == 0 {
			x.guard = img.Guard()
		}
		x.copies = append(x.copies, img)
		free := bytes.Clone(img)
		record.Image(free).SetGuard(img.Unlocked())
		switch {
		case bad != nil || k > 0 && !img.Stable() && !img.Stranded(), k == 0 && wiped(img):
		case img.Stranded() || img.Meta().State() == record.Free || img.Version() == 0 || img.Meta().Class() != class,
			x.good != nil && !bytes.Equal(free[:need], x.good):
			x.good = nil
			return x, nil
		default:
			x.good = free[:need]
		}
	}
	if x.good == nil {
		return x, nil
	}
	for k, img := range x.copies {
		n := len(x.good)
		x.ill[k] = len(img) < n || !bytes.Equal(img[:record.GuardOff], x.good[:record.GuardOff]) ||
			!bytes.Equal(img[record.LineSize:n], x.good[record.LineSize:n]) || k > 0 && img.Guard() != x.good.Guard()
	}
	return x, nil
}

// wiped reports whether the first line of an image is zero but for its guard, as that of an unused
// block. A copy that has a record says that it was wiped.
func wiped(img record.Image) bool {
	return bytes.Equal(img[:record.GuardOff], make([]byte, record.GuardOff))
}

// casGuard replaces the guard of the primary, and reports whether it was old.
func (tx *Tx) casGuard(x survey, old, to record.Guard) (bool, error) {
	g := x.view.At(x.addr, 0)
	g.Off += record.GuardOff
	var b rdma.Batch
	b.CAS(g, uint64(old), uint64(to))
	if err := tx.c.Do(&b); err != nil {
		return false, tx.s.failed(err)
	}
	return b.Result(0) == uint64(old), nil
}

// restore writes the intact image to the copies that are damaged, the primary last, and
// releases the lock.
func (tx *Tx) restore(x survey) error {
	a, v := x.addr, x.view
	for k := v.Written(a) - 1; k >= 0; k-- {
		if k < len(x.copies) && !x.ill[k] {
			continue
		}
		if k == 0 {
			x.good.SetGuard(record.HeldBy(tx.id))
		}
		if err := tx.writeBlock(v, a, k, x.good); err != nil {
			return err
		}
	}
	if v.Written(a) > v.Copies(a) {
		tx.s.eng.space.CompareAgain() // the guard does not tell that the copy was written
	}
	return tx.writeGuard(v, a, x.good.Unlocked())
}

// repairChunk is how much of a block is read or written at once.
const repairChunk = 32 << 10

// readBlock reads the first n bytes of a copy of a block.
func (tx *Tx) readBlock(v *layout.View, a layout.Addr, k, n int) (record.Image, error) {
	img := make(record.Image, n)
	err := tx.chunks(v.At(a, k), n, func(b *rdma.Batch, at rdma.RemoteAddr, buf uint32, off, size int) error {
		b.Read(at, buf, uint32(size))
		if err := tx.c.Do(b); err != nil {
			return tx.s.failed(err)
		}
		copy(img[off:], tx.bytes(buf, uint32(size)))
		return nil
	})
	return img, err
}

// writeBlock writes a copy of a block, its first line last, and returns when it is placed.
func (tx *Tx) writeBlock(v *layout.View, a layout.Addr, k int, img record.Image) error {
	return tx.chunks(v.At(a, k), len(img), func(b *rdma.Batch, at rdma.RemoteAddr, buf uint32, off, size int) error {
		copy(tx.bytes(buf, uint32(size)), img[off:off+size])
		b.Write(at, buf, uint32(size))
		if err := tx.c.Do(b); err != nil {
			return err
		}
		return tx.c.Fence(rdma.FenceThread, 0, b)
	})
}

// writeGuard sets the guard of the primary, whose lock is the transaction's.
func (tx *Tx) writeGuard(v *layout.View, a layout.Addr, g record.Guard) error {
	at := v.At(a, 0)
	at.Off += record.GuardOff
	return tx.chunks(at, 8, func(b *rdma.Batch, at rdma.RemoteAddr, buf uint32, _, _ int) error {
		tx.s.thread.PutWord(buf, uint64(g))
		b.Write(at, buf, 8)
		return tx.c.Do(b)
	})
}

// chunks calls fn for the parts of n bytes at a place, the last one first.
func (tx *Tx) chunks(at rdma.RemoteAddr, n int,
	fn func(b *rdma.Batch, at rdma.RemoteAddr, buf uint32, off, size int) error) error {
	t := tx.s.thread
	room := min(n, repairChunk)
	buf, err := t.Alloc(room)
	if err != nil {
		return err
	}
	defer t.Free(buf, room)
	var b rdma.Batch
	for off := (n - 1) / repairChunk * repairChunk; off >= 0; off -= repairChunk {
		p := at
		p.Off += uint64(off)
		b.Reset()
		if err := fn(&b, p, buf, off, min(repairChunk, n-off)); err != nil {
			return err
		}
	}
	return nil
}
