package recovery_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestLogsGrow: a transaction's log does not fit what its session uses of its log areas,
// which grow; the session stops after each verb, and what it has written there is found.
func TestLogsGrow(t *testing.T) {
	for _, s := range settings(t) {
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
				if grown, _, err := w.space.Coordinator(victim.Coordinator()); err != nil ||
					coord.Logs[0].Size != layout.LogStep || !stopped && grown.Logs[0].Size != 2*layout.LogStep {
					t.Fatalf("log areas of %d and %d bytes, %v", coord.Logs[0].Size, grown.Logs[0].Size, err)
				}
				rep := w.recover(victim.Coordinator())
				finished += rep.Finished + len(rep.Aborted)
				for i, v := range w.values(ours, own, "a", "b", "c") {
					if (v == "" || v[0] != was && v[0] != now) || told == nil && v[0] != now ||
						v[0] != w.values(ours, own, "a")[0][0] {
						t.Fatalf("stopped after %d verbs: value %d is %.10s..., before the transaction %c, after "+
							"it %c, told %v", k, i, v, was, now, told)
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

// logged is the log records of a transaction, one for each blade that has it.
func (w *world) logged(id record.TxID) (all []log.Record) {
	w.t.Helper()
	cs, err := w.space.Coordinators()
	must(w.t, err)
	i := slices.IndexFunc(cs, func(c memory.Coordinator) bool { return c.ID == id.Coordinator() })
	for b, l := range cs[i].Logs {
		area := w.f.Memory(rdma.BladeID(b))[l.Addr.Off:][:l.Size]
		for off := 0; off+log.HeaderSize <= len(area); off += record.LineSize {
			if rec, err := log.Decode(area[off:]); err == nil && rec.Tx == id {
				all = append(all, rec)
			}
		}
	}
	return all
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
			if n := len(w.logged(id)); n > 0 && n <= backups {
				short++
			}
			seen := false
			w.stop.at = func() {
				v, _ := w.space.Verdict(id.Coordinator())
				if seen || v.Of(id.Seq()) != layout.OutcomeCommitted {
					return
				}
				seen = true
				if n := len(w.logged(id)); n <= backups {
					t.Errorf("f=%d, stopped after %d verbs: the catalog says that it is committed, and its record is "+
						"on %d blades", backups, k, n)
				}
			}
			_, err := recovery.Recover(w.newThread().Plain(), w.eng.Recovery(), id.Coordinator())
			must(t, err)
			w.disarm()
			w.sweep()
			w.check(fmt.Sprintf("stopped after %d verbs", k))
		}
		if short == 0 {
			t.Errorf("f=%d: no record was on too few blades", backups)
		}
	}
}

// TestAheadOfWhoWaited: a transaction waits for log space, and meanwhile a neighbour of its
// thread, which has begun after it, is acknowledged. Its record, written at last, says so.
func TestAheadOfWhoWaited(t *testing.T) {
	for _, s := range settings(t) {
		if s.caps.Synchronous { // nobody waits beside others
			continue
		}
		w := newWorldOf(t, s, occ.Options{}, layout.MinLogArea)
		large := func(c string, n int) string { return strings.Repeat(c, n) }
		w.loaded(put("moves", large("m", 1400)), put("neighbour", "0"))
		w.loaded(put("waits", large("w", 2500)))
		se, _ := w.session()
		held, waiting, acknowledged := false, false, uint64(0)
		se.Thread().Run(3, func(c *rdma.Coro) {
			tx, err := se.NewTx(c)
			must(t, err)
			switch c.ID() {
			case 0: // keeps its log space for long
				w.stop.at = func() { held = held || tx.ID() != 0 && len(w.logged(tx.ID())) > 0 }
				must(t, w.do(tx, put("moves", large("n", 2000))))
			case 1:
				must(t, w.open(tx, put("waits", large("x", 2500))))
				for !held {
					c.Sleep(100)
				}
				waiting = true
				must(t, tx.Commit())
				waiting = false
				rec := w.logged(tx.ID())
				if len(rec) == 0 || acknowledged <= tx.ID().Seq() {
					t.Fatalf("%v: %d log records, up to %d acknowledged", s, len(rec), acknowledged)
				}
				if upTo := tx.ID().Seq() + rec[0].Ahead; upTo < acknowledged {
					t.Errorf("%v: the record of %v says that ids were drawn up to %d; %d had been acknowledged",
						s, tx.ID(), upTo, acknowledged)
				}
			case 2:
				for !waiting {
					c.Sleep(100)
				}
				must(t, w.do(tx, put("neighbour", "1")))
				if !waiting {
					t.Errorf("%v: it was to be acknowledged while the other one waits", s)
				}
				acknowledged = tx.ID().Seq()
			}
		})
		w.disarm()
	}
}
