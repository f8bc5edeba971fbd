package occ

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// orderedScan is the part of a Scan that is its own where the index is ordered. The walk reads leaves, several
// at a time as far as a cached inner node knows them, and then the records that they link, in order. What is validated is
// the guards of both, in one round trip. A leaf whose version has not changed links what it did, and the fences of
// the leaves tile the range: so no key was inserted in it, and none was taken out.
type orderedScan struct {
	from, to index.Bound
	down     bool
	limit    int // the caller wants no more records than that; 0: it may want all
	place    index.Place
	rest     bool       // there is more to be read, from place on
	leaves   []evidence // that were read
	ahead    []memory.Addr
	order    []int32 // of blocks that are read together, by address

	own   []int32 // items of the transaction that have a value and had none, by key
	ownOf [2]int  // how many items and writes there were when own was made
	last  []byte  // key of the last record that the caller has got
	begun bool    // it has got one
}

// maxLeaves is how many leaves are read together at most.
const maxLeaves = 32

// Range begins a walk over the records of an ordered table between two bounds, in the order of their keys, or
// down in the opposite one. limit is how many of them the caller wants at most, as a hint for how far to read ahead; 0:
// all. Two bounds in the wrong order are an empty range. The bounds must stay as they are until the transaction ends.
//
// The transaction depends on the records that Next has returned, and on there being no others up to
// the last one; and on there being no more when Next has said so.
func (tx *Tx) Range(t *Table, from, to index.Bound, down bool, limit int) (*Scan, error) {
	if !tx.active {
		return nil, ErrDone
	}
	if t.Dropped() {
		return nil, fmt.Errorf("%w: %q", ErrDropped, t.Name)
	}
	if t.Ordered == nil {
		return nil, fmt.Errorf("%w: it has no order: %q", ErrNoScan, t.Name)
	}
	s := tx.newScan(t)
	o := &s.ordered
	*o = orderedScan{
		from: from, to: to, down: down, limit: limit, rest: true, place: index.Place{Bound: from},
		leaves: o.leaves[:0], ahead: o.ahead[:0], order: o.order[:0], own: o.own[:0],
	}
	s.o = o
	if down {
		o.place = index.Place{Bound: to, Below: true}
	}
	if limit > 0 {
		s.want = min(s.want, limit)
	}
	if emptyRange(from, to) {
		o.rest = false
	}
	return s, nil
}

// emptyRange reports whether no key can be between two bounds.
func emptyRange(from, to index.Bound) bool {
	switch {
	case from.End:
		return true
	case to.End:
		return false
	}
	d := bytes.Compare(from.Key, to.Key)
	return d > 0 || d == 0 && (from.After || !to.After)
}

// within reports whether a key is between the bounds.
func (o *orderedScan) within(key []byte) bool {
	d := bytes.Compare(key, o.from.Key)
	if o.from.End || d < 0 || d == 0 && o.from.After {
		return false
	}
	d = bytes.Compare(key, o.to.Key)
	return o.to.End || d < 0 || d == 0 && o.to.After
}

// before reports whether the walk comes to key x before it comes to key y.
func (o *orderedScan) before(x, y []byte) bool {
	if o.down {
		x, y = y, x
	}
	return bytes.Compare(x, y) < 0
}

// nextOrdered is Next for an ordered table.
func (s *Scan) nextOrdered() (key, value []byte, ok bool, err error) {
	tx, o := s.tx, s.o
	for {
		if s.over() {
			return nil, nil, false, ErrDone
		}
		if s.took == len(s.rows) && o.rest {
			if err := s.piece(); err != nil {
				return nil, nil, false, err
			}
			continue
		}
		var row *scanRow
		key = nil
		if s.took < len(s.rows) {
			row = &s.rows[s.took]
			key = s.data[row.at : row.at+row.klen : row.at+row.klen]
		}
		if i := s.ownNext(key); i >= 0 {
			it := &tx.items[i]
			o.last, o.begun = append([]byte(nil), it.key()...), true
			return o.last, tx.value(it), true, nil
		}
		if row == nil {
			s.claimed = true
			return nil, nil, false, nil
		}
		s.took++
		o.last, o.begun = key, true
		end := row.at + row.klen
		value = s.data[end : end+row.vlen : end+row.vlen]
		if i := tx.find(s.table, key); i >= 0 && tx.items[i].write != writeNone {
			if value, ok = tx.Read(i); !ok {
				continue
			}
		}
		return key, value, true, nil
	}
}

// ownNext returns the item that the transaction has inserted and whose key comes next, before that of the next row, nil: there
// is none; -1: no item is.
func (s *Scan) ownNext(row []byte) int32 {
	tx, o := s.tx, s.o
	if tx.writes == 0 {
		return -1
	}
	if now := [2]int{len(tx.items), tx.writes}; now != o.ownOf {
		o.ownOf, o.own = now, o.own[:0]
		for i := range tx.items {
			if it := &tx.items[i]; it.table == s.table && it.has && it.write == writePut && it.state != record.Live && it.state != record.Node && o.within(it.key()) {
				o.own = append(o.own, int32(i))
			}
		}
		slices.SortFunc(o.own, func(x, y int32) int {
			d := bytes.Compare(tx.items[x].key(), tx.items[y].key())
			if o.down {
				d = -d
			}
			return d
		})
	}
	for _, i := range o.own {
		key := tx.items[i].key()
		if o.begun && !o.before(o.last, key) {
			continue
		}
		if row == nil || o.before(key, row) {
			return i
		}
		return -1
	}
	return -1
}

// orderedUnit is unit for an ordered table: some leaves, and the records that they link.
func (s *Scan) orderedUnit() (more bool, err error) {
	o := s.o
	place, leaves := o.place, len(o.leaves)
	found, rows, data, seen := len(s.found), len(s.rows), len(s.data), len(s.seen)
	for tries := 1; o.rest; tries++ {
		s.tx.c.Count = &s.tx.phases[PhaseExecute]
		if err := s.readLeaves(); err != nil {
			return false, err
		}
		hollow, err := s.read(s.cands, false)
		locks := err == nil && !hollow && s.insists && tries <= insistLooks
		if locks {
			locks, err = s.lock(leaves, rows)
		}
		if err != nil || !hollow && !locks {
			return o.rest, err
		}
		// A record has gone or moved since, and its leaf says so by now. Or all of it is to be read under locks.
		s.found, s.rows, s.data, s.seen = s.found[:found], s.rows[:rows], s.data[:data], s.seen[:seen]
		o.place, o.leaves, o.rest = place, o.leaves[:leaves], true
		if locks {
			if err := s.tx.Execute(); err != nil {
				return false, err
			}
		}
		if tries == scanLooks {
			return false, s.tx.conflict(AbortStale, &item{table: s.table})
		}
		if tries > 2 {
			s.tx.c.Yield()
		}
	}
	return false, nil
}

// bounds are what is left of the range.
func (o *orderedScan) bounds() (from, to index.Bound) {
	if o.down {
		return o.from, o.place.Bound
	}
	return o.place.Bound, o.to
}

// readLeaves reads the next leaves of the range, at least one, and lists the blocks that they link.
func (s *Scan) readLeaves() error {
	tx, o, t := s.tx, s.o, s.tx.s.thread
	ix := s.table.Ordered
	from, to := o.bounds()
	n := min(max(s.want/16, 1), maxLeaves)
	o.ahead = ix.Ahead(o.ahead[:0], from, to, o.down, n)
	if len(o.ahead) == 0 {
		o.ahead = append(o.ahead, ix.Find(o.place).Addr)
	}
	most := math.MaxInt
	if o.limit > 0 { // some may be deleted records
		if most = max(o.limit-len(s.rows), 1) + (o.limit+7)/8; len(s.rows) == 0 {
			// All that was met is deleted, as in front of a queue: there may be many more of them.
			most += min(len(s.found), scanBatch)
		}
	}
	size := ix.NodeClass().Size()
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
		held := bad == nil && g.Held() && g != record.HeldBy(tx.id)
		switch {
		case bad != nil || held:
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
			at = ix.Astray(o.place).Addr
			continue
		}
		value := img.Value()
		place := o.place
		place.Anew = tries > index.AnewAfter
		next, here, err := ix.Follow(place, at, value)
		if err != nil {
			tx.ill = ill{block: at}
			return s.indexError(err)
		}
		if !here {
			if tries++; tries > maxHops {
				return tx.conflict(AbortStale, &item{table: s.table})
			}
			at = next.Addr
			continue
		}
		o.leaves = append(o.leaves, evidence{addr: at, guard: record.FreeAt(img.Version())})
		from, to := o.bounds()
		s.cands, o.place, o.rest = ix.Entries(s.cands, value, from, to, o.down, most-len(s.cands))
		if read++; !o.rest || len(s.cands) >= most {
			return nil
		}
		at, tries = ix.Find(o.place).Addr, 0
	}
}

// readNodes reads nodes, one behind the other.
func (s *Scan) readNodes(nodes []memory.Addr, buf, size uint32) error {
	b := &s.batch
	b.Reset()
	for k, a := range nodes {
		if !s.tx.reaches(a) {
			return s.tx.lost(&item{table: s.table}, a)
		}
		n := size
		if a == s.table.Ordered.Root() {
			n = record.LineSize
		}
		b.Read(s.tx.view.At(a, 0), buf+uint32(k)*size, n)
	}
	if err := s.tx.c.Do(b); err != nil {
		return s.tx.s.fail(err)
	}
	return nil
}

// block is a block of which some bytes are read, to the arena at `to`.
type block struct {
	addr memory.Addr
	n    uint32 // bytes
	to   uint32 // in the arena
}

// gap is how many bytes that nobody wants are read between two blocks, rather than a verb of its own posted: see
// docs/ordered.md.
const gap = 3 * record.LineSize

// joined appends READs of blocks to b: those that lie side by side, but for a gap, are read by one. It places the bytes
// in at most room bytes of arena at buf, sets where each block is, and returns how many blocks fit, the first of
// the list. order is scratch.
func (tx *Tx) joined(b *rdma.Batch, blocks []block, order []int32, buf, room uint32) (n int, scratch []int32) {
	used := uint32(0)
	for n < len(blocks) && used+blocks[n].n+gap <= room && n < scanBatch {
		used += blocks[n].n + gap
		n++
	}
	order = order[:0]
	for i := range n {
		order = append(order, int32(i))
	}
	slices.SortFunc(order, func(x, y int32) int { return cmp.Compare(blocks[x].addr, blocks[y].addr) })
	at := buf
	for i := 0; i < n; {
		first := &blocks[order[i]]
		from := tx.view.At(first.addr, 0)
		size := first.n
		first.to = at
		j := i + 1
		for ; j < n; j++ {
			x := &blocks[order[j]]
			off := uint64(x.addr - first.addr)
			to := tx.view.At(x.addr, 0)
			if to.Blade != from.Blade || to.Key != from.Key || to.Off-from.Off != off || off > uint64(size)+gap || off+uint64(x.n) > uint64(buf+room-at) {
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
func (s *Scan) readJoined(cands []index.Candidate, buf, room uint32, last bool) (hollow bool, err error) {
	tx, t := s.tx, s.tx.s.thread
	for len(cands) > 0 {
		s.blocks = s.blocks[:0]
		for _, x := range cands {
			if !tx.reaches(x.Addr) || x.Class >= memory.NumClasses {
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
			return false, tx.s.fail(err)
		}
		if cap(s.data) == 0 {
			s.data = make([]byte, 0, n*int(readLen(cands[0].Class)))
		}
		for i, x := range cands[:n] {
			y := &s.blocks[i]
			if hollow, err = s.take(x, record.Image(t.Bytes(y.to, y.n)), last); err != nil || hollow {
				return hollow, err
			}
		}
		cands = cands[n:]
	}
	return false, nil
}

// knowFound makes Scan.known, which a walk over an ordered table needs only beside items.
func (s *Scan) knowFound() {
	if s.o == nil || len(s.tx.items) == 0 {
		return
	}
	if s.known == nil {
		s.known = make(map[memory.Addr]int32, len(s.found))
	}
	clear(s.known)
	for i := range s.found {
		s.known[s.found[i].addr] = int32(i)
	}
}

// coverLeaves finds the leaves that the transaction has locked, and so protects.
func (s *Scan) coverLeaves() error {
	tx := s.tx
	for i := range s.o.leaves {
		s.o.leaves[i].held = false
	}
	for i := range tx.nodes {
		n := &tx.nodes[i]
		if !n.locked || n.table != s.table {
			continue
		}
		for k := range s.o.leaves {
			e := &s.o.leaves[k]
			if e.addr != n.addr {
				continue
			}
			if e.guard != n.prior {
				return tx.conflict(AbortPhantom, &item{table: s.table, addr: n.addr})
			}
			e.held = true
		}
	}
	return nil
}

// tableEvidence is evidence of a table.
type tableEvidence struct {
	*evidence
	table *Table
}

// guardsJoined posts what appendValidation has appended, and compares the guards of all leaves and all records that scans of
// ordered tables have read, in the same round trip as far as there is room. Guards of blocks that lie side by side are read by one
// READ of the lines.
func (tx *Tx) guardsJoined() error {
	c, b, t := tx.c, &tx.batch, tx.s.thread
	tx.checks, tx.proofs = tx.checks[:0], tx.proofs[:0]
	for s := tx.scans; s != nil; s = s.next {
		if s.o == nil {
			continue
		}
		for _, all := range [][]evidence{s.o.leaves, s.found} {
			for i := range all {
				if e := &all[i]; !e.held && !e.gone {
					tx.checks = append(tx.checks, block{addr: e.addr + record.GuardOff, n: 8})
					tx.proofs = append(tx.proofs, tableEvidence{e, s.table})
				}
			}
		}
	}
	if len(tx.checks) == 0 {
		if b.Len() > 0 {
			if err := c.Do(b); err != nil {
				return tx.s.fail(err)
			}
		}
		return nil
	}
	room := scanRoom
	buf, err := t.Alloc(room)
	for errors.Is(err, rdma.ErrArenaFull) && room > scanLeast {
		room /= 2
		buf, err = t.Alloc(room)
	}
	if err != nil {
		return tx.indexError(&item{table: tx.proofs[0].table}, "walking", err)
	}
	defer func() { t.Free(buf, room) }()
	for blocks, proofs := tx.checks, tx.proofs; len(blocks) > 0; b.Reset() {
		var n int
		n, tx.order = tx.joined(b, blocks, tx.order, buf, uint32(room))
		if err := c.Do(b); err != nil {
			return tx.s.fail(err)
		}
		for i, e := range proofs[:n] {
			g := record.Guard(t.Word(blocks[i].to))
			if g == e.guard {
				continue
			}
			switch it := (&item{table: e.table, addr: e.addr}); {
			case g.Held():
				return tx.meet(AbortReadLocked, it, g)
			case e.row:
				return tx.conflict(AbortValidation, it)
			default:
				return tx.conflict(AbortPhantom, it)
			}
		}
		blocks, proofs = blocks[n:], proofs[n:]
	}
	return nil
}
