package recovery_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"txnode/index/blink"
	"txnode/index/race"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/verify"
)

// Several processes on one database: each has a space that has joined, an engine, and
// handles of its own.

// processes makes a database, and processes that have joined it, and use its hash table,
// or its ordered one.
func processes(t testing.TB, s setting, o occ.Options, n int, size uint64, ordered bool) (all []*world) {
	t.Helper()
	w := newWorldWith(t, rdmatest.Options{Blades: 3, Size: size}, s, o,
		memory.Options{SegmentSize: 256 << 10, LogArea: 128 << 10, Shared: true})
	g, err := blink.Geometry{MaxKey: 32, MaxEntries: 3}.Fit()
	must(t, err)
	meta, err := w.space.CreateNodesTable("o", []byte(`{"key":"bytes","value":"bytes","index":"ordered"}`),
		g.Class, g.MaxKey, nil)
	must(t, err)
	se, tx := w.session()
	root, err := tx.NewNodes(&occ.Table{ID: meta.ID, Name: meta.Name}, g.Class, tree.Empty)
	must(t, err)
	w.setRoot(meta.ID, root)
	must(t, se.Close())
	must(t, w.space.Close(w.ctl.Plain()))
	for i := range n {
		x := w.join(s, o, 100*(i+1))
		if ordered {
			tr, err := tree.New(x.space, g, meta.ID, root)
			must(t, err)
			x.table = &occ.Table{ID: meta.ID, Name: meta.Name, Ordered: tr}
		}
		all = append(all, x)
	}
	return all
}

// join is another process. Its threads are numbered from thread on.
func (w *world) join(s setting, o occ.Options, thread int) *world {
	w.t.Helper()
	x := &world{t: w.t, f: w.f, cat: w.cat, thread: thread, stop: stop{left: -1}, until: w.until}
	x.ctl = x.newThread()
	l := w.space.Layout()
	var err error
	x.space, err = memory.Open(x.ctl.Plain(), x.f, x.cat, memory.Options{
		Backups: l.Backups, SegmentSize: l.SegmentSize, LogArea: l.LogArea, Until: x.until,
	})
	must(w.t, err)
	must(w.t, x.space.EndAlone())
	o.Policy, o.CacheBytes, o.Damaged = s.policy, 64<<10, x.damaged
	x.eng = occ.NewEngine(x.space, o)
	ix, err := race.Open(x.ctl.Plain(), x.space, l.Tables[0].Root, l.Tables[0].ID)
	must(w.t, err)
	x.table = &occ.Table{ID: l.Tables[0].ID, Name: w.table.Name, Index: ix}
	x.others = w.others
	*w.others = append(*w.others, x)
	return x
}

// whole demands that the database is in order. Which process has what is free does not matter.
func whole(t testing.TB, what string, all []*world) {
	t.Helper()
	for range 2 { // what is left to another process, it does then
		for _, w := range all {
			must(t, w.space.Follow())
			w.sweep()
		}
	}
	for _, w := range all {
		must(t, w.space.Follow())
		if generation, due := w.space.Unswept(); due {
			t.Errorf("%s: process %d has something to sweep: %d", what, w.space.Process(), generation)
		}
	}
	w := all[0]
	w.examine(verify.Options{Report: func(f verify.Finding) error {
		t.Errorf("%s: %v", what, f)
		return nil
	}})
	if ix, ok := w.table.Index.(*race.Index); ok {
		if err := ix.Verify(w.ctl.Plain()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestFreedByAnotherProcess: a session of one process inserts a record, one of another process
// deletes it, and frees its block. Then the first one dies, and its log says still that it has
// inserted the record: it stays deleted. When its process uses the block again, and dies before the
// record is in place, the record is there afterwards.
func TestFreedByAnotherProcess(t *testing.T) {
	large := strings.Repeat("large ", 10_000)
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			for i := range 4 {
				first, ordered := i%2, i/2 > 0
				all := processes(t, s, occ.Options{ReclaimAfter: 1}, 2, 6<<20, ordered)
				p, q := all[first], all[1-first]
				what := fmt.Sprintf("process %d inserts, ordered %v", p.space.Process(), ordered)
				inserter, a := p.session()
				deleter, b := q.session()
				for i := range 5 { // it has freed more than the other one
					p.sure(inserter, a, put(fmt.Sprint("own", i), "x"))
					p.sure(inserter, a, del(fmt.Sprint("own", i)))
				}
				a.Coro().Sleep(10_000)
				_, err := inserter.MakeRoom(inserter.Thread().Plain())
				must(t, err)
				p.sure(inserter, a, put("k", "old"))
				q.sure(deleter, b, del("k"))
				b.Coro().Sleep(10_000)
				if n, err := deleter.MakeRoom(deleter.Thread().Plain()); n != 1 || err != nil {
					t.Fatalf("%s: %d blocks were freed: %v", what, n, err)
				}
				b.Coro().Sleep(10_000) // until its locks are released
				rep := q.recover(a.ID().Coordinator())
				if len(rep.Coordinators) != 1 {
					t.Fatalf("%s: recovered %v", what, rep.Coordinators)
				}
				for _, w := range all {
					se, tx := w.session()
					if got := w.values(se, tx, "k"); got[0] != "" {
						t.Errorf("%s: process %d reads %q, which is deleted", what, w.space.Process(), got[0])
					}
					must(t, se.Close())
				}
				whole(t, what, all)

				// The block of a large record is used again, since there are few, by a transaction
				// that stops at each of its verbs.
				for k := 0; ; k++ {
					victim, v := p.session()
					p.arm(k)
					told := p.do(v, put("k", large))
					hit := p.disarm()
					if !hit {
						must(t, told)
						must(t, victim.Close())
						break
					}
					q.recover(v.ID().Coordinator())
					must(t, p.space.Follow())
					verdict, _ := q.space.Verdict(v.ID().Coordinator())
					committed := told == nil || verdict.Of(v.ID().Seq()) == layout.OutcomeCommitted
					se, tx := q.session()
					got := q.values(se, tx, "k")[0]
					if want := map[bool]string{true: large}[committed]; got != want {
						t.Fatalf("%s: stopped after %d verbs (told %v): %.8q instead of %.8q, %v",
							what, k, told, got, want, verdict)
					}
					if got != "" {
						q.sure(se, tx, del("k"))
						tx.Coro().Sleep(10_000)
						_, err := se.MakeRoom(se.Thread().Plain())
						must(t, err)
						tx.Coro().Sleep(10_000)
					}
					must(t, se.Close())
					whole(t, fmt.Sprintf("%s: stopped after %d verbs", what, k), all)
				}
			}
		})
	}
}

// TestProcessesAtRandom: sessions of three processes change the same records, in turn. Some of them
// stop at a verb, and another process recovers them.
func TestProcessesAtRandom(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			for seed := range uint64(byRun(6, 60, 2)) {
				r := rand.New(rand.NewPCG(seed, 11))
				all := processes(t, s, occ.Options{ReclaimAfter: 1 + r.IntN(4)}, 3, 24<<20, seed%2 > 0)
				clients := make([]client, len(all))
				for i, w := range all {
					clients[i].s, clients[i].tx = w.session()
				}
				model := map[string]string{}
				keys := make([]string, 12)
				for i := range keys {
					keys[i] = fmt.Sprint("k", i)
				}
				for step := range 120 {
					i := r.IntN(len(all))
					w, x := all[i], &clients[i]
					var ops []op
					changes := map[string]string{}
					for range 1 + r.IntN(3) {
						k := keys[r.IntN(len(keys))]
						if _, twice := changes[k]; twice {
							continue
						}
						v := ""
						if r.IntN(3) > 0 {
							v = strings.Repeat(fmt.Sprint(step, "."), 1+r.IntN(40))
						} else if model[k] == "" {
							continue
						}
						changes[k] = v
						ops = append(ops, op{key: k, value: v})
					}
					if r.IntN(8) == 0 && len(ops) > 0 {
						w.arm(r.IntN(40))
						told := w.do(x.tx, ops...)
						if hit := w.disarm(); hit {
							y := all[(i+1+r.IntN(len(all)-1))%len(all)]
							id := x.tx.ID()
							y.recover(id.Coordinator())
							verdict, _ := y.space.Verdict(id.Coordinator())
							if told == nil || verdict.Of(id.Seq()) == layout.OutcomeCommitted {
								for k, v := range changes {
									model[k] = v
								}
							}
							must(t, w.space.Follow())
							x.s, x.tx = w.session()
						} else if told == nil {
							for k, v := range changes {
								model[k] = v
							}
						} else if !errors.Is(told, occ.ErrConflict) {
							x.s.Break(told)
							must(t, x.s.Rejoin(x.s.Thread().Plain()))
						}
					} else if len(ops) > 0 {
						w.sure(x.s, x.tx, ops...)
						for k, v := range changes {
							model[k] = v
						}
					}
					if r.IntN(4) == 0 {
						x.tx.Coro().Sleep(10_000)
						if _, err := x.s.MakeRoom(x.s.Thread().Plain()); err != nil && x.s.Broken() == nil {
							t.Fatal(err)
						}
						must(t, x.s.Maintain(x.tx.Coro()))
					}
					j := r.IntN(len(all))
					got := all[j].values(clients[j].s, clients[j].tx, keys...)
					for n, k := range keys {
						if got[n] != model[k] {
							t.Fatalf("seed %d, step %d: process %d reads %.20q of %s, and not %.20q",
								seed, step, all[j].space.Process(), got[n], k, model[k])
						}
					}
				}
				for i := range clients {
					all[i].try(clients[i].s, clients[i].tx, func() error { return clients[i].s.Close() })
				}
				whole(t, fmt.Sprintf("seed %d", seed), all)
			}
		})
	}
}

// TestLocksBetweenProcesses: what a process makes of a lock that it meets on a block of another
// process's segment.
func TestLocksBetweenProcesses(t *testing.T) {
	s := setting{occ.PolicyDefault, 1, strong}
	all := processes(t, s, occ.Options{ReclaimAfter: 1}, 2, 6<<20, false)
	p, q := all[0], all[1]
	owner, tx := p.session()
	p.sure(owner, tx, put("k", "old"))
	at := p.copiesOf("k")
	var a layout.Addr
	p.blocks(p.ctl.Plain(), func(x layout.Addr, _ record.Image) { a = x })
	p.sure(owner, tx, del("k"))
	tx.Coro().Sleep(10_000)
	if n, err := owner.MakeRoom(owner.Thread().Plain()); n != 1 || err != nil {
		t.Fatalf("%d blocks were freed: %v", n, err)
	}
	must(t, q.space.Follow())
	_, gone := q.session()
	dead := gone.ID().Coordinator()
	q.recover(dead)
	must(t, p.space.Follow())
	line := func(k int) record.Image { return w64(p, at[k].Blade, at[k].Off) }
	class := line(0).Meta().Class()
	unlock := func(w *world, want recovery.Unlocked, what string) {
		t.Helper()
		if got, err := recovery.Unlock(w.ctl.Plain(), w.eng.Recovery(), a); got != want || err != nil {
			t.Errorf("process %d: %s: %v, %v", w.space.Process(), what, got, err)
		}
	}

	// The dead one had it locked when it was free, by an address from before. A session of the
	// owner writes a placeholder there, whose guard has not arrived.
	lock := record.HeldBy(record.MakeTxID(dead, 5))
	img := make(record.Image, record.LineSize)
	img.Put(a, tx.ID()+1<<1, record.Absent, p.table.ID, class, 0, []byte("k"), nil)
	img.SetGuard(lock)
	free := append(record.Image(nil), line(0)...)
	copy(line(0), img)
	unlock(q, recovery.UnlockedNot, "a placeholder that is being written")
	if line(0).Guard() != lock {
		t.Errorf("the guard is %v", line(0).Guard())
	}
	copy(line(0), free)

	// A process was giving it another number, and is registered still.
	name := record.HeldBy(record.MakeTxID(p.space.Process(), record.MaxSequence))
	line(0).SetGuard(name)
	unlock(q, recovery.UnlockedNot, "another process has it")
	// It has come to a half of the backup's line, under the name of a coordinator that is gone.
	line(0).SetGuard(record.HeldBy(record.MakeTxID(dead, record.MaxSequence)))
	line(1)[record.KeyOff]++
	unlock(p, recovery.UnlockedNow, "a number that was being changed")
	for k := range at {
		if _, damage := line(k).Check(a); damage != nil || !line(k).Stable() || line(k).Meta().State() != record.Free {
			t.Errorf("copy %d: state %v, guard %v, %v", k, line(k).Meta().State(), line(k).Guard(), damage)
		}
	}
	if got := p.eng.Recovery().By; got != p.space.Process() {
		t.Errorf("process %d recovers others in the name of %d", p.space.Process(), got)
	}
}

// w64 is a line of a blade.
func w64(w *world, b rdma.BladeID, off uint64) record.Image {
	return record.Image(w.f.Memory(b)[off : off+record.LineSize])
}

// TestSegmentOfAnotherProcess: a record in a segment that another process has just added is
// found, and no damage.
func TestSegmentOfAnotherProcess(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		all := processes(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{}, 2, 6<<20, ordered)
		p, q := all[0], all[1]
		ours, a := p.session()
		theirs, b := q.session()
		for i, size := range []int{10, 300, 3000, 30_000} { // of another class each time
			key, value := fmt.Sprint("k", i), strings.Repeat("v", size)
			p.sure(ours, a, put(key, value))
			must(t, b.Begin())
			n, err := b.Stage(q.table, []byte(key), false)
			must(t, err)
			if err := b.Execute(); err != nil {
				t.Fatalf("ordered %v, %d bytes: %v", ordered, size, err)
			}
			if v, ok := b.Read(n); !ok || string(v) != value {
				t.Errorf("ordered %v, %d bytes: %.8q, %v", ordered, size, v, ok)
			}
			must(t, b.Commit())
		}
		must(t, theirs.Close())
	}
}

// TestProcessesLoseABlade: a blade is lost while a session of one process is in the middle of a
// transaction. A session of another process declares it dead, and may stop in the middle of that,
// and then a third process goes on. All go on afterwards.
func TestProcessesLoseABlade(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			for seed := range uint64(byRun(12, 120, 4)) {
				r := rand.New(rand.NewPCG(seed, 5))
				all := processes(t, s, occ.Options{ReclaimAfter: 1 + r.IntN(3)}, 3, 24<<20, seed%2 > 0)
				r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				victim, decides, third := all[0], all[1], all[2]
				what := fmt.Sprintf("seed %d", seed)
				keys := []string{"a", "b", "c", "d", "e", "f"}
				model := map[string]string{}
				clients := map[*world]*client{}
				for _, w := range all {
					se, tx := w.session()
					clients[w] = &client{se, tx}
				}
				change := func(w *world, n int) (ops []op, changes map[string]string) {
					changes = map[string]string{}
					for range n {
						k := keys[r.IntN(len(keys))]
						if _, twice := changes[k]; twice || r.IntN(3) == 0 && model[k] == "" {
							continue
						}
						if changes[k] = ""; r.IntN(4) > 0 || model[k] == "" {
							changes[k] = strings.Repeat(fmt.Sprint(w.space.Process(), "."), 1+r.IntN(60))
						}
						ops = append(ops, op{key: k, value: changes[k]})
					}
					return ops, changes
				}
				sure := func(w *world) {
					if ops, changes := change(w, 1+r.IntN(3)); len(ops) > 0 {
						w.sure(clients[w].s, clients[w].tx, ops...)
						for k, v := range changes {
							model[k] = v
						}
					}
				}
				for range 15 {
					sure(all[r.IntN(len(all))])
				}
				x := clients[victim]
				ops, changes := change(victim, 3)
				victim.arm(r.IntN(50))
				told := victim.do(x.tx, ops...)
				hit := victim.disarm()
				id := x.tx.ID()

				b := rdma.BladeID(r.IntN(3))
				must(t, victim.f.StopBlade(b))
				o := decides.eng.Recovery()
				o.Steal, o.Term = true, 1_000_000
				stop := -1
				if r.IntN(2) == 0 {
					stop = r.IntN(60)
				}
				decides.arm(stop)
				_, err := recovery.FailOver(decides.newThread().Plain(), o, decides.space.DeclareDead(b))
				if stopped := decides.disarm(); stopped || stop < 0 && err != nil {
					must(t, third.space.Follow())
					if third.space.View().Up(b) { // it has not come to that
						_, err = recovery.FailOver(third.newThread().Plain(), third.eng.Recovery(),
							third.space.DeclareDead(b))
					} else {
						o := third.eng.Recovery()
						o.Steal = true // but for the claim of a process that may live
						standing := third.space.FailoverPending()
						if _, err := recovery.FailOver(third.newThread().Plain(), o, nil); standing &&
							!errors.Is(err, memory.ErrClaimed) {
							t.Fatalf("%s: what process %d decides was taken over: %v",
								what, decides.space.Process(), err)
						}
						third.ctl.Plain().Sleep(2_000_000)
						_, err = recovery.FailOver(third.newThread().Plain(), o, nil)
					}
				}
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				for _, w := range all {
					must(t, w.space.Follow())
					must(t, recovery.Reconnect(w.ctl.Plain(), w.space))
				}
				verdict, known := third.space.Verdict(id.Coordinator())
				if told == nil || hit && known && verdict.Of(id.Seq()) == layout.OutcomeCommitted {
					for k, v := range changes {
						model[k] = v
					}
				}
				for range 20 {
					w := all[r.IntN(len(all))]
					got := w.values(clients[w].s, clients[w].tx, keys...)
					for n, k := range keys {
						if got[n] != model[k] {
							t.Fatalf("%s: blade %d is lost, the victim is told %v, verdict %v: process %d reads "+
								"%.20q of %s, and not %.20q", what, b, told, verdict, w.space.Process(),
								got[n], k, model[k])
						}
					}
					sure(w)
				}
				for _, w := range all {
					w.try(clients[w].s, clients[w].tx, func() error { return clients[w].s.Close() })
				}
				whole(t, what, all)
			}
		})
	}
}

// client is a session with a transaction.
type client struct {
	s  *occ.Session
	tx *occ.Tx
}

// TestHalfFreedByAnotherProcess: a process has freed a block of another one's segment, but for a
// backup, and its lock was lost with a blade. A sweep of the owner frees it there, too.
func TestHalfFreedByAnotherProcess(t *testing.T) {
	all := processes(t, setting{occ.PolicyDefault, 2, strong}, occ.Options{ReclaimAfter: 1}, 2, 6<<20, false)
	p, q := all[0], all[1]
	owner, tx := p.session()
	p.sure(owner, tx, put("k", "old"))
	tx.Coro().Sleep(10_000)
	at := p.copiesOf("k")
	backup := w64(p, at[len(at)-1].Blade, at[len(at)-1].Off)
	must(t, q.space.Follow())
	deleter, b := q.session()
	q.sure(deleter, b, del("k"))
	b.Coro().Sleep(10_000)
	tombstone := append(record.Image(nil), backup...)
	if n, err := deleter.MakeRoom(deleter.Thread().Plain()); n != 1 || err != nil {
		t.Fatalf("%d blocks were freed: %v", n, err)
	}
	b.Coro().Sleep(10_000)
	copy(backup, tombstone)
	p.recover(b.ID().Coordinator())
	whole(t, "afterwards", all)
	if backup.Meta().State() != record.Free {
		t.Errorf("the backup is %v", backup.Meta().State())
	}
}
