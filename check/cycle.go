package check

import (
	"cmp"
	"slices"

	"txnode/history"
)

// searchBudget bounds the edges that the search for short cycles follows in one
// check. A component always gets a cycle; beyond the budget it may not be the shortest.
const searchBudget = 1 << 24

// layers are the sets of edges in which cycles are looked for, most specific
// anomaly first: a cycle is blamed on real time only if there is none as short without it.
var layers = []kinds{
	kindSet(WW),
	kindSet(WW, WR),
	kindSet(WW, WR, RW),
	kindSet(WW, RT),
	kindSet(WW, WR, RT),
	kindSet(WW, WR, RW, RT),
}

// findCycles reports short cycles of every strongly connected component.
func (c *checker) findCycles(g *graph) {
	s := newComponents(g)
	found := s.all()
	if len(found) == 0 {
		return
	}
	f := &cycleFinder{c: c, g: g, components: s, budget: searchBudget,
		outer: make([]int32, g.nodes()), labels: make([]int32, g.nodes()),
		seen: make([]int32, g.nodes()), via: make([]int32, g.nodes()), from: make([]int32, g.nodes())}
	for i, nodes := range found {
		if len(c.rep.Violations) >= c.opt.MaxViolations {
			c.rep.Found += len(found) - i
			return
		}
		for _, u := range nodes {
			f.outer[u] = int32(i + 1)
		}
		for _, cycle := range f.cyclesOf(nodes, int32(i+1)) {
			c.reportCycle(cycle)
		}
	}
}

// cyclesOf returns cycles of a component whose nodes carry label, the
// shortest first: one for each component of the first layer that has any, and
// those of later layers that are shorter than all before.
func (f *cycleFinder) cyclesOf(nodes []int32, label int32) [][]Edge {
	var cycles [][]Edge
	shortest := int(f.g.txns) + 1
	for _, allowed := range layers {
		if allowed.has(RT) && f.c.opt.Level != StrictSerializable {
			break
		}
		below := shortest
		for _, sub := range f.components.within(nodes, allowed, f.outer, label) {
			f.label++
			for _, u := range sub {
				f.labels[u] = f.label
			}
			if cycle := f.shortest(sub, allowed, below-1); cycle != nil {
				cycles = append(cycles, cycle)
				shortest = min(shortest, len(cycle))
			}
		}
		if shortest == 2 {
			break
		}
	}
	slices.SortStableFunc(cycles, func(a, b []Edge) int { return cmp.Compare(len(a), len(b)) })
	return cycles
}

// reportCycle adds a cycle, told from the transaction that started first.
func (c *checker) reportCycle(cycle []Edge) {
	first := 0
	for i, e := range cycle {
		if at, least := c.start(int32(e.From)), c.start(int32(cycle[first].From)); at < least || at == least &&
			e.From < cycle[first].From {
			first = i
		}
	}
	v := Violation{Cycle: slices.Concat(cycle[first:], cycle[:first])}
	v.Class, v.Phenomenon = classify(v.Cycle, c.lists == nil)
	for _, e := range v.Cycle {
		if e.Kind != RT {
			v.Key = e.Key
			break
		}
	}
	c.report(v)
}

// cycleFinder looks for short cycles in one component.
type cycleFinder struct {
	c          *checker
	g          *graph
	components *components
	outer      []int32 // component of a node in the whole graph
	labels     []int32 // component of a node in the subgraph last searched
	label      int32   // the component searched
	budget     int     // edges that may still be followed

	// Breadth-first search: round in which a node was reached, by which edge from where.
	round      int32
	seen       []int32
	via, from  []int32
	this, next []int32
}

// seed is an edge that a cycle must contain, and how far it goes back in time.
type seed struct {
	from, edge int32
	back       float64
}

// shortest returns a shortest cycle of a component with at most limit
// transactions, or nil; among those with an anti-dependency one that has a
// single one, if there is such a cycle.
func (f *cycleFinder) shortest(nodes []int32, allowed kinds, limit int) []Edge {
	if allowed.has(RW) {
		seeds := f.seeds(nodes, func(kind EdgeKind, _ float64) bool { return kind == RW })
		if single := f.best(seeds, allowed&^kindSet(RW), limit); single != nil {
			return single
		}
	}
	// Starts decrease somewhere in every cycle, and never along real time.
	seeds := f.seeds(nodes, func(kind EdgeKind, back float64) bool {
		return kind != RT && allowed.has(kind) && back >= 0
	})
	f.budget = max(f.budget, 1) // a component always gets its cycle
	return f.best(seeds, allowed, limit)
}

// seeds lists the edges inside the component that pass the filter, the most
// blatant contradiction to real time first.
func (f *cycleFinder) seeds(nodes []int32, want func(kind EdgeKind, back float64) bool) []seed {
	var seeds []seed
	for _, u := range nodes {
		for e := f.g.first[u]; e < f.g.first[u+1]; e++ {
			v := f.g.to[e]
			if f.labels[v] != f.label {
				continue
			}
			back := 0.0
			if u < f.g.txns && v < f.g.txns {
				back = float64(f.c.start(u)) - float64(f.c.start(v))
			}
			if want(tagKind(f.g.tag[e]), back) {
				seeds = append(seeds, seed{u, e, back})
			}
		}
	}
	slices.SortStableFunc(seeds, func(a, b seed) int { return cmp.Compare(b.back, a.back) })
	return seeds
}

// best returns the shortest cycle made of a seed and allowed edges that lead
// back to it, with at most limit transactions; or nil. It stops when the budget is used up.
func (f *cycleFinder) best(seeds []seed, allowed kinds, limit int) []Edge {
	var best []Edge
	for _, s := range seeds {
		if f.budget <= 0 || limit < 2 {
			break
		}
		if cycle := f.close(s, allowed, limit); cycle != nil {
			best, limit = cycle, len(cycle)-1
		}
	}
	return best
}

// close finds the shortest way from the end of a seed back to its start, if
// the cycle then has at most limit transactions.
func (f *cycleFinder) close(s seed, allowed kinds, limit int) []Edge {
	u, v := s.from, f.g.to[s.edge]
	if allowed.has(RT) && v < f.g.txns && u < f.g.txns && f.c.end(v) < f.c.start(u) {
		return append(f.steps(u, []int32{s.edge}), Edge{From: int(v), To: int(u), Kind: RT})
	}
	f.round++
	f.seen[v] = f.round
	f.this = append(f.this[:0], v)
	length := 0 // transactions on the way, with v
	if v < f.g.txns {
		length = 1
	}
	for len(f.this) > 0 && length < limit {
		// One more transaction per round; auxiliary nodes cost nothing.
		f.next = f.next[:0]
		for i := 0; i < len(f.this); i++ {
			x := f.this[i]
			for e := f.g.first[x]; e < f.g.first[x+1]; e++ {
				f.budget--
				y := f.g.to[e]
				if f.seen[y] == f.round || f.labels[y] != f.label || !allowed.has(tagKind(f.g.tag[e])) {
					continue
				}
				f.seen[y], f.via[y], f.from[y] = f.round, e, x
				if y == u {
					return f.steps(u, f.path(s, v))
				}
				if y < f.g.txns {
					f.next = append(f.next, y)
				} else {
					f.this = append(f.this, y)
				}
			}
		}
		f.this, f.next = f.next, f.this
		length++
	}
	return nil
}

// path lists the edges of the cycle just found, the seed first.
func (f *cycleFinder) path(s seed, v int32) []int32 {
	var edges []int32
	for x := s.from; x != v; x = f.from[x] {
		edges = append(edges, f.via[x])
	}
	edges = append(edges, s.edge)
	slices.Reverse(edges)
	return edges
}

// steps turns a path that starts at node u into edges between transactions.
// If u is auxiliary, the path is a cycle, and is turned to begin at a transaction.
func (f *cycleFinder) steps(u int32, path []int32) []Edge {
	from := u
	if u >= f.g.txns {
		for i, e := range path {
			if f.g.to[e] < f.g.txns {
				from = f.g.to[e]
				path = append(slices.Clone(path[i+1:]), path[:i+1]...)
				break
			}
		}
	}
	var steps []Edge
	tag := uint32(0) // of the first edge of the step
	for _, e := range path {
		if tag == 0 {
			tag = f.g.tag[e]
		}
		if to := f.g.to[e]; to < f.g.txns {
			steps = append(steps, f.c.step(from, to, tag, f.g.tag[e]))
			from, tag = to, 0
		}
	}
	return steps
}

// step explains a way from one transaction to another by its first and last edge.
func (c *checker) step(from, to int32, first, last uint32) Edge {
	e := Edge{From: int(from), To: int(to), Kind: tagKind(first)}
	switch e.Kind {
	case WW:
		w := c.op(tagOp(last))
		e.Key, e.Version, e.Next = w.Key, w.Prev, w.Version
	case WR, RW:
		r := c.op(tagOp(first))
		e.Key, e.Version, e.Absent, e.Range = r.Key, r.Version, r.Kind == history.ReadAbsent,
			int(tagOp(first)) >= c.rep.Ops
		if e.Kind == RW {
			e.Next = c.nextOf(r, to)
		}
	}
	return e
}

// nextOf is the version by which transaction t replaced what r read: directly,
// or else as the first write of a later run of the key.
func (c *checker) nextOf(r *history.Op, t int32) history.Version {
	next := history.Version(0)
	for o := c.first[t]; o < c.first[t+1]; o++ {
		op := c.op(o)
		if op.Key != r.Key || !isWrite(op.Kind) && op.Kind != lateWrite {
			continue
		}
		if op.Prev == r.Version {
			return op.Version
		}
		if next == 0 {
			next = op.Version
		}
	}
	return next
}
