package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// another makes another table.
func (w *world) another(name string) *occ.Table {
	w.t.Helper()
	meta, err := w.space.CreateTable(name, []byte(`{"key":"bytes","value":"bytes","index":"race"}`))
	must(w.t, err)
	root, ix, err := race.Create(w.ctl.Plain(), w.space, meta.ID, race.Options{Groups: 16})
	must(w.t, err)
	must(w.t, w.space.SetTableRoot(meta.ID, root))
	return &occ.Table{ID: meta.ID, Name: name, Index: ix}
}

// spoil overwrites everything that the index of a table consists of, on all copies. What it
// returns brings it back.
func (w *world) spoil(t *occ.Table) (mended func()) {
	w.t.Helper()
	w.spoilt = true
	all, err := t.Index.(*race.Index).Extents(w.ctl.Plain())
	must(w.t, err)
	was := make([]map[rdma.BladeID][]byte, len(all))
	at := func(v *layout.View, i, k int) []byte {
		n := w.space.Extents()
		for _, x := range n {
			if x.Addr == all[i] {
				return w.f.Memory(v.At(all[i], k).Blade)[v.At(all[i], k).Off:][:x.Size]
			}
		}
		w.t.Fatalf("there is no extent at %v", all[i])
		return nil
	}
	for v, i := w.space.View(), 0; i < len(all); i++ {
		was[i] = map[rdma.BladeID][]byte{}
		for k := range v.Copies(all[i]) {
			p := at(v, i, k)
			was[i][v.At(all[i], k).Blade] = slices.Clone(p)
			for j := range p {
				p[j] = 0xa5
			}
		}
	}
	return func() {
		for v, i := w.space.View(), 0; i < len(all); i++ {
			for k := range v.Copies(all[i]) {
				copy(at(v, i, k), was[i][v.At(all[i], k).Blade])
			}
		}
	}
}

// TestReclaimBesideDamage: a session has deleted records of a table whose index is damaged. It
// reclaims those of other tables when space is short, and can be closed.
func TestReclaimBesideDamage(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
			sound, spoilt := w.table, w.another("spoilt")
			ours, own := w.session()
			w.table = spoilt
			w.sure(ours, own, put("a", "1"))
			w.sure(ours, own, del("a"))
			w.table = sound
			w.sure(ours, own, put("b", "1"), put("c", "1"))
			w.sure(ours, own, del("b"))
			own.Coro().Sleep(10_000) // until its lock is released
			mended := w.spoil(spoilt)
			if n, err := ours.MakeRoom(own.Coro()); n != 1 || err != nil {
				t.Errorf("%d deleted records are reclaimed beside a damaged index: %v", n, err)
			}
			w.sure(ours, own, del("c"))
			own.Coro().Sleep(10_000)
			must(t, ours.Close())
			if w.space.Registered(ours.Coordinator()) {
				t.Error("a session that is closed is registered")
			}
			if n := w.deleted(sound); n > 0 {
				t.Errorf("%d records of the sound table are deleted, and their session is closed", n)
			}
			mended()
			w.check("closed")
		})
	}
}

// TestTombstonesOfClosed: a session that has taken the deleted records of others upon itself is
// closed, or dies, and cannot reclaim some of them: somebody else does, although the sessions
// whose they are live on.
func TestTombstonesOfClosed(t *testing.T) {
	for _, s := range settings(t) {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v dies=%v", s, dies), func(t *testing.T) {
				w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
				ours, own := w.session()
				busy, tx := w.session()
				late, _ := w.session()
				w.sure(ours, own, put("a", "1"), put("b", "1"))
				w.sure(ours, own, del("a"), del("b"))
				own.Coro().Sleep(10_000) // until its locks are released
				must(t, w.open(tx, put("a", "2")))
				if n, err := late.MakeRoom(late.Thread().Plain()); n != 1 || err != nil {
					t.Fatalf("%d deleted records are reclaimed: %v", n, err)
				}
				if dies {
					w.arm(0)
					late.Break(errors.New("dead"))
				}
				if err := late.Close(); (err != nil) != dies {
					t.Errorf("closed: %v", err)
				}
				if w.disarm(); dies {
					w.decideUntil(late.Coordinator(), -1)
				}
				_ = tx.Rollback()
				w.sure(busy, tx, put("c", "1")) // it may have to rejoin
				w.sure(ours, own, put("d", "1"))
				w.sweep()
				must(t, busy.Close())
				must(t, ours.Close())
				if n := w.deleted(w.table); n > 0 {
					t.Errorf("%d records are deleted, and all sessions closed", n)
				}
				w.check("closed")
			})
		}
	}
}

// closedTogether is TestClosedTogether, in which the second one ends so much later, in nanoseconds.
func closedTogether(t *testing.T, s setting, first int, delay int64) {
	w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
	var ours, busy *occ.Session
	var own, tx *occ.Tx
	if ours, own = w.session(); first == 0 {
		busy, tx = w.session()
	} else {
		busy, tx = ours, own
		ours, own = w.session()
	}
	w.sure(ours, own, put("a", "1"), put("b", "1"))
	w.sure(ours, own, del("a"), del("b"))
	own.Coro().Sleep(10_000) // until its locks are released
	must(t, w.open(tx, put("a", "2")))
	w.f.Run(2, func(i int) {
		if i == 0 {
			must(t, ours.Close())
			return
		}
		tx.Coro().Sleep(delay)
		_ = tx.Rollback()
		must(t, busy.Close())
	})
	if n := w.deleted(w.table); n > 0 {
		t.Errorf("closed %d ns apart: %d records are deleted, and all sessions closed", delay, n)
	}
	w.check("closed")
}

// TestReclaimUnwound: a session that has taken the deleted records of another one upon itself is
// unwound in the middle of reclaiming them, and closed: somebody else reclaims them, although the
// session whose they are lives on.
func TestReclaimUnwound(t *testing.T) {
	for _, s := range settings(t) {
		if s.caps.Synchronous {
			s.caps.Synchronous = false // else no coroutine waits in the middle
		}
		t.Run(s.String(), func(t *testing.T) {
			for delay, over := int64(0), false; !over; delay += 300 {
				if over = reclaimUnwound(t, s, delay); t.Failed() {
					t.Fatalf("unwound after %d ns", delay)
				}
			}
		})
	}
}

// reclaimUnwound is TestReclaimUnwound, so much later, in nanoseconds; true: nothing was
// left to be reclaimed.
func reclaimUnwound(t *testing.T, s setting, delay int64) (over bool) {
	w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
	ours, own := w.session()
	late, _ := w.session()
	w.sure(ours, own, put("a", "1"), put("b", "1"))
	w.sure(ours, own, del("a"), del("b"))
	own.Coro().Sleep(10_000) // until its locks are released
	func() {
		defer func() { _ = recover() }()
		late.Thread().Run(2, func(c *rdma.Coro) {
			if c.ID() == 0 {
				n, err := late.MakeRoom(c)
				must(t, err)
				over = n == 2
				return
			}
			c.Sleep(delay)
			panic("unwound")
		})
	}()
	late.Unwound(errors.New("unwound"))
	if err := late.Close(); err == nil {
		t.Error("closed in order")
	}
	w.decideUntil(late.Coordinator(), -1)
	w.sure(ours, own, put("d", "1"))
	w.sweep()
	must(t, ours.Close())
	if n := w.deleted(w.table); n > 0 {
		t.Errorf("%d records are deleted, and all sessions closed", n)
	}
	w.check("closed")
	return over
}

// deleted counts the deleted records to which slots of a table lead.
func (w *world) deleted(t *occ.Table) (n int) {
	w.t.Helper()
	was := w.table
	w.table = t
	defer func() { w.table = was }()
	w.blocks(w.ctl.Plain(), func(_ layout.Addr, line record.Image) {
		if line.Meta().State() == record.Absent {
			n++
		}
	})
	return n
}

// TestRecoverBesideDamage: a client has died in a transaction that changes a sound table and one
// whose index is damaged since. It is recovered, and what it has begun in the damaged table is
// finished by who opens the database when the index is repaired; until then nobody sees half of it.
func TestRecoverBesideDamage(t *testing.T) {
	for _, s := range settings(t) {
		for _, how := range []string{"recovered", "again", "rejoins", "lost", "back", "power"} {
			if (how == "lost" || how == "back") && s.backups == 0 || how == "power" && s.policy == occ.PolicyFORD {
				continue
			}
			t.Run(fmt.Sprintf("%v %s", s, how), func(t *testing.T) {
				step := byRun(3, 1, 7)
				if s.backups != 1 {
					step = max(step, 4)
				}
				for stop := len(how) % step; ; stop += step {
					if !recoverBesideDamage(t, s, how, stop) {
						return
					}
				}
			})
		}
	}
}

// recoverBesideDamage is TestRecoverBesideDamage of a client that dies after so many verbs; false:
// it has come to its end before. how: it is recovered by somebody, or by two, of whom the first
// one dies, too; it rejoins; it is declared dead with a blade, which may come back, so that
// copies are built; or the power goes
// before the index is repaired, so that the indexes are built anew.
func recoverBesideDamage(t *testing.T, s setting, how string, stop int) bool {
	d := dieBesides(t, s, stop)
	if d == nil {
		return false
	}
	w, victim, tx, err := d.world, d.victim, d.tx, d.told
	ours, own, sound, spoilt := d.ours, d.own, d.table, d.second
	what := fmt.Sprint("stop ", stop)
	mended := w.spoil(spoilt)
	switch how {
	case "lost", "back":
		w.loseBlade(2)
	case "again":
		w.decideUntil(victim.Coordinator(), stop*7%37)
		fallthrough
	case "recovered", "power":
		w.decideUntil(victim.Coordinator(), -1)
	default:
		victim.Break(err)
		must(t, victim.Rejoin(tx.Coro()))
	}
	w.table = sound
	if _, err := recovery.Sweep(w.ctl.Plain(), w.eng.Recovery()); err != nil && !errors.Is(err, layout.ErrCorrupt) {
		t.Errorf("%s: swept: %v", what, err)
	}
	if how == "back" {
		w.takeBack(2)
	}
	k := w.values(ours, own, "k")[0]
	if err == nil && k != "2" {
		t.Errorf("%s: an acknowledged transaction is lost", what)
	}
	w.sure(ours, own, put("k", k), put("other", long))

	if how != "power" {
		mended()
	}
	w.table = spoilt
	keys, want := d.keys, d.before
	if k == "2" {
		want = d.now
	}
	for i, key := range keys { // nobody has opened the database anew
		for range 20 {
			got, err := w.value(own, key)
			if err == nil && got != want[i] {
				t.Errorf("%s: half of a transaction: %s is %.4q", what, key, got)
			}
			if err == nil || errors.Is(err, layout.ErrCorrupt) {
				break
			}
			if _, err := own.Unblock(); errors.Is(err, layout.ErrCorrupt) {
				break
			}
			own.Coro().Sleep(3000)
		}
	}
	must(t, ours.Close())
	if how == "rejoins" || how == "lost" || how == "back" {
		must(t, victim.Close())
	}
	if how == "power" {
		w.power(sound, spoilt)
	}
	if how == "lost" {
		_, err := w.space.Build()
		must(t, err)
	}
	if damage := w.sweepAlone(); damage != nil {
		t.Errorf("%s: swept when it was mended: %v", what, damage)
	}
	ours, own = w.session()
	if got := w.values(ours, own, keys...); !slices.Equal(got, want) {
		t.Errorf("%s: k is %s, and the others %.4q", what, k, got)
	}
	w.sure(ours, own, put("x", "3"), put("new", long))
	own.Coro().Sleep(10_000)
	must(t, ours.Close())
	w.sweep()
	w.check(what)
	if err := sound.Index.(*race.Index).Verify(w.ctl.Plain()); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return true
}

// besides is a world with a client that has died in a transaction which changes its table, and
// another one: there it updates a record in place, and one that moves, and inserts two, one of them
// over a deleted one.
type besides struct {
	*world
	second      *occ.Table
	ours        *occ.Session // somebody else
	own         *occ.Tx
	victim      *occ.Session
	tx          *occ.Tx
	told        error
	keys        []string // in the second table
	before, now []string // their values
}

// dieBesides makes it. The client dies after so many verbs; nil: it has come to its end before.
func dieBesides(t testing.TB, s setting, stop int) *besides {
	t.Helper()
	d := &besides{world: newWorld(t, s, occ.Options{ReclaimAfter: 100}), keys: []string{"x", "y", "new", "gone"},
		before: []string{"1", "1", "", ""}, now: []string{long, "2", "2", "2"}}
	first := d.table
	d.second = d.another("spoilt")
	d.ours, d.own = d.session()
	d.victim, d.tx = d.session()
	d.sure(d.victim, d.tx, put("k", "1"))
	d.table = d.second
	d.sure(d.victim, d.tx, put("x", "1"), put("y", "1"), put("gone", "1"))
	d.sure(d.victim, d.tx, del("gone"))
	d.table = first
	d.sure(d.ours, d.own, get("k"))
	d.tx.Coro().Sleep(10_000) // until its locks are released
	d.arm(stop)
	d.told = d.mixed(d.tx, d.second, put("k", "2"), put("x", long), put("new", "2"), put("y", "2"), put("gone", "2"))
	if d.told == nil {
		d.tx.Coro().Sleep(10_000)
	}
	if !d.disarm() {
		return nil
	}
	return d
}

// power opens the database as after a loss of power.
func (w *world) power(tables ...*occ.Table) {
	w.t.Helper()
	_, err := recovery.Power(w.ctl.Plain(), recovery.Options{Space: w.space})
	must(w.t, err)
	all, err := w.space.Tables()
	must(w.t, err)
	for _, t := range tables {
		t.Index, err = race.Open(w.ctl.Plain(), w.space, all[t.ID-1].Root, t.ID)
		must(w.t, err)
	}
	w.eng = occ.NewEngine(w.space, occ.Options{Policy: occ.PolicyDefault, ReclaimAfter: 100})
}

// value reads a key in a transaction of its own; "": no value.
func (w *world) value(tx *occ.Tx, key string) (string, error) {
	if err := tx.Begin(); err != nil {
		return "", err
	}
	n, err := tx.Stage(w.table, []byte(key), false)
	if err == nil {
		err = tx.Execute()
	}
	if err != nil {
		_ = tx.Rollback()
		return "", err
	}
	v, _ := tx.Read(n)
	out := string(v)
	return out, tx.Commit()
}

// mixed runs a transaction whose first step is in the table of the world, and whose other ones
// are in another one.
func (w *world) mixed(tx *occ.Tx, other *occ.Table, ops ...op) error {
	if err := tx.Begin(); err != nil {
		return err
	}
	run := func() (err error) {
		n := make([]int, len(ops))
		for i, o := range ops {
			t := other
			if i == 0 {
				t = w.table
			}
			if n[i], err = tx.Stage(t, []byte(o.key), true); err != nil {
				return err
			}
		}
		if err := tx.Execute(); err != nil {
			return err
		}
		for i, o := range ops {
			if err := tx.Put(n[i], []byte(o.value)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := run(); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// TestRecoverBesideLost: the same of a table of whose index a part is lost, with its only copy.
func TestRecoverBesideLost(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups > 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			for stop := 0; ; stop++ {
				w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
				sound, lost := w.table, w.another("lost")
				_, first := w.session()
				victim, tx := w.session()
				w.sure(victim, tx, put("k", "1"))
				w.table = lost
				w.sure(victim, tx, put("x", "1"), put("y", "1"))
				w.table = sound
				must(t, w.do(first, get("k")))
				w.arm(stop)
				_ = w.mixed(tx, lost, put("k", "2"), put("x", long), put("new", "2"), put("y", "2"))
				if !w.disarm() {
					return
				}
				tables, err := w.space.Tables()
				must(t, err)
				w.loseBlade(w.space.View().At(tables[lost.ID-1].Root, 0).Blade)
				rep, err := recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
				if err != nil || rep.Damage != nil {
					t.Errorf("stop %d: swept: %v, %v", stop, err, rep.Damage)
				}
				if _, err := recovery.Sweep(w.ctl.Plain(), recovery.Options{Space: w.space, Alone: true}); err != nil {
					t.Errorf("stop %d: swept by who opens it: %v", stop, err)
				}
				if cs, err := w.space.Coordinators(); err != nil || len(cs) > 0 {
					t.Errorf("stop %d: %d coordinators are there still: %v", stop, len(cs), err)
				}
			}
		})
	}
}

// reopen opens the database anew, and has it recovered, as package txn does. Its
// sessions are closed.
func (w *world) reopen(o occ.Options, tables ...*occ.Table) {
	w.t.Helper()
	c := w.ctl.Plain()
	l := w.space.Layout()
	must(w.t, w.space.Close(c))
	var err error
	w.space, err = memory.Open(c, w.f, w.cat, memory.Options{
		Backups: l.Backups, SegmentSize: l.SegmentSize, LogArea: l.LogArea,
	})
	must(w.t, err)
	w.eng = occ.NewEngine(w.space, o)
	if _, due := w.space.Unswept(); due {
		alone := recovery.Options{Space: w.space, Steal: true, Alone: true}
		rep, err := recovery.Sweep(c, alone)
		must(w.t, err)
		_, err = recovery.PruneSlots(c, alone, rep)
		must(w.t, err)
	}
	all, err := w.space.Tables()
	must(w.t, err)
	for _, t := range tables {
		if t.Index, err = race.Open(c, w.space, all[t.ID-1].Root, t.ID); !errors.Is(err, layout.ErrCorrupt) {
			must(w.t, err)
		}
	}
}

// TestHollowReopened: a blade was lost with a placeholder, whose slot is in an index that is
// damaged since. Its block is not given away when the database has been closed and opened again, as
// long as the slot may lead there.
func TestHollowReopened(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			o := occ.Options{Policy: s.policy, ReclaimAfter: 100}
			w := newWorld(t, s, o)
			sound, spoilt := w.table, w.another("spoilt")
			ours, own := w.session()
			victim, tx := w.session()
			w.sure(ours, own, put("kept", "1"))
			w.table = spoilt
			w.sure(ours, own, put("hollow", long), put("value", long))
			w.loseBlade(2)
			w.sweep()
			// As if its placeholder had been on that blade, and its client had died since.
			var hollow layout.Addr
			w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
				if string(line.Key()) == "hollow" {
					hollow = a
				}
			})
			w.zero(w.ctl.Plain(), "hollow", 2)
			w.table = sound
			w.sure(victim, tx, put("a", "1"))
			w.decideUntil(victim.Coordinator(), -1)
			w.sure(ours, own, put("kept", "2"))
			must(t, ours.Close())
			mended := w.spoil(spoilt)

			used := func(what string) {
				w.reopen(o, sound, spoilt)
				ours, own := w.session()
				for i := range 40 {
					w.sure(ours, own, put(fmt.Sprint(what, i), long))
				}
				w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
					if a == hollow {
						t.Errorf("%s: block %v has key %q", what, a, line.Key())
					}
				})
				must(t, ours.Close())
			}
			used("damaged")
			used("again")
			mended()
			w.reopen(o, sound, spoilt)
			w.table = spoilt
			if n := w.slotsTo(hollow); n > 0 {
				t.Errorf("mended: %d slots lead to block %v", n, hollow)
			}
			ours, own = w.session()
			if got := w.values(ours, own, "value", "hollow"); got[0] != long || got[1] != "" {
				t.Errorf("%.4q", got)
			}
			must(t, ours.Close())
		})
	}
}
