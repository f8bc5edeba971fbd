package recovery_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// TestNewestLogRecordStays kills a session in the middle of writing the log record of a
// transaction, on whichever of its blades is left: half of it is there. What the session
// has acknowledged before that must not be called aborted. Small records follow each other
// on the same lines; of large ones two do not fit into a log area, and a mark goes between.
func TestNewestLogRecordStays(t *testing.T) {
	for _, s := range settings(t) {
		if !s.caps.Placed { // nothing is in memory yet that could be torn
			continue
		}
		for _, large := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v large=%v", s, large), func(t *testing.T) {
				torn := 0
				for k := 0; ; k++ {
					w := newWorldOf(t, s, occ.Options{}, layout.MinLogArea)
					old, fresh := "old", "new"
					if large {
						old, fresh = strings.Repeat(old, 900), strings.Repeat(fresh, 900)
					}
					_, victim := w.session()
					must(t, w.do(victim, put("k", fresh))) // from here on it has blocks
					must(t, w.do(victim, put("k", old)))
					acknowledged := victim.ID()
					was := w.memories()
					w.arm(k)
					told := w.do(victim, put("k", fresh))
					if !w.disarm() {
						break
					}
					if !w.tearLogs(was, victim) {
						continue
					}
					torn++
					w.recover(victim.ID().Coordinator())
					what := fmt.Sprintf("killed after %d verbs (told %v)", k, told)
					w.check(what)
					v, _ := w.space.Verdict(victim.ID().Coordinator())
					if got := v.Of(acknowledged.Seq()); got == layout.OutcomeAborted {
						t.Errorf("%s: an acknowledged transaction: %v", what, got)
					}
					if got := v.Of(victim.ID().Seq()); got != layout.OutcomeAborted {
						t.Errorf("%s: the one that was not logged: %v", what, got)
					}
					ours, own := w.session()
					if got := w.values(ours, own, "k"); got[0] != old {
						t.Errorf("%s: %.9q instead of %.9q", what, got, old)
					}
				}
				if torn == 0 {
					t.Error("no log record was torn")
				}
			})
		}
	}
}

// memories is what is on each blade, as far as that is in use.
func (w *world) memories() (all [][]byte) {
	l, v, end := w.space.Layout(), w.space.View(), uint64(0)
	for i := range l.Segments {
		for k := range v.Copies(layout.MakeAddr(layout.SegmentID(i), 0)) {
			end = max(end, v.At(layout.MakeAddr(layout.SegmentID(i), 0), k).Off+uint64(l.SegmentSize))
		}
	}
	for b := range 3 {
		all = append(all, slices.Clone(w.f.Memory(rdma.BladeID(b))[:end]))
	}
	return all
}

// tearLogs undoes what the log record of a transaction has behind its header, on all blades, if
// nothing but logs and locks has changed: as if nobody had been told yet. Else it returns
// false.
func (w *world) tearLogs(was [][]byte, tx *occ.Tx) (torn bool) {
	l, v := w.space.Layout(), w.space.View()
	logs := map[rdma.BladeID][]uint64{}
	for i := range l.Segments {
		if l.Segments[i].Kind == layout.KindLog {
			at := v.At(layout.MakeAddr(layout.SegmentID(i), 0), 0)
			logs[at.Blade] = append(logs[at.Blade], at.Off)
		}
	}
	line := func(p []byte, off uint64) []byte { return p[off:][:record.GuardOff] }
	for b, old := range was {
		now := w.f.Memory(rdma.BladeID(b))
		for off := uint64(0); off < uint64(len(old)); off += record.LineSize {
			isLog := slices.ContainsFunc(logs[rdma.BladeID(b)], func(at uint64) bool {
				return off-at < uint64(l.SegmentSize)
			})
			if !isLog && !slices.Equal(line(now, off), line(old, off)) {
				return false
			}
		}
	}
	for b, areas := range logs {
		for _, at := range areas {
			now, old := w.f.Memory(b)[at:][:l.SegmentSize], was[b][at:][:l.SegmentSize]
			for off := 0; off < len(now); off += record.LineSize {
				if r, err := log.Decode(now[off:]); err == nil && r.Tx == tx.ID() {
					copy(now[off+log.HeaderSize:off+r.Length], old[off+log.HeaderSize:])
					torn = true
				}
			}
		}
	}
	return torn
}
