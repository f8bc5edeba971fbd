package memory

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"txnode/memory/layout"
)

// Some changes have an effect only when all processes know them: a table is dropped, or
// gets another index. For others it is enough that everything has ended which had begun
// before: a damaged word is replaced. No process has to be alone for them, and no epoch
// begins. They go in steps:
//
//	the catalog says what is coming      ChangeTables, of a table that is there, or Ask
//	a process takes over the change      OnTables is told, so that nothing which begins from then
//	                                     on is without it
//	what had begun before ends           RestDue: sessions end their transactions, or are given up
//	                                     and recovered
//	the process says so                  Rested: with its signs of life, Beat.Rested
//	it happens                           when Unrested lists nothing any more
//
// A process that is silent is waited for until its registration is ended, by the rules of leases,
// and what it has left is recovered. One that has registered since knows the change. The process
// that waits may die, or give up: the catalog says what is coming, and another call, or another
// process, waits again.

// Notice is a change that all must know, or several.
type Notice struct {
	rev   layout.Revision // by which this process knew it
	below uint32          // processes and coordinators from this number on were registered by a layout that has it
}

// unsure is membership.noticed of a change of which it is not known yet at which
// revision it was made.
const unsure = layout.Revision(math.MaxUint64)

// OnTables has fn be told of each table that changes in a way that all must know, by any process,
// as soon as this one knows; and of all tables when this process, which others have taken for dead,
// registers anew. fn must neither call the Space nor change what it gets.
func (s *membership) OnTables(fn func(t layout.Table)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onTables = fn
}

// WithTable calls fn with what this process knows of a table, in order with what OnTables is told.
// fn must not call the Space.
func (s *membership) WithTable(id uint16, fn func(t layout.Table)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id > 0 && int(id) <= len(s.layout.Tables) {
		fn(s.layout.Tables[id-1])
	}
}

// notice notes changes that all must know which the layout has since an earlier one. The
// caller holds the lock.
func (s *membership) notice(old *layout.Layout) {
	changed := s.layout.Renewed(old)
	if len(changed) > 0 || s.layout.Asked(old) || s.noticed == unsure {
		s.noticed = s.rev
	}
	s.tellTables(changed)
}

// noteOwn notes changes that all must know, of this process, which were made at a revision. The
// caller holds the lock.
func (s *membership) noteOwn(rev layout.Revision, changed []layout.Table) {
	if s.noticed = s.rev; s.rev == rev { // the catalog did not say so at once, and others have changed it since
		s.noticed = unsure
	}
	s.tellTables(changed)
}

func (s *membership) tellTables(changed []layout.Table) {
	if s.onTables == nil {
		return
	}
	for _, t := range changed {
		s.onTables(t)
	}
}

// restedBehind is Beat.Rested of this process. The caller holds the lock.
func (s *membership) restedBehind() layout.Revision {
	if s.noticed <= s.rested {
		return s.rev // nothing that all must know has changed since
	}
	return s.rested
}

// Notice is the last change that all must know, of any process, made before the call.
func (s *membership) Notice() (n Notice, err error) {
	if !s.opts.Shared {
		return n, nil
	}
	if err := s.Follow(); err != nil {
		return n, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Notice{s.noticed, s.layout.NextCoordinator}, nil
}

// Ask is a change that all must know and that says nothing: when nothing is unrested by it,
// everything has ended, in all processes, that had begun before the call. In a database that is not
// shared it does nothing.
func (s *allocation) Ask() (n Notice, err error) {
	if !s.opts.Shared {
		return n, nil
	}
	err = s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.enroll(); err != nil {
			return err
		}
		s.asks++
		known, next := s.rev, *s.layout.Process(s.process)
		next.Asks = s.asks
		if err := s.commit(layout.EntryOfProcess(next)); err != nil {
			return err
		}
		*s.layout.Process(s.process) = next
		s.noteOwn(known, nil)
		n = Notice{s.noticed, s.layout.NextCoordinator}
		return nil
	})
	return n, err
}

// RestDue reports whether this process knows a change that all must know, and has not said yet that
// all has ended which it had begun before: the transactions of its coordinators with numbers below
// the one that is returned, and what it does without a session. When these have ended, or are
// recovered, the caller says so by Rested. A database that is not shared has nothing to say.
func (s *membership) RestDue() (rev layout.Revision, below uint32, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due = s.opts.Shared && s.closed == nil && s.noticed > s.rested && s.noticed != unsure
	return s.noticed, s.layout.NextCoordinator, due
}

// Rested notes what RestDue asks for, and tells the other processes at once. An error is of that:
// the next sign of life tells them.
func (s *membership) Rested(rev layout.Revision) error {
	s.mu.Lock()
	s.rested = max(s.rested, rev)
	s.mu.Unlock()
	return s.hear()
}

// Ending reports whether a table is being dropped, so that processes are waited for to rest.
func (s *store) Ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.layout.Tables, func(t layout.Table) bool { return t.State == layout.TableDropping })
}

// Restless is what a change waits for that all must know: in order, processes that have not said
// that what they had begun before has ended, this one too, and coordinators of processes that are
// gone, which are not recovered yet.
type Restless struct {
	Processes    []uint32
	Coordinators []uint32
}

// None reports whether nothing is waited for.
func (r Restless) None() bool { return len(r.Processes)+len(r.Coordinators) == 0 }

// String names what is waited for.
func (r Restless) String() string {
	var parts []string
	add := func(what string, ids []uint32) {
		if len(ids) > 0 {
			parts = append(parts, what+" "+strings.Trim(fmt.Sprint(ids), "[]"))
		}
	}
	add("process", r.Processes)
	add("the recovery of coordinator", r.Coordinators)
	return strings.Join(parts, ", and ")
}

// Unrested asks the catalog what a change waits for. ErrAway: there is no answer, and nothing is
// known.
func (s *membership) Unrested(n Notice) (r Restless, err error) {
	if !s.opts.Shared {
		return r, nil
	}
	if err := s.Listen(); err != nil {
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rev := n.rev
	if rev == unsure {
		rev = s.noticed
	}
	for _, p := range s.layout.Processes {
		rested := s.beats[p.ID].Rested
		if p.ID == s.process {
			rested = s.restedBehind()
		}
		if p.ID < n.below && !p.Resigned() && rested < rev {
			r.Processes = append(r.Processes, p.ID)
		}
	}
	for _, c := range s.layout.Coordinators {
		if c.ID >= n.below {
			continue
		}
		if p := s.layout.Process(c.Process); p == nil || p.Resigned() || c.Recovering {
			r.Coordinators = append(r.Coordinators, c.ID)
		}
	}
	return r, nil
}
