package verify

import (
	"encoding/json"
	"fmt"
	"strings"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Kind is what a finding is about.
type Kind string

// Kinds of findings.
const (
	// KindCatalog: the catalog, without which nothing can be found: no check goes on (of who
	// opens it, not of Check)
	KindCatalog  Kind = "catalog"
	KindRegion   Kind = "region"   // a region that is not there, or of which no copy is left of something
	KindHeader   Kind = "header"   // a copy of a region's header
	KindExtent   Kind = "extent"   // the word of an extent, or an index that is in none
	KindRoot     Kind = "root"     // the root of an index, or its directory
	KindSubTable Kind = "subtable" // the first line of a sub-table
	KindBucket   Kind = "bucket"   // the header of a bucket
	// KindNode: a node of an ordered index that is none, or does not fit those beside and above it
	KindNode Kind = "node"
	// KindSlot: a slot, or an entry of a leaf, that cannot be, or that no lookup of the key comes
	// by
	KindSlot       Kind = "slot"
	KindDangling   Kind = "dangling"   // a slot, or a node, that leads to a free block
	KindDuplicate  Kind = "duplicate"  // two slots, or entries, of one block, or of one key
	KindOrphan     Kind = "orphan"     // a block in use to which nothing leads, an extent without an index
	KindRecord     Kind = "record"     // a block with an impossible header or the wrong checksum
	KindGuard      Kind = "guard"      // a guard that is free, but not with the version of the image
	KindLock       Kind = "lock"       // a lock whose owner is not alive
	KindSplit      Kind = "split"      // a resize of an index that was not finished
	KindReplica    Kind = "replica"    // a backup that differs from its primary
	KindLog        Kind = "log"        // a log area with bytes that do not belong there
	KindEntry      Kind = "entry"      // an entry of a secondary index that leads to no record
	KindPending    Kind = "pending"    // a transaction that was neither finished nor undone
	KindUnreadable Kind = "unreadable" // a READ failed
)

// Kinds lists all kinds, in the order of the layers that they are about.
func Kinds() []Kind {
	return []Kind{
		KindCatalog, KindUnreadable, KindRegion, KindHeader, KindExtent, KindLog, KindPending, KindRoot, KindSubTable,
		KindBucket, KindSplit,
		KindNode, KindSlot, KindDangling, KindDuplicate, KindRecord, KindGuard, KindLock, KindReplica,
		KindOrphan, KindEntry,
	}
}

// Finding is one thing that is wrong.
type Finding struct {
	Kind Kind
	// Table is the table concerned, 0: none, or not known.
	Table uint16
	// Addr is the logical address, 0: what is concerned has none (a region's header).
	Addr layout.Addr
	// Blade and Off are where in the blades' memory it is; Copy is the number of the
	// replica, 0: the primary.
	Blade rdma.BladeID
	Off   uint64
	Copy  int
	// What says what is there, and what should be.
	What string
	// Remedy says what a repair does, or did; empty: nothing can be done here.
	Remedy string
	// Repaired: the remedy has been applied.
	Repaired bool
	// Unfinished: it is work that a coordinator had under way which was not closed, or which was
	// declared dead and of which the catalog says that a sweep for what it has left is due. The
	// next opening finishes or undoes it; it is no damage.
	Unfinished bool
	// Failed is why the remedy could not be applied.
	Failed error
}

// String is one line: kind, place, what, and the remedy.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s: %s", f.Kind, f.Place(), f.What)
	switch {
	case f.Failed != nil:
		fmt.Fprintf(&b, "; NOT repaired: %v", f.Failed)
	case f.Repaired:
		fmt.Fprintf(&b, "; repaired: %s", f.Remedy)
	case f.Unfinished:
		b.WriteString("; the next opening settles it")
	case f.Remedy != "":
		fmt.Fprintf(&b, "; a repair can help: %s", f.Remedy)
	}
	return b.String()
}

// Place is "seg 3 +0x40 (blade 1 +0x50040)", and "catalog.db" of the catalog.
func (f Finding) Place() string {
	if f.Kind == KindCatalog {
		return "catalog.db"
	}
	at := rdma.RemoteAddr{Blade: f.Blade, Off: f.Off}.String()
	if f.Addr == 0 {
		return at
	}
	return fmt.Sprintf("%v (%s)", f.Addr, at)
}

// findingJSON is a Finding in JSON.
type findingJSON struct {
	Kind       Kind   `json:"kind"`
	Table      uint16 `json:"table,omitempty"`
	Segment    uint32 `json:"segment,omitempty"`
	Offset     uint32 `json:"offset"`
	Copy       int    `json:"copy"`
	Blade      uint16 `json:"blade"`
	BladeOff   uint64 `json:"blade_offset"`
	What       string `json:"what"`
	Remedy     string `json:"remedy,omitempty"`
	Repaired   bool   `json:"repaired,omitempty"`
	Unfinished bool   `json:"unfinished,omitempty"`
	Failed     string `json:"failed,omitempty"`
}

// MarshalJSON makes an object with the place as numbers.
func (f Finding) MarshalJSON() ([]byte, error) {
	j := findingJSON{
		Kind: f.Kind, Table: f.Table, Segment: uint32(f.Addr.Segment()), Offset: f.Addr.Offset(), Copy: f.Copy,
		Blade: uint16(f.Blade), BladeOff: f.Off, What: f.What, Remedy: f.Remedy, Repaired: f.Repaired,
		Unfinished: f.Unfinished,
	}
	if f.Failed != nil {
		j.Failed = f.Failed.Error()
	}
	return json.Marshal(j)
}

// TableSummary is what was counted of one table.
type TableSummary struct {
	ID         uint16 `json:"id"`
	Name       string `json:"name"`
	Records    uint64 `json:"records"`
	Tombstones uint64 `json:"tombstones"` // keys without a value whose block is still linked
	Nodes      uint64 `json:"nodes,omitempty"`
	Bytes      uint64 `json:"bytes"` // of keys and values, and of nodes
	Slots      uint64 `json:"slots"` // in use; of an ordered table: entries of leaves
	SubTables  uint64 `json:"sub_tables"`
	// Of an ordered table: the levels of its index, from leaves to root; its leaves; and the nodes
	// of all levels that no parent leads to yet, but a right link, which is no fault.
	Levels   int    `json:"levels,omitempty"`
	Leaves   uint64 `json:"leaves,omitempty"`
	Unposted uint64 `json:"unposted,omitempty"`
	// Of a secondary index: the table that it is one of, and how many records of that have no entry
	// in it. That is no finding: the function of the index may give them none.
	Of   string `json:"of,omitempty"`
	Bare uint64 `json:"records_without_entry,omitempty"`
	// Unwalked: the index could not be followed to its end, so blocks of the table
	// are not called orphans.
	Unwalked bool `json:"unwalked,omitempty"`
}

// Summary is what a check has counted.
type Summary struct {
	Blades int `json:"blades"`
	// Strange are blades whose headers say that what they hold is not this database's, that
	// it is an old copy, or of another format version, or that nothing was ever there; Missing
	// those of Options.Missing. The rest was checked as if they were dead, and nothing was
	// repaired: another's bytes are no damage, and no proof of anything.
	Strange []rdma.BladeID `json:"strange_blades,omitempty"`
	Missing []rdma.BladeID `json:"missing_blades,omitempty"`
	// Unrecovered: the database was open with DurabilityPower, and not closed. Whoever opens
	// it brings every block into the state that the logs prove, and makes the indexes anew,
	// so findings may be of what is lost with the power and not needed; and nothing was
	// repaired, since copies of what no log has prove nothing.
	Unrecovered bool `json:"unrecovered,omitempty"`
	// CatalogOld: regions are newer than the catalog, which may be a copy of it from before.
	// It may say where things were once, so findings may be none, and nothing was repaired.
	CatalogOld bool `json:"catalog_old,omitempty"`
	// Unreadable are blades of whose files something cannot be read. What is behind it may be
	// false, too, as the rest of a page of a file that was cut off, which has zeros then; so
	// nothing was repaired from the time when the first part was found, which is before any repair
	// but if a disk fails meanwhile.
	Unreadable []rdma.BladeID `json:"unreadable_blades,omitempty"`
	// BladesDown are blades that were declared dead, and were not taken in again; what they
	// hold is out of date, and was not looked at. CopiesMissing is how many copies segments
	// have too few, SegmentsLost how many have none. None of that is a finding: a database
	// that is open sees to it, as far as it can.
	BladesDown    []rdma.BladeID  `json:"blades_down,omitempty"`
	CopiesMissing int             `json:"copies_missing,omitempty"`
	SegmentsLost  int             `json:"segments_lost,omitempty"`
	Segments      int             `json:"segments"`
	Bytes         uint64          `json:"bytes_read"`
	Tables        []TableSummary  `json:"tables"`
	Live          uint64          `json:"blocks_live"`
	Absent        uint64          `json:"blocks_absent"`
	Nodes         uint64          `json:"blocks_nodes,omitempty"` // of indexes
	Free          uint64          `json:"blocks_free"`            // those never used included
	Coordinators  int             `json:"coordinators_not_closed"`
	LogRecords    uint64          `json:"log_records"` // in the areas of coordinators that were not closed
	Findings      uint64          `json:"findings"`
	Repaired      uint64          `json:"repaired"`
	Unfinished    uint64          `json:"unfinished"` // findings that the next opening settles
	ByKind        map[Kind]uint64 `json:"by_kind"`
}

// Clean reports whether nothing is wrong any more: every finding has been repaired, or is
// unfinished work that the next opening settles.
func (s *Summary) Clean() bool { return s.Findings == s.Repaired+s.Unfinished }
