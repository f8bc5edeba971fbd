package sim

import "txnode/rdma"

// group is the requests of one doorbell: of one batch, for one blade.
type group struct {
	id    uint32
	refs  int // events that will look at it, and one until it is reaped
	p     *port
	q     *queuePair
	b     *rdma.Batch
	coro  int
	post  int64 // when the doorbell rang
	done  int64
	verbs []verb
}

// verb is one work request on its way. It holds a copy: the batch may grow, and
// after a completion it belongs to its owner again.
type verb struct {
	wr     rdma.WR
	idx    int32  // in the batch
	size   uint32 // bytes that it counts for on the wire and in the blade's memory
	state  verbState
	fault  FaultKind // FaultNone
	seq    uint64    // on its queue pair
	by     int64     // of the fault, ps
	arrive int64     // at the blade; in posted order on a queue pair
	eff    int64     // takes effect
	eff2   int64     // the second part of a divided one; 0: in one piece
	place  int64     // a WRITE that is placed late: when at the latest; 0: at eff
	split  uint64    // which part a word belongs to
	conn   uint32    // connection it was sent on
	kept   bool      // data is what it needs of the arena: it may outlive its completion
	data   []byte
}

type verbState uint8

const (
	verbPending verbState = iota
	verbHalf              // first part done
	verbLate              // arrived, not placed
	verbDone
)

// groupPool recycles groups. An event names one by its number.
type groupPool struct {
	all  []*group
	free []*group
}

func (gp *groupPool) get() *group {
	if n := len(gp.free); n > 0 {
		g := gp.free[n-1]
		gp.free = gp.free[:n-1]
		return g
	}
	g := &group{id: uint32(len(gp.all))}
	gp.all = append(gp.all, g)
	return g
}

// add appends a request.
func (g *group) add(w *rdma.WR, idx int) *verb {
	n := len(g.verbs)
	if n == cap(g.verbs) {
		g.verbs = append(g.verbs, verb{})
	} else {
		g.verbs = g.verbs[:n+1]
	}
	v := &g.verbs[n]
	*v = verb{wr: *w, idx: int32(idx), size: w.Len, data: v.data[:0]}
	v.wr.Status, v.wr.Result = rdma.StatusOK, 0 // whatever the batch was used for before
	return v
}

// apart says that a request begins a doorbell of its own where each record has one: it
// does not overlap the last one of the group, so it is about another record, or it is
// the WRITE of a lock word behind an image, which releases the record. A READ of one
// byte, the flush, goes with what is before it.
func (g *group) apart(w *rdma.WR) bool {
	l := &g.verbs[len(g.verbs)-1].wr
	if w.Op == rdma.OpRead && w.Len == 1 {
		return false
	}
	if w.Op == rdma.OpWrite && w.Len == 8 && l.Op == rdma.OpWrite && l.Len > 8 {
		return true
	}
	return w.Off >= l.Off+uint64(l.Len) || l.Off >= w.Off+uint64(w.Len)
}

// drop gives up n references.
func (f *Fabric) drop(g *group, n int) {
	g.refs -= n
	if g.refs > 0 {
		return
	}
	g.b, g.p, g.q = nil, nil, nil
	g.verbs = g.verbs[:0]
	f.groups.free = append(f.groups.free, g)
}

// ring is a queue of groups.
type ring struct {
	buf     []*group
	head, n int
}

func (r *ring) push(g *group) {
	if r.n == len(r.buf) {
		grown := make([]*group, max(16, 2*len(r.buf)))
		for i := range r.n {
			grown[i] = r.buf[(r.head+i)&(len(r.buf)-1)]
		}
		r.buf, r.head = grown, 0
	}
	r.buf[(r.head+r.n)&(len(r.buf)-1)] = g
	r.n++
}

func (r *ring) pop() *group {
	g := r.buf[r.head]
	r.buf[r.head] = nil
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return g
}
