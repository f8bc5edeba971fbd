package race

import (
	"fmt"
	"slices"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// step is the transition of one word from one value to another: by CAS on the
// primary, and then by the same CAS on each backup.
//
// Who has changed the primary changes the backups before it lets go of what
// entitled it to the change, so a value cannot come back to the primary before
// every backup has had it, and a backup's CAS can only fail because an earlier
// transition of somebody else is still on its way: every replica goes through the
// same values, and the CAS is repeated until its turn has come.
type step struct {
	addr     layout.Addr
	old, new uint64
	prior    uint64 // what the primary held before
	done     uint8  // bit i: copy i holds the new value
	// once: the word never holds a value twice, and is changed under a lock, so
	// that finding the new value means that a client before has got so far.
	once bool
	// passed: a copy was found to be further than this.
	passed bool
	// header: the word is a bucket's header, which several clients may change one
	// after the other before the first of them comes to the backups.
	header bool
}

func (t *step) ok() bool { return t.done&1 != 0 }

// stepRef says which step and copy a work request belongs to.
type stepRef struct {
	step, copy, wr int
}

// primary executes the first CAS of every step; it sets prior and ok.
func (ix *Index) primary(c *rdma.Coro, s *scratch, v *layout.View, steps []step) error {
	for len(steps) > 0 {
		part := steps[:min(len(steps), ix.window)]
		steps = steps[len(part):]
		s.batch.Reset()
		for i := range part {
			s.batch.CAS(v.At(part[i].addr, 0), part[i].old, part[i].new)
		}
		if err := c.Do(&s.batch); err != nil {
			return err
		}
		for i := range part {
			part[i].prior = s.batch.Result(i)
			if t := &part[i]; t.prior == t.old || t.once && t.prior == t.new {
				part[i].done |= 1
			}
		}
	}
	return nil
}

// appendBackups appends the CAS of those copies of the steps that are left, as far
// as one batch goes, and reports whether there are any.
func (ix *Index) appendBackups(s *scratch, v *layout.View, steps []step) bool {
	s.refs = s.refs[:0]
	for i := range steps {
		t := &steps[i]
		if !t.ok() {
			continue
		}
		for k := 1; k < v.Copies(t.addr) && len(s.refs) < ix.window; k++ {
			if t.done&(1<<k) == 0 {
				s.refs = append(s.refs, stepRef{i, k, s.batch.CAS(v.At(t.addr, k), t.old, t.new)})
			}
		}
	}
	return len(s.refs) > 0
}

// settle notes which of the appended CAS have succeeded, and returns the number
// of one that has not, or -1.
func settle(s *scratch, steps []step) (failed int) {
	failed = -1
	for i, r := range s.refs {
		// The new value was put there by a recovery, which saw the primary; so was
		// one that comes later.
		t := &steps[r.step]
		if v := s.batch.Result(r.wr); v == t.old || v == t.new || t.header && Header(v).after(Header(t.new)) {
			t.done |= 1 << r.copy
			t.passed = t.passed || v != t.old && v != t.new
		} else {
			failed = i
		}
	}
	return failed
}

// backups completes the steps that have succeeded on the primary.
func (ix *Index) backups(c *rdma.Coro, s *scratch, v *layout.View, steps []step) error {
	start := int64(0)
	for tries := 0; ; {
		s.batch.Reset()
		if !ix.appendBackups(s, v, steps) {
			return syncSteps(c, v, steps)
		}
		if err := c.Do(&s.batch); err != nil {
			return err
		}
		failed := settle(s, steps)
		if failed < 0 {
			continue // there may be more than one batch of them
		}
		now := c.Thread().Now()
		if start == 0 {
			start = now
		} else if now-start > ix.stall || ix.hopeless(0, tries) {
			// Copies that are being built follow the primary, which nobody may come to do for
			// these words any more: without a failed verb there need not be a new epoch.
			if err := syncSteps(c, v, steps); err != nil {
				return err
			}
			r := s.refs[failed]
			t := &steps[r.step]
			return &BusyError{
				Table: ix.geo.Table, Addr: t.addr,
				What: fmt.Sprintf("a change of copy %d, which holds %#x instead of %#x",
					r.copy, s.batch.Result(r.wr), t.old),
			}
		}
		linger(c, tries)
		tries++
	}
}

// backwards executes steps of words that nobody else may change, on the last copy first
// and on the primary last. So what others see of it on the primary is not undone when
// the blade of that is lost, nor the one after it: a copy is never behind those before it.
// When it returns the backups have had the new values, or will have them by who recovers.
func (ix *Index) backwards(c *rdma.Coro, s *scratch, v *layout.View, steps []step) error {
	begun := c.Thread().Now()
	for k := layout.MaxReplicas - 1; k > 0; k-- {
		if err := ix.copyFirst(c, s, v, steps, k); err != nil {
			return err
		}
	}
	if err := ix.primary(c, s, v, steps); err != nil {
		return err
	}
	if c.Thread().Now()-begun < levelLeast {
		return syncSteps(c, v, steps)
	}
	// A recovery that has met a copy ahead of the primary may have turned it back. What is
	// neither value has come later.
	for k := 1; k < layout.MaxReplicas; k++ {
		for part := range slices.Chunk(steps, ix.window) {
			s.batch.Reset()
			for i := range part {
				if t := &part[i]; t.ok() && k < v.Copies(t.addr) {
					s.batch.CAS(v.At(t.addr, k), t.old, t.new)
				}
			}
			if s.batch.Len() == 0 {
				continue
			}
			if err := c.Do(&s.batch); err != nil {
				return err
			}
		}
	}
	return syncSteps(c, v, steps)
}

// copyFirst executes steps on copy k, before the primary.
func (ix *Index) copyFirst(c *rdma.Coro, s *scratch, v *layout.View, steps []step, k int) error {
	for w := (waiting{}); ; {
		s.batch.Reset()
		s.refs = s.refs[:0]
		for i := range steps {
			if t := &steps[i]; k < v.Copies(t.addr) && t.done&(1<<k) == 0 && len(s.refs) < ix.window {
				s.refs = append(s.refs, stepRef{i, k, s.batch.CAS(v.At(t.addr, k), t.old, t.new)})
			}
		}
		if len(s.refs) == 0 {
			return nil
		}
		if err := c.Do(&s.batch); err != nil {
			return err
		}
		if failed := settle(s, steps); failed >= 0 {
			if err := ix.waitFor(c, &w, steps[s.refs[failed].step].addr, 0, "a change of a copy"); err != nil {
				return err
			}
		}
	}
}

// syncSpan is how far apart words may be that syncSteps compares together, in bytes.
const syncSpan = 4 << 10

// syncSteps brings what has changed on the primary to copies that are being built,
// which go through values of their own: see memory.SyncWords.
func syncSteps(c *rdma.Coro, v *layout.View, steps []step) error {
	for i := 0; i < len(steps); {
		first, last := steps[i].addr, steps[i].addr
		building := v.Written(first) > v.Copies(first) && steps[i].ok()
		for i++; building && i < len(steps) && steps[i].addr > last && steps[i].addr-first < syncSpan; i++ {
			last = steps[i].addr
		}
		if building {
			if err := memory.SyncWords(c, v, first, uint32(last-first)+8); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply is primary and backups.
func (ix *Index) apply(c *rdma.Coro, s *scratch, v *layout.View, steps []step) error {
	if err := ix.primary(c, s, v, steps); err != nil {
		return err
	}
	return ix.backups(c, s, v, steps)
}

// one executes a single step and reports whether it took effect.
func (ix *Index) one(c *rdma.Coro, s *scratch, v *layout.View, a layout.Addr, was, to uint64) (bool, error) {
	s.steps = append(s.steps[:0], step{addr: a, old: was, new: to})
	err := ix.apply(c, s, v, s.steps)
	return s.steps[0].ok(), err
}
