package occ

import (
	"unsafe"

	"txnode/history"
	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// The straight path: what a transaction does when nothing is unusual. Its keys have 8
// bytes and its records one line, their addresses are in the cache and right, nobody
// holds a lock that it meets, and nothing is inserted, moved or torn. Each phase is one
// loop over the items, without a call for each. A loop stops at the first item that is
// unusual and leaves it, and the rest, to the general path, whose steps
// (probe.go, default.go) do the same for this case; nothing that an item meets there
// is decided here.

// probeLines appends the requests of the items that the straight path can fetch: for
// each a READ of its line, with the lock in front if it is to be updated. It returns
// how many items these are, from the first on.
func (tx *Tx) probeLines(items []item) int {
	if tx.next+uint32(len(items))*record.LineSize > tx.end || !tx.s.plain {
		return 0
	}
	for i := range items {
		if it := &items[i]; it.step == stepNew {
			tx.locate(it)
		}
	}
	b, view := &tx.batch, tx.view
	base := b.Len()
	wrs := b.Extend(2 * len(items))
	k, n, blades := 0, 0, uint64(0)
	for ; n < len(items) && k+1 < len(wrs); n++ {
		it := &items[n]
		if it.step != stepProbe || it.class != 0 {
			break
		}
		from := view.At(it.addr, 0)
		blades |= rdma.BladeBit(from.Blade)
		at := tx.next + uint32(n)*record.LineSize
		it.buf, it.bufLen = at, record.LineSize
		if it.update {
			it.cas = int32(base + k)
			guard := from
			guard.Off += record.GuardOff
			wrs[k].SetMaskedCAS(guard, 0, uint64(record.HeldBy(tx.id)), tx.s.masks)
			k++
		}
		wrs[k].SetRead(from, at, record.LineSize)
		k++
	}
	tx.next += uint32(n) * record.LineSize
	b.Truncate(base + k)
	b.Count(rdma.OpRead, n, uint64(n)*record.LineSize, blades)
	b.Count(rdma.OpMaskedCAS, k-n, uint64(k-n)*8, 0)
	return n
}

// acceptLines looks at the lines that probeLines has asked for, of the items from the
// first on, and returns how many are as they should be: verified records of their
// keys, free, or locked by this transaction as they are. unlocked of them are not
// locked.
func (tx *Tx) acceptLines(items []item) (n, unlocked int) {
	held := record.HeldBy(tx.id)
	for n = range items {
		it := &items[n]
		line := tx.line(it.buf)
		v, m, ok := record.CheckShort(line, it.addr, it.table.ID, it.short)
		if !ok || it.klen != 8 {
			return n, unlocked
		}
		if m.State() != record.Live && tx.locksLost(it) {
			return n, unlocked
		}
		g := record.GuardOf(line)
		if it.update {
			if g != held || record.Guard(tx.batch.Result(int(it.cas))) != record.FreeAt(v) {
				return n, unlocked // held by another, or its last lines are still on their way
			}
			it.locked, it.prior = true, record.FreeAt(v)
		} else {
			if g != record.FreeAt(v) {
				return n, unlocked
			}
			unlocked++
		}
		it.version, it.class, it.step, it.state = v, m.Class(), stepDone, m.State()
		if it.write == writeNone {
			it.val, it.vlen, it.has = it.buf+record.KeyOff+8, uint32(m.ValueLen()), m.State() == record.Live
		}
	}
	return len(items), unlocked
}

// entry is the header of an entry in the log buffer, at an offset in the arena.
func (tx *Tx) entry(at uint32) *log.EntryHeader {
	return (*log.EntryHeader)(unsafe.Add(tx.base, at))
}

// copies returns where the copies of an item's segment begin that its image goes to.
func (tx *Tx) copies(it *item) []rdma.RemoteAddr {
	return tx.view.Replicas(it.addr)
}

// commitStraight is commitDefault for images of one line.
func (tx *Tx) commitStraight() error {
	c, b, v := tx.c, &tx.batch, tx.view
	c.Count = &tx.phases[PhaseCommit]
	n := tx.log.Len()
	off, err := tx.reserveLog(n)
	if err != nil {
		return tx.abandon(err)
	}
	f := &tx.flights[tx.flight]
	b.Reset()
	base, want := b.Len(), tx.logCopies(v)
	wrs := b.Extend(want + tx.writes*(layout.MaxReplicas-1))
	k, sums := tx.commitLines(wrs[want:], &f.bg)
	b.Truncate(base + want + k)
	rest := tx.logBlades(v, want)
	logs, blades := rest.len(), uint64(rest|tx.behind)
	if logs > want { // backups on many blades
		b.Insert(base, logs-want)
		wrs = b.WRs()[base:]
	}
	for i := range wrs[:logs] {
		wrs[i].SetWrite(tx.s.ring.at(v, rest.take(), off), tx.logAt, uint32(n))
	}
	b.Count(rdma.OpWrite, logs+k, uint64(logs*n+k*record.LineSize), blades)
	tx.log.FinishLines(tx.entry(tx.logAt), log.Redo, tx.id, f.generation, tx.s.ahead(tx.id), sums)
	if !tx.s.caps.Placed {
		tx.flushBackups(b)
	}
	if err := c.Do(b); err != nil {
		f.bg.Forget()
		return tx.undecided(err)
	}
	tx.conclude(history.Committed)
	c.Count = &tx.phases[PhaseRelease]
	c.Post(&f.bg)
	return nil
}

// commitLines is seal, appendBackups and installPrimaries for images of one line, for the
// blocks that their records have: it completes them and their log entries, makes the first
// k of copies the WRITEs to the backups, which it does not count, and appends those to the
// primaries, which release the locks, to bg. What is locked and was not written is
// released, too. It returns what the log entries hash to: see log.SetLine.
func (tx *Tx) commitLines(copies []rdma.WR, bg *rdma.Batch) (k int, sums uint64) {
	id := tx.id
	homes := bg.Extend(tx.writes)
	n, unwritten := 0, false
	primaries, backups := bladeSet(0), bladeSet(0)
	freed := tx.freed()
	for i := range tx.items {
		it := &tx.items[i]
		if it.write == writeNone {
			unwritten = unwritten || it.locked
			continue
		}
		state := record.Live
		if it.write == writeDelete {
			state = record.Absent
		}
		at := tx.logAt + uint32(it.w)
		sum := record.SealShort(tx.line(at), it.addr, id,
			record.MakeMeta(state, it.table.ID, it.class, 8, int(it.vlen)))
		sums ^= log.SetLine(tx.entry(at-log.EntryHeaderSize), uint32(it.w)-log.EntryHeaderSize, it.addr,
			it.version, id, freed, sum)
		off, to := uint64(it.addr.Offset()), tx.copies(it)
		a := to[0]
		a.Off += off
		primaries.add(a.Blade)
		homes[n].SetWrite(a, at, record.LineSize)
		n++
		for _, a := range to[1:] {
			a.Off += off
			backups.add(a.Blade)
			copies[k].SetWrite(a, at, record.LineSize)
			k++
		}
	}
	tx.homes, tx.behind = primaries, backups
	bg.Count(rdma.OpWrite, n, uint64(n)*record.LineSize, uint64(primaries))
	if unwritten {
		for i := range tx.items {
			if it := &tx.items[i]; it.locked && it.write == writeNone {
				tx.appendRelease(it)
			}
		}
	}
	return k, sums
}
