package occ

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// orderedScan is the part of a Scan that is its own where the index is ordered. The walk reads
// leaves, several at a time as far as a cached inner node knows them, and then the records that
// they link, in order. What is validated is the guards of both, in one round trip. A leaf whose
// version has not changed links what it did, and the fences of the leaves tile the range: so no key
// was inserted in it, and none was taken out.
type orderedScan struct {
	from, to index.Bound
	down     bool
	limit    int // the caller wants no more records than that; 0: it may want all
	place    index.Place
	rest     bool       // there is more to be read, from place on
	leaves   []evidence // that were read
	ahead    []layout.Addr
	order    []int32 // of blocks that are read together, by address

	own    []int32 // items that the transaction had inserted when the scan began, by key
	owned  bool    // own was made
	gotOwn int     // how many of own the caller has got
}

// maxLeaves is how many leaves are read together at most.
const maxLeaves = 32

// Range begins a walk over the records of an ordered table between two bounds, in the order of
// their keys, or down in the opposite one. limit is how many of them the caller wants at most, as a
// hint for how far to read ahead; 0: all. Two bounds in the wrong order are an empty range. The
// bounds must stay as they are until the transaction ends.
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
		s.want = min(scanBatch, limit) // in one piece
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

// compare is negative if the walk comes to key x before it comes to key y. Records of one hash come in
// any order.
func (s *Scan) compare(x, y []byte) (d int) {
	if s.table.Hashed {
		d = cmp.Compare(record.Hash(s.table.ID, x), record.Hash(s.table.ID, y))
	} else {
		d = bytes.Compare(x, y)
	}
	if s.o.down {
		return -d
	}
	return d
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
			value, _, err = s.Read(int(i))
			return bytes.Clone(tx.items[i].key()), value, err == nil, err
		}
		if row == nil {
			s.claimed = true
			return nil, nil, false, nil
		}
		s.took++
		end := row.at + row.klen
		value = s.data[end : end+row.vlen : end+row.vlen]
		if s.wroteRow(key, &value) {
			return key, value, true, nil
		}
	}
}

// ownNext returns the item that the transaction had inserted when the scan began and whose key
// comes next, before that of the next row, nil: there is none; -1: no item is.
func (s *Scan) ownNext(row []byte) int32 {
	tx, o := s.tx, s.o
	if !s.writes {
		return -1
	}
	if !o.owned {
		o.owned, o.own = true, o.own[:0]
		for i := range tx.items {
			if it := &tx.items[i]; it.table == s.table && it.state != record.Live && it.state != record.Node &&
				o.within(it.key()) {
				if _, live, _ := s.Read(i); live { // it was not read, and so is not damaged
					o.own = append(o.own, int32(i))
				}
			}
		}
		slices.SortFunc(o.own, func(x, y int32) int { return s.compare(tx.items[x].key(), tx.items[y].key()) })
	}
	for ; o.gotOwn < len(o.own); o.gotOwn++ {
		i := o.own[o.gotOwn]
		if row == nil || s.compare(tx.items[i].key(), row) < 0 {
			o.gotOwn++
			return i
		}
		if !bytes.Equal(tx.items[i].key(), row) { // else somebody has inserted it since, which validation finds
			break
		}
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
		dangling, err := s.read(s.cands, false)
		locks := err == nil && !dangling && s.insists && tries <= insistLooks
		if locks {
			locks, err = s.lock(leaves, rows)
		}
		if err != nil || !dangling && !locks {
			return o.rest, err
		}
		// A record has gone or moved since, and its leaf says so by now. Or all of it is to
		// be read under locks.
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
