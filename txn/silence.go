package txn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"txnode/memory"
	"txnode/rdma"
)

// silence is since when nothing is heard of a blade, and when it was declared dead for that. 0: it is heard of, or was not.
type silence struct{ from, declared int64 }

// probe lists the blades that do not answer, though they should.
func (db *DB) probe(c *rdma.Coro) ([]Outage, error) {
	var dead []Outage
	if err := db.space.Follow(); err != nil && !errors.Is(err, rdma.ErrBladeDown) { // another process may have seen to it
		return nil, err
	}
	db.lookForGaps()
	v := db.space.Current()
	for b := range rdma.BladeID(v.Blades()) {
		if !v.Up(b) {
			continue
		}
		x := Outage{Blade: int(b), found: db.space.Layout().Epoch, demise: db.space.Demise(b)} // this process may be paused from here on
		silent, err := db.silence(c, b)
		if err != nil {
			return nil, err
		}
		if silent != nil {
			x.Cause, x.silent, x.spare = silent.Error(), errors.Is(silent, rdma.ErrSilent), errors.Is(silent, errRefuses)
			dead = append(dead, x)
		}
	}
	return dead, nil
}

// doomed are those of blades that do not answer which are to be declared dead. That a blade is gone or has restarted is
// certain. That nothing is heard of it is what this process finds, and the way there may be down: it may serve others. So
// silent blades are not declared dead if nothing is heard of any blade. Nor are they for silentTerms lease terms if the last
// copy of a segment would be lost, or if one of them was declared dead for its silence and taken in again by another process,
// which has heard of it. If no blade is doomed then, the error is ErrCutOff.
func (db *DB) doomed(now int64, dead []Outage) ([]Outage, error) {
	f := &db.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	patience := int64(db.opts.LeaseTerm)
	if patience <= 0 {
		patience = int64(DefaultLeaseTerm)
	}
	patience *= silentTerms
	l, up := db.space.Layout(), 0
	for b := range l.Blades {
		if l.Blades[b].State == memory.BladeUp {
			up++
		}
	}
	var gone []Outage
	var silent []int
	for _, x := range dead {
		if x.silent {
			silent = append(silent, x.Blade)
			continue
		}
		gone, l = append(gone, x), l.Without(rdma.BladeID(x.Blade)) //nolint:gosec // there are MaxBlades
	}
	for b := range f.silence {
		if !slices.Contains(silent, b) {
			f.silence[b].from = 0
		}
	}
	recent, serves, lost := false, false, l.Redundancy().Lost
	for _, b := range silent {
		s := &f.silence[b]
		if s.from == 0 {
			s.from = now
		}
		recent = recent || now-s.from < patience
		serves = serves || s.declared != 0 && now-s.declared < patience
		l = l.Without(rdma.BladeID(b)) //nolint:gosec // there are MaxBlades
	}
	switch {
	case len(silent) == 0:
		return dead, nil
	case len(silent) < up && !serves && !(recent && l.Redundancy().Lost > lost):
		for i := range dead {
			dead[i].spare = dead[i].spare || dead[i].silent && recent // another process may have declared one dead meanwhile
		}
		slices.SortStableFunc(dead, func(a, b Outage) int { return cmp.Compare(order(a), order(b)) })
		return dead, nil
	case len(gone) > 0:
		return gone, nil
	}
	return nil, fmt.Errorf("nothing is heard of blades %v (%s): %w", silent, dead[len(dead)-1].Cause, ErrCutOff)
}

// reached notes that all blades that are up have been reached.
func (db *DB) reached() {
	f := &db.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	for b := range f.silence {
		f.silence[b].from = 0
	}
}

// order is in which order blades are declared dead: those that are gone for certain first.
func order(x Outage) int {
	if x.spare {
		return 1
	}
	return 0
}

// declared notes that a blade was declared dead, perhaps for its silence. An attempt to declare it dead that has failed does not count: the
// next one would find that the blade serves others. The caller holds failover.mu.
func (f *failover) declared(x Outage) {
	if x.silent {
		f.silence[x.Blade].declared = x.Promoted
	}
}

// heard notes that this process has heard of a blade itself, and taken it in: if it falls silent again, that is another silence.
func (db *DB) heard(b rdma.BladeID) {
	f := &db.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silence[b] = silence{}
}

// errRefuses is why a blade counts as dead that executes verbs.
var errRefuses = errors.New("the blade does not change its access keys")

// errSpared is why a blade is not declared dead: what is there can be read, or may be soon.
var errSpared = fmt.Errorf("txn: the last copy of a segment would be lost with it: %w", memory.ErrLayout)

// errRestarted is why a blade counts as dead that would answer.
var errRestarted = errors.New("the blade has restarted, and has not kept what it was told")

// silence asks a blade, several times if need be, and says why it is dead, nil if it answers. One
// that has been restarted since it was last given a key has not kept what it was told: it counts
// as dead. So does one that executes verbs and has refused for long to change its keys.
func (db *DB) silence(c *rdma.Coro, b rdma.BladeID) (silent, err error) {
	t := c.Thread()
	buf, err := t.Alloc(8)
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, 8)
	var batch rdma.Batch
	for try := 0; ; try++ {
		if db.space.Restarted(b) {
			return errRestarted, nil // it would answer, but not for what it had
		}
		if err = t.Reconnect(b); err == nil {
			batch.Reset()
			batch.Read(rdma.RemoteAddr{Blade: b, Key: db.space.Current().Key(b)}, buf, 8)
			err = c.Do(&batch)
		}
		switch {
		case err == nil, errors.Is(err, rdma.ErrStaleKey): // the epoch moves on: it is alive
			if refuses := db.space.Refusal(b, t.Now()); refuses != nil {
				return fmt.Errorf("%w: %w", errRefuses, refuses), nil
			}
			return nil, t.Reconnect(b)
		case errors.Is(err, rdma.ErrBladeDown) && try >= probes:
			return err, nil
		case try >= 100*probes: // what others have under way on the thread does not end
			return nil, err
		}
		c.Sleep(probePauseNs)
	}
}
