package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"txnode/history"
)

// absences is the working memory of the reasoning about version zero.
type absences struct {
	runs    []run
	place   []int32 // place of a run, by id
	first   []int32 // place of the first run of each block
	starts  []int64 // latest start of the runs up to a place
	ends    []int64 // earliest end of the runs from a place on
	block   []int32 // number of the block of a place
	behind  []int64 // see findBlocks
	sources []source
	targets []int32

	touched []touch // by transaction; nil until it is needed
	twice   int32   // a write of a transaction that also wrote in another run, or -1

	unknown  map[int32][]int32 // by version: writes of unknown outcome that would replace it
	doubtful []int32           // version zero of the keys that such a write deletes
	deletes  []int32
	front    []int32
}

// source is an operation that precedes others.
type source struct {
	op   int32
	kind EdgeKind // WW: it wrote; RW: it read
}

// touch is what a transaction had to do with the key considered last.
type touch struct {
	key   int32 // its version zero, plus one
	run   int32 // the run inside of which it read or wrote; -1: see stamp
	wrote int32 // the run in which it wrote, plus one
}

// stamp notes that the transaction of operation o touched a run. One that began the
// run, or read the tombstone at its end, is free: an absence that it also read is the one
// next to that, and needs no edge.
func (c *checker) stamp(a *absences, o, z, run int32, free bool) {
	if a.touched == nil {
		return
	}
	x := &a.touched[c.owner[o]]
	if x.key != z+1 {
		*x = touch{key: z + 1, run: run}
	}
	if free {
		x.run = -1
	}
	if isWrite(c.kind[o]) {
		if x.wrote != 0 && x.wrote != run+1 {
			a.twice = o
		}
		x.wrote = run + 1
	}
}

// absences collects the writes of unknown outcome that no transaction observed.
func (c *checker) absences() *absences {
	a := &absences{twice: -1}
	for t := range c.txns {
		if c.counts[t] {
			continue
		}
		for o := c.first[t]; o < c.first[t+1]; o++ {
			op := c.op(o)
			if c.ver[o] < 0 || !isWrite(op.Kind) || c.versions.all[c.aux[o]].ver == 0 {
				continue
			}
			if a.unknown == nil {
				a.unknown = map[int32][]int32{}
			}
			a.unknown[c.aux[o]] = append(a.unknown[c.aux[o]], o)
			if z := c.versions.find(op.Key, 0); z >= 0 && op.Kind == history.Delete {
				a.doubtful = append(a.doubtful, z)
			}
		}
	}
	slices.Sort(a.doubtful)
	a.doubtful = slices.Compact(a.doubtful)
	return a
}

// orderAbsences adds the edges of reads and writes of version zero.
func (c *checker) orderAbsences() {
	if len(c.zeros) == 0 {
		return
	}
	a := c.absences()
	a.touched = make([]touch, len(c.txns))
	for _, z := range c.zeros {
		if c.versions.all[z].flags&flagBroken == 0 {
			c.orderKey(z, a)
		}
	}
}

func (c *checker) orderKey(z int32, a *absences) {
	a.twice = -1
	runs := c.runsOf(z, a)
	if a.twice >= 0 {
		c.reportChain(BrokenChain, "", z, c.ownersOf(a.twice), fmt.Sprintf(
			"the transaction wrote %s twice, and did not replace its own version",
			c.opt.KeyName(c.versions.all[z].key)))
		return
	}
	if c.checkRuns(z, a) {
		sortRuns(runs[1:])
		c.orderRuns(a)
		for r := c.versions.all[z].readers; r >= 0; r = c.aux[r] {
			if !c.orderRead(z, r, a) {
				c.reportChain(WrongState, "", z, c.ownersOf(r, runs[0].tail), fmt.Sprintf(
					"%s was read as absent without trace, and no delete explains that",
					c.opt.KeyName(c.versions.all[z].key)))
				return
			}
		}
	}
}

// checkRuns reports a key that has a run that nothing can follow, and yet one after it.
func (c *checker) checkRuns(z int32, a *absences) bool {
	var last []int32
	for i := range a.runs {
		if a.runs[i].state == live {
			last = append(last, int32(i))
		}
		if a.runs[i].state == maybe {
			c.rep.Ambiguous++
		}
	}
	runs := a.runs
	if len(last) == 1 && last[0] == 0 && len(runs) > 1 {
		last = append(last, 1) // the first run is before all others
	}
	if len(last) < 2 {
		return true
	}
	key := c.opt.KeyName(c.versions.all[z].key)
	if runs[0].state == live && runs[0].tail < 0 {
		c.reportUninstalled([]int32{runs[0].end}, ", and others wrote the key as absent without trace")
		return false
	}
	var txns []int
	for _, i := range last[:min(len(last), maxShown)] {
		o := runs[i].head
		if o < 0 {
			o = runs[i].tail
		}
		txns = append(txns, c.ownersOf(o)...)
	}
	c.reportChain(LostUpdate, "P4", z, txns, fmt.Sprintf(
		"%s was written as absent without trace, and no delete explains that", key))
	return false
}

// orderRuns adds the edges between runs, which are sorted. Runs that real time
// does not order against each other form a block.
func (c *checker) orderRuns(a *absences) {
	runs, n := a.runs, len(a.runs)
	a.place, a.block = grow(a.place, n), grow(a.block, n)
	a.starts, a.ends = grow(a.starts, n), grow(a.ends, n)
	for i := range runs {
		a.place[runs[i].id] = int32(i)
		a.starts[i] = runs[i].after
		if i > 0 {
			a.starts[i] = max(a.starts[i], a.starts[i-1])
		}
	}
	for i := n - 1; i >= 0; i-- {
		a.ends[i] = runs[i].before
		if i < n-1 {
			a.ends[i] = min(a.ends[i], a.ends[i+1])
		}
	}
	c.findBlocks(a)
	for b := 1; b < len(a.first); b++ {
		hi := n
		if b+1 < len(a.first) {
			hi = int(a.first[b+1])
		}
		if size := hi - int(a.first[b]); size > 1 {
			c.rep.Ambiguous += size
		}
		c.link(a, runs[a.first[b-1]:a.first[b]], runs[a.first[b]:hi])
	}
	// Real time that contradicts itself: j is before an earlier i. The edges
	// of i before j complete a cycle with it.
	worst := 0
	for j := 1; j < n; j++ {
		if runs[j].before < runs[worst].after {
			c.link(a, runs[worst:worst+1], runs[j:j+1])
		}
		if runs[j].after > runs[worst].after {
			worst = j
		}
	}
}

// findBlocks puts a boundary after every place where all runs up to it precede all later ones.
func (c *checker) findBlocks(a *absences) {
	runs, n := a.runs, len(a.runs)
	a.first = append(a.first[:0], 0)
	// The earliest "after" of the runs behind a place, without the last one
	// if that is live, which is behind all others anyway.
	a.behind = grow(a.behind, n+1)
	behind := a.behind
	behind[n] = math.MaxInt64
	for i := n - 1; i > 0; i-- {
		behind[i] = behind[i+1]
		if runs[i].state != live {
			behind[i] = min(behind[i], runs[i].after)
		}
	}
	latest := int64(math.MinInt64) // latest "before" up to a place, without the first run
	for i := range n - 1 {
		a.block[i] = int32(len(a.first) - 1)
		if i > 0 {
			latest = max(latest, runs[i].before)
		}
		onlyLiveBehind := i == n-2 && runs[n-1].state == live
		if i == 0 || onlyLiveBehind || latest < behind[i+1] {
			a.first = append(a.first, int32(i+1))
		}
	}
	a.block[n-1] = int32(len(a.first) - 1)
}

// link adds the edges "every run of left is before every run of right".
func (c *checker) link(a *absences, left, right []run) {
	a.sources, a.targets = a.sources[:0], a.targets[:0]
	for i := range left {
		if left[i].tail >= 0 {
			a.sources = append(a.sources, source{left[i].tail, WW})
		}
		if left[i].end >= 0 {
			for r := c.versions.all[left[i].end].readers; r >= 0; r = c.aux[r] {
				a.sources = append(a.sources, source{r, RW})
			}
		}
	}
	for i := range right {
		a.targets = append(a.targets, right[i].head)
	}
	c.join(a.sources, a.targets)
}

// join adds the edges from every source to every target (operations that
// write), through an auxiliary node if that takes fewer.
func (c *checker) join(sources []source, targets []int32) {
	if len(sources) == 0 || len(targets) == 0 {
		return
	}
	direct := func(s source, w int32) {
		tag := makeTag(WW, w)
		if s.kind == RW {
			tag = makeTag(RW, s.op)
		}
		c.addEdge(c.owner[s.op], c.owner[w], tag)
	}
	barrier := int32(-1)
	if len(sources) > 1 && len(targets) > 1 {
		barrier = int32(len(c.txns)) + c.barriers
		c.barriers++
		for _, w := range targets {
			c.addEdge(barrier, c.owner[w], makeTag(WW, w))
		}
	}
	writers := map[int32]bool{}
	if barrier >= 0 {
		for _, w := range targets {
			writers[c.owner[w]] = true
		}
	}
	for _, s := range sources {
		// A transaction on both sides must not reach itself through the node.
		if barrier >= 0 && !writers[c.owner[s.op]] {
			c.addEdge(c.owner[s.op], barrier, makeTag(s.kind, s.op))
			continue
		}
		for _, w := range targets {
			direct(s, w)
		}
	}
}

// orderRead adds the edges of a read of version zero, which saw the key in
// one of the gaps behind runs lo to hi. False: there is no gap at all.
func (c *checker) orderRead(z, o int32, a *absences) bool {
	runs, t := a.runs, c.owner[o]
	last := len(runs) - 1
	lo, hi := 0, last
	if c.opt.Level == StrictSerializable {
		lo = max(0, sort.Search(len(runs), func(i int) bool { return a.ends[i] >= c.start(t) })-1)
		hi = sort.Search(len(runs), func(i int) bool { return a.starts[i] > c.end(t) }) - 1
	}
	if runs[last].state == live {
		hi = min(hi, last-1)
	}
	if x := a.touched[t]; x.key == z+1 {
		if x.run < 0 {
			return true
		}
		hi = min(hi, int(a.place[x.run])-1)
	}
	switch {
	case hi < 0:
		// Before the initial record. Behind the first run is as impossible,
		// and makes a cycle that shows it.
		if runs[0].tail < 0 || runs[0].state == live || c.owner[runs[0].tail] == t {
			return false
		}
		c.addEdge(c.owner[runs[0].tail], t, makeTag(WR, o))
		return true
	case lo <= hi:
		if w := runs[lo].tail; w >= 0 {
			c.addEdge(c.owner[w], t, makeTag(WR, o))
		}
		if lo < hi || c.inBlock(a, lo) || c.inBlock(a, lo+1) {
			c.rep.Ambiguous++
		}
	}
	if hi < last {
		c.addEdge(t, c.owner[runs[hi+1].head], makeTag(RW, o))
	}
	return true
}

// inBlock says whether a run's neighbours are unknown.
func (c *checker) inBlock(a *absences, place int) bool {
	if place >= len(a.runs) {
		return false
	}
	b := a.block[place]
	next := len(a.runs)
	if int(b)+1 < len(a.first) {
		next = int(a.first[b+1])
	}
	return next-int(a.first[b]) > 1
}

// orderLate adds the edges of appends of which only a lower bound is known:
// behind the version before them, and behind its readers.
func (c *checker) orderLate() {
	slices.SortFunc(c.late, func(a, b int32) int { return cmp.Or(cmp.Compare(c.ver[a], c.ver[b]), cmp.Compare(a, b)) })
	var sources []source
	for i := 0; i < len(c.late); {
		v := c.ver[c.late[i]]
		j := i
		for j < len(c.late) && c.ver[c.late[j]] == v {
			j++
		}
		e := &c.versions.all[v]
		sources = sources[:0]
		if e.ver != 0 && e.installer >= 0 {
			sources = append(sources, source{e.installer, WW})
		}
		for r := e.readers; r >= 0; r = c.aux[r] {
			sources = append(sources, source{r, RW})
		}
		c.join(sources, c.late[i:j])
		i = j
	}
}

func (c *checker) addEdge(from, to int32, tag uint32) {
	if from != to {
		c.extra = append(c.extra, graphEdge{from, to, tag})
	}
}

// grow returns a slice of length n that reuses s if it can.
func grow[T any](s []T, n int) []T {
	return slices.Grow(s[:0], n)[:n]
}
