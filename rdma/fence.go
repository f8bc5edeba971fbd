package rdma

// fences tracks, per queue pair of the thread, whether WRITEs may have arrived
// that are not placed yet, so that a fence costs a verb only when it has to
// (LOCO, section 5.3). On a fabric with Caps.Placed nothing is tracked.
type fences struct {
	on bool
	qp []qpFence
}

// qpFence numbers the WRITEs of one queue pair.
type qpFence struct {
	write  uint64 // number of the last WRITE posted, 0: none
	placed uint64 // WRITEs up to this number are known to be placed
}

// proof says that, once its batch is done, the WRITEs of a blade's queue pair
// up to number write are placed: a READ or atomic was posted behind them.
type proof struct {
	blade BladeID
	write uint64
}

// Scope is how far a fence reaches.
type Scope uint8

// Scopes of LOCO's fences. A global fence is GlobalFence.
const (
	FencePair   Scope = iota // this thread's verbs on one blade
	FenceThread              // this thread's verbs on all blades
)

func (f *fences) init(blades int, placed bool) {
	f.on = !placed
	f.qp = make([]qpFence, blades)
}

// posted numbers the WRITEs of b.wrs[first:] and notes what the other requests
// will prove.
func (f *fences) posted(b *Batch, first int) {
	for i := first; i < len(b.wrs); i++ {
		w := &b.wrs[i]
		if int(w.Blade) >= len(f.qp) {
			continue
		}
		q := &f.qp[w.Blade]
		if w.Op == OpWrite {
			q.write++
			continue
		}
		if n := len(b.proofs); n > 0 && b.proofs[n-1].blade == w.Blade {
			b.proofs[n-1].write = q.write
		} else {
			b.proofs = append(b.proofs, proof{w.Blade, q.write})
		}
	}
}

// completed is called when a batch is done.
func (f *fences) completed(b *Batch) {
	if b.failed == 0 {
		for _, p := range b.proofs {
			f.qp[p.blade].placed = max(f.qp[p.blade].placed, p.write)
		}
	}
	b.proofs = b.proofs[:0]
}

// Fence returns when everything that the thread posted before, within the
// scope, is complete and placed: visible to every verb of any client that is
// posted afterwards. batch is scratch for the verbs of the fence, which are
// none when nothing needs them.
func (c *Coro) Fence(scope Scope, blade BladeID, batch *Batch) error {
	f := &c.t.fences
	if !f.on {
		return nil
	}
	batch.Reset()
	blades := c.t.fabric.Blades()
	for i := range f.qp {
		q := &f.qp[i]
		if scope == FencePair && BladeID(i) != blade || q.write <= q.placed {
			continue
		}
		batch.Read(RemoteAddr{Blade: BladeID(i), Key: blades[i].Key}, 0, 0)
	}
	if batch.Len() == 0 {
		return nil
	}
	return c.Do(batch)
}

// GlobalFence fences the verbs of all given threads, which must be quiet while
// it runs: it makes the WRITEs of each of them placed.
func GlobalFence(threads []*Thread, batch *Batch) error {
	for _, t := range threads {
		if err := t.plain.Fence(FenceThread, 0, batch); err != nil {
			return err
		}
	}
	return nil
}
