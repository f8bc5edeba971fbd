package occ

import (
	"errors"
	"fmt"

	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// logRing is the space of the session's log areas, one per blade, all laid out
// alike.
type logRing struct {
	ring  *log.Ring
	areas []memory.LogArea
	on    bladeSet // that have an area, and that the session uses
	// without are those that it does without: see Session.reach.
	without bladeSet
}

func (r *logRing) init(c memory.Coordinator) {
	r.take(c.Logs)
	size := uint32(0)
	for _, a := range c.Logs {
		size = max(size, a.Size) // blades that are down have none
	}
	r.ring = log.NewRing(size, c.LogMax)
}

// take takes log areas over, of which some blades have none: those that are down, and those whose
// disks had no room.
func (r *logRing) take(areas []memory.LogArea) {
	r.areas, r.on = areas, 0
	for b := range areas {
		if areas[b].Size > 0 {
			r.on.add(rdma.BladeID(b))
		}
	}
	r.on &^= r.without
}

// reach notes which blades the session does without. Records that it has written there stay; those
// of transactions that come are elsewhere.
func (r *logRing) reach(without bladeSet) {
	r.without = without
	r.take(r.areas)
}

// left reports whether areas are on blades that the session does without.
func (r *logRing) left() bool {
	for b := range r.areas {
		if r.areas[b].Size > 0 && r.without.has(rdma.BladeID(b)) { // there are MaxBlades
			return true
		}
	}
	return false
}

// lacks reports whether a blade that is up has no area.
func (r *logRing) lacks(v *layout.View) bool { return r.on.len() < v.UpBlades() }

// at is where a record at offset off is on a blade.
func (r *logRing) at(v *layout.View, b rdma.BladeID, off uint32) rdma.RemoteAddr {
	a := r.areas[b].Addr
	a.Key = v.Key(b)
	a.Off += uint64(off)
	return a
}

// growLogs takes more of the log areas into use, for records of n bytes at least. When the catalog
// fails it can be tried again, and the session goes on with what it has.
func (s *Session) growLogs(co *rdma.Coro, n int) error {
	r := s.ring.ring
	for first := true; first || !r.Full() && r.Size() < n; first = false {
		var c memory.Coordinator
		id := s.coord.ID
		err := co.Await(func() (err error) {
			c, err = s.eng.space.GrowLogs(id)
			return err
		}, nil)
		if errors.Is(err, rdma.ErrLeft) {
			return fmt.Errorf("txn: more log space: %w", err)
		}
		if errors.Is(err, memory.ErrNoCoordinator) {
			return s.fail(fmt.Errorf("%w: more log space: %w", ErrFenced, err))
		}
		if err != nil {
			return fmt.Errorf("txn: more log space: %w", err)
		}
		size := uint32(0)
		for _, a := range c.Logs {
			size = max(size, a.Size)
		}
		r.Grow(size)
	}
	return nil
}

// reserveLog takes space in the log ring, waiting for older transactions of the
// session to come to rest if need be.
func (tx *Tx) reserveLog(n int) (uint32, error) {
	r := tx.s.ring.ring
	f := &tx.flights[tx.flight]
	var stuck error // there cannot be more of it just now
	for tries := 0; ; tries++ {
		if tx.s.broken != nil {
			return 0, tx.s.broken // no space comes free
		}
		off, token, ok := r.Reserve(n, tx.s.seq)
		if ok {
			f.token, f.held = token, true
			return off, nil
		}
		if n > r.Max() {
			return 0, tx.logTooLarge(n)
		}
		for _, o := range tx.s.txs {
			for i := range o.flights {
				if x := &o.flights[i]; x.held && x.bg.Done() && !(o.busy && i == o.flight) {
					// Completed; its owner has not come by yet.
					if err := x.bg.Err(); err != nil {
						return 0, tx.s.fail(err)
					}
					tx.s.release(x)
				}
			}
		}
		if stuck == nil && !r.Full() && (tries > 0 || n > r.Size() || r.Blocked()) {
			stuck = tx.s.growLogs(tx.c, n)
			if stuck != nil && (tx.s.broken != nil || n > r.Size()) {
				return 0, stuck
			}
			continue
		}
		if r.Blocked() && n <= r.Size() {
			if err := tx.mark(); err != nil {
				return 0, err
			}
			continue
		}
		if len(tx.s.held) > 0 && (tries > 0 || r.Full()) {
			if !tx.s.releaseCovered() {
				err := tx.s.eng.checkpoint(tx.c, tx.s)
				if tx.s.broken != nil {
					return 0, tx.s.broken
				}
				if err != nil {
					tx.met = meeting{stalled: errors.As(err, new(stalledError))}
					return 0, err
				}
			}
			continue
		}
		if tries > 0 {
			tx.c.Sleep(1000)
		}
	}
}

// mark writes a log record that says how far the coordinator has come, instead of the newest
// complete one, which a large record has to be written over. Nothing else of the ring is
// reserved.
func (tx *Tx) mark() error {
	s, c := tx.s, tx.c
	at, err := tx.alloc(log.HeaderSize)
	if err != nil {
		return err
	}
	var r log.Builder
	r.Reset()
	off, token, seq := s.ring.ring.Mark()
	n := r.Finish(tx.bytes(at, log.HeaderSize), log.Mark, record.MakeTxID(s.coord.ID, seq), 0, 0)
	var b rdma.Batch
	blades := bladeSet(0)
	for k := range tx.view.Blades() {
		if x := rdma.BladeID(k); tx.view.Up(x) && s.ring.on.has(x) {
			b.Write(s.ring.at(tx.view, x, off), at, uint32(n))
			blades.add(x)
		}
	}
	err = c.Do(&b)
	if err == nil && !s.caps.Placed {
		err = c.Fence(rdma.FenceThread, 0, &b)
	}
	if err == nil && s.eng.opts.Flush == FlushDurable {
		err = s.flushLogs(c, blades, off, n)
	}
	if err != nil {
		return s.fail(err)
	}
	s.ring.ring.Release(token, true)
	return nil
}
