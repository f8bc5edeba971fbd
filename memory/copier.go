package memory

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"txnode/memory/internal/blockline"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Copier fills the copies of segments that are being built, while transactions run, and makes them
// full ones. It belongs to one goroutine at a time. It takes no locks.
//
// Words of an index are copied by [SyncWords], as sessions that change one do.
//
// A block is copied when its guard is free. It counts as copied when the guard is the same after
// the copy has been placed. A guard names the image, and no two images of a block share one. So no
// other image was installed in between. A later writer locks the block first, and writes the copy,
// too, after the copier. A transaction that had locked the block and given up has written nothing.
// A block that is free on the primary is made free on the copy in the same way.
//
// A block that is locked, or has changed, is looked at again. If its lock belongs to no
// coordinator, and cannot be resolved because the index or the block is damaged, it is copied all
// the same. The copier waits for a block that a live coordinator has locked. Meanwhile copies of
// other segments become full ones.
//
// All this holds within one epoch, in which all writers write the copies that are being built. A
// writer that does not finish is followed by a new epoch. The copier then compares everything
// again. So it does when verbs of a session have failed that goes on in the same epoch
// (Space.CompareAgain). It finishes in the epoch in which it has compared everything.
//
// A block that was locked on a lost blade is not locked any more, and recovery writes it without a
// lock. So the copier waits until all transactions of that time are decided. Copies may not count
// earlier, either: all of them would have what an undecided transaction had written on one, while
// its log might be on one blade alone, the next to be lost.
//
// With Options.Durable a copy is flushed as a whole when everything has been compared. What
// transactions and index changes have written to it is not in a log for ever, and equal bytes may
// be equal only until the power goes.
type Copier struct {
	space *Space
	epoch layout.Epoch
	// failures is how often verbs had failed when the pass began: see Space.CompareAgain.
	failures uint64

	work  []layout.SegmentID
	at    int           // in work
	off   uint32        // in the segment
	later []layout.Addr // blocks to be looked at again
	idle  int           // steps in a row that have brought nothing
	p     CopyProgress
	// held are blocks to be looked at again whose locks are not nobody's.
	held map[layout.Addr]heldSince
	// suspects are blocks that were copied though they look locked, and are perhaps damaged.
	suspects []layout.Addr
}

// heldSince is the guard of a block, and since when it has been the same.
type heldSince struct {
	guard uint64
	since int64
}

// CopyProgress is how far a copier is.
type CopyProgress struct {
	Total    uint64 // bytes to be compared
	Done     uint64 // bytes compared
	Copied   uint64 // bytes of blocks written, in all passes
	Passes   int    // begun, one for each epoch, or more
	Finished int    // segments that became full again, since the copier was made
}

// NewCopier makes a copier. It is made once: it finds its work by itself.
func (s *Space) NewCopier() *Copier { return &Copier{space: s, held: map[layout.Addr]heldSince{}} }

// Suspects are blocks that were copied although they look locked: by no coordinator that ever was,
// or by one that has closed and left nothing to be swept. They may be damaged. They are copied as
// they are, so that other copies need not wait. At most maxSuspects are remembered.
func (k *Copier) Suspects() []layout.Addr { return k.suspects }

// Stuck is an error if the copier waits for a block that has been locked for long by one and
// the same transaction.
func (k *Copier) Stuck(now int64) error {
	var at layout.Addr
	for a, h := range k.held {
		if now-h.since > copyStuckNs && (at == 0 || h.since < k.held[at].since || h.since == k.held[at].since &&
			a < at) {
			at = a
		}
	}
	if at == 0 {
		return nil
	}
	h := k.held[at]
	return fmt.Errorf("%w: block %v, for %v, by coordinator %d: a transaction that does not end, one of a dead "+
		"worker that is not swept yet, or the block is damaged, which a check of the database, closed, can tell",
		ErrStuck, at, time.Duration(now-h.since).Round(time.Millisecond), h.guard>>blockline.CoordinatorShift)
}

// Progress returns how far the copier is.
func (k *Copier) Progress() CopyProgress { return k.p }

const (
	copyChunk = 64 << 10 // bytes of a segment in a step
	// of a part of an index that changes all the time, before it is asked again whether an
	// extent there is reserved
	copyTries   = 16
	copyRetries = 256 // blocks looked at again in a step
	copyWhole   = 256 // bytes of a block that is read as a whole for its guard, among its neighbours
	// copyPatience is after how many steps in which all of them are locked still it is asked whose
	// locks that are: some 4 ms.
	copyPatience = 12
	// copyStuckNs is how long a lock is waited for before it is said, and before the copies of
	// other segments become full ones in an epoch of their own.
	copyStuckNs = 2e9
	maxSuspects = 1 << 10
)

// Step does a part of the work: some hundred microseconds on a fast fabric. idle
// means that nothing is being built, or that it has to wait (Space.FailoverPending). After an
// error, of a verb or of the catalog, the thread's queue pairs may have to be connected again;
// nothing is lost.
func (k *Copier) Step(c *rdma.Coro) (idle bool, err error) {
	v := k.space.ViewOn(c.Thread()) // before it is asked what is undecided
	if k.space.FailoverPending() {
		return true, nil
	}
	// sessions of before the epoch may write to a blade, and not to the copies
	if err := k.space.EndKeys(); err != nil {
		return false, err
	}
	if f := k.space.failures.Load(); v.Epoch != k.epoch || f != k.failures {
		k.failures = f
		k.restart(v)
	}
	ended := false
	defer func() {
		if !ended {
			k.epoch = 0 // what was under way is not known: a verb has failed, or a panic unwinds the thread
		}
	}()
	switch {
	case len(k.work) == 0:
		ended = true
		return true, nil
	case k.at < len(k.work):
		err = k.forward(c, v)
	case len(k.later) > 0:
		err = k.again(c, v)
	default:
		err = k.finish(c, v, k.work)
	}
	ended = err == nil
	return false, err
}

// finish makes the copies of segments full ones. Then it is looked for more.
func (k *Copier) finish(c *rdma.Coro, v *layout.View, ids []layout.SegmentID) error {
	k.epoch = 0
	if k.space.durable() {
		if err := flushBuilding(c, v, ids); err != nil {
			return err
		}
	}
	n, err := k.space.finishIn(v.Epoch, k.failures, ids)
	k.p.Finished += n
	return err
}

// beside lists the segments that have nothing to be looked at again.
func (k *Copier) beside() []layout.SegmentID {
	wait := map[layout.SegmentID]bool{}
	for _, a := range k.later {
		wait[a.Segment()] = true
	}
	return slices.DeleteFunc(slices.Clone(k.work), func(id layout.SegmentID) bool { return wait[id] })
}

// restart makes a list of what is to be done.
func (k *Copier) restart(v *layout.View) {
	k.epoch, k.work, k.at, k.off, k.later, k.idle = v.Epoch, k.work[:0], 0, 0, k.later[:0], 0
	clear(k.held)
	for id := 1; id < v.Segments(); id++ {
		if a := layout.MakeAddr(layout.SegmentID(id), 0); v.Written(a) > v.Copies(a) {
			k.work = append(k.work, layout.SegmentID(id))
		}
	}
	k.p.Done, k.p.Total = 0, uint64(len(k.work))*uint64(k.space.opts.SegmentSize)
	if len(k.work) > 0 {
		k.p.Passes++
	}
}

// forward does the next part of a segment.
func (k *Copier) forward(c *rdma.Coro, v *layout.View) error {
	id := k.work[k.at]
	kind, class, size := k.space.purpose(id)
	n := uint32(copyChunk)
	var err error
	if kind == layout.KindIndex {
		for _, r := range k.space.copied(id, k.off, n) {
			done, err := syncWords(c, v, layout.MakeAddr(id, r[0]), r[1], copyTries)
			if !done || err != nil {
				return err
			}
		}
	} else {
		block := class.Size()
		n = max(copyChunk/block, 1) * block
		end := size / block * block
		n = min(n, end-k.off)
		err = k.blocks(c, v, layout.MakeAddr(id, k.off), n, block)
		if k.off+n == end {
			n = size - k.off
		}
	}
	if err != nil {
		return err
	}
	k.p.Done += uint64(n)
	if k.off += n; k.off >= size {
		k.at, k.off = k.at+1, 0
	}
	return nil
}

// ClassAt is the class of the blocks of the segment in which an address is, whatever they say
// themselves: one that was never used, or of which a half was written, says nothing. false: there
// is no such segment.
func (s *store) ClassAt(a layout.Addr) (layout.Class, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(a.Segment()) >= len(s.layout.Segments) {
		return 0, false
	}
	return s.layout.Segments[a.Segment()].Class, true
}

// purpose is what a segment is for, and how many bytes of it may be used by now.
func (s *store) purpose(id layout.SegmentID) (layout.SegmentKind, layout.Class, uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout.Segments[id].Kind, s.layout.Segments[id].Class, s.layout.Backed(id)
}

// again looks at blocks once more that were locked, or have changed.
func (k *Copier) again(c *rdma.Coro, v *layout.View) error {
	list := k.later
	rest := []layout.Addr(nil)
	if len(list) > copyRetries {
		list, rest = list[:copyRetries], list[copyRetries:]
	}
	before := len(k.later)
	list = append([]layout.Addr(nil), list...)
	k.later = append([]layout.Addr(nil), rest...)
	for i, a := range list {
		_, class, _ := k.space.purpose(a.Segment())
		if k.idle >= copyPatience {
			done, err := k.nobodys(c, v, a, class.Size())
			if err != nil {
				k.later = append(k.later, list[i:]...)
				return err
			}
			if done {
				delete(k.held, a)
				continue
			}
		}
		n := len(k.later)
		if err := k.blocks(c, v, a, class.Size(), class.Size()); err != nil {
			k.later = append(k.later, list[i:]...)
			return err
		}
		if len(k.later) == n {
			delete(k.held, a)
		}
	}
	if len(k.later) < before {
		k.idle = 0
	} else {
		if k.Stuck(c.Thread().Now()) != nil {
			if ids := k.beside(); len(ids) > 0 {
				return k.finish(c, v, ids)
			}
		}
		k.idle++
		c.Sleep(min(int64(1000)<<min(k.idle, 20), 1_000_000))
	}
	return nil
}

// nobodys copies a block with its lock, if that is nobody's, so that only who resolves it
// would change anything: which is nobody else as long as the copier has the right to. It is for
// blocks whose locks are not resolved without the index, and are taken off all copies then: deleted
// records and placeholders, and records whose moves could not be finished. A sweep would have
// seen to them, were not the index of their table damaged: the copies of all others do not wait.
//
// What else is locked by nobody a sweep unlocks. Where none is due the block is damaged, or its
// guard is, by which it looks locked: it is copied as it would be when it is unlocked.
func (k *Copier) nobodys(c *rdma.Coro, v *layout.View, a layout.Addr, block uint32) (done bool, err error) {
	r := k.space.BeginResolve(a, 0)
	if r == nil {
		return false, nil
	}
	defer r.End(false, 0)
	t := c.Thread()
	chunk := min(block, copyChunk)
	buf, err := t.Alloc(int(chunk))
	if err != nil {
		return false, err
	}
	defer t.Free(buf, int(chunk))
	var b rdma.Batch
	guard := func() (uint64, error) {
		b.Reset()
		b.Read(v.At(a, 0), buf, blockline.LineSize)
		err := c.Do(&b)
		return t.Word(buf + blockline.GuardOff), err
	}
	first, err := guard()
	if err != nil || first&blockline.HeldBit == 0 {
		return false, err
	}
	state := t.Word(buf+blockline.MetaOff) >> blockline.StateShift & blockline.StateMask
	beyond := state == blockline.StateAbsent || state == blockline.StateLive &&
		first>>1&(1<<(blockline.CoordinatorShift-1)-1) >= blockline.MaxSequence
	owner := uint32(first >> blockline.CoordinatorShift)
	if k.space.Registered(owner) || !beyond && !k.space.neverUnlocked(owner) {
		if h, ok := k.held[a]; !ok || h.guard != first {
			k.held[a] = heldSince{first, t.Now()}
		}
		return false, nil
	}
	for o := (block - 1) / chunk * chunk; ; o -= chunk { // the first line comes last
		n := min(chunk, block-o)
		b.Reset()
		b.Read(v.At(a+layout.Addr(o), 0), buf, n)
		if err := c.Do(&b); err != nil {
			return false, err
		}
		if o == 0 && !beyond {
			t.PutWord(buf+blockline.GuardOff, t.Word(buf+blockline.VersionOff)&^blockline.HeldBit)
		}
		b.Reset()
		for i := v.Copies(a); i < v.Written(a); i++ {
			b.Write(v.At(a+layout.Addr(o), i), buf, n)
			k.p.Copied += uint64(n)
		}
		if err := c.Do(&b); err != nil {
			return false, err
		}
		if o == 0 {
			break
		}
	}
	if err := c.Fence(rdma.FenceThread, 0, &b); err != nil {
		return false, err
	}
	now, err := guard()
	if err != nil || now != first {
		return false, err
	}
	if !beyond && len(k.suspects) < maxSuspects && !slices.Contains(k.suspects, a) {
		k.suspects = append(k.suspects, a)
	}
	return true, nil
}

// neverUnlocked reports whether a lock of a coordinator's is nobody's, and no sweep will unlock it:
// it never was, or is gone, and nothing is left to be swept but what is damaged.
func (s *store) neverUnlocked(owner uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return owner == 0 || owner >= s.layout.NextCoordinator || s.tidy()
}

// blocks copies the blocks of n bytes at a, n a multiple of the size of one.
func (k *Copier) blocks(c *rdma.Coro, v *layout.View, a layout.Addr, n, block uint32) error {
	for i := v.Copies(a); i < v.Written(a); i++ {
		if block > copyChunk {
			if err := k.large(c, v, a, block, i); err != nil {
				return err
			}
			continue
		}
		if err := k.compare(c, v, a, n, block, i); err != nil {
			return err
		}
	}
	return nil
}

// verdict is what is to be done about a block.
type verdict uint8

const (
	blockSame  verdict = iota
	blockCopy          // all of it
	blockFree          // its header
	blockLater         // it is locked
)

// judge compares a block of the primary with its copy. Of a free one the header is all.
func judge(p, copied []byte) verdict {
	guard := binary.LittleEndian.Uint64(p[blockline.GuardOff:])
	if guard&blockline.HeldBit != 0 {
		return blockLater
	}
	free := func(p []byte) bool {
		return binary.LittleEndian.Uint64(
			p[blockline.MetaOff:])>>blockline.StateShift&blockline.StateMask == blockline.StateFree
	}
	if free(p) {
		// The number of its freeing counts, too: see strays.go.
		if bytes.Equal(p[:blockline.LineSize], copied[:blockline.LineSize]) {
			return blockSame
		}
		return blockFree
	}
	if bytes.Equal(p, copied) {
		return blockSame
	}
	return blockCopy
}

// compare reads a run of blocks from the primary and from copy i, and copies what
// differs.
func (k *Copier) compare(c *rdma.Coro, v *layout.View, a layout.Addr, n, block uint32, i int) error {
	t := c.Thread()
	buf, err := t.Alloc(int(2 * n))
	if err != nil {
		return err
	}
	defer t.Free(buf, int(2*n))
	var b rdma.Batch
	b.Read(v.At(a, 0), buf, n)
	b.Read(v.At(a, i), buf+n, n)
	if err := c.Do(&b); err != nil {
		return err
	}
	var todo []copying
	for o := uint32(0); o < n; o += block {
		p := t.Bytes(buf+o, block)
		x := copying{
			at: a + layout.Addr(o), buf: buf + o, n: block, guard: binary.LittleEndian.Uint64(p[blockline.GuardOff:]),
		}
		switch judge(p, t.Bytes(buf+n+o, block)) {
		case blockLater:
			k.later = append(k.later, x.at)
		case blockFree:
			x.n = blockline.LineSize
			todo = append(todo, x)
		case blockCopy:
			todo = append(todo, x)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	return k.transfer(c, v, todo, i)
}

// copying is a block on its way.
type copying struct {
	at    layout.Addr
	buf   uint32 // arena, for n bytes
	n     uint32
	guard uint64 // when it was first seen
}

// runs calls fn for each run of blocks that lie one behind the other, here and in the arena: its
// first one has the place, and n bytes are all of them. Small blocks that are copied by the
// thousand are few verbs then.
func runs(all []copying, fn func(run []copying, n uint32)) {
	for i := 0; i < len(all); {
		from, n := i, all[i].n
		for i++; i < len(all) && all[i].at == all[from].at+layout.Addr(n) && all[i].buf == all[from].buf+n; i++ {
			n += all[i].n
		}
		fn(all[from:i], n)
	}
}

// transfer reads the blocks once more, now that their guards are known, writes those
// that have kept them to copy i, and looks whether they still have.
func (k *Copier) transfer(c *rdma.Coro, v *layout.View, todo []copying, i int) error {
	var b rdma.Batch
	runs(todo, func(run []copying, n uint32) { b.Read(v.At(run[0].at, 0), run[0].buf, n) })
	if err := c.Do(&b); err != nil {
		return err
	}
	kept := k.kept(c.Thread(), todo)
	if len(kept) == 0 {
		return nil
	}
	b.Reset()
	runs(kept, func(run []copying, n uint32) {
		b.Write(v.At(run[0].at, i), run[0].buf, n)
		k.p.Copied += uint64(n)
	})
	if err := c.Do(&b); err != nil {
		return err
	}
	if err := c.Fence(rdma.FenceThread, 0, &b); err != nil {
		return err
	}
	b.Reset()
	runs(kept, func(run []copying, n uint32) {
		if len(run) > 1 && run[0].n <= copyWhole {
			b.Read(v.At(run[0].at, 0), run[0].buf, n)
			return
		}
		for _, x := range run {
			b.Read(v.At(x.at+blockline.GuardOff, 0), x.buf+blockline.GuardOff, 8)
		}
	})
	if err := c.Do(&b); err != nil {
		return err
	}
	k.kept(c.Thread(), kept)
	return nil
}

// kept returns the blocks that have the guards in the arena that they had; the others
// are looked at again.
func (k *Copier) kept(t *rdma.Thread, all []copying) []copying {
	same := all[:0]
	for _, x := range all {
		if t.Word(x.buf+blockline.GuardOff) == x.guard {
			same = append(same, x)
		} else {
			k.later = append(k.later, x.at)
		}
	}
	return same
}

// large copies a block to copy i piece by piece, the first line last.
func (k *Copier) large(c *rdma.Coro, v *layout.View, a layout.Addr, block uint32, i int) error {
	t := c.Thread()
	buf, err := t.Alloc(2 * copyChunk)
	if err != nil {
		return err
	}
	defer t.Free(buf, 2*copyChunk)
	var b rdma.Batch
	b.Read(v.At(a, 0), buf, blockline.LineSize)
	b.Read(v.At(a, i), buf+copyChunk, blockline.LineSize)
	if err := c.Do(&b); err != nil {
		return err
	}
	head := copying{at: a, buf: buf, n: blockline.LineSize, guard: t.Word(buf + blockline.GuardOff)}
	switch judge(t.Bytes(buf, blockline.LineSize), t.Bytes(buf+copyChunk, blockline.LineSize)) {
	case blockLater:
		k.later = append(k.later, a)
		return nil
	case blockFree:
		return k.transfer(c, v, []copying{head}, i)
	}
	if binary.LittleEndian.Uint64(t.Bytes(buf+blockline.MetaOff,
		8))>>blockline.StateShift&blockline.StateMask == blockline.StateFree {
		return nil
	}
	for o := uint32(blockline.LineSize); o < block; o += copyChunk {
		n := min(copyChunk, block-o)
		b.Reset()
		b.Read(v.At(a+layout.Addr(o), 0), buf, n)
		b.Read(v.At(a+layout.Addr(o), i), buf+copyChunk, n)
		if err := c.Do(&b); err != nil {
			return err
		}
		if bytes.Equal(t.Bytes(buf, n), t.Bytes(buf+copyChunk, n)) {
			continue
		}
		b.Reset()
		b.Write(v.At(a+layout.Addr(o), i), buf, n)
		if err := c.Do(&b); err != nil {
			return err
		}
		k.p.Copied += uint64(n)
	}
	return k.transfer(c, v, []copying{head}, i)
}
