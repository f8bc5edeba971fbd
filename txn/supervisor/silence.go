package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma"
)

// probe lists the blades that do not answer, though they should.
func (s *Supervisor) probe(c *rdma.Coro) ([]Outage, error) {
	var dead []Outage
	// another process may have seen to it
	if err := s.space.Follow(); err != nil && !errors.Is(err, rdma.ErrBladeDown) {
		return nil, err
	}
	s.lookForGaps()
	v := s.space.Current()
	for b := range rdma.BladeID(v.Blades()) {
		if !v.Up(b) {
			continue
		}
		// this process may be paused from here on
		x := Outage{Blade: int(b), found: s.space.Layout().Epoch, declareDead: s.space.DeclareDead(b)}
		silent, err := s.silence(c, b)
		if err != nil {
			return nil, err
		}
		if silent != nil {
			x.Cause, x.spare = silent.Error(), errors.Is(silent, errRefuses)
			x.restarted = errors.Is(silent, errRestarted)
			x.silent = !x.restarted && !x.spare && !s.hasEnded(b, silent)
			x.says = saysOf(silent)
			dead = append(dead, x)
		}
	}
	return dead, nil
}

// saysOf is what this process says of a blade that it does not reach. A blade that refuses
// to talk to it lives.
func saysOf(silent error) layout.Says {
	switch rdma.EvidenceOf(silent) {
	case rdma.Own:
		return layout.Troubled
	case rdma.Alive:
		return layout.Hears
	default:
		return layout.Silent
	}
}

// hasEnded reports whether the fabric knows that a blade has ended that does not answer: the
// incarnation that others use, and not an earlier one.
func (s *Supervisor) hasEnded(b rdma.BladeID, silent error) bool {
	if s.fabric.Caps().Remote || errors.Is(silent, rdma.ErrSilent) {
		return false
	}
	uses := s.space.Layout().Blades[b].Incarnation
	return uses == 0 || s.fabric.Blades()[b].Incarnation == uses
}

// doomed are those of blades that do not answer which are to be declared dead. That a blade has
// ended, or has lost its memory in a restart, is known. That nothing is heard of it is what this
// process finds: such a blade is gone if no other member hears it either (package memory/members),
// and it is not declared dead as long as the last copy of a segment would be lost with it: it may
// come back with that. This process is cut off the blades that are not doomed.
func (s *Supervisor) doomed(c *rdma.Coro, dead []Outage) ([]Outage, *cutOff, error) {
	cut := &cutOff{why: map[rdma.BladeID]string{}}
	if !slices.ContainsFunc(dead, func(x Outage) bool { return x.silent }) {
		return dead, cut, nil
	}
	judged, err := s.consult(c, dead)
	if err != nil {
		return nil, nil, err
	}
	var out []Outage
	var gone []rdma.BladeID
	l := s.space.Layout()
	for i := range dead {
		x, b := &dead[i], rdma.BladeID(dead[i].Blade) // there are MaxBlades
		if !x.silent {
			out, l = append(out, *x), l.Without(b)
			continue
		}
		if x.says == layout.Hears {
			cut.why[b], cut.heard = "it lives, and refuses this process: "+x.Cause, true
			continue
		}
		j := judged[b]
		// another thread of this process has reached it meanwhile
		if j.State == members.Unasked || slices.Contains(j.Hears, s.space.Process()) {
			if silent, err := s.silence(c, b); err != nil {
				return nil, nil, err
			} else if silent == nil {
				continue
			}
		}
		switch {
		case l.Blades[b].State == layout.BladeDown: // another member was first to declare it dead
		case j.State == members.Gone:
			gone = append(gone, b)
		case j.State == members.Heard:
			cut.why[b], cut.heard = fmt.Sprintf("it is heard by %s: %s", inWords(j.Hears), x.Cause), true
		case len(j.Absent) > 0:
			cut.why[b] = fmt.Sprintf("%s not said yet whether it is heard: %s",
				inWords(j.Absent)+have(j.Absent), x.Cause)
		default:
			cut.why[b] = fmt.Sprintf("this process cannot ask it, and no other one has: %s", x.Cause)
		}
	}
	last := false
	if without := l.Without(gone...); len(gone) > 0 {
		last = without.UpBlades() == 0 || without.Redundancy().Lost > l.Redundancy().Lost
	}
	for _, x := range dead {
		switch b := rdma.BladeID(x.Blade); { // there are MaxBlades
		case !x.silent || !slices.Contains(gone, b):
		case last:
			cut.why[b] = fmt.Sprintf("blades %v have the last copy of segments, and are waited for: %s", gone, x.Cause)
		default:
			x.spare = true // another process may have declared one dead meanwhile
			out = append(out, x)
		}
	}
	return out, cut, nil
}

// have is the verb behind inWords.
func have(ids []uint32) string {
	if len(ids) == 1 {
		return " has"
	}
	return " have"
}

// inWords are members in words.
func inWords(ids []uint32) string {
	var words []string
	for _, id := range ids {
		if id == layout.Witness {
			words = append(words, "the server of the catalog")
		} else {
			words = append(words, fmt.Sprintf("process %d", id))
		}
	}
	return strings.Join(words, ", ")
}

// consult says in the catalog what this process hears nothing of, and returns what all members say
// of it, as soon as all have answered, or the leases of those have ended that have not. Blades that
// restarted, or whose end is known, need no question.
func (s *Supervisor) consult(c *rdma.Coro, dead []Outage) (map[rdma.BladeID]members.Judgement, error) {
	found := map[rdma.BladeID]layout.Says{}
	for _, b := range s.space.Questions() { // what is not among the dead answers
		found[b] = layout.Hears
	}
	for _, x := range dead {
		b := rdma.BladeID(x.Blade) // there are MaxBlades
		delete(found, b)
		if x.silent {
			found[b] = x.says
		}
	}
	now := c.Thread().Now()
	again := now >= s.askAt
	if again {
		s.askAt = now + s.Term()/2
	}
	if err := s.space.See(found, again); err != nil {
		return nil, err
	}
	judged := map[rdma.BladeID]members.Judgement{}
	listened := false
	for until, pause := now+s.Term()+s.Term()/2, askPauseNs; ; pause = min(2*pause, maxAskPauseNs) {
		waiting, gone := false, false
		for b, says := range found {
			if says == layout.Hears {
				continue
			}
			judged[b] = s.space.Judge(b)
			if !s.space.Shared() {
				judged[b] = alone(says)
			}
			gone = gone || judged[b].State == members.Gone
			waiting = waiting || judged[b].State == members.Asked && len(judged[b].Absent) > 0
		}
		// whose terms are shorter than that of this process, of these it may not have heard for a
		// term
		if gone && !listened {
			if listened = true; s.space.Listen() == nil {
				continue
			}
		}
		if !waiting || c.Thread().Now() >= until || s.Ended() {
			return judged, nil
		}
		c.Sleep(pause)
		if err := s.space.Follow(); err != nil && !errors.Is(err, rdma.ErrBladeDown) {
			return nil, err
		}
	}
}

// alone is what the only member of a database finds.
func alone(says layout.Says) members.Judgement {
	if says == layout.Silent {
		return members.Judgement{State: members.Gone}
	}
	return members.Judgement{State: members.Asked}
}

// heedQuestions asks the blades about which other members have asked, and says in the catalog what
// it has found. If no member hears one, it is declared dead.
func (s *Supervisor) heedQuestions(c *rdma.Coro) error {
	asked := s.space.Questions()
	if len(asked) == 0 {
		return nil
	}
	found := map[rdma.BladeID]layout.Says{}
	lacking := false
	for _, b := range asked {
		switch silent, err := s.silence(c, b); {
		case err != nil && !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrBladeDown), silent == nil:
			found[b] = layout.Hears
		default:
			found[b], lacking = saysOf(silent), true
		}
	}
	if err := s.space.See(found, false); err != nil || !lacking {
		return err
	}
	if err := s.BladeDown(c, nil); err != nil && !errors.Is(err, ErrCutOff) {
		return err
	}
	return nil
}

// lookAround answers the questions of others, and from time to time looks by itself whether blades
// answer which no transaction may be using: an idle database notices, too.
func (s *Supervisor) lookAround(c *rdma.Coro) error {
	if !s.space.Shared() {
		return nil
	}
	if err := s.heedQuestions(c); err != nil {
		return err
	}
	if now := c.Thread().Now(); (s.fabric.Caps().Remote || s.space.IsCutOff()) && now >= s.lookedAt+s.lookPause() {
		var err error
		if s.regain(c) {
			err = s.BladeDown(c, nil)
		}
		s.lookedAt = c.Thread().Now()
		if err != nil && !errors.Is(err, ErrCutOff) {
			return err
		}
	}
	return nil
}

// Reached notes that all blades that are up have been reached, but for those that this
// process does without.
func (s *Supervisor) Reached() {
	if !s.space.Said() {
		return
	}
	found := map[rdma.BladeID]layout.Says{}
	v := s.space.Current()
	for b := range rdma.BladeID(v.Blades()) {
		if s.space.Without()&rdma.BladeBit(b) == 0 {
			found[b] = layout.Hears
		}
	}
	_ = s.space.See(found, false) // else the next time
}

// silence asks a blade, several times if need be, and says why it is dead, nil if it answers. One
// that has been restarted since it was last given a key has not kept what it was told: it counts
// as dead. So does one that executes verbs and has refused for long to change its keys.
func (s *Supervisor) silence(c *rdma.Coro, b rdma.BladeID) (silent, err error) {
	t := c.Thread()
	buf, err := t.Alloc(8)
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, 8)
	defer func(barred uint64, sure bool) {
		if t.Bar(barred); sure { // a READ has no effect
			t.ClearUncertain()
		}
	}(t.Barred(), !t.Uncertain() && !c.Multiplexed())
	t.Bar(t.Barred() &^ rdma.BladeBit(b))
	var batch rdma.Batch
	for try := 0; ; try++ {
		if s.space.Restarted(b) {
			return errRestarted, nil // it would answer, but not for what it had
		}
		if err = t.Reconnect(b); err == nil {
			batch.Reset()
			batch.Read(rdma.RemoteAddr{Blade: b, Key: s.space.Current().Key(b)}, buf, 8)
			err = c.Do(&batch)
		}
		switch {
		case err == nil, errors.Is(err, rdma.ErrStaleKey): // the epoch moves on: it is alive
			if refuses := s.space.Refusal(b, t.Now()); refuses != nil {
				return fmt.Errorf("%w: %w", errRefuses, refuses), nil
			}
			return nil, t.Reconnect(b)
		case errors.Is(err, rdma.ErrSilent), errors.Is(err, rdma.ErrBladeDown) && try >= probes:
			return err, nil
		case try >= 100*probes: // what others have under way on the thread does not end
			return nil, err
		}
		c.Sleep(probePauseNs)
	}
}
