package memory

import (
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma"
)

// See notes in the catalog what this process has found when it asked blades that are up, by a
// thread that reaches what it can: members.Answer. again: another round of questions begins
// about a blade that was heard in the last one. In a database of one process it does nothing. A
// process that is not registered any more says nothing. Errors are those of the catalog. Safe
// for concurrent use.
func (s *membership) See(found map[rdma.BladeID]layout.Says, again bool) error {
	if !s.opts.Shared || len(found) == 0 {
		return nil
	}
	return s.update(func() error {
		l := s.layout
		if s.process == 0 || l.Process(s.process) == nil {
			return nil
		}
		n := &layout.Layout{Blades: l.Blades, Processes: l.Processes, Sights: l.Sights, Witnessed: l.Witnessed}
		for b := range l.Blades {
			says, ok := found[rdma.BladeID(b)]
			if !ok || l.Blades[b].State != layout.BladeUp {
				continue
			}
			if x, noted := members.Answer(n, s.process, rdma.BladeID(b), says, again, s.gone()); noted {
				n.See(x)
			}
		}
		changes := layout.Difference(l.SightEntries(), n.SightEntries())
		if len(changes) == 0 {
			return nil
		}
		n.HeedSights()
		if err := s.commit(layout.Difference(l.SightEntries(), n.SightEntries())...); err != nil {
			return err
		}
		l.Sights = n.Sights
		return nil
	})
}

// gone reports which registrations have ended by now.
func (s *membership) gone() func(process uint32) bool {
	r, now := s.regs.Load(), s.fabric.Now()
	return func(process uint32) bool { return process != s.process && r.ended(process, now) }
}

// Judge says how things stand with a blade, by what members say of it in the catalog as far as this
// process has followed it. Safe for concurrent use.
func (s *membership) Judge(b rdma.BladeID) members.Judgement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return members.Judge(s.layout, b, s.gone())
}

// Condemned returns the condition under which a blade of which nothing is heard is declared dead:
// the members say still that it is gone, in the layout that is changed. It is for the function of a
// change of an epoch.
func (s *membership) Condemned(b rdma.BladeID) func(*layout.Layout) error {
	return func(l *layout.Layout) error {
		if j := members.Judge(l, b, s.gone()); s.opts.Shared && j.State != members.Gone {
			return fmt.Errorf("memory: blade %d is %v by now: %w", b, j.State, layout.ErrLayout)
		}
		return nil
	}
}

// Said reports whether the catalog has something that this process has said of blades. Safe
// for concurrent use.
func (s *membership) Said() bool {
	if !s.opts.Shared {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process != 0 && len(s.layout.SightsOf(s.process)) > 0
}

// Questions lists the blades that are up and of which another member has asked, and this process
// has not answered. Safe for concurrent use.
func (s *membership) Questions() (asked []rdma.BladeID) {
	if !s.opts.Shared {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.layout.Blades {
		if s.layout.Blades[b].State != layout.BladeUp {
			continue
		}
		if j := members.Judge(s.layout, rdma.BladeID(b), s.gone()); s.process != 0 && j.Waits(s.process) {
			asked = append(asked, rdma.BladeID(b))
		}
	}
	return asked
}
