package memory

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"txnode/memory/layout"
	"txnode/rdma"
)

// An epoch has a key of its own on every blade that takes part: the blade chooses it, and the
// catalog names it. A process that changes the epoch has each blade grant a key, writes the
// keys to the catalog together with whatever else the epoch changes, and has each blade revoke
// the keys before. Only then has the epoch begun: until then verbs of the epoch before take
// effect. A process that finds an epoch in the catalog revokes, too, before it goes on, because
// the one that made it may have died in between.
//
//	died before the catalog was changed   the keys that were granted open the blades; no process
//	                                      has them
//	died before a blade revoked           Open revokes
//	lost the race for the catalog         as if it had died before
//	late, and revokes by an older epoch   changes nothing: the blade has keys in the order of
//	                                      epochs
//	a blade has restarted in between      its incarnation says so: it is to be declared dead
//	a blade does not grant or revoke      what has to come after late verbs waits: see EndKeys. If
//	                                      that goes on
//	                                      it counts as a blade that does not answer: see Refusal
//	a client of before may still write    what has to come after late verbs waits for it:
//	                                      rdma.ErrUnfenced
//
// See rdma.Fabric.Grant.

// grant has the blades that take part grant keys for the next epoch, and notes them. A
// blade that does not, or that has restarted since the incarnation that is known, has none. Such
// blades are the error. No blade is asked twice, and none is waited for.
func (s *membership) grant(blades []layout.Blade) error {
	before := s.fabric.Blades()
	errs := make([]error, len(blades))
	for i, info := range before {
		b := &blades[i]
		if b.Key = 0; b.State == layout.BladeDown {
			continue
		}
		if restarted(b, info) {
			errs[i] = s.keyError(info.ID, rdma.ErrBladeDown, "granting an access key: it has restarted")
			continue
		}
		k, err := s.fabric.Grant(info.ID)
		if err != nil {
			errs[i] = s.keyError(info.ID, err, "granting an access key")
			s.answered(info.ID, errs[i])
			continue
		}
		if b.Key = k; !info.Unheard {
			b.Incarnation = info.Incarnation
		}
	}
	// A key of a blade that has restarted before it granted it would open what has lost its
	// memory.
	for i, info := range s.fabric.Blades() {
		switch b := &blades[i]; {
		case b.Key == 0:
		case info.Unheard:
			b.Key = 0
			errs[i] = s.keyError(info.ID, rdma.ErrBladeDown,
				"granting an access key: it does not say whether it has restarted")
		case restarted(b, info):
			b.Key = 0
			errs[i] = s.keyError(info.ID, rdma.ErrBladeDown, "granting an access key: it has restarted")
		default:
			b.Incarnation = info.Incarnation
		}
	}
	return errors.Join(errs...)
}

// grants is what blades have granted for an epoch, within a change.
type grants struct {
	epoch  layout.Epoch
	asked  []layout.Blade // as they were then
	blades []layout.Blade
	err    error
}

// grantFor notes keys for the epoch of l in it: those that the blades have granted since the
// change has begun, or none, and then has the blades asked before the change is committed. They
// are asked once for an epoch, if nothing else has become of them meanwhile. The caller holds the
// lock, in a change.
func (s *membership) grantFor(l *layout.Layout) error {
	u := s.making
	same := func(x, y layout.Blade) bool { return x.State == y.State && x.Incarnation == y.Incarnation }
	if g := u.keys; g != nil && g.epoch == l.Epoch && slices.EqualFunc(g.asked, l.Blades, same) {
		for i := range l.Blades {
			l.Blades[i].Key, l.Blades[i].Incarnation = g.blades[i].Key, g.blades[i].Incarnation
		}
		return g.err
	}
	g := &grants{epoch: l.Epoch, asked: slices.Clone(l.Blades), blades: slices.Clone(l.Blades)}
	u.asks = append(u.asks, func() {
		g.err = s.grant(g.blades)
		u.keys = g
	})
	return nil
}

// begin begins the epoch of the layout, which is that of the catalog, whichever process has made
// it: it ends the keys of those before, and publishes the view. granted is what has gone wrong with
// its own keys. If a blade does not know its key any more, and has not restarted, then the epoch is
// over, or the blade was asked for more keys than it holds since: the epoch is changed again,
// unless that was in vain lately. The caller holds Space.epochs, and not the lock.
func (s *Space) begin(granted error) error {
	for tries := 0; ; tries++ {
		s.mu.Lock()
		epoch, blades, pausing := s.layout.Epoch, slices.Clone(s.layout.Blades), s.pausing()
		cut := s.without(s.layout)
		s.mu.Unlock()
		for _, b := range cut { // it is not asked: late verbs may take effect there
			blades[b].State = layout.BladeDown
		}
		err := granted
		if !s.opts.ReadOnly {
			err = errors.Join(granted, s.revoke(blades))
		}
		if !errors.Is(err, rdma.ErrStaleKey) || tries == maxBegins || epoch == layout.MaxEpoch || pausing ||
			len(cut) > 0 {
			if s.begun(epoch, err, len(cut) > 0) {
				return err
			}
			granted = nil
			continue
		}
		e := s.updateAs(&update{turn: true, epochs: true, unwaiting: true}, func() error {
			if s.layout.Epoch != epoch {
				granted = nil
				return nil
			}
			return s.move(s.layout.Clone(), &granted, nil)
		})
		if e != nil {
			s.begun(epoch, err, len(cut) > 0)
			return errors.Join(err, e)
		}
	}
}

// maxBegins bounds how often in a row an epoch is changed again.
const maxBegins = 3

// begun publishes the view of an epoch, unless the catalog has a later one: false. The keys of
// the epoch alone open the blades by now, unless err says that it could not be begun on one, or
// one was not asked.
func (s *allocation) begun(epoch layout.Epoch, err error, unasked bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.layout.Epoch != epoch {
		return false
	}
	unrevoked := !s.opts.ReadOnly && (err != nil || unasked || s.layout.Keyless())
	s.unrevoked.Store(unrevoked)
	if !unrevoked {
		s.vain = vainEpochs{}
	} else if s.moved == epoch && s.vain.last != epoch { // by this process, and one that it has not counted
		s.vain.last = epoch
		if s.vain.n++; s.vain.n > vainFree {
			s.vain.until = s.fabric.Now() + vainPauseNs<<min(s.vain.n-vainFree, vainDoublings)
		}
	}
	s.above.derive()
	s.dropLost()
	return true
}

// Unrevoked reports whether late verbs may take effect on a blade: see EndKeys. It takes no lock.
func (s *membership) Unrevoked() bool { return s.unrevoked.Load() }

// vainEpochs are those in a row that this process has made and that a blade has not begun.
// After some, the next one that is made for the sake of the keys alone comes after a pause,
// each time twice as long.
type vainEpochs struct {
	n     int
	last  layout.Epoch
	until int64 // of the fabric's clock
}

const (
	vainFree      = 4
	vainPauseNs   = int64(1_000_000)
	vainDoublings = 16 // a minute
)

// pausing reports whether no epoch is to be made just now for the sake of the keys alone. The
// caller holds the lock.
func (s *membership) pausing() bool { return s.vain.until > s.fabric.Now() }

// refusal is that a blade which takes part has not granted, or not ended, access keys. waited is
// for how long that has been seen: between two refusals it may have done so, and this process may
// have stood still, so a part of the patience counts at most.
type refusal struct {
	err    error // the last one
	last   int64 // time of the fabric's clock
	waited int64
	times  int
}

const (
	refusalPatienceNs = int64(1_000_000_000)
	refusalTimes      = 3
)

// answered notes what a blade has answered when it was to grant or to end keys. Only nil of the
// latter ends a refusal, since then there is nothing left that it was asked for. An error of the
// connection to it is no answer, and says nothing about it.
func (s *membership) answered(b rdma.BladeID, err error) {
	if e := rdma.EvidenceOf(err); e != rdma.NoEvidence && e != rdma.Restarted {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.refusals[b]
	switch {
	case err == nil:
		delete(s.refusals, b)
		return
	case s.refusals == nil:
		s.refusals = map[rdma.BladeID]refusal{}
	}
	now := s.fabric.Now()
	if ok {
		x.waited += min(now-x.last, refusalPatienceNs/refusalTimes)
	}
	x.err, x.last = err, now
	x.times++
	s.refusals[b] = x
}

// Refusal returns why a blade counts as one that does not answer at a time of the fabric's clock,
// although it may execute verbs: it takes part, and for refusalPatienceNs it has not granted or not
// ended access keys, as often as it was asked. Without it, nothing that has to come after late
// verbs would be done any more. It is nil for a blade that has the last copy of a segment: no
// backup could take over, and what is there can be read as long as the blade executes verbs.
func (s *membership) Refusal(b rdma.BladeID, now int64) error {
	if !s.unrevoked.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.refusals[b]
	if !ok || x.waited+min(now-x.last, refusalPatienceNs/refusalTimes) < refusalPatienceNs ||
		s.layout.Blades[b].State != layout.BladeUp ||
		s.layout.Without(b).Redundancy().Lost > s.layout.Redundancy().Lost {
		return nil
	}
	return fmt.Errorf("for %v it has not changed its access keys, %d times: %w",
		time.Duration(x.waited), x.times, x.err)
}

// EndKeys makes sure that no verb with a key of an earlier epoch than that of the view takes effect
// any more. It repeats what a blade has refused when the epoch began in this process: it ends the
// keys before, or begins another epoch if the blade has no key of this one. Until then a process
// that is late can change what is on that blade. So no segment of another process is adopted, no
// right is taken that it may have had, no copies are built from what it may write to them or beside
// them, and no place is cleared that it may write to. Without such a blade it costs nothing. Epochs
// that are in vain become rare: see vainEpochs. A process that is cut off a blade cannot make sure
// of that: ErrCutOff.
func (s *replicas) EndKeys() error {
	if s.IsCutOff() {
		return s.CutOffError(s.Without())
	}
	if !s.unrevoked.Load() {
		return nil
	}
	s.mu.Lock()
	err, blades, pausing := s.closed, slices.Clone(s.layout.Blades), s.pausing()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for i, info := range s.fabric.Blades() {
		if b := &blades[i]; b.State == layout.BladeDown || b.Key != 0 {
			continue
		} else if restarted(b, info) {
			return s.keyError(info.ID, rdma.ErrBladeDown, "granting an access key: it has restarted")
		}
		if _, err := s.fabric.Grant(info.ID); err != nil { // an epoch that ends so, too, would be in vain
			err = s.keyError(info.ID, err, "granting an access key")
			s.answered(info.ID, err)
			return err
		}
		s.answered(info.ID, nil) // it has no other key of this epoch to end
		if pausing {
			return ErrUnrevoked
		}
	}
	if _, err := s.advance(func(l *layout.Layout) error {
		if l.Keyless() {
			return nil
		}
		return errUnchanged
	}, nil); err != nil || !s.unrevoked.Load() {
		return err
	}
	s.epochs.Lock()
	defer s.epochs.Unlock()
	return s.above.begin(nil)
}

// revoke ends the keys of earlier epochs than that in which the blades have these.
func (s *membership) revoke(blades []layout.Blade) error {
	var errs []error
	for i := range blades {
		b, id := &blades[i], rdma.BladeID(i)
		switch {
		case b.State == layout.BladeDown:
			s.answered(id, nil) // it has to do it no more
			continue
		case b.Key == 0:
			continue
		}
		err := s.fabric.Revoke(id, b.Key)
		if errors.Is(err, rdma.ErrStaleKey) && restarted(b, s.fabric.Blades()[i]) {
			errs = append(errs,
				s.keyError(id, rdma.ErrBladeDown, "ending the access keys of earlier epochs: it has restarted"))
			continue
		}
		// its keys have ended, and a client is waited for: that is no refusal of the blade's
		if errors.Is(err, rdma.ErrUnfenced) {
			errs = append(errs, s.keyError(id, fmt.Errorf("%w: %w", ErrUnrevoked, err),
				"ending the access keys of earlier epochs"))
			continue
		}
		if err != nil {
			err = s.keyError(id, err, "ending the access keys of earlier epochs")
			errs = append(errs, err)
		}
		s.answered(id, err)
	}
	return errors.Join(errs...)
}

func (s *store) keyError(b rdma.BladeID, err error, what string) error {
	return &layout.BladeError{Blade: b, Name: s.opts.bladeName(b), Err: err, What: what}
}

// restarted reports whether a blade has said that it is in another incarnation than the catalog
// says. What it told before others have taken it in again says nothing.
func restarted(b *layout.Blade, info rdma.BladeInfo) bool {
	return b.Incarnation != 0 && !info.Unheard && info.Incarnation != b.Incarnation
}

// Restarted reports whether a blade that is up answers, and has stopped and come back since it
// has granted its key: what it had not placed is lost, or all that it had, so it has
// to be declared dead, whether it answers or not. Before any use of it, its old key
// opens nothing.
func (s *store) Restarted(b rdma.BladeID) bool {
	known := func() (x layout.Blade) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if int(b) < len(s.layout.Blades) {
			x = s.layout.Blades[b]
		} else {
			x.State = layout.BladeDown
		}
		return x
	}
	for {
		x := known()
		if x.State == layout.BladeDown {
			return false
		}
		info := s.fabric.Blades()[b]
		if y := known(); y.State == x.State && y.Incarnation == x.Incarnation { // else it was taken in again meanwhile
			return restarted(&x, info)
		}
	}
}

// keysToRead finds the keys of a space that changes nothing. Beside others, those are the keys
// of the catalog, provided that their epoch has begun and is not over: the oldest that open the
// blades. With blades of its own, which have not been in use since they began anew, the space
// has them grant keys that only this process knows.
func (s *membership) keysToRead(infos []rdma.BladeInfo) error {
	l := s.layout
	beside := false
	for i := range l.Blades {
		beside = beside || l.Blades[i].State == layout.BladeUp && !infos[i].Unheard &&
			l.Blades[i].Incarnation == infos[i].Incarnation
	}
	if !beside {
		l.Meet(infos)
		return s.grant(l.Blades)
	}
	var errs []error
	for i := range l.Blades {
		b, info := &l.Blades[i], infos[i]
		switch {
		case b.State == layout.BladeDown:
		case info.Unheard:
			errs = append(errs, s.keyError(info.ID, rdma.ErrBladeDown, "it does not answer"))
		case restarted(b, info):
			errs = append(errs,
				s.keyError(info.ID, rdma.ErrStaleKey,
					"it has restarted, which the process that has the database open is about to notice: try again, "+
						"or, if there is none, open the database once for writing"))
		case b.Key != info.Key:
			errs = append(errs,
				s.keyError(info.ID, rdma.ErrStaleKey,
					fmt.Sprintf("the catalog %s says that the epoch is %d, and its access key is of another one: the "+
						"process that has the database open is about to change the epoch: try again, or, if there is "+
						"none, open the database once for writing", s.cat.Name(), l.Epoch)))
		}
	}
	return errors.Join(errs...)
}
