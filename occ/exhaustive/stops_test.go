package exhaustive

import (
	"fmt"
	"slices"
	"testing"

	"txnode/rdma/steptest"
)

// stops tries one transaction on one kind of database.
type stops struct {
	*world
	keys   []string
	ops    []op
	bare   bool // nothing is cached
	grain  steptest.Grain
	stride int // of the states of the first stop, every one of this many gets a second

	others *others // who are at work, too, when a blade is lost; nil: nobody

	states []string // content after so many attempts

	victim   *client
	recorder *client // who recovers
	keeper   *client // of tombstones, or nil
	seen     map[string]bool
	counts   counts
	most     int // attempts that came to the end that was meant
}

// counts are what was done.
type counts struct{ stops, paused, lost, again, blades int }

// try runs a case, and counts what it has tried.
func (s *stops) try(t *testing.T, run func() error) {
	t.Helper()
	defer func() {
		done.add(t, "stops", s.counts.stops)
		done.add(t, "pauses of one who is declared dead", s.counts.paused)
		done.add(t, "lost completions", s.counts.lost)
		done.add(t, "stops of the recovery", s.counts.again)
		done.add(t, "losses of a blade", s.counts.blades)
	}()
	s.world.try(t, run)
}

// allOrOne tries all of a case, or the one schedule of the flags.
func (s *stops) allOrOne(t *testing.T, all, one func() error) {
	t.Helper()
	s.expect()
	s.seen = map[string]bool{}
	if *stopAt != "-" {
		all = one
	}
	s.try(t, all)
}

// prepare begins a run with a victim who is about to begin.
func (s *stops) prepare() {
	s.restart()
	s.f.SetGrain(s.grain, true)
	s.recorder = s.client()
	s.keeper = s.tombstones(s.ops)
	s.victim = s.client()
	if !s.bare {
		s.victim.warm(keysOf(s.ops)...)
	}
}

// launch lets the victim begin, until it waits for its first verb.
func (s *stops) launch() {
	s.victim.run = s.f.Go(func() { _ = s.victim.do(s.ops...) })
}

// begin is prepare and launch.
func (s *stops) begin() {
	s.prepare()
	s.launch()
}

// cuts visits every state that a client can be stopped in. start begins a run; visit
// is called in the state, and may destroy it. WRITEs that are complete are placed as late as
// can be: whoever stops the client, or declares it dead, makes them visible before anybody
// looks (steptest.Client.Stop, rdma.Fabric.Revoke), so that states which differ in what has
// been placed by then become the same.
func (s *stops) cuts(start func(), visit func(at schedule) error) error {
	seen := map[string]bool{}
	todo := []schedule{nil}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		start()
		s.f.Follow(at)
		moves := s.f.Moves()
		p := s.f.Progress()
		if seen[p] {
			continue
		}
		seen[p] = true
		if err := visit(at); err != nil {
			return err
		}
		requests := slices.ContainsFunc(moves, func(m steptest.Move) bool { return !m.Place })
		for i, m := range moves {
			if m.Place && (requests || i > 0) {
				continue
			}
			todo = append(todo, append(at[:len(at):len(at)], i))
		}
	}
	return nil
}

// goTo is the state of a first stop.
func (s *stops) goTo(at schedule) {
	s.begin()
	s.f.Follow(at)
}

// stopAt stops the victim in the state of a first stop. Whoever comes then is seen verb by
// verb.
func (s *stops) stopAt(at schedule) {
	s.goTo(at)
	s.victim.run.Stop()
	s.f.SetGrain(steptest.Verbs, true)
}

// recoverBeside stops the victim there, and begins a recovery from it, whose error is
// given to ended.
func (s *stops) recoverBeside(at schedule, ended func(error)) {
	s.stopAt(at)
	s.recorder.run = s.f.Go(func() { ended(s.recoverFrom(s.recorder, s.victim)) })
}

// What becomes of the error of a recovery.
func ignored(error) {}
func fatal(err error) {
	if err != nil {
		panic(err)
	}
}

// all tries everything.
func (s *stops) all() error {
	n := 0
	err := s.cuts(s.begin, func(at schedule) error {
		if err := s.stop(); err != nil {
			return fmt.Errorf("%w\n%s", err, s.replay(at, "-"))
		}
		n++
		if s.stride == 0 || n%s.stride != 0 {
			return nil
		}
		s.goTo(at)
		if err := s.pause(); err != nil {
			return fmt.Errorf("a paused coordinator goes on when it has been declared dead: %w\n%s",
				err, s.replay(at, "-"))
		}
		return s.stopTwice(at)
	})
	if err != nil {
		return err
	}
	if s.most+1 < len(s.states) {
		return fmt.Errorf("undisturbed, %d of %d attempts come to their ends: %v",
			s.most, len(s.states)-1, s.victim.told)
	}
	return s.lose()
}

// stop stops the victim where it is, and recovers.
func (s *stops) stop() error {
	s.counts.stops++
	s.victim.run.Stop()
	s.most = max(s.most, asMeant(s.victim.told))
	if !s.fresh() {
		return nil
	}
	if err := s.evidence(); err != nil {
		return err
	}
	if err := s.recoverFrom(s.recorder, s.victim); err != nil {
		return err
	}
	if err := s.check(s.victim.told); err != nil || s.keeper == nil {
		return err
	}
	// Tombstones that are such still are reclaimed, and what was put over them is not.
	if _, err := s.keeper.session.MakeRoom(s.keeper.c); err != nil {
		return fmt.Errorf("reclaiming: %w", err)
	}
	return s.check(s.victim.told)
}

// fresh reports whether the state after a stop was not met before, when it need not be
// recovered again.
func (s *stops) fresh() bool {
	key := fmt.Sprint(s.state(), len(s.victim.told))
	if s.seen[key] {
		return false
	}
	s.seen[key] = true
	return true
}

// pause declares the victim dead where it is, recovers, and then lets it go on: its
// verbs are late.
func (s *stops) pause() error {
	s.counts.paused++
	n := len(s.victim.told)
	if err := s.recoverFrom(s.recorder, s.victim); err != nil {
		return err
	}
	return s.goesOn(n)
}

// goesOn checks what has been decided of the victim, and lets it go on with late verbs. n is
// how many attempts had ended before anybody decided.
func (s *stops) goesOn(n int) error {
	if err := s.check(s.victim.told); err != nil {
		return err
	}
	if err := s.lateVerbs(); err != nil {
		return err
	}
	// What it says now must be what was decided.
	if told := s.victim.told; len(told) > n && told[len(told)-1] == nil {
		if v := s.judge(s.keys); v.content != s.states[len(told)] {
			return fmt.Errorf("told that attempt %d has committed, but there is %s", len(told), v.content)
		}
	}
	return nil
}

// stopTwice stops the recovery in every state of it.
func (s *stops) stopTwice(at schedule) error {
	return s.cuts(func() { s.recoverBeside(at, fatal) }, func(again schedule) error {
		if err := s.second(); err != nil {
			return fmt.Errorf("recovery was stopped: %w\n%s", err, s.replay(at, again.String()))
		}
		return nil
	})
}

// second stops the recovery where it is, and has another one.
func (s *stops) second() error {
	s.counts.again++
	s.recorder.run.Stop()
	if !s.fresh() {
		return nil
	}
	if err := s.evidence(); err != nil {
		return err
	}
	if err := s.recoverFrom(s.client(), s.victim, s.recorder); err != nil {
		return err
	}
	return s.check(s.victim.told)
}

// lose loses each completion once.
func (s *stops) lose() error {
	for n := 0; ; n++ {
		s.prepare()
		s.f.LoseFrom(n)
		port := s.f.Ports() - 1
		before := s.f.Executed(port)
		s.launch()
		s.toTheEnd()
		if s.f.Executed(port)-before <= n {
			return nil
		}
		s.counts.lost++
		err := s.recoverFrom(s.recorder, s.victim)
		if err == nil {
			err = s.check(s.victim.told)
		}
		if err != nil {
			return fmt.Errorf("completion %d was lost: %w\n%s", n, err, rerun(s.t, ""))
		}
	}
}

// one repeats one case.
func (s *stops) one() error {
	at, err := steptest.ParseSchedule(*stopAt)
	if err != nil {
		return err
	}
	if *stopAgain == "-" {
		s.goTo(at)
		if err := s.stop(); err != nil {
			return err
		}
		s.goTo(at)
		return s.pause()
	}
	again, err := steptest.ParseSchedule(*stopAgain)
	if err != nil {
		return err
	}
	s.recoverBeside(at, fatal)
	s.f.Follow(again)
	return s.second()
}

// replay is how a case is repeated, of those with a blade: what happens to it.
func (s *stops) replay(at schedule, again string, m ...mishap) string {
	flags := fmt.Sprintf("-stop '%v'", at)
	if again != "-" {
		flags += fmt.Sprintf(" -again '%s'", again)
	}
	for _, m := range m {
		flags += m.String()
	}
	return rerun(s.t, flags)
}

// TestStops stops the coordinator of every canonical transaction everywhere.
func TestStops(t *testing.T) {
	eachCanonical(t, configs(), (*stops).one, func(c config) func(s *stops) error {
		return func(s *stops) error {
			s.stride = c.stride()
			return s.all()
		}
	})
}
