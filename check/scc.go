package check

import "math"

// components finds strongly connected components by Tarjan's algorithm ("Depth-first
// search and linear graph algorithms", SIAM J. Comput. 1972) with a stack of its own
// instead of recursion. Its working memory is kept for restricted searches later.
type components struct {
	g *graph
	// number is the order of discovery from 1, 0 before it, done after the
	// node's component is complete (so that it lowers no other low).
	number []int32
	low    []int32
	stack  []int32
	frames []frame
}

const done = math.MaxInt32

type frame struct {
	node int32
	next int32 // next edge to follow
}

func newComponents(g *graph) *components {
	return &components{g: g, number: make([]int32, g.nodes()), low: make([]int32, g.nodes())}
}

// all returns the components of two nodes or more of the whole graph.
func (s *components) all() [][]int32 {
	var found [][]int32
	counter := int32(0)
	all := kindSet(WW, WR, RW, RT)
	for root := range s.g.nodes() {
		if s.number[root] == 0 {
			found = s.search(root, &counter, all, nil, 0, found)
		}
	}
	return found
}

// within returns the components of the subgraph of the given nodes, which all
// carry label in labels, and the given kinds of edges.
func (s *components) within(nodes []int32, allowed kinds, labels []int32, label int32) [][]int32 {
	for _, u := range nodes {
		s.number[u] = 0
	}
	var found [][]int32
	counter := int32(0)
	for _, root := range nodes {
		if s.number[root] == 0 {
			found = s.search(root, &counter, allowed, labels, label, found)
		}
	}
	return found
}

func (s *components) search(root int32, counter *int32, allowed kinds, labels []int32, label int32,
	found [][]int32) [][]int32 {
	g := s.g
	s.push(root, counter)
	for len(s.frames) > 0 {
		f := &s.frames[len(s.frames)-1]
		u := f.node
		if f.next < g.first[u+1] {
			e := f.next
			f.next++
			v := g.to[e]
			if !allowed.has(tagKind(g.tag[e])) || labels != nil && labels[v] != label {
				continue
			}
			if s.number[v] == 0 {
				s.push(v, counter)
			} else {
				s.low[u] = min(s.low[u], s.number[v])
			}
			continue
		}
		s.frames = s.frames[:len(s.frames)-1]
		if len(s.frames) > 0 {
			parent := s.frames[len(s.frames)-1].node
			s.low[parent] = min(s.low[parent], s.low[u])
		}
		if s.low[u] == s.number[u] {
			found = s.pop(u, found)
		}
	}
	return found
}

func (s *components) push(u int32, counter *int32) {
	*counter++
	s.number[u], s.low[u] = *counter, *counter
	s.stack = append(s.stack, u)
	s.frames = append(s.frames, frame{u, s.g.first[u]})
}

// pop takes a complete component off the stack and keeps it if it has a cycle.
func (s *components) pop(u int32, found [][]int32) [][]int32 {
	at := len(s.stack) - 1
	for s.stack[at] != u {
		at--
	}
	for _, v := range s.stack[at:] {
		s.number[v] = done
	}
	if len(s.stack)-at > 1 {
		found = append(found, append([]int32(nil), s.stack[at:]...))
	}
	s.stack = s.stack[:at]
	return found
}
