package occ

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// reclaimer frees the blocks of deleted records, some time after the delete: a
// key that is deleted and inserted again soon keeps its block and its slot, which
// makes the insert as cheap as an update.
type reclaimer struct {
	mu      sync.Mutex  // for the queues, of which other sessions help themselves when space is short
	queue   []tombstone // oldest first
	ordered []tombstone // likewise, of ordered tables
	bytes   int         // of their blocks
	added   int         // since the last Maintain
	// listed are the blocks of ordered, at the versions: every range that comes by a deleted record
	// of one who is gone puts it on the list.
	listed map[layout.Addr]record.TxID

	busy  bool // a coroutine is reclaiming
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
	addr    layout.Addr
	class   layout.Class
	version record.TxID
}

// One Maintain reclaims reclaimBatch tombstones, or, if it is more, a reclaimPart of those
// that are due: between two of them there may be any number of deletes, and to reclaim fewer
// than were added would be to keep memory without bound. But somebody waits meanwhile: it is
// no more than reclaimMost, some milliseconds, or twice as many as were added.
const (
	reclaimBatch = 16
	reclaimPart  = 8
	reclaimMost  = 1024
)

func (r *reclaimer) add(it *item, v record.TxID) {
	r.push(tombstone{it.table, bytes.Clone(it.key()), it.keyHash(), it.place(), it.addr, it.class, v})
}

func (r *reclaimer) push(t tombstone) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.table.Ordered != nil {
		if r.listed[t.addr] == t.version {
			return
		}
		if r.listed == nil {
			r.listed = map[layout.Addr]record.TxID{}
		}
		r.listed[t.addr] = t.version
		r.ordered = append(r.ordered, t)
	} else {
		r.queue = append(r.queue, t)
	}
	r.bytes += int(t.class.Size())
	r.added++
}

// reclaimBytes is how much the blocks of deleted records may take that a session keeps for
// their keys to be inserted again: of small records it is more than Options.ReclaimAfter of them.
const reclaimBytes = 4 << 20

// orderedKeep is how many deleted records of ordered tables a session keeps: every range that
// comes by reads them.
const orderedKeep = 64

// heavy reports whether they take more, and then some: then it is worth while to reclaim them at
// once.
func (r *reclaimer) heavy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes > reclaimBytes+reclaimBytes/4 || len(r.ordered) > 2*orderedKeep
}

// excess is about how many tombstones are due, if keep may stay.
func (r *reclaimer) excess(keep int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := max(len(r.queue)-keep, len(r.ordered)-min(keep, orderedKeep))
	if over := r.bytes - reclaimBytes; over > 0 {
		n = max(n, over/(r.bytes/(len(r.queue)+len(r.ordered)))+1)
	}
	return n
}

// pop takes the oldest tombstone, unless there are no more than keep, and they are not too large.
func (r *reclaimer) pop(keep int) (t tombstone, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &r.queue
	switch heavy := r.bytes > reclaimBytes; {
	case len(r.ordered) > min(keep, orderedKeep), heavy && len(r.queue) == 0 && len(r.ordered) > 0:
		q = &r.ordered
	case len(r.queue) <= keep && !heavy, len(r.queue) == 0:
		return t, false
	}
	t = (*q)[0]
	r.bytes -= int(t.class.Size())
	if q == &r.ordered && r.listed[t.addr] == t.version {
		delete(r.listed, t.addr)
	}
	(*q)[0] = tombstone{}
	if *q = (*q)[1:]; len(*q) == 0 {
		*q = nil
	}
	return t, true
}

func (r *reclaimer) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) + len(r.ordered)
}

// MakeRoom reclaims all deleted records, also those of other sessions, instead of
// keeping them for a while, and returns how many blocks it has freed. The caller has
// run out of space, and runs no transaction on the coroutine.
func (s *Session) MakeRoom(c *rdma.Coro) (freed int, err error) {
	if s.alloc == nil || s.broken != nil {
		return 0, s.broken
	}
	s.takeTombstones()
	return s.reclaim.run(s, c, 0, s.reclaim.len())
}

// Scarce has records put into larger blocks than they need from now on, where there is no other
// room, and reports whether they were not before. The caller has called MakeRoom.
func (s *Session) Scarce() bool {
	return s.alloc != nil && s.broken == nil && !s.eng.scarce.Swap(true)
}

// Plenty ends what [Session.Scarce] has begun: a table was dropped, or segments have gone back.
func (e *Engine) Plenty() { e.scarce.Store(false) }

// LookThrough looks through what is left of earlier sessions, for so many nanoseconds at most, as
// [memory.Allocator.LookThrough] does. The caller runs no transaction on the coroutine.
func (s *Session) LookThrough(c *rdma.Coro, most int64) (more bool, err error) {
	if s.alloc == nil || s.broken != nil {
		return false, s.broken
	}
	if more, err = s.alloc.LookThrough(c, most); err != nil {
		err = s.failed(err)
	}
	return more, err
}

// Asked are the classes, by bit, of which the transaction has asked for blocks, or the last attempt
// did.
func (tx *Tx) Asked() uint64 { return tx.asked }

// block allocates a block of a class, or, when there is no room, and nothing is deleted that could
// make some, of a larger one: whose records then may grow in place. It returns its class.
func (tx *Tx) block(c *rdma.Coro, class layout.Class) (layout.Addr, layout.Class, error) {
	tx.asked |= 1 << class
	s := tx.s
	a, err := s.alloc.Alloc(c, class)
	if err != nil && s.eng.scarce.Load() && errors.Is(err, memory.ErrNoSpace) {
		a, larger, e := s.alloc.AllocLarger(c, class)
		if e == nil {
			return a, larger, nil
		}
		if !errors.Is(e, memory.ErrNoSpace) {
			err = e
		}
	}
	return a, class, err
}

// manyDeleted is how many deleted records there are at least of a session before they are reclaimed
// rather than larger blocks used than are needed.
const manyDeleted = 64

// takeTombstones takes the tombstones of all other sessions.
func (s *Session) takeTombstones() {
	e := s.eng
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range s.others() {
		s.reclaim.take(&o.reclaim)
	}
}

// handTombstones ends what a session does for deleted records, when it is closed. It gives those
// that are left to another session: what is locked, or linked in an index that is damaged, and, if
// the session could not rejoin, all. No sweep reclaims those that it took upon itself of
// coordinators that live, which do not have them on a list any more. A session that is being closed
// as well takes them, too, as long as it has not resigned: somebody who locks one may do nothing
// but end. false: nobody is there to take them, and whoever had locked them has ended meanwhile, so
// they are to be reclaimed once more; the last time, they stay until a sweep comes by.
func (s *Session) handTombstones(last bool) bool {
	e := s.eng
	e.mu.Lock()
	defer e.mu.Unlock()
	others := s.others()
	if len(others) == 0 && s.reclaim.len() > 0 && !last {
		return false
	}
	delete(e.reclaimers, s)
	if len(others) == 0 {
		return true
	}
	o := others[0]
	for _, x := range others {
		if e.sessions[x] != 0 { // it is neither broken nor being closed
			o = x
			break
		}
	}
	o.reclaim.take(&s.reclaim)
	return true
}

// others lists the other sessions of the engine that reclaim, in one order, so that a simulated run
// is the same each time. The caller holds the engine's lock.
func (s *Session) others() []*Session {
	others := make([]*Session, 0, len(s.eng.reclaimers))
	for o := range s.eng.reclaimers {
		if o != s {
			others = append(others, o)
		}
	}
	slices.SortFunc(others, func(a, b *Session) int { return cmp.Compare(a.thread.Index(), b.thread.Index()) })
	return others
}

// take takes what another one has.
func (r *reclaimer) take(o *reclaimer) {
	for n := o.len(); n > 0; n-- {
		if t, ok := o.pop(0); ok {
			r.push(t)
		}
	}
}

// run reclaims at most n tombstones, the oldest first, and leaves keep. What is locked just now is
// tried again another time, and so is what is linked in an index that is damaged, or lost: who uses
// that table is told, and the others' deleted records do not wait for it.
func (r *reclaimer) run(s *Session, c *rdma.Coro, keep, n int) (freed int, err error) {
	if r.busy {
		return 0, nil
	}
	r.busy = true
	s.openSpare()
	var t tombstone
	at := false // t is neither on the list nor done with
	defer func() {
		s.closeSpare()
		r.busy = false
		if at { // a panic unwinds the coroutine: somebody gets it when the session is closed
			r.push(t)
		}
	}()
	for ; n > 0; n-- {
		if t, at = r.pop(keep); !at {
			break
		}
		result, err := r.one(s, c, &t)
		at = false
		switch result {
		case reclaimLater:
			r.push(t)
		case reclaimed:
			freed++
		}
		if s.broken == nil && (errors.Is(err, layout.ErrCorrupt) || errors.Is(err, layout.ErrLost)) {
			continue
		}
		if err != nil {
			return freed, fmt.Errorf("txn: reclaiming a deleted record of table %q: %w", t.table.Name, err)
		}
	}
	return freed, nil
}

// some is what one Maintain reclaims. When nothing of a batch is to be had, the rest is not
// asked for either.
func (r *reclaimer) some(s *Session, c *rdma.Coro, keep int) error {
	r.mu.Lock()
	most := max(reclaimMost, 2*r.added)
	r.added = 0
	r.mu.Unlock()
	for due, n := r.excess(keep), 0; due > 0; {
		if _, err := r.run(s, c, keep, reclaimBatch); err != nil {
			return err
		}
		left, heavy := r.excess(keep), r.heavy()
		if n += reclaimBatch; left >= due || n >= most || !heavy && n >= left/reclaimPart {
			break
		}
		due = left
	}
	return nil
}

// close frees what run needs.
func (r *reclaimer) close(s *Session) {
	if r.size > 0 {
		s.thread.Free(r.buf, r.size)
		r.size = 0
	}
}

// reclaimResult is what has become of a tombstone.
type reclaimResult uint8

const (
	reclaimLater reclaimResult = iota // it is locked, or could not be reclaimed
	reclaimNever                      // the key was used again
	reclaimed
)

func (r *reclaimer) one(s *Session, c *rdma.Coro, t *tombstone) (reclaimResult, error) {
	if t.table.Dropped() {
		return reclaimNever, nil // its index may be gone
	}
	if t.table.Ordered != nil {
		return s.unlink(c, t)
	}
	need := t.table.Index.BufferSize() + record.LineSize
	if r.size < need {
		at, err := s.thread.Alloc(need)
		if err != nil {
			return reclaimLater, err
		}
		r.close(s)
		r.buf, r.size = at, need
	}
	if r.query == nil {
		r.query = &index.Query{}
	}
	id, err := s.nextTx()
	if errors.Is(err, ErrConflict) {
		return reclaimLater, nil
	}
	if err != nil {
		return reclaimLater, err
	}
	v := s.eng.space.ViewOn(s.thread)
	if !v.Valid(t.addr) {
		if err := s.eng.space.Missing(v, t.addr); errors.Is(err, rdma.ErrVerb) {
			return reclaimLater, s.fail(err) // it is another session's, and this one was declared dead
		}
		return reclaimNever, nil // lost with its blade
	}
	if memory.BladesOf(v, t.addr)&uint64(s.without) != 0 {
		return reclaimLater, nil
	}
	b := &r.batch
	g := v.At(t.addr, 0)
	g.Off += record.GuardOff
	b.Reset()
	cas := b.CAS(g, uint64(record.FreeAt(t.version)), uint64(record.HeldBy(id)))
	if err := c.Do(b); err != nil {
		return reclaimLater, s.fail(err)
	}
	if prior := record.Guard(b.Result(cas)); prior.Held() {
		return reclaimLater, nil
	} else if prior != record.FreeAt(t.version) {
		return reclaimNever, nil
	}
	q := r.query
	q.Key, q.Hash, q.Local, q.View = t.key, t.hash, r.buf+record.LineSize, v
	leave := func(err error) error {
		b.Reset()
		b.CAS(g, uint64(record.HeldBy(id)), uint64(record.FreeAt(t.version)))
		if e := c.Do(b); e != nil {
			err = s.fail(e)
		}
		return err
	}
	err = lookup(c, t.table, q)
	if err == nil {
		err = s.reachesIndex(t.table, q)
	}
	if err != nil && (s.refused(err) != nil || errors.Is(err, memory.ErrCutOff)) {
		return reclaimLater, leave(nil)
	}
	if err != nil {
		return reclaimLater, leave(err)
	}
	s.eng.forget(t.table.ID, t.key, t.spot, t.addr)
	switch err := t.table.Index.Remove(c, q, t.addr); {
	case errors.Is(err, index.ErrChanged):
		// Nobody unlinks what somebody else has locked: damage has. A copy may still lead there,
		// so the block stays.
		return reclaimNever, leave(nil)
	case err != nil:
		return reclaimLater, s.fail(err) // the lock stays
	}
	s.alloc.Hold(t.addr)
	b.Reset()
	record.Image(s.thread.Bytes(r.buf, record.LineSize)).PutFree(t.addr, id, t.table.ID, t.class,
		s.eng.space.CountFree(t.addr))
	// The primary has the lock, and comes last: whoever finishes this for a dead session
	// knows by it that there is something to be finished.
	for k := 1; k < v.Written(t.addr); k++ {
		b.Write(v.At(t.addr, k), r.buf, record.LineSize)
	}
	for last := false; ; last = true {
		if last {
			b.Reset()
			record.AppendFree(b, v.At(t.addr, 0), r.buf, s.caps.OrderedLine)
		}
		if err := c.Do(b); err != nil {
			return reclaimLater, s.fail(err)
		}
		if err := c.Fence(rdma.FenceThread, 0, b); err != nil { // before anybody has the block again
			return reclaimLater, s.fail(err)
		}
		if last {
			break
		}
	}
	s.alloc.Free(t.addr, t.class)
	return reclaimed, nil
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
