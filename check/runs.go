package check

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"txnode/history"
)

// run is a piece of the version chain of one key between two absences
// without trace: see the package comment.
type run struct {
	head int32 // operation that replaced version zero; -1 for the run that the history began with
	tail int32 // last write; -1 when there is none
	end  int32 // version that it ends in; -1 for an initial absence without trace
	// before < start of a transaction of another run B: this run is before B.
	// before is the earliest end, after the latest start of a transaction
	// that wrote or read in the run. Readers of a tombstone at its end count only
	// in before: they see the absence that follows.
	before, after int64
	state         endState
	id            int32 // place in the order of discovery
}

// endState is what can follow a run.
type endState uint8

const (
	live    endState = iota // it ends in a record: nothing can follow
	deleted                 // it ends in a tombstone, or is the initial absence
	maybe                   // it ends in a record that a transaction of unknown outcome may have deleted
)

// runsOf finds the runs of a key, the one that the history began with first. The
// slice is valid until the next call. The chain of the key must not be broken by duplicates.
func (c *checker) runsOf(z int32, a *absences) []run {
	zero := c.versions.all[z]
	origin := run{head: -1, tail: -1, end: -1, before: math.MinInt64, after: math.MinInt64, state: deleted}
	if zero.installer >= 0 {
		origin = c.walk(z, -1, zero.installer, 0, a)
	}
	a.runs = append(a.runs[:0], origin)
	for h := zero.successor; h >= 0; h = c.aux[h] {
		a.runs = append(a.runs, c.walk(z, h, c.ver[h], int32(len(a.runs)), a))
	}
	return a.runs
}

// walk follows a run from its head operation (or -1) and first version to its end.
func (c *checker) walk(z, head, v, id int32, a *absences) run {
	r := run{head: head, tail: head, end: v, before: math.MaxInt64, after: math.MinInt64, id: id}
	if head >= 0 {
		c.span(&r, c.owner[head], true)
		c.stamp(a, head, z, id, true)
	}
	for {
		next := c.versions.all[r.end].successor
		tombstone := next < 0 && c.endsAbsent(&r)
		c.visitReaders(z, &r, tombstone, a)
		if next < 0 {
			break
		}
		c.span(&r, c.owner[next], true)
		c.stamp(a, next, z, id, false)
		r.tail, r.end = next, c.ver[next]
	}
	switch {
	case c.endsAbsent(&r):
		r.state = deleted
	case len(c.possibleDeletes(r.end, a)) > 0:
		r.state = maybe
	}
	return r
}

// visitReaders takes the readers of the version that a run has reached into the run.
func (c *checker) visitReaders(z int32, r *run, tombstone bool, a *absences) {
	for o := c.versions.all[r.end].readers; o >= 0; o = c.aux[o] {
		c.span(r, c.owner[o], !tombstone)
		c.stamp(a, o, z, r.id, tombstone)
	}
}

// endsAbsent says whether the state that a run has reached is an absence.
func (c *checker) endsAbsent(r *run) bool {
	if r.tail >= 0 {
		return c.kind[r.tail] == history.Delete
	}
	return c.versions.all[r.end].flags&flagPresent == 0
}

// span extends a run in real time by a transaction.
func (c *checker) span(r *run, t int32, inside bool) {
	if c.opt.Level != StrictSerializable {
		return // before stays at +inf and after at -inf: nothing is known
	}
	r.before = min(r.before, c.end(t))
	if inside {
		r.after = max(r.after, c.start(t))
	}
}

// precedes says that run a is before run b because of real time alone.
func precedes(a, b *run) bool { return a.before < b.after }

// sortRuns puts a run that nothing can follow last, and every pair that real
// time orders in one direction only in that order.
//
// The sum before+after does that: if a is before b and not b before a, then
// a.before < b.after and b.before >= a.after, and adding the two gives
// a.before+a.after < b.before+b.after.
func sortRuns(runs []run) {
	slices.SortStableFunc(runs, func(a, b run) int {
		if (a.state == live) != (b.state == live) {
			if a.state == live {
				return 1
			}
			return -1
		}
		ah, al := sum128(a.before, a.after)
		bh, bl := sum128(b.before, b.after)
		return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
	})
}

// sum128 adds two signed numbers without overflow; the pair compares as the sum does.
func sum128(x, y int64) (hi, lo uint64) {
	lo, hi = bits.Add64(uint64(x)^1<<63, uint64(y)^1<<63, 0)
	return hi, lo
}

// possibleDeletes lists the deletes by transactions that do not count, with
// an unknown outcome, that may have followed version v: directly, or after writes
// by other such transactions. The slice is valid until the next call.
func (c *checker) possibleDeletes(v int32, a *absences) []int32 {
	a.deletes = a.deletes[:0]
	if len(a.unknown) == 0 {
		return nil
	}
	a.front = append(a.front[:0], v)
	for i := 0; i < len(a.front); i++ {
		for _, o := range a.unknown[a.front[i]] {
			if c.counts[c.owner[o]] {
				continue
			}
			if c.kind[o] == history.Delete {
				a.deletes = append(a.deletes, o)
			}
			if !slices.Contains(a.front, c.ver[o]) {
				a.front = append(a.front, c.ver[o])
			}
		}
	}
	return a.deletes
}

// countForced counts in the transactions of unknown outcome that deleted a key
// for certain, though no transaction observed their tombstone: an absence without trace
// has no other explanation. Where several could have, none is counted in and the
// place stays ambiguous.
func (c *checker) countForced() {
	a := c.absences()
	if len(a.unknown) == 0 {
		return
	}
	for changed := true; changed; {
		changed = false
		c.noteInitials()
		for _, z := range a.doubtful {
			if c.versions.all[z].flags&(flagListed|flagBroken) == flagListed && c.countForcedOf(z, a) {
				changed = true
			}
		}
	}
}

// countForcedOf does that for one key; true: a transaction was counted in.
func (c *checker) countForcedOf(z int32, a *absences) bool {
	runs := c.runsOf(z, a)
	settled, lastRead := 0, int64(math.MinInt64)
	for i := range runs {
		if runs[i].state == live {
			settled++
		}
	}
	zero := c.versions.all[z]
	if c.opt.Level == StrictSerializable {
		for r := zero.readers; r >= 0; r = c.aux[r] {
			lastRead = max(lastRead, c.start(c.owner[r]))
		}
	}
	for i := range runs {
		r := &runs[i]
		if r.state != maybe {
			continue
		}
		forced := settled > 0 || r.before < lastRead || i == 0 && (len(runs) > 1 || zero.readers >= 0)
		for j := 1; j < len(runs) && !forced; j++ {
			forced = j != i && precedes(r, &runs[j])
		}
		if !forced {
			continue
		}
		if d := c.possibleDeletes(r.end, a); len(d) == 1 {
			c.count(c.owner[d[0]])
			return true
		}
	}
	return false
}

// noteInitials finds the initial version of each key that is observed absent without trace.
func (c *checker) noteInitials() {
	for v := range c.versions.all {
		e := &c.versions.all[v]
		if e.ver == 0 || e.installer >= 0 || e.readers < 0 && e.successor < 0 {
			continue
		}
		if z := c.versions.find(e.key, 0); z >= 0 && (c.versions.all[z].installer < 0 ||
			c.versions.all[z].installer == int32(v)) {
			c.versions.all[z].installer = int32(v)
			c.noteReaders(int32(v))
		}
	}
}
