package supervisor

import (
	"slices"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// Outage is the story of a blade that was lost. Times are nanoseconds of the fabric's
// clock; 0: not yet.
type Outage struct {
	Blade    int
	Noticed  int64  // a verb had failed
	Promoted int64  // the blade was declared dead, and its backups are primaries
	Decided  int64  // all transactions are decided, and others can begin
	Back     int64  // the blade takes part again
	Whole    int64  // every segment has all of its copies again
	Primary  int    // segments whose primary it had
	Built    int    // segments of which copies were built since
	Copied   uint64 // bytes of blocks that were written for these
	Finished int    // transactions that were found committed and were completed
	Undone   int    // and that were taken back
	// Cause is what was heard last from the blade, or of it.
	Cause string

	before      memory.CopyProgress        // what was built and copied for others
	silent      bool                       // this process hears nothing of the blade, which may live
	says        layout.Says                // then: what it says of the blade
	restarted   bool                       // it answers, in another incarnation
	spare       bool                       // it is not declared dead if it has the last copy of a segment
	found       layout.Epoch               // it was asked whether it lives in this epoch, or a later one
	declareDead func(*layout.Layout) error // memory.Space.DeclareDead of before it was asked
}

// Redundancy is how well the data is copied just now.
type Redundancy struct {
	layout.Redundancy
	// How far the copies are that this process builds, as in CopyMetrics.
	BuildDone, BuildTotal, BuildRate uint64
	BuildLeft                        time.Duration
	// Failure is the last error of making copies, or nil if it goes on since. It is retried.
	// memory.ErrStuck: the copies of a segment wait for a block that stays locked; those of other
	// segments are made.
	Failure error
	// Suspects is the number of blocks that were copied although they look locked by no coordinator
	// that was or is. They may be damaged: close the database and run txnode check.
	Suspects int
	// Outages are the last blades that were lost, the oldest first.
	Outages []Outage
}

// maxOutages is how many outages are remembered.
const maxOutages = 64

// Redundancy tells how well the data is copied, which blades are missing, and how far
// their replacement is.
func (s *Supervisor) Redundancy() Redundancy {
	r := Redundancy{Redundancy: s.space.Redundancy()}
	m := s.CopyMetrics()
	r.BuildDone, r.BuildTotal, r.BuildRate, r.BuildLeft = m.Done, m.Total, m.Rate, m.Left
	if p := s.failure.Load(); p != nil {
		r.Failure = *p
	}
	r.Suspects = int(s.suspects.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Outages = slices.Clone(s.outages)
	return r
}

// Losses is how many outages there were.
func (s *Supervisor) Losses() uint64 { return s.losses.Load() }

// outagesOfOthers notes blades that this process finds declared dead: by another one, or by a
// change of the catalog of its own that it was told had failed.
func (s *Supervisor) outagesOfOthers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, now := s.space.View(), s.fabric.Now() // under the lock: a view of before Undrain would undo what that has noted
	for b := range v.Blades() {
		was, is := s.down[b], !v.Up(rdma.BladeID(b))
		if s.down[b] = is || was && s.expected > 0; is && !was && !v.Leaving(rdma.BladeID(b)) { // else it was drained
			s.noteOutage(Outage{
				Blade: b, Noticed: now, Promoted: now, Cause: "it was found declared dead in the catalog",
			})
		}
	}
}

// Expecting has a blade that is found down not noted as an outage until the function is called that
// it returns: the caller notes it, or it is none.
func (s *Supervisor) Expecting(b rdma.BladeID) (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[b] = true
	s.expected++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expected--
		v := s.space.View()
		s.down[b] = true
		for o := range s.down {
			if s.expected > 0 && o != int(b) {
				continue // the end of the other change looks at it
			}
			s.down[o] = s.down[o] && !v.Up(rdma.BladeID(o)) // there are MaxBlades
		}
	}
}

// noteOutage adds an outage; the caller holds mu.
func (s *Supervisor) noteOutage(x Outage) {
	s.losses.Add(1)
	x.declareDead = nil
	if s.outages = append(s.outages, x); len(s.outages) > maxOutages {
		s.outages = s.outages[1:]
	}
}

// decided notes that all transactions are decided: of the blades that were declared dead since they
// were last, the last one has the numbers.
func (s *Supervisor) decided(now int64, rep *recovery.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := -1
	for i := range s.outages {
		if s.outages[i].Decided == 0 {
			s.outages[i].Decided, last = now, i
		}
	}
	if last >= 0 {
		s.outages[last].Finished, s.outages[last].Undone = rep.Finished, len(rep.Aborted)
	}
}

// note changes what is known of the outages.
func (s *Supervisor) note(change func(x *Outage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.outages {
		change(&s.outages[i])
	}
}
