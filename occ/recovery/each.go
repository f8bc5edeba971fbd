package recovery

import (
	"errors"

	"txnode/index"
	"txnode/memory/record"
	"txnode/rdma"
)

const (
	maxLanes = 128
	minLane  = 4 << 10 // bytes of scratch memory; and as much again for its lookups
)

// each calls job for every entry that is not lost and that want accepts, for many at
// the same time, each on a run of its own that shares everything but its buffers with
// r: what takes several round trips for one entry takes about as many for all.
//
// An entry in whose way somebody's unfinished change of an index is, is tried once
// more, when all others are done and the index has been brought into order; and one
// for which there is no memory, when the others have given theirs back. One whose index is of
// no use is stranded: job is called then, or once more, and does what can be done without.
func (r *run) each(want func(x *tx, e *entry) bool, job func(r *run, x *tx, e *entry) error) error {
	type work struct {
		x    *tx
		e    *entry
		busy bool
	}
	var todo, again []work
	for _, x := range r.txs {
		for i := range x.entries {
			if e := &x.entries[i]; !e.lost && want(x, e) {
				todo = append(todo, work{x: x, e: e})
				if e.stranded {
					continue
				}
				if _, err := r.index(e.table); err != nil { // now: opening it is not for many at once
					if err := r.strand(e, err); err != nil {
						return err
					}
				}
			}
		}
	}
	lanes := r.lanes(len(todo))
	var failed error
	next := 0
	r.c.Each(len(lanes), func(c *rdma.Coro, i int) {
		l := &lanes[i]
		l.c = c
		defer l.closeQuery()
		for next < len(todo) && failed == nil {
			w := todo[next]
			next++
			err := job(l, w.x, w.e)
			if err != nil && l.strand(w.e, err) == nil {
				if l.batch.Done() {
					l.batch.Reset()
				}
				err = job(l, w.x, w.e)
			}
			switch w.busy = errors.Is(err, index.ErrBusy); {
			case w.busy, errors.Is(err, rdma.ErrArenaFull):
				again = append(again, w)
			case err != nil && failed == nil:
				failed = err
			}
			if l.batch.Done() {
				l.batch.Reset()
			}
		}
	})
	for _, w := range again {
		if w.busy && !w.e.stranded && failed == nil {
			if err := r.unblock(w.e.table); err != nil {
				failed = r.strand(w.e, err)
			}
		}
		if failed == nil {
			failed = job(r, w.x, w.e)
		}
		if failed != nil && r.strand(w.e, failed) == nil {
			failed = job(r, w.x, w.e)
		}
	}
	return failed
}

// lanes are runs that do parts of r at the same time, for n entries, on parts of its
// scratch memory.
func (r *run) lanes(n int) []run {
	lanes := make([]run, min(n, maxLanes, int(r.size/minLane)))
	for i := range lanes {
		size := r.size / uint32(len(lanes)) &^ (record.LineSize - 1)
		lanes[i] = run{
			t: r.t, o: r.o, claim: r.claim, v: r.v, rep: r.rep, tables: r.tables,
			successors: r.successors, renewAt: r.renewAt,
			buf: r.buf + uint32(i)*size, size: size,
		}
	}
	return lanes
}
