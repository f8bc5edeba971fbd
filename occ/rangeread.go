package occ

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Reading of leaves and of the records that they link: see orderedScan.

// leafEntry is about how many bytes of a leaf an entry takes: so it is known how many leaves have
// the rows that are wanted.
const leafEntry = 32

// readLeaves reads the next leaves of the range, at least one, and lists the blocks that they link.
func (s *Scan) readLeaves() error {
	tx, o, t := s.tx, s.o, s.tx.s.thread
	ix := s.table.Ordered
	from, to := o.bounds()
	size := ix.NodeClass().Size()
	n := min(max(s.want-len(s.rows), 0)/int(size/leafEntry)+1, maxLeaves)
	o.ahead = ix.Ahead(o.ahead[:0], from, to, o.down, n)
	if len(o.ahead) == 0 {
		o.ahead = append(o.ahead, ix.Find(o.place).Addr)
	}
	if slices.ContainsFunc(o.ahead, tx.vacated) {
		h, _, _ := ix.Follow(o.place, index.Node{Addr: o.ahead[0]}, 0)
		o.ahead = append(o.ahead[:0], h.Addr) // which no cached node leads to
	}
	most := math.MaxInt
	if o.limit > 0 { // some may be deleted records
		if most = max(o.limit-len(s.rows), 1) + (o.limit+7)/8; len(s.rows) == 0 {
			// All that was met is deleted, as in front of a queue: there may be many more of them.
			most += min(len(s.found), scanBatch)
		}
	}
	buf, err := t.Alloc(len(o.ahead) * int(size))
	if errors.Is(err, rdma.ErrArenaFull) {
		o.ahead = o.ahead[:1]
		buf, err = t.Alloc(int(size))
	}
	if err != nil {
		return s.indexError(err)
	}
	room := len(o.ahead) * int(size)
	defer func() { t.Free(buf, room) }()
	if err := s.readNodes(o.ahead, buf, size); err != nil {
		return err
	}
	s.cands = s.cands[:0]
	at, read := o.ahead[0], 0
	for tries := 0; ; {
		k := slices.Index(o.ahead, at)
		if k < 0 {
			if read > 0 {
				return nil // the next call goes on
			}
			o.ahead = append(o.ahead[:0], at)
			if err := s.readNodes(o.ahead, buf, size); err != nil {
				return err
			}
			k = 0
		}
		img := record.Image(t.Bytes(buf+uint32(k)*size, size))
		_, bad := img.Check(at)
		g := img.Guard()
		switch {
		// it is being written, locked, or its guard is damaged
		case bad != nil || !img.Stable() && g != record.HeldBy(tx.id):
			if tries++; tries > heldLooks {
				return tx.meet(AbortReadLocked, &item{table: s.table, addr: at}, g)
			}
			if tries > 2 {
				tx.c.Sleep(int64(tries) * scanPauseNs)
			}
			o.ahead = o.ahead[:0]
			continue
		case img.Meta().State() != record.Node || img.Meta().Table() != s.table.ID:
			if tries++; tries > maxSearches {
				return tx.conflict(AbortStale, &item{table: s.table})
			}
			next, _, _ := ix.Follow(o.place, index.Node{Addr: at}, tries)
			at = next.Addr
			continue
		}
		x := index.Node{Addr: at, Body: img.Value()}
		next, step, err := ix.Follow(o.place, x, tries)
		if err != nil {
			tx.ill = ill{block: at}
			return s.indexError(err)
		}
		if step != index.Here {
			if tries++; tries > maxHops {
				return tx.conflict(AbortStale, &item{table: s.table})
			}
			at = next.Addr
			continue
		}
		o.leaves = append(o.leaves, evidence{addr: at, guard: record.FreeAt(img.Version())})
		from, to := o.bounds()
		s.cands, o.place, o.rest = ix.Entries(s.cands, x, from, to, o.down, most-len(s.cands))
		if read++; !o.rest || len(s.cands) >= most {
			return nil
		}
		at, tries = ix.Find(o.place).Addr, 0
	}
}

// readNodes reads nodes, one behind the other.
func (s *Scan) readNodes(nodes []layout.Addr, buf, size uint32) error {
	b := &s.batch
	b.Reset()
	for k, a := range nodes {
		if !s.tx.reaches(a) {
			return s.tx.lost(&item{table: s.table}, a)
		}
		b.Read(s.tx.view.At(a, 0), buf+uint32(k)*size, s.tx.nodeClass(s.table, a).Size())
	}
	if err := s.tx.c.Do(b); err != nil {
		return s.tx.s.stopped(err)
	}
	return nil
}

// block is a block of which some bytes are read, to the arena at `to`.
type block struct {
	addr layout.Addr
	n    uint32 // bytes
	to   uint32 // in the arena
}

// gap is how many bytes that nobody wants are read between two blocks, rather than a verb of its
// own posted: see docs/ordered.md.
const gap = 3 * record.LineSize

// fewFalls: blocks are not sorted if one in so many is before the one in front of it.
const fewFalls = 16

// joined appends READs of blocks to b: those that lie side by side, but for a gap, are read by one.
// It places the bytes in at most room bytes of arena at buf, sets where each block is, and returns
// how many blocks fit, the first of the list. order is scratch.
func (tx *Tx) joined(b *rdma.Batch, blocks []block, order []int32, buf, room uint32) (n int, scratch []int32) {
	used := uint32(0)
	for n < len(blocks) && used+blocks[n].n+gap <= room && n < scanBatch {
		used += blocks[n].n + gap
		n++
	}
	order = order[:0]
	falls := 0
	for i := range n {
		if i > 0 && blocks[i].addr < blocks[i-1].addr {
			falls++
		}
		order = append(order, int32(i))
	}
	if falls > n/fewFalls { // else most of them lie side by side as they are
		slices.SortFunc(order, func(x, y int32) int { return cmp.Compare(blocks[x].addr, blocks[y].addr) })
	}
	at := buf
	for i := 0; i < n; {
		first := &blocks[order[i]]
		from := tx.view.At(first.addr, 0)
		size := first.n
		first.to = at
		j := i + 1
		for ; j < n; j++ {
			x := &blocks[order[j]]
			off := uint64(x.addr - first.addr) // of one that is before, a large number
			to := tx.view.At(x.addr, 0)
			if to.Blade != from.Blade || to.Key != from.Key || to.Off-from.Off != off || off > uint64(size)+gap ||
				off+uint64(x.n) > uint64(buf+room-at) {
				break
			}
			x.to = at + uint32(off)
			size = max(size, uint32(off)+x.n)
		}
		b.Read(from, at, size)
		at += size
		i = j
	}
	return n, order
}

// readJoined is read for an ordered table, whose records may lie side by side.
func (s *Scan) readJoined(cands []index.Candidate, buf, room uint32, last bool) (dangling bool, err error) {
	tx, t := s.tx, s.tx.s.thread
	for len(cands) > 0 {
		s.blocks = s.blocks[:0]
		for _, x := range cands {
			if !tx.reaches(x.Addr) || x.Class >= layout.NumClasses {
				return false, tx.lost(&item{table: s.table}, x.Addr)
			}
			s.blocks = append(s.blocks, block{addr: x.Addr, n: readLen(x.Class)})
		}
		b := &s.batch
		b.Reset()
		var n int
		n, s.o.order = tx.joined(b, s.blocks, s.o.order, buf, room)
		if n == 0 {
			return false, s.indexError(rdma.ErrArenaFull)
		}
		if err := tx.c.Do(b); err != nil {
			return false, tx.s.stopped(err)
		}
		if cap(s.data) == 0 {
			s.data = make([]byte, 0, n*int(readLen(cands[0].Class)))
		}
		for i, x := range cands[:n] {
			y := &s.blocks[i]
			if dangling, err = s.take(x, record.Image(t.Bytes(y.to, y.n)), last); err != nil || dangling {
				return dangling, err
			}
		}
		cands = cands[n:]
	}
	return false, nil
}
