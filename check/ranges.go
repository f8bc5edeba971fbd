package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"txnode/history"
)

// placed is a key of an ordered table.
type placed struct {
	position history.Position
	key      history.Key
	gaps     []gap
	// A range read that ends before from, or begins after until, finds the key absent in agreement
	// with real time.
	from, until int64
	loose       bool // the order of its runs is not known
}

// gap is a time in which a key has no record: after the delete lo and before the write hi. -1: it
// begins with the history, or lasts.
type gap struct {
	lo, hi int32
	// after is the latest start of the writers up to the gap, before the earliest end of those
	// behind it.
	after, before int64
	doubt         bool // a delete of unknown outcome may have made it
}

// ranges is the working memory of the reasoning about range reads.
type ranges struct {
	c      *checker
	keys   []placed // by position
	tree   spanTree
	writes []int32 // of the key considered last, in the order of its versions
	behind []int   // by gap of that key: how many of the writes are before it
	// own has what the transaction considered does to its keys: the kind that says most about a
	// range.
	own map[history.Key]history.Kind
}

// orderRanges checks the answers of range reads, and adds the edges of the keys that they did not
// find. What they did find are operations like others.
func (c *checker) orderRanges() {
	var readers []int32
	for _, s := range c.byStart {
		if c.counts[s.txn] && len(c.txns[s.txn].Ranges) > 0 {
			readers = append(readers, s.txn)
		}
	}
	if len(readers) == 0 {
		return
	}
	r := &ranges{c: c, keys: c.placedKeys(), own: map[history.Key]history.Kind{}}
	a := c.absences()
	for i := range r.keys {
		r.timeline(&r.keys[i], a)
	}
	r.tree = newSpanTree(r.keys)
	for _, t := range readers {
		clear(r.own)
		for i := range c.txns[t].Ranges {
			c.rep.Ranges++
			if x := &c.txns[t].Ranges[i]; r.sound(t, x) {
				r.missing(t, x)
			}
		}
	}
}

// placedKeys lists the keys whose position is known, by position. A key with two positions, and a
// position with two keys, is malformed.
func (c *checker) placedKeys() []placed {
	at := map[history.Key]history.Position{}
	var keys []placed
	for _, s := range c.byStart {
		if !c.counts[s.txn] {
			continue
		}
		for i := range c.txns[s.txn].Ops {
			op := &c.txns[s.txn].Ops[i]
			if op.Position == "" || c.ver[c.first[s.txn]+int32(i)] < 0 {
				continue
			}
			p, known := at[op.Key]
			if !known {
				at[op.Key] = op.Position
				keys = append(keys, placed{position: op.Position, key: op.Key})
			} else if p != op.Position {
				c.report(Violation{Class: Malformed, Key: op.Key, Txns: []int{int(s.txn)}, Detail: fmt.Sprintf(
					"%s has two positions, %s and %s (or two keys share this 64-bit key)",
					c.opt.KeyName(op.Key), formatPosition(p), formatPosition(op.Position))})
			}
		}
	}
	slices.SortFunc(keys, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.key, b.key))
	})
	for i := 1; i < len(keys); i++ {
		if keys[i].position == keys[i-1].position {
			c.report(Violation{Class: Malformed, Key: keys[i].key, Detail: fmt.Sprintf(
				"%s and %s have one position, %s", c.opt.KeyName(keys[i-1].key), c.opt.KeyName(keys[i].key),
				formatPosition(keys[i].position))})
		}
	}
	return keys
}

// timeline finds the gaps of a key.
func (r *ranges) timeline(k *placed, a *absences) {
	c := r.c
	z := c.versions.intern(k.key, 0)
	k.from, k.until = math.MaxInt64, math.MinInt64
	if c.versions.all[z].flags&flagBroken != 0 {
		return // reported; no range read comes to the key
	}
	runs := c.runsOf(z, a)
	sortRuns(runs[1:])
	a.block = grow(a.block, len(runs))
	c.findBlocks(a)
	if k.loose = len(a.first) < len(runs); !k.loose { // else some runs have no order
		r.findGaps(k, z, runs)
	}
	if k.loose || c.opt.Level != StrictSerializable {
		k.from, k.until = math.MinInt64, math.MaxInt64
		return
	}
	k.from, k.until = math.MinInt64, math.MaxInt64
	if len(k.gaps) == 0 {
		return
	}
	earliest, latest := int64(math.MaxInt64), int64(math.MinInt64)
	for _, o := range r.writes {
		earliest, latest = min(earliest, c.start(c.owner[o])), max(latest, c.end(c.owner[o]))
	}
	if first := &k.gaps[0]; first.lo < 0 && !first.doubt {
		k.from = earliest
	}
	if last := &k.gaps[len(k.gaps)-1]; last.hi < 0 && !last.doubt {
		k.until = latest
	}
}

// findGaps goes through the versions of a key. Its runs are in order.
func (r *ranges) findGaps(k *placed, z int32, runs []run) {
	c := r.c
	r.writes, r.behind = r.writes[:0], r.behind[:0]
	initial := c.versions.all[z].installer // the initial version, or -1
	open := gap{lo: -1, after: math.MinInt64}
	absent := initial < 0 || c.versions.all[initial].flags&flagPresent == 0
	end := func(hi int32) {
		// A gap inside of a transaction is for nobody else to see.
		if absent && (open.lo < 0 || hi < 0 || c.owner[open.lo] != c.owner[hi]) {
			open.hi = hi
			k.gaps = append(k.gaps, open)
			r.behind = append(r.behind, len(r.writes))
		}
	}
	for i := range runs {
		o := runs[i].head
		if o < 0 && initial >= 0 {
			o = c.versions.all[initial].successor
		}
		for ; o >= 0; o = c.versions.all[c.ver[o]].successor {
			end(o)
			r.writes = append(r.writes, o)
			open = gap{lo: o, after: max(open.after, c.start(c.owner[o]))}
			absent = c.kind[o] == history.Delete
		}
		if runs[i].state == maybe {
			absent, open.doubt = true, true
		}
	}
	end(-1)
	before, next := int64(math.MaxInt64), len(r.writes)
	for g := len(k.gaps) - 1; g >= 0; g-- {
		for ; next > r.behind[g]; next-- {
			before = min(before, c.end(c.owner[r.writes[next-1]]))
		}
		k.gaps[g].before = before
	}
	if c.opt.Level != StrictSerializable {
		for g := range k.gaps {
			k.gaps[g].after, k.gaps[g].before = math.MinInt64, math.MaxInt64
		}
	}
}

// sound reports a range read whose answer makes no sense by itself.
func (r *ranges) sound(t int32, x *history.Range) bool {
	c, ops := r.c, r.c.txns[t].Ops
	class, why := Malformed, ""
	var key history.Key
	if x.First < 0 || x.Len < 0 || x.First > len(ops) || x.Len > len(ops)-x.First {
		why = fmt.Sprintf("operations %d to %d are not in the transaction", x.First, x.First+x.Len)
	} else {
		last := history.Position("")
		for i := range ops[x.First : x.First+x.Len] {
			op := &ops[x.First+i]
			inOrder := i == 0 || last < op.Position && !x.Descending || last > op.Position && x.Descending
			switch {
			case isWrite(op.Kind) || op.Position == "" || c.ver[c.first[t]+int32(x.First+i)] < 0:
				class, why = Malformed, "is no read with a position"
			case i > 0 && last == op.Position:
				class, why = BrokenRange, "was returned twice"
			case !inOrder:
				class, why = BrokenRange, "is out of order"
			case op.Position < x.From || op.Position >= x.To:
				class, why = BrokenRange, "is out of bounds"
			}
			if why != "" {
				key, why = op.Key, c.opt.KeyName(op.Key)+" "+why
				break
			}
			last = op.Position
		}
	}
	if why != "" {
		c.report(Violation{
			Class: class, Key: key, Txns: []int{int(t)}, Detail: fmt.Sprintf("%s: %s", formatRange(x), why),
		})
	}
	return why == ""
}

// missing goes through the keys that a range read should have found if they were there.
func (r *ranges) missing(t int32, x *history.Range) {
	c, ops := r.c, r.c.txns[t].Ops
	from, to := x.Covered(ops)
	first := sort.Search(len(r.keys), func(i int) bool { return r.keys[i].position >= from })
	end := sort.Search(len(r.keys), func(i int) bool { return r.keys[i].position >= to })
	answer := ops[x.First : x.First+x.Len]
	r.tree.visit(first, end, c.start(t), c.end(t), func(i int) {
		k := &r.keys[i]
		_, found := slices.BinarySearchFunc(answer, k.position, func(op history.Op, p history.Position) int {
			if x.Descending {
				return cmp.Compare(p, op.Position)
			}
			return cmp.Compare(op.Position, p)
		})
		if found {
			return
		}
		switch r.does(t, k.key) {
		case history.Read:
			c.reportMissing(t, x, k, " and was read by the same transaction")
		case history.ReadAbsent, history.Write, history.Delete: // the operation says more than the range
		default:
			r.locate(t, x, k)
		}
	})
}

// does is what a transaction does to a key by operations: it writes it, or reads it, or nothing
// (zero).
func (r *ranges) does(t int32, k history.Key) history.Kind {
	if len(r.own) == 0 {
		for _, op := range r.c.txns[t].Ops {
			if was, ok := r.own[op.Key]; !ok || isWrite(op.Kind) || was == history.Read {
				r.own[op.Key] = op.Kind
			}
		}
	}
	return r.own[k]
}

// locate adds the edges of a key that a range read did not find. It was read in one of
// the gaps lo to hi.
func (r *ranges) locate(t int32, x *history.Range, k *placed) {
	c := r.c
	c.rep.Missing++
	if k.loose || c.rep.Ops+len(c.missed) >= maxOps-1 {
		c.rep.Ambiguous++
		return
	}
	lo := sort.Search(len(k.gaps), func(i int) bool { return k.gaps[i].before >= c.start(t) })
	hi := sort.Search(len(k.gaps), func(i int) bool { return k.gaps[i].after > c.end(t) }) - 1
	if lo > hi {
		more := ""
		if lo < len(k.gaps) || hi >= 0 {
			more = " at that time"
		}
		c.reportMissing(t, x, k, more)
		return
	}
	doubt := lo < hi
	for i := lo; i <= hi && !doubt; i++ {
		doubt = k.gaps[i].doubt
	}
	if doubt {
		c.rep.Ambiguous++
	}
	m := history.Op{Key: k.key, Kind: history.ReadAbsent, Position: k.position}
	before, behind := k.gaps[lo].lo, k.gaps[hi].hi
	if before >= 0 && lo == hi {
		m.Version = c.op(before).Version
	}
	o := int32(c.rep.Ops + len(c.missed))
	c.missed = append(c.missed, m)
	if before >= 0 {
		c.addEdge(c.owner[before], t, makeTag(WR, o))
	}
	if behind >= 0 {
		c.addEdge(t, c.owner[behind], makeTag(RW, o))
	}
}

// reportMissing reports a key that is missing in a range for which it was always there.
func (c *checker) reportMissing(t int32, x *history.Range, k *placed, more string) {
	detail := fmt.Sprintf("%s was there%s, and %s did not return it", c.opt.KeyName(k.key), more, formatRange(x))
	txns := []int{int(t)}
	for i := range k.gaps {
		for _, o := range [...]int32{k.gaps[i].lo, k.gaps[i].hi} {
			if o >= 0 && len(txns) < maxShown && !slices.Contains(txns, int(c.owner[o])) {
				txns = append(txns, int(c.owner[o]))
			}
		}
	}
	c.report(Violation{Class: MissingRow, Key: k.key, Txns: txns, Detail: detail})
}

// spanTree finds the keys that may have been there when a range was read. Without it a queue that
// is read from its start would be compared with all that was ever in it.
type spanTree struct {
	size int // of the lowest level, a power of two
	from []int64
	till []int64
}

func newSpanTree(keys []placed) spanTree {
	t := spanTree{size: 1}
	for t.size < len(keys) {
		t.size *= 2
	}
	t.from, t.till = make([]int64, 2*t.size), make([]int64, 2*t.size)
	for i := range t.from {
		t.from[i], t.till[i] = math.MaxInt64, math.MinInt64
	}
	for i := range keys {
		t.from[t.size+i], t.till[t.size+i] = keys[i].from, keys[i].until
	}
	for i := t.size - 1; i > 0; i-- {
		t.from[i] = min(t.from[2*i], t.from[2*i+1])
		t.till[i] = max(t.till[2*i], t.till[2*i+1])
	}
	return t
}

// visit calls do for the keys first to end-1 whose span meets start to end, in their order.
func (t *spanTree) visit(first, end int, start, stop int64, do func(i int)) {
	t.down(1, 0, t.size, first, end, start, stop, do)
}

func (t *spanTree) down(node, lo, hi, first, end int, start, stop int64, do func(i int)) {
	if lo >= end || hi <= first || stop < t.from[node] || start > t.till[node] {
		return
	}
	if hi-lo == 1 {
		do(lo)
		return
	}
	mid := (lo + hi) / 2
	t.down(2*node, lo, mid, first, end, start, stop, do)
	t.down(2*node+1, mid, hi, first, end, start, stop, do)
}
