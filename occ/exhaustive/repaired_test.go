package exhaustive

import (
	"errors"
	"testing"

	"txnode/memory/layout"
	"txnode/rdma/steptest"
	"txnode/verify"
)

// TestMoveIsResynced: when the transactions of the dead are decided, the slot of a record
// that has moved is the same on all copies, before anybody sweeps.
func TestMoveIsResynced(t *testing.T) {
	each(t, those(configs(), config.promised), func(t *testing.T, c config) {
		w := newWorld(t, c, loadStops)
		torn := ""
		w.pardon = func(f verify.Finding) bool {
			if f.Kind == verify.KindReplica && w.space.Layout().Segments[f.Addr.Segment()].Kind == layout.KindIndex {
				torn = f.String()
			}
			return true
		}
		w.restart()
		s := &stops{world: w, keys: stopKeys, ops: []op{put("a", big("m", 100))}, grain: steptest.Verbs}
		before := 0
		s.try(t, func() error {
			return s.cuts(s.begin, func(schedule) error {
				s.counts.stops++
				s.victim.run.Stop()
				torn = ""
				if w.walk(); torn != "" {
					before++
				}
				if err := s.recorder.recovers(s.victim); err != nil {
					return err
				}
				torn = ""
				if w.walk(); torn != "" {
					return errors.New(torn)
				}
				return nil
			})
		})
		if before == 0 {
			t.Error("in no state is a slot torn: this shows nothing")
		}
		t.Logf("a slot was torn in %d of %d states", before, s.counts.stops)
	})
}
