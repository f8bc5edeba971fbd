package memory

import (
	"txnode/memory/layout"
	"txnode/rdma"
)

// What users of a Space name of package layout.
type (
	// Addr is layout.Addr.
	Addr = layout.Addr
	// Beat is layout.Beat.
	Beat = layout.Beat
	// BehindError is layout.BehindError.
	BehindError = layout.BehindError
	// Blade is layout.Blade.
	Blade = layout.Blade
	// BladeError is layout.BladeError.
	BladeError = layout.BladeError
	// BladeState is layout.BladeState.
	BladeState = layout.BladeState
	// Catalog is layout.Catalog.
	Catalog = layout.Catalog
	// Class is layout.Class.
	Class = layout.Class
	// CoordinatorEntry is layout.CoordinatorEntry.
	CoordinatorEntry = layout.CoordinatorEntry
	// CutFault is layout.CutFault.
	CutFault = layout.CutFault
	// DamageError is layout.DamageError.
	DamageError = layout.DamageError
	// Entry is layout.Entry.
	Entry = layout.Entry
	// Epoch is layout.Epoch.
	Epoch = layout.Epoch
	// Geometry is layout.Geometry.
	Geometry = layout.Geometry
	// HeaderFault is layout.HeaderFault.
	HeaderFault = layout.HeaderFault
	// Identity is layout.Identity.
	Identity = layout.Identity
	// Layout is layout.Layout.
	Layout = layout.Layout
	// Losses is layout.Losses.
	Losses = layout.Losses
	// Mend is layout.Mend.
	Mend = layout.Mend
	// Outcome is layout.Outcome.
	Outcome = layout.Outcome
	// Placement is layout.Placement.
	Placement = layout.Placement
	// ProcessEntry is layout.ProcessEntry.
	ProcessEntry = layout.ProcessEntry
	// Redundancy is layout.Redundancy.
	Redundancy = layout.Redundancy
	// RegionHeader is layout.RegionHeader.
	RegionHeader = layout.RegionHeader
	// Replica is layout.Replica.
	Replica = layout.Replica
	// Reservation is layout.Reservation.
	Reservation = layout.Reservation
	// Revision is layout.Revision.
	Revision = layout.Revision
	// Segment is layout.Segment.
	Segment = layout.Segment
	// SegmentID is layout.SegmentID.
	SegmentID = layout.SegmentID
	// SegmentKind is layout.SegmentKind.
	SegmentKind = layout.SegmentKind
	// StaleError is layout.StaleError.
	StaleError = layout.StaleError
	// Table is layout.Table.
	Table = layout.Table
	// TableState is layout.TableState.
	TableState = layout.TableState
	// UUID is layout.UUID.
	UUID = layout.UUID
	// Verdict is layout.Verdict.
	Verdict = layout.Verdict
	// View is layout.View.
	View = layout.View
)

// Those of package layout.
const (
	AddrBits           = layout.AddrBits
	BladeDown          = layout.BladeDown
	BladeUp            = layout.BladeUp
	BlockAlign         = layout.BlockAlign
	CutDamage          = layout.CutDamage
	DoubtOffset        = layout.DoubtOffset
	CutLarge           = layout.CutLarge
	CutRoom            = layout.CutRoom
	CutTable           = layout.CutTable
	HeaderAhead        = layout.HeaderAhead
	HeaderArea         = layout.HeaderArea
	HeaderBehind       = layout.HeaderBehind
	HeaderBlank        = layout.HeaderBlank
	HeaderCopies       = layout.HeaderCopies
	HeaderDamaged      = layout.HeaderDamaged
	HeaderForeign      = layout.HeaderForeign
	HeaderGeometry     = layout.HeaderGeometry
	HeaderMisplaced    = layout.HeaderMisplaced
	HeaderSound        = layout.HeaderSound
	HeaderStale        = layout.HeaderStale
	HeaderStride       = layout.HeaderStride
	KindBlocks         = layout.KindBlocks
	KindIndex          = layout.KindIndex
	KindLog            = layout.KindLog
	LogStep            = layout.LogStep
	MaxBlades          = layout.MaxBlades
	MaxCoordinators    = layout.MaxCoordinators
	MaxReplicas        = layout.MaxReplicas
	MaxReservationName = layout.MaxReservationName
	MaxReservationText = layout.MaxReservationText
	MaxSegmentSize     = layout.MaxSegmentSize
	MaxSegments        = layout.MaxSegments
	MaxTableName       = layout.MaxTableName
	MaxTableOptions    = layout.MaxTableOptions
	MaxTables          = layout.MaxTables
	MendAlone          = layout.MendAlone
	MendBackup         = layout.MendBackup
	MendDrop           = layout.MendDrop
	MendLoad           = layout.MendLoad
	MendSweep          = layout.MendSweep
	MendCopies         = layout.MendCopies
	MinLogArea         = layout.MinLogArea
	MinSegmentSize     = layout.MinSegmentSize
	NumClasses         = layout.NumClasses
	OffsetBits         = layout.OffsetBits
	OutcomeAborted     = layout.OutcomeAborted
	OutcomeCommitted   = layout.OutcomeCommitted
	OutcomeUnknown     = layout.OutcomeUnknown
	PrefixCluster      = layout.PrefixCluster
	RegionHeaderSize   = layout.RegionHeaderSize
	ScratchBytes       = layout.ScratchBytes
	ScratchOffset      = layout.ScratchOffset
	SegmentBits        = layout.SegmentBits
	ToldOffset         = layout.ToldOffset
	TableDropped       = layout.TableDropped
	TableDropping      = layout.TableDropping
	TableLive          = layout.TableLive
)

// Errors about bytes and layouts: see package layout. Test with errors.Is.
var (
	ErrCorrupt      = layout.ErrCorrupt
	ErrDamaged      = layout.ErrDamaged
	ErrDown         = layout.ErrDown
	ErrExhausted    = layout.ErrExhausted
	ErrForeign      = layout.ErrForeign
	ErrFormat       = layout.ErrFormat
	ErrLayout       = layout.ErrLayout
	ErrLost         = layout.ErrLost
	ErrGeometry     = layout.ErrGeometry
	ErrNotFormatted = layout.ErrNotFormatted
	ErrStale        = layout.ErrStale
)

// MaxBlock is the size of the largest blocks, in bytes.
var MaxBlock = layout.MaxBlock

// MakeAddr is layout.MakeAddr.
func MakeAddr(s SegmentID, off uint32) Addr { return layout.MakeAddr(s, off) }

// ClassOf is layout.ClassOf.
func ClassOf(n uint32) (c Class, ok bool) { return layout.ClassOf(n) }

// NewView is layout.NewView.
func NewView(e Epoch, segs []Placement, keys []rdma.Key) *View { return layout.NewView(e, segs, keys) }

// LoadLayout is layout.LoadLayout.
func LoadLayout(cat Catalog) (*Layout, error) { return layout.LoadLayout(cat) }

// Behind is layout.Behind.
func Behind(name string, have, seen Revision) error { return layout.Behind(name, have, seen) }

// Bury is layout.Bury.
func Bury(cat Catalog, blades ...rdma.BladeID) error { return layout.Bury(cat, blades...) }

// Trust is layout.Trust.
func Trust(cat Catalog, was *Layout, away []rdma.BladeID, blades ...rdma.BladeID) error {
	return layout.Trust(cat, was, away, blades...)
}

// GiveUp is layout.GiveUp.
func GiveUp(cat Catalog, was *Layout, blades ...rdma.BladeID) error {
	return layout.GiveUp(cat, was, blades...)
}

// HeaderOffset is layout.HeaderOffset.
func HeaderOffset(i int) uint64 { return layout.HeaderOffset(i) }

// ToldIn is layout.ToldIn.
func ToldIn(head []byte) Revision { return layout.ToldIn(head) }

// ParseHeaderCopy is layout.ParseHeaderCopy.
func ParseHeaderCopy(p []byte, i int) (h RegionHeader, blank bool, err error) {
	return layout.ParseHeaderCopy(p, i)
}

// ParseRegionHeader is layout.ParseRegionHeader.
func ParseRegionHeader(p []byte) (RegionHeader, error) { return layout.ParseRegionHeader(p) }
