package recovery_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestTornFirstImage: a process is killed in the middle of the WRITE of a new record's
// image to a backup, and the primary's blade is lost as well. What is left is half an
// image, with a guard that is still that of the free block, and a log record.
func TestTornFirstImage(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 || s.caps != strong {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			torn, before := 0, 0
			for k := 0; ; k++ {
				w := newWorld(t, s, occ.Options{})
				_, victim := w.session()
				must(t, w.do(victim, put("first", "x"))) // from here on it has blocks
				was := make([][]byte, 3)
				for b := range was {
					was[b] = append([]byte(nil), w.f.Memory(rdma.BladeID(b))...)
				}
				w.arm(k)
				told := w.do(victim, put("k", "new"))
				if !w.disarm() {
					break
				}
				images := w.images(victim.ID())
				if len(images) <= before { // another verb was the last
					continue
				}
				before = len(images)
				torn++
				last := images[len(images)-1]
				home := last.home
				copy(last.line[record.LineSize/2:], was[last.at.Blade][last.at.Off:][record.LineSize/2:record.LineSize])
				must(t, w.f.StopBlade(home))
				_, err := recovery.FailOver(w.ctl.Plain(), w.eng.Recovery(), w.space.DeclareDead(home))
				must(t, err)
				w.sweep()
				what := fmt.Sprintf("killed after %d verbs (told %v)", k, told)
				w.check(what)
				v, _ := w.space.Verdict(victim.ID().Coordinator())
				want := ""
				if told == nil || v.Of(victim.ID().Seq()) == layout.OutcomeCommitted {
					want = "new"
				}
				ours, own := w.session()
				if got := w.values(ours, own, "k"); got[0] != want {
					t.Errorf("%s: %v: %q instead of %q", what, v.Of(victim.ID().Seq()), got, want)
				}
				if t.Failed() {
					break
				}
			}
			if torn == 0 {
				t.Error("no image has come to a backup alone")
			}
		})
	}
}

// written is an image on a backup.
type written struct {
	home rdma.BladeID // of the primary
	at   rdma.RemoteAddr
	line []byte
}

// images are those that a transaction has written to backups, in the order of copies.
func (w *world) images(id record.TxID) (all []written) {
	l, v := w.space.Layout(), w.space.View()
	for k := 1; k <= w.space.Backups(); k++ {
		for seg := range l.Segments {
			g := &l.Segments[seg]
			if g.Kind != layout.KindBlocks {
				continue
			}
			for off := uint32(0); off < l.SegmentSize; off += g.Class.Size() {
				a := layout.MakeAddr(layout.SegmentID(seg), off)
				at := v.At(a, k)
				line := w.f.Memory(at.Blade)[at.Off:][:record.LineSize]
				if record.Image(line).Version() == id {
					all = append(all, written{v.At(a, 0).Blade, at, line})
				}
			}
		}
	}
	return all
}

// TestTornPlaceholder: of the placeholder of an insert the first words have arrived when
// its process was killed, or of the line that frees a deleted record. The block is free
// after a sweep by who is alone; a record whose version is damaged, which looks alike, is
// left to be found.
func TestTornPlaceholder(t *testing.T) {
	for _, s := range settings(t) {
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
			seg := slices.IndexFunc(l.Segments, func(g layout.Segment) bool { return g.Kind == layout.KindBlocks })
			class := l.Segments[seg].Class
			words := func(a layout.Addr, to ...uint64) (was []uint64) {
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
			last := layout.MakeAddr(layout.SegmentID(seg), l.SegmentSize-2*class.Size()) // never used
			words(last, uint64(record.MakeTxID(id, 7)))
			if s.backups > 0 { // without a copy nothing proves that it is no record
				meta := make([]byte, record.LineSize)
				record.Image(meta).Put(last, record.MakeTxID(id, 8), record.Absent, 1, class, 0, []byte("key"), nil)
				words(last+layout.Addr(class.Size()), uint64(record.MakeTxID(id, 8)),
					binary.LittleEndian.Uint64(meta[8:]))
			}
			half := make(record.Image, record.LineSize) // of the line that frees it, over a locked tombstone
			freeing := last - layout.Addr(class.Size())
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
			line := func(a layout.Addr) record.Image {
				buf, err := w.ctl.Alloc(record.LineSize)
				must(t, err)
				defer w.ctl.Free(buf, record.LineSize)
				v.Rekey(w.ctl)
				var b rdma.Batch
				b.Read(v.At(a, 0), buf, record.LineSize)
				must(t, w.ctl.Plain().Do(&b))
				return slices.Clone(w.ctl.Bytes(buf, record.LineSize))
			}
			record0 := layout.MakeAddr(layout.SegmentID(seg), 0)
			for line(record0).Meta().State() != record.Live { // the first record of the segment
				record0 += layout.Addr(class.Size())
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
