package verify

import (
	"errors"

	"txnode/index/race"
	"txnode/memory"
	"txnode/rdma"
)

// Places in the structures of an index, as package race draws them; a test compares.
const (
	lineSize     = 64
	rootLines    = 128 // root: what precedes the directory
	depthOff     = 64  // root: the global depth
	dirLockOff   = 72  // root: who is changing the directory
	tableHeader  = 64  // sub-table: what precedes the groups
	tableSealed  = 48  // sub-table: what never changes of its first line
	tableChild   = 48  // sub-table: the one that it is being split into
	tableLock    = 56  // sub-table: who is splitting it
	groupSize    = 3 * lineSize
	bucketHeader = 56 // line of a group: the header, behind the slots
	slotsPerLine = bucketHeader / 8
	combined     = 2 * lineSize // what one of a lookup's READs brings
	lockOwner    = 16           // lock words: the owner is in the bits from here on
)

// subTableSize is the size of a sub-table in bytes.
func subTableSize(g race.Geometry) uint32 { return tableHeader + g.Groups*groupSize }

// rootSize is the size of a root in bytes.
func rootSize(g race.Geometry) uint32 { return rootLines + max(uint32(8)<<g.MaxDepth, lineSize) }

// frozen is a race.Space that cannot grow.
type frozen struct{ v *memory.View }

var errFrozen = errors.New("verify: an index that is being verified does not grow")

func (f frozen) View() *memory.View                                  { return f.v }
func (f frozen) ViewOn(*rdma.Thread) *memory.View                    { return f.v }
func (f frozen) AllocExtent(*rdma.Coro, uint32) (memory.Addr, error) { return 0, errFrozen }
func (f frozen) FreeExtent(memory.Addr, uint32) error                { return errFrozen }
