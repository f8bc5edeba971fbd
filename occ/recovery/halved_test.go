package recovery_test

import (
	"bytes"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// firstLine is the first line of a block on its primary, to which somebody writes whose words
// arrive in two parts.
type firstLine struct {
	w   *world
	th  *rdma.Thread
	a   layout.Addr
	buf uint32
	img record.Image // what is written
}

func (w *world) line(a layout.Addr) *firstLine {
	w.t.Helper()
	l := &firstLine{w: w, th: w.newThread(), a: a}
	var err error
	l.buf, err = l.th.Alloc(2 * record.LineSize)
	must(w.t, err)
	l.img = record.Image(l.th.Bytes(l.buf, record.LineSize))
	return l
}

// at is where it is; the key changes with the epoch.
func (l *firstLine) at() rdma.RemoteAddr { return l.w.space.View().At(l.a, 0) }

// write writes some of the words, by bits.
func (l *firstLine) write(words int) {
	l.w.t.Helper()
	var b rdma.Batch
	for i := range record.LineSize / 8 {
		if words>>i&1 != 0 {
			to := l.at()
			to.Off += uint64(8 * i)
			b.Write(to, l.buf+uint32(8*i), 8)
		}
	}
	must(l.w.t, l.th.Plain().Do(&b))
}

// now returns what there is.
func (l *firstLine) now() []byte {
	l.w.t.Helper()
	var b rdma.Batch
	b.Read(l.at(), l.buf+record.LineSize, record.LineSize)
	must(l.w.t, l.th.Plain().Do(&b))
	return l.th.Bytes(l.buf+record.LineSize, record.LineSize)
}

// halved runs fn when the first words have arrived. Before verb k of those that come to the line
// then, from 0 on, the others do, and then is called, if it is not nil; or at the end, if there are
// not so many: over.
func (l *firstLine) halved(first, k int, then func(), fn func() error) (over bool) {
	l.w.t.Helper()
	l.write(first)
	n, at := 0, l.at()
	l.w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
		if wr.Blade != at.Blade || wr.Off >= at.Off+record.LineSize || wr.Off+uint64(wr.Len) <= at.Off {
			return false
		}
		if n++; n == k+1 {
			l.w.stop = stop{left: -1}
			l.write(^first)
			if then != nil {
				then()
			}
		}
		return false
	}}
	err := fn()
	over = l.w.stop.pick != nil
	l.w.stop = stop{left: -1}
	must(l.w.t, err)
	if over {
		l.write(^first)
	}
	return over
}

// TestTornTombstone: a session writes a placeholder to a free block, in the name of a dead one, and
// the words of its first line arrive in two parts; a sweep that reads it in between takes it for a
// deleted record of the dead one's. It leaves it alone.
func TestTornTombstone(t *testing.T) {
	guard, version := 1<<(record.GuardOff/8), 1<<(record.VersionOff/8)
	for _, s := range settings(t) {
		for _, first := range []int{^0, ^guard, ^version, ^(guard | version), guard, version} { // words
			for _, own := range []bool{false, true} { // the sweep is in a session's name
				for k, over := 0, false; !over; k++ {
					w := newWorldOn(t, 4, s, occ.Options{ReclaimAfter: 100}, 64<<10)
					ours, _ := w.session()
					victim, its := w.session()
					w.sure(victim, its, put("a", "1"))
					w.sure(victim, its, del("a"))
					its.Coro().Sleep(10_000)
					var at layout.Addr
					w.blocks(w.ctl.Plain(), func(a layout.Addr, _ record.Image) { at = a })
					w.decideUntil(victim.Coordinator(), -1)
					w.sweep() // it is free
					again, _ := w.loaded(put("b", "1"))
					w.decideUntil(again.Coordinator(), -1) // another sweep is due

					line := w.line(at)
					img := line.img
					img.Put(at, record.MakeTxID(ours.Coordinator(), 1000), record.Absent, w.table.ID, 0,
						record.MakeTxID(ours.Coordinator(), 1001), []byte("c"), nil)
					o, c := w.eng.Recovery(), w.ctl.Plain()
					if own {
						o, c = ours.Recovery(), ours.Thread().Plain()
					}
					over = line.halved(first, k, nil, func() error {
						_, err := recovery.Sweep(c, o)
						return err
					})
					if got := line.now(); !bytes.Equal(got, img) {
						t.Fatalf("%v, words %#x first, own %v, the others before verb %d to it: the placeholder is % "+
							"x, and was % x", s, first&0xff, own, k, got, []byte(img))
					}
				}
			}
		}
	}
}

// TestTornOverLock: a session writes a placeholder to a block that is free, and that a dead one has
// locked when he met it; a sweep, or who meets the lock, reads the line when a part of it has
// arrived. He leaves it alone.
func TestTornOverLock(t *testing.T) {
	guard, meta := 1<<(record.GuardOff/8), 1<<(record.MetaOff/8)
	for _, s := range settings(t) {
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

						line := w.line(at)
						img := line.img
						img.PutFree(at, record.MakeTxID(ours.Coordinator(), 7), w.table.ID, class,
							w.space.CountFree(at))
						img.SetGuard(record.HeldBy(record.MakeTxID(victim.Coordinator(), 1)))
						line.write(^0)
						w.decideUntil(victim.Coordinator(), -1)
						img.Put(at, record.MakeTxID(ours.Coordinator(), 1000), record.Absent, w.table.ID, class,
							record.MakeTxID(ours.Coordinator(), 1001), []byte("c"), nil)
						o, c := w.eng.Recovery(), w.ctl.Plain()
						if own {
							o, c = other.Recovery(), other.Thread().Plain()
						}
						over = line.halved(first, k, func() { alloc.Used(at) }, func() (err error) {
							if sweeps {
								_, err = recovery.Sweep(c, o)
							} else {
								_, err = recovery.Unlock(c, o, at)
							}
							return err
						})
						if got := line.now(); !bytes.Equal(got, img) {
							t.Fatalf("%v, words %#x first, sweep %v, own %v, the others before verb %d to it: the "+
								"placeholder is % x, and was % x", s, first&0xff, sweeps, own, k, got, []byte(img))
						}
					}
				}
			}
		}
	}
}
