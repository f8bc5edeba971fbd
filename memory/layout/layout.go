package layout

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"txnode/rdma"
)

// MaxBlades is the largest number of blades of a database, whatever it runs on.
const MaxBlades = 64

// HeaderArea is the part of a blade's region that segments may not use, in
// bytes, at its start. The header is in it.
const HeaderArea = 64 << 10

// Layout is everything that the catalog remembers.
type Layout struct {
	Geometry
	// Formatted is false from the moment that the catalog exists until the
	// headers of all regions have been written.
	Formatted bool
	Epoch     Epoch
	// Opened is the epoch in which the database was opened for writing, and the headers of all
	// regions that were up have been written; 0: that is not noted. See Options.Openings.
	Opened Epoch
	// NextCoordinator is the number of the next coordinator.
	NextCoordinator uint32
	Checkpoint      uint32    // generation of the last checkpoint; 0: none is needed
	Blades          []Blade   // by id
	Segments        []Segment // by id; the first is unused
	Tables          []Table   // by id - 1
	Coordinators    []CoordinatorEntry
	Processes       []ProcessEntry // by number: those that have joined
	Rights          []Right        // by what they are of: which of the processes has the right
	Verdicts        []Verdict      // by coordinator: of those that were recovered
	Reserved        []Reservation  // by name
	Sights          []Sight        // by member and blade: what members say of blades
	// Witnessed: the server of the catalog asks blades, too, and answers as Witness.
	Witnessed bool
	// Unswept is true from the moment that a dead coordinator is forgotten until the
	// blades have been swept for what its log did not tell of.
	Unswept bool
	// Dangling, with Unswept: a blade was lost since, and slots may lead to blocks that are free.
	Dangling bool
	// OnlyDamage, with Unswept: a sweep has come to its end, but for what is damaged.
	OnlyDamage bool
	// Leaked is true from the same moment until a process that is alone with the database has freed
	// the extents that no index leads to.
	Leaked bool
}

// Geometry is what never changes.
type Geometry struct {
	UUID        UUID
	Backups     int
	SegmentSize uint32
	LogArea     uint32
	Shared      bool // several processes can have it open at once
}

// Limits of the geometry, in bytes.
const (
	MinSegmentSize = 256 << 10
	MinLogArea     = 4 << 10
)

// Validate lists every fault of a geometry at once.
func (g *Geometry) Validate() error {
	var errs []error
	if g.Backups < 0 || g.Backups >= MaxReplicas {
		errs = append(errs, fmt.Errorf("memory: Backups is %d: 0, 1 and 2 are possible", g.Backups))
	}
	if bits.OnesCount32(g.SegmentSize) != 1 || g.SegmentSize < MinSegmentSize || g.SegmentSize > MaxSegmentSize {
		errs = append(errs, fmt.Errorf("memory: SegmentSize is %d: a power of two from %d to %d is needed",
			g.SegmentSize, MinSegmentSize, MaxSegmentSize))
	}
	if bits.OnesCount32(g.LogArea) != 1 || g.LogArea < MinLogArea || g.LogArea > g.SegmentSize {
		errs = append(errs, fmt.Errorf("memory: LogArea is %d: a power of two from %d to SegmentSize (%d) is needed",
			g.LogArea, MinLogArea, g.SegmentSize))
	}
	return errors.Join(errs...)
}

// BladeState says whether a blade takes part.
type BladeState uint8

// States of a blade.
const (
	BladeUp   BladeState = iota
	BladeDown            // declared dead, or empty: nothing is placed on it, and its key is not maintained
	numBladeStates
)

// Blade is what the catalog knows of a blade.
type Blade struct {
	Size  uint64 // bytes of the region
	Used  uint32 // places ever taken, the first ones; those of copies that are gone are used again
	Clean Places // of those, the ones that have been cleared since a copy was there, and can be taken: see places.go
	State BladeState
	// Leaving: of a blade that is up, nothing more is placed on it, and what it has moves to
	// others; of one that is down, its place is vacant: it is not taken in again. See move.go.
	Leaving bool
	// Key is the access key of the epoch, which the blade has granted for it; 0: there is none,
	// since the blade is down, or did not answer when the epoch was changed.
	Key rdma.Key
	// Incarnation is that in which the blade has granted its last key, or was taken in again; 0:
	// it is not known. A blade that is up in another one has restarted.
	Incarnation uint64
	// Told is a revision of the catalog of which the blade was told before this entry had it: its
	// word (ToldOffset) has that one or a later one. A region that was told of an earlier one is an
	// old copy. 0: not known, the region is believed.
	Told Revision
	// Domain names what the blade shares with others that fail together with it, of at most
	// MaxDomain bytes; "": nothing. See domains.go.
	Domain string
}

// MaxDomain is the largest number of bytes of Blade.Domain.
const MaxDomain = 255

// SegmentKind is what a segment is for. It never changes.
type SegmentKind uint8

// Kinds of segments.
const (
	KindLog    SegmentKind = 1 + iota // log areas of coordinators; one copy
	KindIndex                         // extents of index structures
	KindBlocks                        // record blocks of one class
	numKinds
)

// String names the kind.
func (k SegmentKind) String() string {
	if k > 0 && k < numKinds {
		return [...]string{"", "log", "index", "blocks"}[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// Segment is what the catalog knows of a segment.
type Segment struct {
	Kind  SegmentKind
	Class Class // of KindBlocks
	// of KindLog: each row has one segment on every blade, but for blades whose disks were
	// full when it was made
	Row uint32
	// Backed is how many bytes from the start have memory behind them, a multiple of 64 KiB; 0:
	// all. See Layout.Backed; of KindLog, also CoordinatorEntry.LogUsed.
	Backed uint32
	// Owner is the process that hands out what is free in it: see ProcessEntry.
	Owner     uint32
	Placement Placement
	// Leaving: it is about to go back. It has its copies still, and nothing that begins from now on
	// uses them. No other copy is built.
	Leaving bool
	// Vacant: it has gone back. Its number is given to another segment of its purpose, with memory
	// for as many bytes as Backed says, at least: a stale address leads there. See
	// memory/giveback.go.
	Vacant bool
	// Freed, of a number that a segment had before which has gone back, is that of a freeing
	// (memory.Space.CountFree), larger than those that logs know of blocks of that segment. A block
	// counts as freed by it that was never used in another segment of the number.
	Freed uint64
}

// Gone reports whether nothing is in a segment of blocks any more that is in use, or will be: it is
// leaving, or vacant.
func (g *Segment) Gone() bool { return g.Leaving || g.Vacant }

// GiveBack makes a segment of blocks vacant that is leaving, and whose copies are clear. Their
// places can be taken.
func (l *Layout) GiveBack(id SegmentID, freed uint64) {
	g := &l.Segments[id]
	for _, r := range g.Placement.Replicas[:g.Placement.N] {
		x := &l.Blades[r.Blade]
		x.Clean = x.Clean.With(l.Place(r.Base))
	}
	*g = Segment{Kind: g.Kind, Class: g.Class, Backed: g.Backed, Vacant: true, Freed: freed}
}

// Rooted reports whether the root of an ordered table is in a segment, as far as the catalog says.
// It is so until the table is dropped for good, though the block is free before.
func (l *Layout) Rooted(id SegmentID) bool {
	return slices.ContainsFunc(l.Tables, func(t Table) bool { return t.Root != 0 && t.Root.Segment() == id })
}

// VacantSegment is a number that a segment of a purpose can have, the first one; 0: there is none.
func (l *Layout) VacantSegment(kind SegmentKind, class Class) SegmentID {
	i := slices.IndexFunc(l.Segments, func(g Segment) bool { return g.Vacant && g.Kind == kind && g.Class == class })
	return SegmentID(max(i, 0)) // of segments there are MaxSegments at most
}

// CoordinatorEntry is what the catalog knows of a coordinator that was not
// closed. Slot is its place in the log segments of every blade.
type CoordinatorEntry struct {
	ID   uint32
	Slot uint32
	// Until is when its lease ends, or, while it is being recovered, when the claim on it
	// ends: in nanoseconds of the fabric's clock, or of the clock of the process that wrote
	// it (Term); 0: never.
	Until int64
	// Term, of a process that has joined: the lease, or the claim, ends for another process
	// when Until has not changed for so many nanoseconds by its own clock. 0: all have the
	// clock that Until is of.
	Term int64
	// Process is the process that has registered it; 0: the database is not shared.
	Process uint32
	// Recovering: it was declared dead, and the coordinator By decides its transactions. By is 0 if
	// the claimant is no coordinator.
	Recovering bool
	By         uint32
	// Claim is the number of the last claim on it, of any process, from 1: a claim stands as long
	// as the number is its own. 0: there was none, or by an earlier program.
	Claim uint32
	// Promoted: it was declared dead together with a blade, with which locks and images may be
	// lost. Until all such coordinators are recovered no transaction may begin.
	Promoted bool
	// Closing: all of its transactions were answered, and its log areas are being
	// cleared, so that they say nothing any more.
	Closing bool
	// FewLogs: when it was registered fewer than f+1 blades were up, so that its log records may
	// be on fewer than f+1.
	FewLogs bool
	// LogUsed is how many bytes of each of its log areas, from the first on, it may have
	// written to: the rest is zero. It is a power of two of LogStep at least; 0: all.
	LogUsed uint32
}

// Slots is how many segments a region has room for.
func (l *Layout) Slots(b rdma.BladeID) uint32 {
	size := l.Blades[b].Size
	if size < HeaderArea {
		return 0
	}
	return uint32(min((size-HeaderArea)/uint64(l.SegmentSize), MaxSegments))
}

// Base is the offset in a region of the i-th place for a segment.
func (l *Layout) Base(i uint32) uint64 { return HeaderArea + uint64(i)*uint64(l.SegmentSize) }

// LogsPerSegment is how many log areas a segment is carved into.
func (l *Layout) LogsPerSegment() uint32 { return l.SegmentSize / l.LogArea }

// Clone is a deep copy.
func (l *Layout) Clone() *Layout {
	n := *l
	n.Blades = slices.Clone(l.Blades)
	n.Segments = slices.Clone(l.Segments)
	n.Tables = slices.Clone(l.Tables)
	for i := range n.Tables {
		n.Tables[i].Options = slices.Clone(n.Tables[i].Options)
	}
	n.Coordinators = slices.Clone(l.Coordinators)
	n.Processes = slices.Clone(l.Processes)
	n.Rights = slices.Clone(l.Rights)
	n.Verdicts = slices.Clone(l.Verdicts)
	n.Reserved = slices.Clone(l.Reserved)
	n.Sights = slices.Clone(l.Sights)
	return &n
}

// TakeDown declares a blade dead: it drops the blade's copies of all segments, so
// that the next full copy in order becomes the primary. It is a change for
// [Space.AdvanceEpoch]. Segments whose last copy was there are lost; those of
// coordinators' logs are among them.
func (l *Layout) TakeDown(b rdma.BladeID) {
	l.Blades[b].State = BladeDown
	l.forgetSights(b)
	l.Blades[b].Clean, l.Blades[b].Told = "", 0 // it may come back with anything there
	l.Vacate(b)
	for i := range l.Segments {
		p := &l.Segments[i].Placement
		for k := 0; k < p.Written(); k++ {
			if p.Replicas[k].Blade == b {
				p.dropped(k)
				k--
			}
		}
		for p.N == 0 && p.Building > 0 { // what it was built from is gone
			p.dropped(0)
		}
		if l.Segments[i].Kind == KindLog && p.N == 0 {
			*p = Placement{}
		}
	}
}

// Vacate forgets how large a blade was that is down and leaves: another one can come to its place.
func (l *Layout) Vacate(b rdma.BladeID) {
	if x := &l.Blades[b]; x.Leaving {
		*x = Blade{State: x.State, Leaving: true}
	}
}

// Without is the layout as if the blades had been declared dead. It is for tools that look at a
// database some of whose regions are missing.
func (l *Layout) Without(blades ...rdma.BladeID) *Layout {
	n := l.Clone()
	for _, b := range blades {
		n.TakeDown(b)
	}
	return n
}

// Irreplaceable reports whether a blade is up, and data would be lost if it were declared dead.
func (l *Layout) Irreplaceable(b rdma.BladeID) bool {
	return int(b) < len(l.Blades) && l.Blades[b].State == BladeUp && (l.UpBlades() == 1 || l.Last(b) > 0)
}

// Finish makes the copies of a segment that are being built full ones. It is a
// change for [Space.AdvanceEpoch].
func (l *Layout) Finish(id SegmentID) {
	p := &l.Segments[id].Placement
	p.N, p.Building = p.N+p.Building, 0
}

// Missing is how many copies of a segment there are too few on blades that stay, those being built
// included; 1 if there are enough, and one has to move to a domain of its own.
func (l *Layout) Missing(id SegmentID) int {
	s := &l.Segments[id]
	if s.Kind == 0 || s.Kind == KindLog || s.Placement.N == 0 || s.Leaving {
		return 0
	}
	n := l.Backups + 1
	copies, _ := l.apart(&s.Placement)
	switch n -= copies; {
	case n > 0:
		return n
	case l.Apart(id) && l.CanBuild(id):
		return 1
	}
	return 0
}

// UpBlades is how many blades take part.
func (l *Layout) UpBlades() int {
	n := 0
	for b := range l.Blades {
		if l.Blades[b].State == BladeUp {
			n++
		}
	}
	return n
}

// Stays reports whether a blade takes part, and is not leaving: segments can be placed on it.
func (l *Layout) Stays(b int) bool { return l.Blades[b].State == BladeUp && !l.Blades[b].Leaving }

// StayingBlades is how many blades stay.
func (l *Layout) StayingBlades() int {
	n := 0
	for b := range l.Blades {
		if l.Stays(b) {
			n++
		}
	}
	return n
}

// BuiltOn reports whether other processes go on from what changes are about, and change
// nothing themselves.
func BuiltOn(changes []Entry) bool {
	return slices.ContainsFunc(changes, func(e Entry) bool {
		return strings.HasPrefix(e.Key, prefixVerdict) || strings.HasPrefix(e.Key, prefixTable) ||
			strings.HasPrefix(e.Key, prefixReserved) || e.Key == KeyOf(PrefixRight, RightBackup)
	})
}

// Departed reports whether coordinators of an earlier layout, or that were registered since, are
// gone; and whether one of them had been declared dead together with a blade.
func (l *Layout) Departed(old *Layout) (gone, promoted bool) {
	for i := range old.Coordinators {
		if c := &old.Coordinators[i]; l.Coordinator(c.ID) == nil {
			gone, promoted = true, promoted || c.Promoted
		}
	}
	for id := old.NextCoordinator; id < l.NextCoordinator && !gone; id++ {
		gone = l.Coordinator(id) == nil
	}
	return gone, promoted
}

// Outlived reports whether a coordinator is as it was in an earlier layout. Then no locks were lost
// in between: all coordinators that are open are declared dead with a blade, and with a primary
// that is dropped. Else a blade may have been lost that is back.
func (l *Layout) Outlived(old *Layout) bool {
	return slices.ContainsFunc(old.Coordinators, func(c CoordinatorEntry) bool {
		now := l.Coordinator(c.ID)
		return now != nil && now.Promoted == c.Promoted && now.Claim == c.Claim
	})
}

// Coordinator is what is known of an open coordinator, or nil.
func (l *Layout) Coordinator(id uint32) *CoordinatorEntry {
	i, ok := slices.BinarySearchFunc(l.Coordinators, id, func(c CoordinatorEntry, id uint32) int {
		return int(c.ID) - int(id)
	})
	if !ok {
		return nil
	}
	return &l.Coordinators[i]
}

// MaxCoordinators bounds the numbers of coordinators: a number fits the 24 bits
// that transaction ids have for it, and is never used again.
const MaxCoordinators = 1 << 24

// LogStep is how much of its log areas a coordinator uses at first, in bytes, or all of
// them if they are smaller: room for what some hundred small transactions have in flight.
const LogStep = 64 << 10

// Keyless reports whether a blade that is up has not granted a key for the epoch: those before open
// it.
func (l *Layout) Keyless() bool {
	return slices.ContainsFunc(l.Blades, func(b Blade) bool { return b.State == BladeUp && b.Key == 0 })
}

// Known reports whether the layout has a key of every blade that takes part, and no blade has
// begun anew since.
func (l *Layout) Known(infos []rdma.BladeInfo) bool {
	for i := range l.Blades {
		if b := &l.Blades[i]; b.State == BladeUp && (b.Key == 0 || infos[i].Unheard ||
			b.Incarnation != infos[i].Incarnation) {
			return false
		}
	}
	return true
}

// Meet takes blades as they are, whatever incarnation they were in before: no other process
// has the database open.
func (l *Layout) Meet(infos []rdma.BladeInfo) {
	for i := range l.Blades {
		if b := &l.Blades[i]; b.State == BladeUp && !infos[i].Unheard {
			b.Incarnation = infos[i].Incarnation
		}
	}
}

// UUID identifies a database: its catalog and its regions carry the same.
type UUID [16]byte

// String returns 32 hexadecimal digits.
func (u UUID) String() string { return fmt.Sprintf("%x", u[:]) }
