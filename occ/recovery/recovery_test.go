package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// canonical is a transaction over keys of its own, and what must be there before.
type canonical struct {
	name   string
	before func(p string) []op // "": the database is as it was
	then   func(p string) []op // a second transaction before it, such as a delete
	tx     func(p string) []op
}

var long = strings.Repeat("long ", 60)

var canonicals = []canonical{
	{name: "update", before: func(p string) []op { return []op{put(p+"a", "1"), put(p+"b", "2"), put(p+"c", "3")} },
		tx: func(p string) []op { return []op{put(p+"a", "4"), put(p+"b", "5"), get(p + "c")} }},
	{name: "update of several lines", before: func(p string) []op { return []op{put(p+"a", long), put(p+"b", long)} },
		tx: func(p string) []op { return []op{put(p+"a", long[1:]), put(p+"b", long[2:])} }},
	{name: "insert", before: func(p string) []op { return []op{put(p+"a", "1")} },
		tx: func(p string) []op { return []op{put(p+"a", "2"), put(p+"b", "3"), put(p+"c", long)} }},
	{name: "delete", before: func(p string) []op { return []op{put(p+"a", "1"), put(p+"b", "2")} },
		tx: func(p string) []op { return []op{del(p + "a"), put(p+"b", "3")} }},
	{name: "insert over a delete", before: func(p string) []op { return []op{put(p+"a", "1"), put(p+"b", "2")} },
		then: func(p string) []op { return []op{del(p + "a")} },
		tx:   func(p string) []op { return []op{put(p+"a", "4"), put(p+"b", "3")} }},
	{name: "move", before: func(p string) []op { return []op{put(p+"a", "1"), put(p+"b", "2"), put(p+"c", "3")} },
		tx: func(p string) []op { return []op{put(p+"a", long), put(p+"b", "5"), put(p+"c", long+long)} }},
}

// keys lists the keys that operations name.
func keys(ops []op) []string {
	var out []string
	for _, o := range ops {
		out = append(out, o.key)
	}
	return out
}

// prepare makes what must be there before, and returns the values of the keys of the
// transaction before it and after it.
func (w *world) prepare(s *occ.Session, tx *occ.Tx, c *canonical, prefix string) (ks, old, now []string) {
	w.t.Helper()
	w.sure(s, tx, c.before(prefix)...)
	if c.then != nil {
		w.sure(s, tx, c.then(prefix)...)
	}
	ops := c.tx(prefix)
	ks = keys(ops)
	old = w.values(s, tx, ks...)
	now = slices.Clone(old)
	for i, o := range ops {
		if !o.get {
			now[i] = o.value
		}
	}
	return ks, old, now
}

// judge checks that a transaction has happened or not, wholly, as its caller was
// told and as the verdict says.
func (w *world) judge(what string, s *occ.Session, tx *occ.Tx, victim record.TxID, told error, ks, old, now []string) {
	w.t.Helper()
	got := w.values(s, tx, ks...)
	committed := slices.Equal(got, now)
	if !committed && !slices.Equal(got, old) {
		w.t.Fatalf("%s: %q, before it was %q, and would be %q", what, got, old, now)
	}
	if told == nil && !committed {
		w.t.Fatalf("%s: the client was told that it is committed, and it is gone", what)
	}
	v, ok := w.space.Verdict(victim.Coordinator())
	if !ok {
		w.t.Fatalf("%s: there is no verdict on %v", what, victim)
	}
	switch o := v.Of(victim.Seq()); {
	case o == layout.OutcomeCommitted && !committed, o == layout.OutcomeAborted && committed:
		w.t.Fatalf("%s: the verdict on %v is %v", what, victim, o)
	case o == layout.OutcomeUnknown && told != nil:
		w.t.Fatalf("%s: no verdict on %v: %+v", what, victim, v)
	}
}

// TestStopAtEveryVerb: a session stops after each verb of each kind of transaction,
// also in what it does to abort; it is recovered; and the transaction has happened
// wholly or not at all, nothing is locked, all copies are equal.
func TestStopAtEveryVerb(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			schedules, finished, undone := 0, 0, 0
			for i := range canonicals {
				c := &canonicals[i]
				w := newWorld(t, s, occ.Options{})
				ours, own := w.session()
				for k := 0; ; k++ {
					what := fmt.Sprintf("%s, stopped after %d verbs", c.name, k)
					ks, old, now := w.prepare(ours, own, c, fmt.Sprintf("%d", k))
					victim, tx := w.session()
					w.arm(k)
					told := w.do(tx, c.tx(fmt.Sprintf("%d", k))...)
					stopped := w.disarm()
					if told != nil && !stopped {
						t.Fatalf("%s: %v", what, told)
					}
					rep := w.recover(victim.Coordinator())
					finished += rep.Finished
					// else its client asks
					if s.policy != occ.PolicyDefault || !errors.Is(told, occ.ErrOutcomeUnknown) {
						undone += len(rep.Aborted)
					}
					w.judge(what, ours, own, tx.ID(), told, ks, old, now)
					w.check(what)
					schedules++
					if !stopped || t.Failed() {
						break
					}
				}
			}
			t.Logf("%d schedules, %d transactions finished, %d undone", schedules, finished, undone)
			if finished == 0 || (undone == 0) != (s.policy == occ.PolicyDefault) {
				t.Errorf("%d transactions finished, %d undone", finished, undone)
			}
		})
	}
}

// TestRecovererStops: whoever recovers stops, too, and the next one comes to the same
// end. Every pair of places is tried by package exhaustive; here, some of them.
func TestRecovererStops(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			schedules := 0
			for i := range canonicals {
				c := &canonicals[i]
				w := newWorld(t, s, occ.Options{})
				ours, own := w.session()
				for k, n := 3, 0; ; k += 7 {
					var hit bool
					for j := n % 5; ; j += 5 {
						n++
						what := fmt.Sprintf("%s, stopped after %d verbs, its recovery after %d", c.name, k, j)
						p := fmt.Sprintf("%d.%d.", k, j)
						ks, old, now := w.prepare(ours, own, c, p)
						victim, tx := w.session()
						own.Coro().Sleep(10_000)
						w.arm(k)
						told := w.do(tx, c.tx(p)...)
						hit = w.disarm()
						stopped := w.decideUntil(victim.Coordinator(), j)
						if stopped {
							w.decideUntil(victim.Coordinator(), -1)
						}
						w.judge(what, ours, own, tx.ID(), told, ks, old, now)
						schedules++
						if !stopped || t.Failed() {
							break
						}
					}
					if !hit || t.Failed() {
						break
					}
				}
				w.sweep()
				w.check(c.name)
			}
			t.Logf("%d schedules", schedules)
		})
	}
}

// TestFencedVerbsFail: what a coordinator posts after it was declared dead has no
// effect, and its session learns that it is dead.
func TestFencedVerbsFail(t *testing.T) {
	for _, s := range settings(t) {
		w := newWorld(t, s, occ.Options{})
		ours, own := w.session()
		w.sure(ours, own, put("a", "1"), put("b", "1"))
		own.Coro().Sleep(10_000) // until the locks are released
		se, tx := w.session()
		must(t, tx.Begin())
		for _, k := range []string{"a", "b"} {
			i, err := tx.Stage(w.table, []byte(k), true)
			must(t, err)
			must(t, tx.Put(i, []byte("2")))
		}
		must(t, tx.Execute())
		id := tx.ID()
		w.recover(se.Coordinator()) // while it holds its locks
		w.sure(ours, own, put("a", "3"))
		if err := tx.Commit(); err == nil {
			t.Fatalf("%v: a fenced transaction has committed", s)
		}
		if se.Broken() == nil {
			t.Fatalf("%v: the session does not know that it was fenced", s)
		}
		must(t, se.Rejoin(se.Thread().Plain()))
		if v, _ := w.space.Verdict(id.Coordinator()); v.Of(id.Seq()) != layout.OutcomeAborted {
			t.Errorf("%v: verdict on %v: %+v", s, id, v)
		}
		if got := w.values(se, tx, "a", "b"); !slices.Equal(got, []string{"3", "1"}) {
			t.Errorf("%v: %q", s, got)
		}
		w.sure(se, tx, put("a", "4"), put("b", "4"))
		w.check(s.String())
	}
}

// TestFencedLookup: a coordinator that was declared dead looks for a key whose sub-table is
// in a segment that its map does not have, since it was added after that. No verb is posted
// that could fail; its session learns that it is dead, and not that the index is damaged.
func TestFencedLookup(t *testing.T) {
	for _, s := range settings(t) {
		w := newWorld(t, s, occ.Options{})
		ours, own := w.session()
		w.sure(ours, own, put("a", "1"))
		se, tx := w.session()
		must(t, tx.Begin())
		old := w.space.View()
		w.recover(se.Coordinator())
		key := ""
		for i := 0; key == ""; i++ {
			if i == 20_000 {
				t.Fatalf("%v: no split has needed another segment", s)
			}
			k := fmt.Sprintf("k%d", i)
			w.sure(ours, own, put(k, "2"))
			var b rdma.Batch
			if w.table.Index.Search(&b, &index.Query{
				Key: []byte(k), Hash: record.Hash(w.table.ID, []byte(k)), View: old,
			}); b.Len() == 0 {
				key = k
			}
		}
		_, err := tx.Stage(w.table, []byte(key), false)
		must(t, err)
		if err := tx.Execute(); !errors.Is(err, rdma.ErrStaleKey) || errors.Is(err, layout.ErrCorrupt) {
			t.Errorf("%v: a fenced lookup: %v", s, err)
		}
		_ = tx.Rollback()
		if se.Broken() == nil {
			t.Errorf("%v: the session does not know that it was fenced", s)
			se.Break(rdma.ErrVerb)
		}
		must(t, se.Rejoin(se.Thread().Plain()))
		if got := w.values(se, tx, "a", key); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("%v: %q", s, got)
		}
		w.check(s.String())
	}
}

// TestWhoMeetsALock: a lock of a dead coordinator is resolved by whoever meets it:
// after the recovery, or by a recovery when the lease has expired.
func TestWhoMeetsALock(t *testing.T) {
	for _, s := range settings(t) {
		for _, expired := range []bool{false, true} {
			w := newWorld(t, s, occ.Options{LeaseTerm: 1_000_000})
			ours, own := w.session()
			w.sure(ours, own, put("a", "1"), put("b", "1"))
			se, tx := w.session()
			own.Coro().Sleep(10_000) // until the locks are released
			w.arm(7)
			told := w.do(tx, put("a", "2"), put("b", "2"), put("c", "2"))
			if !w.disarm() || told == nil {
				t.Fatalf("%v: it was not stopped: %v", s, told)
			}
			if expired {
				own.Coro().Sleep(2_000_000)
			} else {
				o := w.eng.Recovery()
				_, err := recovery.Recover(w.ctl.Plain(), o, se.Coordinator())
				must(t, err)
			}
			w.sure(ours, own, put("a", "3"), put("b", "3"), put("c", "3"))
			if got := w.values(ours, own, "a", "b", "c"); !slices.Equal(got, []string{"3", "3", "3"}) {
				t.Errorf("%v, expired %v: %q", s, expired, got)
			}
			if w.space.Registered(se.Coordinator()) {
				t.Errorf("%v, expired %v: the dead coordinator is still there", s, expired)
			}
			w.sweep()
			w.check(s.String())
		}
	}
}
