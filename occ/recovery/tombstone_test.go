package recovery_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestUnlinkedInVain: a sweep that reclaims the deleted record of a dead client fails, from any of its changes
// on, at all but those to the lock. Who knows the block from before does not write the key into it when no slot leads
// there any more: the insert is found by everybody.
func TestUnlinkedInVain(t *testing.T) {
	for _, s := range replicated() {
		for _, own := range []bool{false, true} { // the sweep is in a session's name
			for k, over := 0, false; !over; k++ {
				w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
				ours, tx := w.session()
				victim, its := w.session()
				w.sure(victim, its, put("a", "1"))
				w.values(ours, tx, "a")
				w.sure(victim, its, del("a"))
				its.Coro().Sleep(10_000)
				w.decideUntil(victim.Coordinator(), -1)
				o := w.eng.Recovery()
				other, _ := w.session()
				th := w.ctl
				if own {
					o, th = other.Recovery(), other.Thread()
				}
				primary, n := w.copiesOf("a")[0].Blade, 0
				w.stop = stop{pick: func(wr *rdma.WR) bool { // the lock can be given back
					if wr.Op != rdma.OpRead {
						n++
					}
					return n > k && (wr.Blade != primary || wr.Op == rdma.OpWrite)
				}}
				_, err := recovery.Sweep(th.Plain(), o)
				if over = !w.disarm(); over {
					must(t, err)
				}
				must(t, recovery.Reconnect(th.Plain(), w.space))
				if own && !over { // as a worker does
					other.Break(err)
					must(t, other.Rejoin(th.Plain()))
				}
				w.sure(ours, tx, put("a", "2"))
				tx.Coro().Sleep(10_000)
				fresh, another := w.session()
				if got := w.values(fresh, another, "a"); got[0] != "2" {
					t.Fatalf("%v, own %v, from verb %d on: the value is %q", s, own, k, got[0])
				}
				w.check(s.String())
			}
		}
	}
}

// TestUnlinkedWithoutLock: who reclaims a deleted record, a sweep that of a dead client or a session one of its own, is
// stopped, and the blade is lost on which he had the lock. Who knows the block from before does not write the
// key into it if no slot leads there any more: the insert is found by everybody.
func TestUnlinkedWithoutLock(t *testing.T) {
	for _, s := range replicated() {
		for _, own := range []bool{false, true} { // the session's own
			for k, over := 0, false; !over; k++ {
				w := newWorldOn(t, 4, s, occ.Options{ReclaimAfter: 100}, 64<<10)
				ours, tx := w.session()
				victim, its := w.session()
				w.sure(victim, its, put("a", "1"))
				w.values(ours, tx, "a")
				w.sure(victim, its, del("a"))
				its.Coro().Sleep(10_000)
				primary := w.copiesOf("a")[0].Blade
				if !own {
					w.decideUntil(victim.Coordinator(), -1)
				}
				w.armChanges(k)
				var err error
				if own {
					_, err = victim.MakeRoom(victim.Thread().Plain())
				} else {
					_, err = recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
				}
				if over = !w.disarm(); over {
					must(t, err)
				}
				w.loseBlade(primary)
				w.sure(ours, tx, put("a", "2"))
				tx.Coro().Sleep(10_000)
				w.copiesOf("a") // a slot leads there
				if got := w.values(ours, tx, "a"); got[0] != "2" {
					t.Errorf("%v, own %v, stopped at change %d: the value is %q", s, own, k, got[0])
				}
				w.sweep()
				w.check(fmt.Sprintf("%v, own %v, stopped at change %d", s, own, k))
			}
		}
	}
}

// TestUnlinkedRemembered: as TestUnlinkedWithoutLock, and an address cache has the block, whatever was done to make it
// forgotten: who has read it before says so afterwards. Nobody writes or reads that block when no slot leads there any more.
func TestUnlinkedRemembered(t *testing.T) {
	for _, s := range replicated() {
		for _, key := range []string{"a", "of eight"} {
			for k, over := 0, false; !over; k++ {
				for _, anew := range []bool{false, true} { // somebody has inserted the key again, in another block
					w := newWorldOn(t, 4, s, occ.Options{ReclaimAfter: 100}, 64<<10)
					victim, its := w.session()
					w.sure(victim, its, put(key, "1"))
					aside := w.eng
					w.eng = occ.NewEngine(w.space, occ.Options{ReclaimAfter: 100, Policy: s.policy, CacheBytes: 64 << 10, Damaged: w.damaged})
					ours, tx := w.session()
					w.values(ours, tx, key)
					w.sure(victim, its, del(key))
					its.Coro().Sleep(10_000)
					primary := w.copiesOf(key)[0].Blade
					w.armChanges(k)
					_, err := victim.MakeRoom(victim.Thread().Plain())
					if over = !w.disarm(); over {
						must(t, err)
					}
					w.loseBlade(primary)
					what := fmt.Sprintf("%v, key %q, stopped at change %d, inserted anew %v", s, key, k, anew)
					if anew {
						w.eng = aside
						w.sure(victim, its, put(key, "2"))
						its.Coro().Sleep(10_000)
					} else {
						w.sure(ours, tx, put(key, "2"))
						tx.Coro().Sleep(10_000)
					}
					w.copiesOf(key) // a slot leads there
					fresh, another := w.session()
					if got := w.values(fresh, another, key); got[0] != "2" {
						t.Errorf("%s: the value is %q", what, got[0])
					}
					if got := w.values(ours, tx, key); got[0] != "2" {
						t.Errorf("%s: who remembers the block reads %q", what, got[0])
					}
					w.sweep()
					w.check(what)
				}
			}
		}
	}
}

// TestMakeRoomOfDead: a session that is short of space, and does not know yet that it was
// declared dead, takes the deleted records of all others upon itself, of which some are in a
// segment that has come since. It reclaims them when it has rejoined.
func TestMakeRoomOfDead(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
			ours, own := w.session()
			late, tx := w.session()
			w.sure(ours, own, put("a", "1"))
			w.sure(late, tx, put("b", "1"))
			w.decideUntil(late.Coordinator(), -1)
			before := w.space.View().Segments()
			w.sure(ours, own, put("long", long))
			if w.space.View().Segments() == before {
				t.Fatal("there is no new segment")
			}
			w.sure(ours, own, del("long"))
			own.Coro().Sleep(10_000) // until its lock is released
			if n, err := late.MakeRoom(tx.Coro()); n != 0 || !errors.Is(err, occ.ErrBroken) {
				t.Errorf("a dead one has reclaimed %d blocks: %v", n, err)
			}
			w.sure(late, tx, put("b", "2")) // it rejoins
			w.sweep()                       // which leaves the deleted records of those who live to them
			_, err := late.MakeRoom(tx.Coro())
			must(t, err)
			w.blocks(w.ctl.Plain(), func(a memory.Addr, line record.Image) {
				if string(line.Key()) == "long" {
					t.Errorf("block %v is a deleted record still, and nobody has it on his list", a)
				}
			})
			w.check("reclaimed")
		})
	}
}

// TestTornTombstone: a session writes a placeholder to a free block, in the name of a dead one, and the words of its
// first line arrive in two parts; a sweep that reads it in between takes it for a deleted record of the dead one's. It
// leaves it alone.
func TestTornTombstone(t *testing.T) {
	guard, version := 1<<(record.GuardOff/8), 1<<(record.VersionOff/8)
	for _, s := range settings() {
		for _, first := range []int{^0, ^guard, ^version, ^(guard | version), guard, version} { // words
			for _, own := range []bool{false, true} { // the sweep is in a session's name
				for k, over := 0, false; !over; k++ {
					w := newWorldOn(t, 4, s, occ.Options{ReclaimAfter: 100}, 64<<10)
					ours, _ := w.session()
					victim, its := w.session()
					w.sure(victim, its, put("a", "1"))
					w.sure(victim, its, del("a"))
					its.Coro().Sleep(10_000)
					var at memory.Addr
					w.blocks(w.ctl.Plain(), func(a memory.Addr, _ record.Image) { at = a })
					w.decideUntil(victim.Coordinator(), -1)
					w.sweep() // it is free
					again, _ := w.loaded(put("b", "1"))
					w.decideUntil(again.Coordinator(), -1) // another sweep is due

					th := w.newThread()
					buf, err := th.Alloc(record.LineSize)
					must(t, err)
					img := record.Image(th.Bytes(buf, record.LineSize))
					img.Put(at, record.MakeTxID(ours.Coordinator(), 1000), record.Absent, w.table.ID, 0, record.MakeTxID(ours.Coordinator(), 1001), []byte("c"), nil)
					write := func(words int) {
						var b rdma.Batch
						for i := range record.LineSize / 8 {
							if words>>i&1 != 0 {
								to := w.space.View().At(at, 0)
								to.Off += uint64(8 * i)
								b.Write(to, buf+uint32(8*i), 8)
							}
						}
						must(t, th.Plain().Do(&b))
					}
					write(first)
					o, c := w.eng.Recovery(), w.ctl.Plain()
					if own {
						o, c = ours.Recovery(), ours.Thread().Plain()
					}
					n, line := 0, w.space.View().At(at, 0)
					w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool { // of the verbs that come to the line
						if wr.Blade != line.Blade || wr.Off >= line.Off+record.LineSize || wr.Off+uint64(wr.Len) <= line.Off {
							return false
						}
						if n++; n == k+1 {
							w.stop = stop{left: -1}
							write(^first)
						}
						return false
					}}
					_, err = recovery.Sweep(c, o)
					over = w.stop.pick != nil
					w.stop = stop{left: -1}
					must(t, err)
					if over {
						write(^first)
					}
					var b rdma.Batch
					got, err := th.Alloc(record.LineSize)
					must(t, err)
					b.Read(w.space.View().At(at, 0), got, record.LineSize)
					must(t, th.Plain().Do(&b))
					if line := th.Bytes(got, record.LineSize); !bytes.Equal(line, img) {
						t.Fatalf("%v, words %#x first, own %v, the others before verb %d to it: the placeholder is % x, and was % x", s, first&0xff, own, k, line, []byte(img))
					}
				}
			}
		}
	}
}

// TestTornOverLock: a session writes a placeholder to a block that is free, and that a dead one has locked when he met it; a
// sweep, or who meets the lock, reads the line when a part of it has arrived. He leaves it alone.
func TestTornOverLock(t *testing.T) {
	guard, meta := 1<<(record.GuardOff/8), 1<<(record.MetaOff/8)
	for _, s := range settings() {
		for _, first := range []int{^guard, meta, ^(guard | meta)} { // words
			for _, sweeps := range []bool{false, true} {
				for _, own := range []bool{false, true} { // in a session's name
					for k, over := 0, false; !over; k++ {
						w := newWorldOn(t, 4, s, occ.Options{ReclaimAfter: 100}, 64<<10)
						ours, _ := w.session()
						other, _ := w.session()
						victim, _ := w.session()
						class, _ := record.ClassFor(1, 1)
						alloc, err := w.space.NewAllocator(ours.Thread())
						must(t, err)
						alloc.Serve(ours.Coordinator())
						at, err := alloc.Alloc(ours.Thread().Plain(), class)
						must(t, err)

						th := w.newThread()
						buf, err := th.Alloc(record.LineSize)
						must(t, err)
						img := record.Image(th.Bytes(buf, record.LineSize))
						write := func(words int) {
							var b rdma.Batch
							for i := range record.LineSize / 8 {
								if words>>i&1 != 0 {
									to := w.space.View().At(at, 0)
									to.Off += uint64(8 * i)
									b.Write(to, buf+uint32(8*i), 8)
								}
							}
							must(t, th.Plain().Do(&b))
						}
						img.PutFree(at, record.MakeTxID(ours.Coordinator(), 7), w.table.ID, class, w.space.CountFree())
						img.SetGuard(record.HeldBy(record.MakeTxID(victim.Coordinator(), 1)))
						write(^0)
						w.decideUntil(victim.Coordinator(), -1)
						img.Put(at, record.MakeTxID(ours.Coordinator(), 1000), record.Absent, w.table.ID, class, record.MakeTxID(ours.Coordinator(), 1001), []byte("c"), nil)
						write(first)
						o, c := w.eng.Recovery(), w.ctl.Plain()
						if own {
							o, c = other.Recovery(), other.Thread().Plain()
						}
						n, line := 0, w.space.View().At(at, 0)
						w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool { // of the verbs that come to the line
							if wr.Blade != line.Blade || wr.Off >= line.Off+record.LineSize || wr.Off+uint64(wr.Len) <= line.Off {
								return false
							}
							if n++; n == k+1 {
								w.stop = stop{left: -1}
								write(^first)
								alloc.Used(at)
							}
							return false
						}}
						if sweeps {
							_, err = recovery.Sweep(c, o)
						} else {
							_, err = recovery.Unlock(c, o, at)
						}
						over = w.stop.pick != nil
						w.stop = stop{left: -1}
						must(t, err)
						if over {
							write(^first)
						}
						var b rdma.Batch
						got, err := th.Alloc(record.LineSize)
						must(t, err)
						b.Read(w.space.View().At(at, 0), got, record.LineSize)
						must(t, th.Plain().Do(&b))
						if line := th.Bytes(got, record.LineSize); !bytes.Equal(line, img) {
							t.Fatalf("%v, words %#x first, sweep %v, own %v, the others before verb %d to it: the placeholder is % x, and was % x", s, first&0xff, sweeps, own, k, line, []byte(img))
						}
					}
				}
			}
		}
	}
}
