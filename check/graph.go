package check

import (
	"cmp"
	"slices"
)

// An edge's tag is its kind (3 bits) and the operation that explains it: the
// read of a WR or RW edge, the replacing write of a WW edge.
const opBits = 29

func makeTag(k EdgeKind, op int32) uint32 { return uint32(k)<<opBits | uint32(op) }
func tagKind(tag uint32) EdgeKind         { return EdgeKind(tag >> opBits) }
func tagOp(tag uint32) int32              { return int32(tag & (1<<opBits - 1)) }

// kinds is a set of edge kinds.
type kinds uint8

func kindSet(ks ...EdgeKind) (s kinds) {
	for _, k := range ks {
		s |= 1 << k
	}
	return s
}

func (s kinds) has(k EdgeKind) bool { return s>>k&1 != 0 }

type graphEdge struct {
	from, to int32
	tag      uint32
}

// graph is the serialization graph in rows: the edges of node u are
// to[first[u]:first[u+1]]. Nodes below txns are transactions; the others are
// auxiliary: first the barriers of absent.go, then the time chain.
type graph struct {
	txns  int32
	first []int32
	to    []int32
	tag   []uint32
}

func (g *graph) nodes() int32 { return int32(len(g.first) - 1) }

// buildGraph generates the edges twice: once to count, once to place them, so
// that no list of edges is ever held beside the graph.
func (c *checker) buildGraph() *graph {
	t := c.timeChain()
	n := len(c.txns) + int(c.barriers) + t.length
	g := &graph{txns: int32(len(c.txns)), first: make([]int32, n+1)}
	var perKind [RT + 1]int
	c.edges(t, func(from, to int32, tag uint32) {
		g.first[from+1]++
		perKind[tagKind(tag)]++
	})
	for i := range n {
		g.first[i+1] += g.first[i]
	}
	g.to, g.tag = make([]int32, g.first[n]), make([]uint32, g.first[n])
	c.edges(t, func(from, to int32, tag uint32) {
		at := g.first[from]
		g.to[at], g.tag[at] = to, tag
		g.first[from]++
	})
	copy(g.first[1:], g.first[:n]) // each row start has moved to the next row's
	g.first[0] = 0
	c.rep.Edges = EdgeCounts{WW: perKind[WW], WR: perKind[WR], RW: perKind[RW], RT: perKind[RT]}
	return g
}

// edges calls emit for every edge of the graph, in the same order each time. No edge
// leads from a transaction to itself.
func (c *checker) edges(t *timeChain, emit func(from, to int32, tag uint32)) {
	for v := range c.versions.all {
		e := &c.versions.all[v]
		if e.ver == 0 {
			continue
		}
		writer, next := int32(-1), int32(-1)
		if e.installer >= 0 && c.counts[c.owner[e.installer]] {
			writer = c.owner[e.installer]
		}
		if e.successor >= 0 {
			next = c.owner[e.successor]
			if writer >= 0 && writer != next {
				emit(writer, next, makeTag(WW, e.successor))
			}
		}
		for r := e.readers; r >= 0; r = c.aux[r] {
			t := c.owner[r]
			if writer >= 0 && writer != t {
				emit(writer, t, makeTag(WR, r))
			}
			// A reader of an intermediate version is reported as such, and
			// would only make a second violation with the same writer.
			if next >= 0 && next != t && next != writer {
				emit(t, next, makeTag(RW, r))
			}
		}
	}
	for _, x := range c.extra {
		emit(x.from, x.to, x.tag)
	}
	t.edges(emit)
}

// timeChain represents "ended before started" by a chain of nodes in time.
type timeChain struct {
	base   int32   // number of the first node
	length int     // number of nodes
	out    []int32 // by transaction: the node behind its end, or -1
	in     []int32 // by transaction: the last node before its start, or -1
}

// instant is a point in time of a transaction.
type instant struct {
	at  int64
	txn int32
}

// timeChain makes one node for each group of ends that is followed by a start.
func (c *checker) timeChain() *timeChain {
	t := &timeChain{base: int32(len(c.txns)) + c.barriers}
	if c.opt.Level != StrictSerializable {
		return t
	}
	n := len(c.txns)
	t.out, t.in = make([]int32, n), make([]int32, n)
	ends := make([]instant, 0, n)
	for _, s := range c.byStart {
		t.out[s.txn], t.in[s.txn] = -1, -1
		if c.counts[s.txn] {
			ends = append(ends, instant{c.end(s.txn), s.txn})
		}
	}
	sortInstants(ends)
	e := 0
	for _, s := range c.byStart {
		if !c.counts[s.txn] {
			continue
		}
		node := t.base + int32(t.length)
		if e < len(ends) && ends[e].at < s.at {
			t.length++
			for ; e < len(ends) && ends[e].at < s.at; e++ {
				t.out[ends[e].txn] = node
			}
		}
		if t.length > 0 {
			t.in[s.txn] = t.base + int32(t.length) - 1
		}
	}
	return t
}

func sortInstants(s []instant) {
	slices.SortFunc(s, func(a, b instant) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.txn, b.txn)) })
}

func (t *timeChain) edges(emit func(from, to int32, tag uint32)) {
	for txn := range t.out {
		if t.out[txn] >= 0 {
			emit(int32(txn), t.out[txn], makeTag(RT, 0))
		}
		if t.in[txn] >= 0 {
			emit(t.in[txn], int32(txn), makeTag(RT, 0))
		}
	}
	for i := 1; i < t.length; i++ {
		emit(t.base+int32(i)-1, t.base+int32(i), makeTag(RT, 0))
	}
}
