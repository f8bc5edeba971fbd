package rdma

// fences tracks, per queue pair of the thread, what is outstanding and whether
// WRITEs may have arrived that are not placed yet, so that a fence waits, or
// costs a verb, only when it has to (LOCO, section 5.3). On a synchronous
// fabric with Caps.Placed there is nothing to track.
//
// The requests of a queue pair are numbered from 1 as they are posted. They
// complete in that order, so a count of completions says which have.
type fences struct {
	on     bool
	placed bool // Caps.Placed
	qp     []qpFence
	queue  coroRing // coroutines that wait for any completion
}

type qpFence struct {
	posted    uint64 // number of the last request posted
	completed uint64 // number of the last request completed
	write     uint64 // number of the last WRITE, 0: none
	placed    uint64 // WRITEs before this number are placed
	key       Key    // of the last WRITE
}

// Scope is how far a fence reaches.
type Scope uint8

// Scopes of LOCO's fences. A global fence is GlobalFence.
const (
	FencePair   Scope = iota // this thread's verbs on one blade
	FenceThread              // this thread's verbs on all blades
)

func (f *fences) init(blades int, caps *Caps) {
	f.on = !caps.Placed || !caps.Synchronous
	f.placed = caps.Placed
	f.qp = make([]qpFence, blades)
}

// posting numbers the requests of wrs.
func (f *fences) posting(wrs []WR) {
	for i := range wrs {
		w := &wrs[i]
		if int(w.Blade) >= len(f.qp) {
			continue
		}
		q := &f.qp[w.Blade]
		q.posted++
		if w.Op == OpWrite {
			q.write, q.key = q.posted, w.Key
		}
	}
}

// completed takes note of the completion of w, whose Status is set. A READ or
// atomic proves that the WRITEs before it are placed (contract, clause 3); a
// FLUSH speaks of its own range only.
func (f *fences) completed(t *Thread, w *WR) {
	if int(w.Blade) >= len(f.qp) {
		return
	}
	q := &f.qp[w.Blade]
	q.completed++
	if w.Status == StatusOK && w.Op != OpWrite && w.Op != OpFlush {
		q.placed = q.completed
	}
	f.wake(t)
}

// completedRun is completed for the n requests of wrs that are for the blade of the first, and that
// have succeeded.
func (f *fences) completedRun(t *Thread, wrs []WR, n int) {
	blade := wrs[0].Blade
	if int(blade) >= len(f.qp) {
		return
	}
	q := &f.qp[blade]
	q.completed += uint64(n)
	at := q.completed
	for i := len(wrs) - 1; i >= 0; i-- { // the last one that has WRITEs placed
		if wrs[i].Blade != blade {
			continue
		}
		if wrs[i].Op != OpWrite && wrs[i].Op != OpFlush {
			q.placed = at
			break
		}
		at--
	}
	f.wake(t)
}

// wake has the coroutines go on that wait for any completion.
func (f *fences) wake(t *Thread) {
	for f.queue.size > 0 {
		t.ready.push(f.queue.pop())
	}
}

// Fence returns when everything that the thread posted before, within the scope, is complete and
// placed: visible to every verb of any client that is posted afterwards. It waits for what is
// outstanding. For a queue pair whose last WRITE is not proved to be placed by a later READ or
// atomic, it posts a READ of no bytes. On a synchronous fabric with Caps.Placed it does nothing.
//
// batch is scratch. An error is that of the fence's own verbs; earlier failures are told by the
// batch of the request that failed.
func (c *Coro) Fence(scope Scope, blade BladeID, batch *Batch) error {
	f := &c.t.fences
	if !f.on {
		return nil
	}
	batch.Reset()
	for i := range f.qp {
		q := &f.qp[i]
		if scope == FencePair && BladeID(i) != blade || f.placed || q.write <= q.placed ||
			c.t.barred&BladeBit(BladeID(i)) != 0 {
			continue
		}
		batch.Read(RemoteAddr{Blade: BladeID(i), Key: q.key}, 0, 0)
	}
	var err error
	if batch.Len() > 0 {
		err = c.Do(batch)
	}
	waited := false
	for i := range f.qp {
		q := &f.qp[i]
		if scope == FencePair && BladeID(i) != blade {
			continue
		}
		for upto := q.posted; q.completed < upto; waited = true {
			if c.yield == nil {
				c.reap()
				continue
			}
			f.queue.push(c)
			c.park()
		}
	}
	if waited {
		c.Count.RoundTrips++
	}
	return err
}

// GlobalFence fences the verbs of all given threads, which must be quiet while
// it runs: it makes the WRITEs of each of them placed. It goes on when one
// fails, and returns the first error.
func GlobalFence(threads []*Thread, batch *Batch) error {
	var first error
	for _, t := range threads {
		if err := t.plain.Fence(FenceThread, 0, batch); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Rekeyed tells the thread the access key that a blade has now. WRITEs that were
// posted with another one have been placed before it changed, or never will be
// (Fabric.Revoke): a fence does not ask for them with a key that opens nothing.
func (t *Thread) Rekeyed(b BladeID, k Key) {
	if f := &t.fences; f.on && int(b) < len(f.qp) && f.qp[b].key != k {
		f.qp[b].placed = max(f.qp[b].placed, f.qp[b].write)
	}
}
