package recovery_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/log"
	"txnode/memory"
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
func (w *world) judge(what string, s *occ.Session, tx *occ.Tx, victim record.TxID, told error, ks, old, now []string) (committed bool) {
	w.t.Helper()
	got := w.values(s, tx, ks...)
	committed = slices.Equal(got, now)
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
	case o == memory.OutcomeCommitted && !committed, o == memory.OutcomeAborted && committed:
		w.t.Fatalf("%s: the verdict on %v is %v", what, victim, o)
	case o == memory.OutcomeUnknown && told != nil:
		w.t.Fatalf("%s: no verdict on %v: %+v", what, victim, v)
	}
	return committed
}

// TestStopAtEveryVerb: a session stops after each verb of each kind of transaction,
// also in what it does to abort; it is recovered; and the transaction has happened
// wholly or not at all, nothing is locked, all copies are equal.
func TestStopAtEveryVerb(t *testing.T) {
	for _, s := range settings() {
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
					rep, _ := w.recover(victim.Coordinator(), -1)
					finished += rep.Finished
					undone += len(rep.Aborted)
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
	for _, s := range settings() {
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
				_, err := recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
				must(t, err)
				w.check(c.name)
			}
			t.Logf("%d schedules", schedules)
		})
	}
}

// TestRejoinAtEveryVerb: verbs of a session fail from one on, and then they work
// again: the session rejoins, knows what became of its transaction, and goes on.
func TestRejoinAtEveryVerb(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) {
			for i := range canonicals {
				c := &canonicals[i]
				w := newWorld(t, s, occ.Options{})
				ours, own := w.session()
				se, tx := w.session()
				for k := 0; ; k++ {
					what := fmt.Sprintf("%s, broken after %d verbs", c.name, k)
					p := fmt.Sprintf("%d", k)
					ks, old, now := w.prepare(ours, own, c, p)
					w.arm(k)
					told := w.do(tx, c.tx(p)...)
					id := tx.ID()
					stopped := w.disarm()
					if se.Broken() == nil && told == nil { // perhaps in the background
						told = w.do(tx, get(p+"a"))
						if told == nil && stopped {
							t.Fatalf("%s: a verb has failed, and the session is not broken", what)
						}
						id = 0
						told = nil
					}
					if told != nil && se.Broken() == nil {
						se.Break(told)
					}
					must(t, se.Rejoin(se.Thread().Plain()))
					if id != 0 {
						w.judge(what, ours, own, id, told, ks, old, now)
					} else if got := w.values(ours, own, ks...); !slices.Equal(got, now) {
						t.Fatalf("%s: %q instead of %q", what, got, now)
					}
					w.sure(se, tx, c.tx(p)...)
					if got := w.values(ours, own, ks...); !slices.Equal(got, now) {
						t.Fatalf("%s: again: %q instead of %q", what, got, now)
					}
					if !stopped || t.Failed() {
						break
					}
				}
				th := w.newThread()
				_, err := recovery.Sweep(th.Plain(), w.eng.Recovery())
				must(t, err)
				must(t, th.Close())
				w.check(c.name)
			}
		})
	}
}

// TestFencedVerbsFail: what a coordinator posts after it was declared dead has no
// effect, and its session learns that it is dead.
func TestFencedVerbsFail(t *testing.T) {
	for _, s := range settings() {
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
		w.recover(se.Coordinator(), -1) // while it holds its locks
		w.sure(ours, own, put("a", "3"))
		if err := tx.Commit(); err == nil {
			t.Fatalf("%v: a fenced transaction has committed", s)
		}
		if se.Broken() == nil {
			t.Fatalf("%v: the session does not know that it was fenced", s)
		}
		must(t, se.Rejoin(se.Thread().Plain()))
		if v, _ := w.space.Verdict(id.Coordinator()); v.Of(id.Seq()) != memory.OutcomeAborted {
			t.Errorf("%v: verdict on %v: %+v", s, id, v)
		}
		if got := w.values(se, tx, "a", "b"); !slices.Equal(got, []string{"3", "1"}) {
			t.Errorf("%v: %q", s, got)
		}
		w.sure(se, tx, put("a", "4"), put("b", "4"))
		w.check(s.String())
	}
}

// TestWhoMeetsALock: a lock of a dead coordinator is resolved by whoever meets it:
// after the recovery, or by a recovery when the lease has expired.
func TestWhoMeetsALock(t *testing.T) {
	for _, s := range settings() {
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
			_, err := recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
			must(t, err)
			w.check(s.String())
		}
	}
}

// TestVerdictContradictsNobody: a transaction that began early is the last that logs, so
// its record lies where those of its neighbours were, which were acknowledged. They are
// not said to be aborted; one that began after it and had not come as far is.
func TestVerdictContradictsNobody(t *testing.T) {
	for _, s := range settings() {
		w := newWorld(t, s, occ.Options{})
		ours, own := w.session()
		w.sure(ours, own, put("a", "1"), put("b", "1"))
		se, early := w.session()
		c := se.Thread().Plain()
		late, err := se.NewTx(c)
		must(t, err)
		c.Sleep(10_000) // until the locks are released
		must(t, early.Begin())
		var acknowledged []record.TxID
		for range 5 {
			must(t, w.do(late, put("b", "2")))
			acknowledged = append(acknowledged, late.ID())
			c.Sleep(10_000) // until its log space may be used again
		}
		i, err := early.Stage(w.table, []byte("a"), true)
		must(t, err)
		must(t, early.Put(i, []byte("2")))
		must(t, early.Execute())
		must(t, early.Commit())
		w.recover(se.Coordinator(), -1)
		v, ok := w.space.Verdict(se.Coordinator())
		if !ok {
			t.Fatalf("%v: there is no verdict", s)
		}
		for _, id := range acknowledged {
			if o := v.Of(id.Seq()); o == memory.OutcomeAborted {
				t.Errorf("%v: %v was acknowledged, and is said to be %v: %+v", s, id, o, v)
			}
		}
		if o := v.Of(acknowledged[4].Seq() + 4); o != memory.OutcomeAborted {
			t.Errorf("%v: one that was never there is said to be %v: %+v", s, o, v)
		}
		w.check(s.String())
	}
}

// TestUnknownKeepsItsLog: a verb of a commit fails, so its outcome is unknown, while
// another transaction of the session is about to commit. That one does not get the log
// space of the first, whose fate its record decides. Every other time somebody else
// recovers them before the session rejoins.
func TestUnknownKeepsItsLog(t *testing.T) {
	for _, s := range settings() {
		w := newWorld(t, s, occ.Options{})
		ours, own := w.session()
		unknown, committed := 0, 0
		for k := 0; ; k++ {
			what := fmt.Sprintf("%v, verb %d fails (%d)", s, k/2, k)
			a, b, other := fmt.Sprintf("a%d", k), fmt.Sprintf("b%d", k), fmt.Sprintf("c%d", k)
			w.sure(ours, own, put(a, "1"), put(b, "1"), put(other, "1"))
			own.Coro().Sleep(10_000) // until the locks are released
			se, first := w.session()
			second, err := se.NewTx(se.Thread().Plain())
			must(t, err)
			must(t, second.Begin())
			i, err := second.Stage(w.table, []byte(other), true)
			must(t, err)
			must(t, second.Put(i, []byte("2")))
			must(t, second.Execute())
			w.stop = stop{left: k / 2, once: true}
			told := w.do(first, put(a, "2"), put(b, "2"))
			if !w.disarm() {
				break
			}
			id := first.ID()
			told2 := second.Commit()
			if errors.Is(told, occ.ErrOutcomeUnknown) && told2 == nil {
				t.Errorf("%s: the session is broken (%v), and has committed once more", what, told)
			}
			se.Break(told)
			if k%2 == 1 {
				_, err := recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), se.Coordinator())
				must(t, err)
			}
			must(t, se.Rejoin(se.Thread().Plain()))
			v, _ := w.space.Verdict(id.Coordinator())
			want := "1"
			if o := v.Of(id.Seq()); o == memory.OutcomeCommitted || told == nil {
				want = "2"
				committed++
			} else if o != memory.OutcomeAborted && errors.Is(told, occ.ErrOutcomeUnknown) {
				t.Errorf("%s: the verdict on %v is %v: %+v", what, id, o, v)
			}
			if errors.Is(told, occ.ErrOutcomeUnknown) {
				unknown++
			}
			if got := w.values(ours, own, a, b); !slices.Equal(got, []string{want, want}) {
				t.Errorf("%s: %q instead of %q", what, got, want)
			}
			_, err = recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
			must(t, err)
			w.check(what)
			if t.Failed() {
				break
			}
		}
		if unknown == 0 || committed == 0 {
			t.Errorf("%v: %d outcomes were unknown, %d committed", s, unknown, committed)
		}
	}
}

// TestPruneSlots: a slot leads to a block that is free, as when its insert had its
// placeholder on a blade that was lost, and has died. Nobody can read or insert the key
// until the slot is emptied; a block of which one copy is not free is left alone.
func TestPruneSlots(t *testing.T) {
	for _, s := range settings() {
		w := newWorld(t, s, occ.Options{})
		se, tx := w.session()
		w.sure(se, tx, put("a", "1"), put("b", "1"), put("c", "1"))
		c := se.Thread().Plain()
		c.Sleep(10_000) // until the locks are released
		w.zero(c, "a", s.backups+1)
		if s.backups > 0 {
			w.zero(c, "b", s.backups)
		}
		n, err := recovery.PruneSlots(w.ctl.Plain(), w.eng.Recovery())
		must(t, err)
		if n != 1 {
			t.Errorf("%v: %d slots were emptied", s, n)
		}
		fresh, other := w.session()
		w.sure(fresh, other, put("a", "2"))
		if got := w.values(fresh, other, "a", "c"); !slices.Equal(got, []string{"2", "1"}) {
			t.Errorf("%v: %q", s, got)
		}
	}
}

// TestVacateBesideTransactions: the same, while others are at work: who meets the slot
// empties it. Nobody does while transactions are undecided that may have lost something with a
// blade, which a recovery would put into that very block.
func TestVacateBesideTransactions(t *testing.T) {
	for _, s := range settings() {
		w := newWorld(t, s, occ.Options{})
		se, tx := w.session()
		w.sure(se, tx, put("a", "1"), put("b", "1"), put("c", "1"))
		c := se.Thread().Plain()
		c.Sleep(10_000) // until the locks are released
		w.zero(c, "a", s.backups+1)
		w.zero(c, "b", s.backups+1)
		ours, own := w.session()
		w.sure(ours, own, put("a", "2"))
		if got := w.values(ours, own, "a", "c"); !slices.Equal(got, []string{"2", "1"}) {
			t.Errorf("%v: %q", s, got)
		}
		var hollow memory.Addr
		w.blocks(c, func(a memory.Addr, line record.Image) {
			if line.Meta().State() == record.Free {
				hollow = a
			}
		})
		o := w.eng.Recovery()
		cs, err := w.space.Coordinators()
		must(t, err)
		var ids []uint32
		for _, x := range cs {
			ids = append(ids, x.ID)
		}
		claim, err := w.space.Claim(memory.ClaimOptions{Change: func(*memory.Layout) error { return nil }}, ids...)
		must(t, err)
		must(t, recovery.Reconnect(w.ctl.Plain(), w.space))
		if done, err := recovery.Vacate(w.ctl.Plain(), o, w.table.ID, []byte("b"), hollow); done || err != nil {
			t.Errorf("%v: a slot was emptied while transactions are undecided: %v", s, err)
		}
		var rep recovery.Report
		must(t, recovery.Run(w.ctl.Plain(), o, claim, &rep))
		// After the loss of a blade a sweep looks for such slots.
		fresh, other := w.session()
		w.sure(fresh, other, put("d", "1"))
		other.Coro().Sleep(10_000)
		w.zero(fresh.Thread().Plain(), "d", s.backups+1)
		if swept, err := recovery.Sweep(w.ctl.Plain(), o); err != nil || swept.Slots == 0 {
			t.Errorf("%v: a sweep has emptied %d slots: %v", s, swept.Slots, err)
		}
		w.blocks(w.ctl.Plain(), func(a memory.Addr, line record.Image) {
			if line.Meta().State() == record.Free {
				t.Errorf("%v: a slot leads to the free block %v", s, a)
			}
		})
		if s.policy == occ.PolicyFORD {
			continue // whose undo log takes the insert back
		}
		if got := w.values(fresh, other, "a", "b", "c"); !slices.Equal(got, []string{"2", "1", "1"}) {
			t.Errorf("%v: %q", s, got)
		}
		w.check(s.String())
	}
}

// TestLogsGrow: a transaction's log does not fit what its session uses of its log areas,
// which grow; the session stops after each verb, and what it has written there is found.
func TestLogsGrow(t *testing.T) {
	for _, s := range settings() {
		if s.backups > 1 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			w := newWorldOf(t, s, occ.Options{}, 256<<10)
			ours, own := w.session()
			all := func(v byte) (ops []op) {
				for _, k := range []string{"a", "b", "c"} {
					ops = append(ops, put(k, strings.Repeat(string(v), 30_000)))
				}
				return ops
			}
			finished := 0
			for k := 0; ; k++ {
				was, now := byte('A'+k%2), byte('a'+k%2)
				must(t, w.do(own, all(was)...))
				victim, tx := w.session()
				coord, _, err := w.space.Coordinator(victim.Coordinator())
				must(t, err)
				w.arm(k)
				told := w.do(tx, all(now)...)
				stopped := w.disarm()
				if told != nil && !stopped {
					t.Fatalf("stopped after %d verbs: %v", k, told)
				}
				if grown, _, err := w.space.Coordinator(victim.Coordinator()); err != nil || coord.Logs[0].Size != memory.LogStep || !stopped && grown.Logs[0].Size != 2*memory.LogStep {
					t.Fatalf("log areas of %d and %d bytes, %v", coord.Logs[0].Size, grown.Logs[0].Size, err)
				}
				rep, _ := w.recover(victim.Coordinator(), -1)
				finished += rep.Finished + len(rep.Aborted)
				for i, v := range w.values(ours, own, "a", "b", "c") {
					if (v == "" || v[0] != was && v[0] != now) || told == nil && v[0] != now || v[0] != w.values(ours, own, "a")[0][0] {
						t.Fatalf("stopped after %d verbs: value %d is %.10s..., before the transaction %c, after it %c, told %v", k, i, v, was, now, told)
					}
				}
				w.check(fmt.Sprintf("stopped after %d verbs", k))
				if !stopped || t.Failed() {
					break
				}
			}
			if finished == 0 {
				t.Error("no log has told of a transaction under way")
			}
		})
	}
}

// TestTornPlaceholder: of the placeholder of an insert the first words have arrived when
// its process was killed, or of the line that frees a deleted record. The block is free
// after a sweep by who is alone; a record whose version is damaged, which looks alike, is
// left to be found.
func TestTornPlaceholder(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			ours, own := w.session()
			must(t, w.do(own, put("a", "1"), put("b", "2")))
			victim, tx := w.session()
			must(t, w.do(tx, put("c", "3")))
			id := victim.Coordinator()
			must(t, victim.Close())
			l := w.space.Layout()
			v := w.space.Current()
			seg := slices.IndexFunc(l.Segments, func(g memory.Segment) bool { return g.Kind == memory.KindBlocks })
			class := l.Segments[seg].Class
			words := func(a memory.Addr, to ...uint64) (was []uint64) {
				t.Helper()
				th := w.ctl
				buf, err := th.Alloc(record.LineSize)
				must(t, err)
				defer th.Free(buf, record.LineSize)
				v.Rekey(th)
				var b rdma.Batch
				b.Read(v.At(a, 0), buf, record.LineSize)
				must(t, th.Plain().Do(&b))
				for i, x := range to {
					was = append(was, th.Word(buf+8*uint32(i)))
					th.PutWord(buf+8*uint32(i), x)
				}
				b.Reset()
				b.Write(v.At(a, 0), buf, record.LineSize)
				must(t, th.Plain().Do(&b))
				must(t, th.Plain().Fence(rdma.FenceThread, 0, &b))
				return was
			}
			last := memory.MakeAddr(memory.SegmentID(seg), l.SegmentSize-2*class.Size()) // never used
			words(last, uint64(record.MakeTxID(id, 7)))
			if s.backups > 0 { // without a copy nothing proves that it is no record
				meta := make([]byte, record.LineSize)
				record.Image(meta).Put(last, record.MakeTxID(id, 8), record.Absent, 1, class, 0, []byte("key"), nil)
				words(last+memory.Addr(class.Size()), uint64(record.MakeTxID(id, 8)), binary.LittleEndian.Uint64(meta[8:]))
			}
			half := make(record.Image, record.LineSize) // of the line that frees it, over a locked tombstone
			freeing := last - memory.Addr(class.Size())
			half.Put(freeing, record.MakeTxID(id, 9), record.Absent, 1, class, 0, []byte("key"), nil)
			half.SetGuard(record.HeldBy(record.MakeTxID(id, 10)))
			freed := make(record.Image, record.LineSize)
			freed.Put(freeing, record.MakeTxID(id, 10), record.Free, 1, class, 0, nil, nil)
			copy(half[:16], freed)
			var all [record.LineSize / 8]uint64
			for i := range all {
				all[i] = binary.LittleEndian.Uint64(half[8*i:])
			}
			words(freeing, all[:]...)
			line := func(a memory.Addr) record.Image {
				buf, err := w.ctl.Alloc(record.LineSize)
				must(t, err)
				defer w.ctl.Free(buf, record.LineSize)
				v.Rekey(w.ctl)
				var b rdma.Batch
				b.Read(v.At(a, 0), buf, record.LineSize)
				must(t, w.ctl.Plain().Do(&b))
				return slices.Clone(w.ctl.Bytes(buf, record.LineSize))
			}
			record0 := memory.MakeAddr(memory.SegmentID(seg), 0)
			for line(record0).Meta().State() != record.Live { // the first record of the segment
				record0 += memory.Addr(class.Size())
			}
			was := words(record0, uint64(record.MakeTxID(id, 9)))
			o := w.eng.Recovery()
			o.Alone = true
			rep, err := recovery.Sweep(w.ctl.Plain(), o)
			must(t, err)
			if want := 2 + min(s.backups, 1); rep.Freed != want {
				t.Errorf("%d blocks have come free, %d are right", rep.Freed, want)
			}
			if now := words(record0, was...); now[0] != uint64(record.MakeTxID(id, 9)) {
				t.Error("a damaged record was written over")
			}
			w.check("afterwards")
			if got := w.values(ours, own, "a", "b", "c"); !slices.Equal(got, []string{"1", "2", "3"}) {
				t.Errorf("values %q", got)
			}
		})
	}
}

// TestSweepBesideInserts: while a sweep is on its way, step by step, others take blocks
// that it has seen free and use them, and free others. It gives none of these away, and
// what the dead had is in the pool afterwards: what they had fetched, and the blocks of
// deleted records that nobody else reclaims.
func TestSweepBesideInserts(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{ReclaimAfter: 1})
			ours, own := w.session()
			victim, tx := w.session()
			w.sure(ours, own, put("a", "1"), put("b", long))
			w.sure(victim, tx, put("c", "2"), put("d", long))
			w.sure(victim, tx, del("c"), del("a"))
			must(t, w.do(own, put("e", "1")))
			w.decideUntil(victim.Coordinator(), -1)
			w.sure(ours, own, put("e", "2")) // it may have to rejoin: another sweep would be due

			by, _ := w.session()
			sweeper := recovery.NewSweeper(by.Recovery())
			var want []string
			var ks []string
			for i := 0; ; i++ {
				done, err := sweeper.Step(by.Thread().Plain())
				must(t, err)
				if done {
					break
				}
				key, gone := fmt.Sprintf("k%d", i), fmt.Sprintf("gone%d", i)
				w.sure(ours, own, put(key, "5"), put(gone, long))
				w.sure(ours, own, del(gone))
				must(t, ours.Maintain(ours.Thread().Plain()))
				ks, want = append(ks, key), append(want, "5")
			}
			if _, due := w.space.Unswept(); due {
				t.Error("the sweep has come to its end, and another is due")
			}
			if sweeper.Report.Strays == 0 || sweeper.Report.Freed < 2 {
				t.Errorf("the sweep has found %+v", sweeper.Report)
			}
			w.check("swept")
			if got := w.values(ours, own, ks...); !slices.Equal(got, want) {
				t.Errorf("%q", got)
			}
			for i := range 200 { // from the pool, as from the lists
				k := fmt.Sprintf("x%d", i)
				w.sure(ours, own, put(k, "6"))
				ks, want = append(ks, k), append(want, "6")
			}
			for i, k := range ks {
				if got := w.values(ours, own, k); got[0] != want[i] {
					t.Fatalf("%s is %q", k, got)
				}
			}
			w.check("used")
		})
	}
}

// TestBlockOfCommitted: a session that rejoins does not take back the block of an insert that
// was found to be committed: somebody has deleted the record since, and has the block now.
func TestBlockOfCommitted(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) {
			taken := 0
			for k := 0; ; k++ {
				w := newWorld(t, s, occ.Options{})
				victim, tx := w.session()
				w.sure(victim, tx, put("before", "1"))
				id := victim.Coordinator()
				w.arm(k)
				err := w.do(tx, put("key", "1"))
				if stopped := w.disarm(); !stopped {
					break
				}
				if err == nil && victim.Broken() == nil {
					victim.Break(rdma.ErrVerb)
				}
				w.decideUntil(id, -1)
				other, otx := w.session()
				if got := w.values(other, otx, "key"); got[0] != "" {
					w.sure(other, otx, del("key"))
					_, err := other.MakeRoom(other.Thread().Plain())
					must(t, err)
					taken++
				}
				must(t, victim.Rejoin(victim.Thread().Plain()))
				w.check(fmt.Sprintf("stopped after %d verbs", k))
			}
			if taken == 0 {
				t.Error("no insert was found to be committed")
			}
		})
	}
}

// TestSweepPassesOver: a sweep that meets a lock which somebody else resolves is not the last.
func TestSweepPassesOver(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			ours, own := w.session()
			w.sure(ours, own, put("a", "1"))
			victim, tx := w.session()
			w.try(victim, tx, func() error {
				if err := tx.Begin(); err != nil {
					return err
				}
				_, err := tx.Stage(w.table, []byte("a"), true)
				must(t, err)
				if err = tx.Execute(); err != nil {
					_ = tx.Rollback()
				}
				return err // nil: it has the lock, and no more is heard of it
			})
			w.decideUntil(victim.Coordinator(), -1)
			w.try(ours, own, func() error { return w.do(own, get("before")) }) // it may have to rejoin
			var at memory.Addr
			w.blocks(w.ctl.Plain(), func(a memory.Addr, line record.Image) {
				if string(line.Key()) == "a" {
					at = a
				}
			})
			r := w.space.BeginResolve(at, ours.Coordinator())
			if r == nil {
				t.Fatal("somebody resolves the lock")
			}
			o := w.eng.Recovery()
			_, err := recovery.Sweep(w.ctl.Plain(), o)
			must(t, err)
			if _, due := w.space.Unswept(); !due {
				t.Error("no sweep is due, and there is a lock")
			}
			r.End(false, 0)
			_, err = recovery.Sweep(w.ctl.Plain(), o)
			must(t, err)
			if _, due := w.space.Unswept(); due {
				t.Error("another sweep is due")
			}
			w.check("afterwards")
		})
	}
}

// TestLeftBlockIsSomebodys: the block that a record has left, and somebody else has got
// since, whose first image has reached a backup and not the primary, is not freed again by
// the recovery of who had moved the record.
func TestLeftBlockIsSomebodys(t *testing.T) {
	for _, s := range settings() {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			ours, own := w.session()
			w.sure(ours, own, put("b", "1"))
			victim, tx := w.session()
			w.sure(victim, tx, put("a", "1"))
			at := func() (at memory.Addr) {
				w.blocks(w.ctl.Plain(), func(a memory.Addr, line record.Image) {
					if string(line.Key()) == "a" {
						at = a
					}
				})
				return at
			}
			left := at()
			w.sure(victim, tx, put("a", long))
			own.Coro().Sleep(100_000) // until the old block is free
			if at() == left {
				t.Fatal("the record has not moved")
			}
			v := w.space.View()
			b := v.At(left, v.Copies(left)-1)
			line := w.f.Memory(b.Blade)[b.Off:][:record.LineSize]
			if img := record.Image(line); img.Meta().State() != record.Free {
				t.Fatalf("the block is %v", img.Meta().State())
			}
			mine := record.MakeTxID(ours.Coordinator(), 1000)
			record.Image(line).Put(left, mine, record.Live, record.Image(line).Meta().Table(), record.Image(line).Meta().Class(), mine, []byte("other"), nil)
			want := bytes.Clone(line)
			_, err := recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), victim.Coordinator())
			must(t, err)
			if !bytes.Equal(line, want) {
				t.Errorf("the copy was %x\nand is %x", want, line)
			}
		})
	}
}

// TestReplicatedInUsedRing: a record that a stopped coordinator has written on too few
// blades is on f+1 of them when the catalog says that it is committed, also where records
// of transactions long at rest lie in its place.
func TestReplicatedInUsedRing(t *testing.T) {
	for _, backups := range []int{1, 2} {
		short := 0
		for k := 0; ; k++ {
			w := newWorldOf(t, setting{occ.PolicyDefault, backups, strong}, occ.Options{}, 4<<10)
			victim, tx := w.session()
			for i := range 300 { // several rounds of the ring, on all blades
				w.sure(victim, tx, put(fmt.Sprint(i%20), fmt.Sprint(i)), put(fmt.Sprint((i+7)%20), "x"))
			}
			w.arm(k)
			told := w.do(tx, put("3", "new"), put("10", "new"))
			if !w.disarm() {
				break
			}
			id := tx.ID()
			if told == nil {
				continue
			}
			var logs []memory.LogArea
			cs, err := w.space.Coordinators()
			must(t, err)
			for _, c := range cs {
				if c.ID == victim.Coordinator() {
					logs = c.Logs
				}
			}
			copies := func() (n int) {
				for b, l := range logs {
					area := w.f.Memory(rdma.BladeID(b))[l.Addr.Off:][:l.Size]
					for off := 0; off+log.HeaderSize <= len(area); off += record.LineSize {
						if rec, err := log.Decode(area[off:]); err == nil && rec.Tx == id {
							n++
						}
					}
				}
				return n
			}
			if n := copies(); n > 0 && n <= backups {
				short++
			}
			seen := false
			w.stop.at = func() {
				v, _ := w.space.Verdict(id.Coordinator())
				if seen || v.Of(id.Seq()) != memory.OutcomeCommitted {
					return
				}
				seen = true
				if n := copies(); n <= backups {
					t.Errorf("f=%d, stopped after %d verbs: the catalog says that it is committed, and its record is on %d blades", backups, k, n)
				}
			}
			_, err = recovery.Recover(w.newThread().Plain(), w.eng.Recovery(), id.Coordinator())
			must(t, err)
			w.disarm()
			_, err = recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
			must(t, err)
			w.check(fmt.Sprintf("stopped after %d verbs", k))
		}
		if short == 0 {
			t.Errorf("f=%d: no record was on too few blades", backups)
		}
	}
}
