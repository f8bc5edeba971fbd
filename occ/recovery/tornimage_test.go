package recovery_test

import (
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestTornFirstImage: a process is killed in the middle of the WRITE of a new record's
// image to a backup, and the primary's blade is lost as well. What is left is half an
// image, with a guard that is still that of the free block, and a log record.
func TestTornFirstImage(t *testing.T) {
	for _, s := range settings() {
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
				_, err := recovery.FailOver(w.ctl.Plain(), w.eng.Recovery(), w.space.Demise(home))
				must(t, err)
				_, err = recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
				must(t, err)
				what := fmt.Sprintf("killed after %d verbs (told %v)", k, told)
				w.check(what)
				v, _ := w.space.Verdict(victim.ID().Coordinator())
				want := ""
				if told == nil || v.Of(victim.ID().Seq()) == memory.OutcomeCommitted {
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
			if g.Kind != memory.KindBlocks {
				continue
			}
			for off := uint32(0); off < l.SegmentSize; off += g.Class.Size() {
				a := memory.MakeAddr(memory.SegmentID(seg), off)
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
