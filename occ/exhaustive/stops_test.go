package exhaustive

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma/steptest"
	"txnode/verify"
)

var (
	stopAt     = flag.String("stop", "-", "stop the coordinator here, and nowhere else, in the one case that -run selects")
	stopAgain  = flag.String("again", "-", "stop the recovery here, and nowhere else")
	bladeFlag  = flag.Int("blade", 0, "of TestBladeLost and TestBladeLostInRecovery, with -stop: the blade that is lost")
	mishapFlag = flag.Int("mishap", 0, "of the same: what happens to it")
)

// canonical are the transactions that are stopped, on the database of load: every type
// of SmallBank (account c, checking and savings as keys) and TATP, and what they do not do.
var canonical = []txn{
	{"Amalgamate", []op{put("a", "1"), put("b", "1"), put("c", "1")}},
	{"Balance", []op{get("a"), get("b")}},
	{"DepositChecking", []op{put("a", "2")}},
	{"SendPayment", []op{put("a", "3"), put("b", "3")}},
	{"TransactSaving", []op{put("b", "4")}},
	{"WriteCheck", []op{get("a"), put("b", "5")}},
	{"GetSubscriberData", []op{get("a")}},
	{"GetNewDestination", []op{get("a"), then(), get("b"), get("c")}},
	{"GetAccessData-absent", []op{get("none")}},
	{"UpdateSubscriberData", []op{put("b", "6"), put("c", "6")}},
	{"UpdateLocation", []op{get("a"), then(), put("c", "7")}},
	{"InsertCallForwarding", []op{get("a"), then(), get("b"), then(), insert("none", "8")}},
	{"InsertCallForwarding-exists", []op{get("a"), then(), insert("c", "8")}},
	{"DeleteCallForwarding", []op{get("a"), then(), del("c")}},
	{"insert", []op{insert("none", "9")}},
	{"put-absent", []op{put("none", "9")}},
	{"insert-large", []op{insert("none", big("i", 200))}},
	{"insert-roll-back", []op{insert("none", "9"), put("a", "9"), roll()}},
	{"insert-over-delete", []op{put("gone", "10")}},
	{"delete", []op{del("a")}},
	{"late", []op{get("b"), late("a", "11")}},
	{"lock-only", []op{lock("a"), put("b", "12")}},
	{"large-update", []op{put("large", big("l", 180))}},
	{"move", []op{put("a", big("m", 100))}},
	{"move-and-more", []op{put("a", big("m", 100)), put("b", "13"), del("c"), insert("none", "13")}},
	{"move-two", []op{put("a", big("m", 100)), put("b", big("n", 100))}},
	{"two", []op{put("a", "14"), put("b", "14"), next(), put("b", "15"), put("c", "15")}},
	{"three-apart", []op{put("a", "14"), next(), put("b", "15"), next(), put("c", "16")}},
	{"delete-insert", []op{del("a"), next(), put("a", "16")}},
	{"move-back-and-forth", []op{put("a", big("m", 100)), next(), put("a", big("n", 300))}},
	{"move-then-insert", []op{put("a", big("m", 100)), next(), insert("none", "18")}},
	{"move-into-left", []op{put("a", big("m", 100)), next(), put("a", big("n", 300)), next(), put("b", big("o", 100))}},
	{"reclaim", []op{del("a"), del("b"), next(), rest(), next(), put("c", "17")}},
}

var stopKeys = []string{k("a"), k("b"), k("c"), k("none"), k("gone"), k("large")}

func loadStops(s *client) error {
	return s.scatter(put("a", "a0"), put("b", "b0"), put("c", "c0"), put("large", big("x", 200)), put("gone", "x"), del("gone"))
}

// stops tries one transaction on one kind of database.
type stops struct {
	*world
	keys   []string
	ops    []op
	bare   bool // nothing is cached
	grain  steptest.Grain
	stride int // of the states of the first stop, every one of this many gets a second

	states []string // content after so many attempts

	victim   *client
	recorder *client // who recovers
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

// begin begins a run with the victim waiting for its first verb.
func (s *stops) begin() {
	s.restart()
	s.f.SetGrain(s.grain, true)
	s.recorder = s.client()
	s.victim = s.client()
	if !s.bare {
		s.victim.warm(keysOf(s.ops)...)
	}
	s.victim.run = s.f.Go(func() { _ = s.victim.do(s.ops...) })
}

// expect finds out what there may be, after each attempt that had effect.
func (s *stops) expect() {
	now := maps.Clone(s.contents)
	s.states = []string{printed(now)}
	for rest := s.ops; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(o op) bool { return o.what == opNext })
		one := rest
		if rest = nil; n >= 0 {
			one, rest = one[:n], one[n+1:]
		}
		if len(one) == 1 && one[0].what == opRest {
			continue
		}
		after := maps.Clone(now)
		for _, o := range one {
			switch {
			case o.what == opPut, o.what == opLate, o.what == opInsert && now[o.key] == "":
				after[o.key] = o.value
			case o.what == opDelete:
				delete(after, o.key)
			case o.what == opRoll, o.what == opInsert:
				after = maps.Clone(now)
			}
		}
		now = after
		s.states = append(s.states, printed(now))
	}
}

// recover recovers from the dead, synchronously.
func (s *stops) recover(by *client, dead ...uint32) error {
	o := recovery.Options{Space: s.space, By: by.session.Coordinator(), Steal: true}
	if _, err := recovery.Recover(by.c, o, dead...); err != nil {
		return err
	}
	_, err := recovery.Sweep(by.c, o)
	return err
}

// check holds what is there against what the victim was told in its attempts: an
// attempt that has failed, and whose outcome is not unknown, had no effect, nor has
// any after it, since its coordinator does not go on.
func (s *stops) check(told []error) error {
	v := s.judge(s.keys)
	if v.findings != "" {
		return fmt.Errorf("the database is damaged:\n%s", v.findings)
	}
	if err := errors.Join(s.spare(), s.owned()); err != nil {
		return err
	}
	n := 0 // attempts that are over
	for n < len(told) && (told[n] == nil || errors.Is(told[n], errRolled) || errors.Is(told[n], errExists)) {
		n++
	}
	open := n == len(told) || errors.Is(told[n], occ.ErrOutcomeUnknown)
	if v.content == s.states[n] || open && n+1 < len(s.states) && v.content == s.states[n+1] {
		return s.verdict(n, v.content)
	}
	return fmt.Errorf("there is %s\nafter %d attempts (told %v) that lead to\n%s", v.content, n, told, strings.Join(s.states, "\n"))
}

// verdict holds what the catalog says of the victim's attempts against what they were
// told, and, of the one that was under way after n others, against what is there.
func (s *stops) verdict(n int, content string) error {
	v, ok := s.space.Verdict(s.victim.session.Coordinator())
	if !ok {
		return errors.New("there is no verdict on the coordinator")
	}
	for i, id := range s.victim.ids {
		o := v.Of(id.Seq())
		switch {
		case i+1 >= len(s.states) || s.states[i] == s.states[i+1]: // without effect, so it makes no difference
		case i < n && o == memory.OutcomeAborted:
			return fmt.Errorf("attempt %d was told that it has committed, and the verdict on it is %v", i, o)
		case i != n:
		case content == s.states[i] && o == memory.OutcomeCommitted, content == s.states[i+1] && o != memory.OutcomeCommitted:
			return fmt.Errorf("the verdict on attempt %d is %v, but there is %s", i, o, content)
		case o == memory.OutcomeUnknown:
			return fmt.Errorf("attempt %d is undecided, and the catalog does not say how it ended", i)
		}
	}
	return nil
}

// cuts visits every state that a client can be stopped in. start begins a run; visit
// is called in the state, and may destroy it. WRITEs that are complete are placed as late as
// can be: whoever stops the client, or declares it dead, makes them visible before anybody
// looks (steptest.Client.Stop, rdma.Fabric.SetKey), so that states which differ in what has
// been placed by then become the same.
func (s *stops) cuts(start func(), visit func(at schedule) error) error {
	seen := map[string]bool{}
	todo := []schedule{nil}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		start()
		for _, i := range at {
			s.f.Do(s.f.Moves()[i])
		}
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
	for _, i := range at {
		s.f.Do(s.f.Moves()[i])
	}
	s.f.Moves()
}

// all tries everything.
func (s *stops) all() error {
	s.expect()
	s.seen = map[string]bool{}
	n := 0
	err := s.cuts(s.begin, func(at schedule) error {
		if err := s.stop(at); err != nil {
			return fmt.Errorf("%w\n%s", err, s.replay(at, "-"))
		}
		n++
		if s.stride == 0 || n%s.stride != 0 {
			return nil
		}
		s.goTo(at)
		if err := s.pause(at); err != nil {
			return fmt.Errorf("a paused coordinator goes on when it has been declared dead: %w\n%s", err, s.replay(at, "-"))
		}
		return s.stopTwice(at)
	})
	if err != nil {
		return err
	}
	if s.most+1 < len(s.states) {
		return fmt.Errorf("undisturbed, %d of %d attempts come to their ends: %v", s.most, len(s.states)-1, s.victim.told)
	}
	return s.lose()
}

// meant reports whether an attempt ended as it does undisturbed.
func meant(err error) bool {
	return err == nil || errors.Is(err, errRolled) || errors.Is(err, errExists)
}

// replay is how a case is repeated.
func (s *stops) replay(at schedule, again string) string {
	name := s.t.(*testing.T).Name()
	name = "'^" + strings.ReplaceAll(name, "/", "$/^") + "$'"
	out := fmt.Sprintf("go test ./occ/exhaustive -run %s -stop '%v'", name, at)
	if again != "-" {
		out += fmt.Sprintf(" -again '%s'", again)
	}
	if s.grain == steptest.Words {
		out += " -fine"
	}
	return out
}

// stop stops the victim where it is, and recovers.
func (s *stops) stop(at schedule) error {
	s.counts.stops++
	s.victim.run.Stop()
	done := 0
	for done < len(s.victim.told) && meant(s.victim.told[done]) {
		done++
	}
	s.most = max(s.most, done)
	if !s.fresh() {
		return nil
	}
	if err := s.evidence(); err != nil {
		return err
	}
	if err := s.recover(s.recorder, s.victim.session.Coordinator()); err != nil {
		return err
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
func (s *stops) pause(at schedule) error {
	s.counts.paused++
	n := len(s.victim.told)
	if err := s.recover(s.recorder, s.victim.session.Coordinator()); err != nil {
		return err
	}
	if err := s.check(s.victim.told); err != nil {
		return err
	}
	was := s.state()
	for m := s.f.Moves(); len(m) > 0; m = s.f.Moves() {
		s.f.Do(m[0])
	}
	if s.state() != was {
		return errors.New("a late verb has changed something")
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
	start := func() {
		s.goTo(at)
		s.victim.run.Stop()
		s.f.SetGrain(steptest.Verbs, true)
		s.recorder.run = s.f.Go(func() {
			if err := s.recover(s.recorder, s.victim.session.Coordinator()); err != nil {
				panic(err)
			}
		})
	}
	return s.cuts(start, func(again schedule) error {
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
	if err := s.recover(s.client(), s.victim.session.Coordinator(), s.recorder.session.Coordinator()); err != nil {
		return err
	}
	return s.check(s.victim.told)
}

// lose loses each completion once.
func (s *stops) lose() error {
	for n := 0; ; n++ {
		s.restart()
		s.f.SetGrain(s.grain, true)
		s.recorder = s.client()
		s.victim = s.client()
		if !s.bare {
			s.victim.warm(keysOf(s.ops)...)
		}
		s.f.LoseFrom(n)
		port := s.f.Ports() - 1
		before := s.f.Executed(port)
		s.victim.run = s.f.Go(func() { _ = s.victim.do(s.ops...) })
		for m := s.f.Moves(); len(m) > 0; m = s.f.Moves() {
			s.f.Do(m[0])
		}
		if s.f.Executed(port)-before <= n {
			return nil
		}
		s.counts.lost++
		err := s.recover(s.recorder, s.victim.session.Coordinator())
		if err == nil {
			err = s.check(s.victim.told)
		}
		if err != nil {
			return fmt.Errorf("completion %d was lost: %w\n%s", n, err, s.t.(*testing.T).Name())
		}
	}
}

// one repeats one case.
func (s *stops) one() error {
	s.expect()
	s.seen = map[string]bool{}
	at, err := parseSchedule(*stopAt)
	if err != nil {
		return err
	}
	s.goTo(at)
	if *stopAgain == "-" {
		if err := s.stop(at); err != nil {
			return err
		}
		s.goTo(at)
		return s.pause(at)
	}
	again, err := parseSchedule(*stopAgain)
	if err != nil {
		return err
	}
	s.victim.run.Stop()
	s.f.SetGrain(steptest.Verbs, true)
	s.recorder.run = s.f.Go(func() {
		if err := s.recover(s.recorder, s.victim.session.Coordinator()); err != nil {
			panic(err)
		}
	})
	for _, i := range again {
		s.f.Do(s.f.Moves()[i])
	}
	s.f.Moves()
	return s.second()
}

// TestStops stops the coordinator of every canonical transaction everywhere.
func TestStops(t *testing.T) {
	each(t, configs(), func(t *testing.T, c config) {
		w := newWorld(t, c, loadStops)
		w.restart()
		w.contents = w.content(w.client(), stopKeys)
		for _, x := range canonical {
			if !c.tries(x) {
				continue
			}
			t.Run(x.name, func(t *testing.T) {
				s := &stops{world: w, keys: stopKeys, ops: x.ops, grain: stopGrain(), stride: c.stride()}
				run := s.all
				if *stopAt != "-" {
					run = s.one
				}
				s.try(t, run)
			})
		}
	})
}

// tries reports whether a transaction is stopped on this kind of database: on a fabric
// without promises a part of them is, when it is not about all.
func (c config) tries(x txn) bool {
	switch {
	case c.caps == strong, *full:
		return true
	case testing.Short(), c.backups > 1:
		return false
	}
	return slices.Contains([]string{"DepositChecking", "WriteCheck", "InsertCallForwarding", "insert", "delete", "move"}, x.name)
}

// stride is for how many first stops there is one whose recovery is stopped.
func (c config) stride() int {
	if c.caps == strong || *full {
		return stride()
	}
	return 40
}

// TestMoveIsMended: when the transactions of the dead are decided, the slot of a record
// that has moved is the same on all copies, before anybody sweeps.
func TestMoveIsMended(t *testing.T) {
	each(t, stopConfigs(), func(t *testing.T, c config) {
		w := newWorld(t, c, loadStops)
		torn := ""
		w.pardon = func(f verify.Finding) bool {
			if f.Kind == verify.KindReplica && w.space.Layout().Segments[f.Addr.Segment()].Kind == memory.KindIndex {
				torn = f.String()
			}
			return true
		}
		w.restart()
		s := &stops{world: w, keys: stopKeys, ops: []op{put("a", big("m", 100))}, grain: steptest.Verbs}
		before := 0
		s.try(t, func() error {
			return s.cuts(s.begin, func(schedule) error {
				s.counts.stops++
				s.victim.run.Stop()
				torn = ""
				if w.walk(); torn != "" {
					before++
				}
				o := recovery.Options{Space: s.space, By: s.recorder.session.Coordinator(), Steal: true}
				if _, err := recovery.Recover(s.recorder.c, o, s.victim.session.Coordinator()); err != nil {
					return err
				}
				torn = ""
				if w.walk(); torn != "" {
					return errors.New(torn)
				}
				return nil
			})
		})
		if before == 0 {
			t.Error("in no state is a slot torn: this shows nothing")
		}
		t.Logf("a slot was torn in %d of %d states", before, s.counts.stops)
	})
}

// splitAt is how many keys there are when the insert of one more splits the index.
func splitAt(t *testing.T, c config) (n int) {
	w := newWorld(t, c, func(*client) error { return nil })
	w.restart()
	s := w.client()
	for ; ; n++ {
		if err := s.do(insert(numbered(n), "v")); err != nil || s.told[n] != nil {
			t.Fatal(err, s.told[n])
		}
		if w.walk(); w.summary.Tables[0].SubTables > 1 {
			return n
		}
	}
}

// TestStopsWithFullLog stops a coordinator whose log holds one transaction at a time.
func TestStopsWithFullLog(t *testing.T) {
	keys := []string{k("a"), k("b")}
	// Of policy ford, a transaction is at rest when it is over.
	each(t, ofPolicyDefault(stopConfigs()), func(t *testing.T, c config) {
		w := newWorld(t, c, func(s *client) error {
			return s.do(put("a", big("a", 40_000)), next(), put("between", big("b", 40_000)), next(), put("b", big("b", 40_000)))
		})
		w.restart()
		w.contents = w.content(w.client(), keys)
		s := &stops{world: w, keys: keys, grain: stopGrain(), stride: stride(),
			ops: []op{put("a", big("c", 40_000)), next(), put("b", big("d", 40_000)), next(), put("a", "e")}}
		run := s.all
		if *stopAt != "-" {
			run = s.one
		}
		s.try(t, run)
	})
}

func numbered(i int) string { return fmt.Sprintf("key%d", i) }

// TestStopsInSplit stops an insert that splits a sub-table of the index everywhere.
func TestStopsInSplit(t *testing.T) {
	// What an insert does with the index is the same of both policies.
	each(t, ofPolicyDefault(stopConfigs()), func(t *testing.T, c config) {
		c.groups = 2
		n := splitAt(t, c)
		var keys []string
		w := newWorld(t, c, func(s *client) error {
			for i := range n {
				keys = append(keys, k(numbered(i)))
				if err := s.do(insert(numbered(i), "v")); err != nil || s.told[i] != nil {
					return errors.Join(err, s.told[i])
				}
			}
			return nil
		})
		keys = append(keys, k(numbered(n)))
		// Memory of a sub-table that nobody has come to see stays allocated (see memory.AllocExtent),
		// and its word need not be on all copies.
		w.pardon = func(f verify.Finding) bool {
			words := f.Kind == verify.KindReplica && w.space.Layout().Segments[f.Addr.Segment()].Kind == memory.KindIndex &&
				f.Addr.Offset() < memory.FirstExtent(segment)
			return words || f.Kind == verify.KindOrphan && strings.HasPrefix(f.What, "no index uses the extent")
		}
		w.restart()
		w.contents = w.content(w.client(), keys)
		defer w.f.End()
		s := &stops{world: w, keys: keys, ops: []op{insert(numbered(n), "new")}, grain: steptest.Verbs, stride: 12 * stride(), bare: true}
		if *full {
			s.stride = []int{0, 12, 60}[c.backups]
		}
		run := s.all
		if *stopAt != "-" {
			run = s.one
		}
		s.try(t, run)
		t.Logf("%d findings about memory of sub-tables that nobody has seen", w.pardoned)
	})
}

func stopGrain() steptest.Grain {
	if *fine {
		return steptest.Words
	}
	return steptest.Verbs
}

// stride is for how many first stops there is one whose recovery is stopped.
func stride() int {
	switch {
	case *full:
		return 1
	case testing.Short():
		return 40
	}
	return 24
}
