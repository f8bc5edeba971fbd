package memory

import (
	"slices"

	"txnode/memory/layout"
)

// CompleteVerdict completes the verdict on a coordinator whose recoverer did not know of
// transactions whose clients were told that the outcome is unknown. If these had come to their
// logs, the verdict would list them: log space is not used again before a transaction has been
// acknowledged. So those that it does not list were aborted. A coordinator without a verdict is
// passed over.
func (s *store) CompleteVerdict(asked []uint64, coordinator uint32) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		i, ok := layout.FindVerdict(s.layout.Verdicts, coordinator)
		if _, err := s.findCoordinator(coordinator); !ok || err == nil {
			return nil
		}
		v := s.layout.Verdicts[i].Merge(layout.Verdict{Coordinator: coordinator, Aborted: asked})
		if len(v.Aborted) == len(s.layout.Verdicts[i].Aborted) {
			return nil
		}
		if err := s.commit(layout.EntryOfVerdict(&v)); err != nil {
			return err
		}
		all := slices.Clone(s.layout.Verdicts)
		all[i] = v
		s.layout.Verdicts = all
		return nil
	})
}

// Verdict returns the verdict on a coordinator that was recovered; ok is false for
// one that was not: it is open, was closed by itself, or never was.
func (s *store) Verdict(coordinator uint32) (v layout.Verdict, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := layout.FindVerdict(s.layout.Verdicts, coordinator)
	if !ok {
		return v, false
	}
	return s.layout.Verdicts[i], true
}
