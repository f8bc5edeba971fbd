package exhaustive

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/steptest"
	"txnode/verify"
)

// TestStopsInSplit stops an insert that splits a sub-table of the index everywhere.
func TestStopsInSplit(t *testing.T) {
	// What an insert does with the index is the same of both policies.
	each(t, those(configs(), config.promised, config.byDefault), func(t *testing.T, c config) {
		s := splitting(t, c)
		defer s.f.End()
		s.stride = 12 * c.stride()
		if *full {
			s.stride = []int{0, 12, 60}[c.backups]
		}
		s.allOrOne(t, s.all, s.one)
		t.Logf("%d findings about memory of sub-tables that nobody has seen", s.pardoned)
	})
}

// TestBladeLostInSplit loses and restarts each blade in every state of an insert that splits a
// sub-table of the index: root, old sub-table and new one have their primaries on three blades.
// Nobody else is at work; or another client deletes, moves and inserts other keys before, in both
// sub-tables, by what the split has left on the primaries, and is told so; it may do so again when
// all transactions are decided, and nobody has swept yet. When all is in order it goes on until
// there are more splits.
func TestBladeLostInSplit(t *testing.T) {
	one, two := oneIn(97, 2, 499), oneIn(1, 29, 1)
	each(t, usually(those(configs(), config.promised), config.oneBackup), func(t *testing.T, c config) {
		s := splitting(t, c)
		defer s.f.End()
		s.apart(t)
		cases := one.own(c)
		if c.backups > 1 {
			cases = two.own(c)
		}
		o := &others{stops: s, keys: len(s.keys) - 1, contents: s.contents}
		for i := range o.keys {
			s.keys = append(s.keys, k(numbered(100+i)))
		}
		for _, name := range []string{"alone", "others", "others-unswept"} {
			if name != "alone" {
				s.others = o
			}
			if o.unswept = name == "others-unswept"; testing.Short() && !o.unswept {
				continue
			}
			t.Run(name, func(t *testing.T) { s.allOrOne(t, func() error { return s.blades(cases) }, s.oneBlade) })
		}
		t.Logf("%d findings about memory of sub-tables that nobody has seen; %d transactions of others ended well, "+
			"%d failed, and %d times a session was broken",
			s.pardoned, o.done, o.failed, o.broken)
	})
}

// others is a client that works on the index in which another one is in the middle of a split.
type others struct {
	*stops
	keys     int               // that there are, but for the one which is inserted
	contents map[string]string // of them, in the beginning
	unswept  bool              // it works on before anybody has swept

	now  map[string]string // contents by what the client was told
	open *op               // of unknown outcome, for the time being

	done, failed, broken int
}

// workOn has the client delete keys, move records, and insert other keys, into blocks that
// have come free.
func (o *others) workOn() error {
	s := o.recorder
	o.now, o.open = maps.Clone(o.contents), nil
	for i := range o.keys {
		switch i % 6 {
		case 0:
			_ = o.one(s, del(numbered(i)))
		case 1:
			_ = o.one(s, put(numbered(i), big("m", 100)))
		case 3:
			o.swap(s, numbered(i), numbered(100+i))
		}
		// Whoever is about to change a slot that is about to be moved has to rejoin.
		if broken := s.session.Broken(); errors.Is(broken, index.ErrBusy) {
			o.broken++
			break
		} else if broken != nil {
			return broken
		}
	}
	return nil
}

// swap deletes a key, reclaims what was deleted, and inserts another key.
func (o *others) swap(s *client, key, other string) {
	if o.one(s, del(key)) == nil && s.do(rest()) == nil {
		_ = o.one(s, insert(other, "w"))
	}
}

// one runs a transaction, and returns what the client was told.
func (o *others) one(s *client, x op) error {
	n := len(s.told)
	err := s.do(x)
	if len(s.told) > n {
		err = s.told[n]
	}
	switch {
	case err == nil:
		o.done++
		o.apply(x)
	case errors.Is(err, occ.ErrOutcomeUnknown):
		o.open = &x
	default:
		o.failed++
	}
	return err
}

func (o *others) apply(x op) {
	if x.what == opDelete {
		delete(o.now, x.key)
	} else {
		o.now[x.key] = x.value
	}
}

// settle completes what there may be with a transaction of unknown outcome, when it is decided.
// was is the coordinator whose it was.
func (o *others) settle(was uint32) error {
	if o.open == nil {
		return nil
	}
	v, _ := o.space.Verdict(was)
	switch v.Of(o.recorder.ids[len(o.recorder.ids)-1].Seq()) {
	case layout.OutcomeCommitted:
		o.apply(*o.open)
	case layout.OutcomeUnknown:
		return errors.New("a transaction of unknown outcome is not decided")
	}
	o.open = nil
	return nil
}

// decided is what comes when all that was under way is decided: the client, which was declared
// dead, finds out what there is, and may work on.
func (o *others) decided() error {
	s := o.recorder
	if err := o.settle(s.session.Coordinator()); err != nil {
		return err
	}
	if o.unswept {
		if err := o.rejoin(); err != nil {
			return err
		}
		if err := o.workAgain(); err != nil {
			return err
		}
	}
	o.world.contents = o.now
	o.expect()
	return nil
}

// rejoin makes the client, which was declared dead, another coordinator.
func (o *others) rejoin() error {
	s := o.recorder
	if s.tx.Begin() == nil {
		return errors.New("a client that was declared dead begins a transaction")
	}
	return s.session.Rejoin(s.c)
}

// workAgain has the client look at what there is, and change other keys than before.
func (o *others) workAgain() error {
	s := o.recorder
	// Whoever looks for the key of the insert may have to wait for a sweep: its slot leads to
	// a block that was lost, and a split that nobody goes on with keeps it from being emptied.
	keys := slices.DeleteFunc(slices.Clone(o.stops.keys), func(key string) bool { return key == o.stops.ops[0].key })
	there := o.content(s, keys)
	if found, want := printed(there), printed(o.now); found != want {
		return fmt.Errorf("before a sweep, the client reads %s %s\nand there is %s", there["error"], found, want)
	}
	for i := range o.keys {
		switch i % 6 {
		case 0:
			_ = o.one(s, put(numbered(i), "again"))
		case 2:
			o.swap(s, numbered(i), numbered(100+i))
		case 4:
			_ = o.one(s, put(numbered(i), big("n", 100)))
		}
		broken := s.session.Broken()
		if broken == nil {
			continue
		}
		if !errors.Is(broken, index.ErrBusy) {
			return broken
		}
		o.broken++
		was := s.session.Coordinator()
		if err := s.session.Rejoin(s.c); err != nil {
			return err
		}
		if err := o.settle(was); err != nil {
			return err
		}
	}
	return nil
}

// goOn has the same client read what there is, and insert more keys.
func (o *others) goOn() error {
	s := o.recorder
	if !o.unswept {
		if err := o.rejoin(); err != nil {
			return err
		}
	}
	v, err := o.sound(o.stops.keys)
	if err != nil {
		return err
	}
	if c := printed(o.content(s, o.stops.keys)); c != v {
		return fmt.Errorf("there is %s\nand the client reads %s", v, c)
	}
	for i := range 2 * o.keys {
		if err := o.one(s, insert(numbered(200+i), "z")); err != nil {
			return fmt.Errorf("insert of key %d: %w", i, err)
		}
	}
	if found := o.walk(); found != "" {
		return fmt.Errorf("after more inserts the database is damaged:\n%s", found)
	}
	if o.summary.Tables[0].SubTables <= 2 {
		return errors.New("more inserts have split no sub-table")
	}
	return nil
}

// splitting is an insert that splits a sub-table of the index, by somebody who has cached nothing.
func splitting(t *testing.T, c config) *stops {
	c.groups, c.ahead = 2, 1
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
	// Memory of a sub-table that nobody has come to see stays allocated (see memory.NewExtent),
	// and its word need not be on all copies.
	w.pardon = func(f verify.Finding) bool {
		words := f.Kind == verify.KindReplica && w.space.Layout().Segments[f.Addr.Segment()].Kind == layout.KindIndex &&
			f.Addr.Offset() < memory.FirstExtent(segment)
		return words || f.Kind == verify.KindOrphan && strings.HasPrefix(f.What, "no index uses the extent")
	}
	w.look(keys)
	return &stops{world: w, keys: keys, ops: []op{insert(numbered(n), "new")}, grain: steptest.Verbs, bare: true}
}

// apart checks that the extents of the index have their primaries on different blades, when
// the insert is undisturbed.
func (s *stops) apart(t *testing.T) {
	t.Helper()
	s.begin()
	s.toTheEnd()
	on := map[rdma.BladeID]layout.Addr{}
	all := s.space.Extents()
	for _, e := range all {
		on[s.space.View().At(e.Addr, 0).Blade] = e.Addr
	}
	if len(all) != 3 || len(on) != 3 {
		t.Fatalf("%d extents have their primaries on %v", len(all), on)
	}
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

func numbered(i int) string { return fmt.Sprintf("key%d", i) }
