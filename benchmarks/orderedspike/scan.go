package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"txnode/index/blink"
	"txnode/memory"
	"txnode/memory/record"
)

// scanner is the work space of scans: arena for some leaves and for rows.
type scanner struct {
	leaves, rows uint32
	evidence     []evidence
	runs         []run
	entries      []entry
}

// evidence is a block and the version that it must have for an answer to hold.
type evidence struct {
	addr    memory.Addr
	version record.TxID
}

// entry is a row that a leaf leads to.
type entry struct {
	addr memory.Addr
	key  [8]byte
	at   uint32 // where its block has been read to
}

// run is a piece of a segment that one READ covers.
type run struct {
	addr memory.Addr
	n    uint32
	at   uint32 // in the arena
}

const (
	maxLeaves = 64
	maxRows   = 512
	maxGap    = 3 // unwanted blocks between two, that are cheaper to read than a verb
)

func (k *client) prepareScan() error {
	s := &k.scan
	if s.leaves != 0 {
		return nil
	}
	t := k.c.Thread()
	var err error
	if s.leaves, err = t.Alloc(maxLeaves * int(k.w.geometry.Class.Size())); err != nil {
		return err
	}
	s.rows, err = t.Alloc(2 * maxRows * (1 + maxGap) * record.LineSize)
	return err
}

// scanRange reads the rows with from <= key < to, and validates that they existed together and that
// there was no other. It returns their keys.
func (k *client) scanRange(from, to uint64) ([]uint64, error) {
	k.c.BeginOp()
	defer k.c.EndOp()
	for {
		keys, err := k.tryScan(from, to)
		if !errors.Is(err, errHeld) {
			return keys, err
		}
		k.w.stats.held++
		k.c.Backoff()
	}
}

func (k *client) tryScan(from, to uint64) ([]uint64, error) {
	if err := k.prepareScan(); err != nil {
		return nil, err
	}
	s := &k.scan
	s.evidence, s.entries = s.evidence[:0], s.entries[:0]
	k.w.work(engine.TxnNs)
	lo, hi := keyOf(from), keyOf(to)
	if err := k.scanLeaves(lo[:], hi[:]); err != nil {
		return nil, err
	}
	if err := k.scanRows(); err != nil {
		return nil, err
	}
	if err := k.validate(); err != nil {
		return nil, err
	}
	keys := make([]uint64, len(s.entries))
	for i := range s.entries {
		keys[i] = numberOf(s.entries[i].key)
	}
	return keys, nil
}

// scanLeaves reads the leaves of a range: at once those that cached parents know, and one by one what right
// links lead to beside them. The fences of what it has read tile the range.
func (k *client) scanLeaves(lo, hi []byte) error {
	w, s := k.w, &k.scan
	size := w.geometry.Class.Size()
	from, end := blink.Before(lo), blink.Before(hi)
	addrs, err := k.guessLeaves(lo, hi)
	if err != nil {
		return err
	}
	next := lo // where the next leaf begins, or what it holds
	for i := 0; ; {
		b := &k.batch
		b.Reset()
		for j := i; j < len(addrs); j++ {
			b.Read(w.at(addrs[j], 0), s.leaves+uint32(j)*size, size)
		}
		if err := k.c.Do(b); err != nil {
			return err
		}
		for known := true; known; {
			n, im, ok := k.node(addrs[i], s.leaves+uint32(i)*size, 0)
			w.work(w.readNs)
			if !ok || !im.Stable() {
				return errHeld
			}
			switch n.Cover(next) {
			case blink.NotHere:
				clear(w.cache) // what led here is stale
				return errHeld
			case blink.GoRight:
				w.stats.right++
			default:
				s.evidence = append(s.evidence, evidence{addrs[i], im.Version()})
				for j := n.Rank(from); j < n.Rank(end); j++ {
					e := entry{addr: n.Addr(j)}
					copy(e.key[:], n.AppendKey(nil, j))
					s.entries = append(s.entries, e)
				}
				if n.Below(end) != blink.GoRight {
					return nil
				}
				next, _ = n.High()
			}
			i++
			if known = i < len(addrs) && addrs[i] == n.Right(); !known {
				addrs = append(addrs[:i], n.Right())
			}
			if i == maxLeaves || len(s.entries) > maxRows {
				return fmt.Errorf("orderedspike: a range of more than %d leaves or %d rows", maxLeaves, maxRows)
			}
		}
	}
}

// guessLeaves returns the leaves of a range as far as cached parents know: at least the first.
func (k *client) guessLeaves(lo, hi []byte) ([]memory.Addr, error) {
	var addrs []memory.Addr
	for {
		a, parent, err := k.search(lo, 0)
		if err != nil {
			return nil, err
		}
		n, cached := k.w.cache[parent]
		if !cached {
			return append(addrs, a), nil
		}
		for i := n.Child(lo); i <= n.ChildBelow(blink.Before(hi)); i++ {
			if len(addrs) == maxLeaves {
				return addrs, nil
			}
			addrs = append(addrs, n.Addr(i))
		}
		high, bounded := n.High()
		if !bounded || bytes.Compare(high, hi) >= 0 {
			return addrs, nil
		}
		lo = high
	}
}

// scanRows reads the rows that the leaves lead to. Neighbouring blocks share a READ.
func (k *client) scanRows() error {
	w, s := k.w, &k.scan
	if len(s.entries) == 0 {
		return nil
	}
	size := w.rowClass.Size()
	order := make([]*entry, len(s.entries))
	for i := range s.entries {
		order[i] = &s.entries[i]
	}
	slices.SortFunc(order, func(x, y *entry) int { return int(int64(x.addr) - int64(y.addr)) })
	s.runs = s.runs[:0]
	at := s.rows
	for _, e := range order {
		last := len(s.runs) - 1
		if last < 0 || !s.runs[last].joins(e.addr, size) {
			s.runs = append(s.runs, run{addr: e.addr, at: at})
			last++
		}
		r := &s.runs[last]
		at += uint32(e.addr-r.addr) + size - r.n
		r.n = uint32(e.addr-r.addr) + size
		e.at = r.at + uint32(e.addr-r.addr)
	}
	b := &k.batch
	b.Reset()
	for _, r := range s.runs {
		b.Read(w.at(r.addr, 0), r.at, r.n)
	}
	if err := k.c.Do(b); err != nil {
		return err
	}
	live := s.entries[:0]
	for _, e := range s.entries {
		im := record.Image(k.c.Thread().Bytes(e.at, size))
		if _, err := im.Check(e.addr); err != nil || !im.Stable() {
			return errHeld
		}
		if !bytes.Equal(im.Key(), e.key[:]) {
			return fmt.Errorf("orderedspike: entry %x leads to a row of key %x at %v", e.key, im.Key(), e.addr)
		}
		s.evidence = append(s.evidence, evidence{e.addr, im.Version()})
		if im.Meta().State() == record.Live {
			live = append(live, e)
		}
	}
	s.entries = live
	return nil
}

// joins reports whether the block at a is cheaper read with the run than by a verb of its own.
func (r *run) joins(a memory.Addr, size uint32) bool {
	end := r.addr + memory.Addr(r.n)
	return a.Segment() == r.addr.Segment() && a >= end && a-end <= maxGap*memory.Addr(size)
}

// validate reads the guards of everything that the answer depends on again: of neighbouring blocks with
// one READ. errHeld: something has changed.
func (k *client) validate() error {
	w, s := k.w, &k.scan
	slices.SortFunc(s.evidence, func(x, y evidence) int { return int(int64(x.addr) - int64(y.addr)) })
	size := uint32(record.LineSize)
	b := &k.batch
	b.Reset()
	s.runs = s.runs[:0]
	at := s.rows + maxRows*(1+maxGap)*record.LineSize
	for _, e := range s.evidence {
		g := e.addr + record.GuardOff
		last := len(s.runs) - 1
		if last < 0 || !s.runs[last].joins(g, size) {
			s.runs = append(s.runs, run{addr: g, at: at})
			last++
		}
		r := &s.runs[last]
		at += uint32(g-r.addr) + 8 - r.n
		r.n = uint32(g-r.addr) + 8
	}
	for _, r := range s.runs {
		b.Read(w.at(r.addr, 0), r.at, r.n)
	}
	if err := k.c.Do(b); err != nil {
		return err
	}
	i := 0
	for _, e := range s.evidence {
		g := e.addr + record.GuardOff
		for g >= s.runs[i].addr+memory.Addr(s.runs[i].n) || g < s.runs[i].addr {
			i++
		}
		r := &s.runs[i]
		if record.Guard(k.c.Thread().Word(r.at+uint32(g-r.addr))) != record.FreeAt(e.version) {
			return errHeld
		}
	}
	return nil
}

// get reads a row. With a cached address it is one READ.
func (k *client) get(n uint64, cached bool) (found bool, err error) {
	k.w.work(engine.TxnNs)
	key := keyOf(n)
	a := k.w.rowAt[n]
	if !cached {
		x, err := k.lookUp(key[:])
		if err != nil {
			return false, err
		}
		i, there := x.node.Search(key[:])
		if !there {
			return false, nil // one READ of the leaf: nothing to validate
		}
		a = x.node.Addr(i)
	}
	b := &k.batch
	b.Reset()
	b.Read(k.w.at(a, 0), k.buf, k.w.rowClass.Size())
	if err := k.c.Do(b); err != nil {
		return false, err
	}
	im := record.Image(k.c.Thread().Bytes(k.buf, k.w.rowClass.Size()))
	if _, err := im.Check(a); err != nil || !im.Stable() || !bytes.Equal(im.Key(), key[:]) {
		return false, errHeld
	}
	return im.Meta().State() == record.Live, nil
}

// absent reads that a key is absent and validates that, as a transaction does that reads more.
func (k *client) absent(n uint64) (bool, error) {
	k.w.work(engine.TxnNs)
	if err := k.prepareScan(); err != nil {
		return false, err
	}
	key := keyOf(n)
	x, err := k.lookUp(key[:])
	if err != nil {
		return false, err
	}
	if _, there := x.node.Search(key[:]); there || x.prior != record.FreeAt(x.version) {
		return false, errHeld
	}
	k.scan.evidence = append(k.scan.evidence[:0], evidence{x.addr, x.version})
	return true, k.validate()
}

func (k *client) lookUp(key []byte) (found, error) {
	a, parent, err := k.search(key, 0)
	if err != nil {
		return found{}, err
	}
	return k.readNode(key, a, parent)
}

// remove makes a row absent, of which the address is cached. The leaf keeps its entry.
func (k *client) remove(n uint64) error {
	w := k.w
	w.work(engine.TxnNs)
	k.begin()
	key := keyOf(n)
	a := w.rowAt[n]
	b := &k.batch
	b.Reset()
	i := b.LockRead(w.at(a, 0), record.GuardOff, 0, uint64(record.HeldBy(k.tx)), k.masks, k.buf, record.LineSize)
	if err := k.c.Do(b); err != nil {
		return err
	}
	if prior := record.Guard(b.Result(i)); prior.Held() {
		return errHeld
	}
	if im := record.Image(k.c.Thread().Bytes(k.buf, record.LineSize)); !bytes.Equal(im.Key(), key[:]) {
		return fmt.Errorf("orderedspike: key %x at the address of %x", im.Key(), key)
	}
	if err := k.settle(); err != nil {
		return err
	}
	im := k.put(a, record.Absent, rowTable, w.rowClass, key[:], nil)
	if err := k.logged(); err != nil {
		return err
	}
	w.acked[n] = false
	k.publish(im)
	k.c.Post(&k.f.bg)
	return nil
}
