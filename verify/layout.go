package verify

import (
	"errors"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Places in the structures of an index, as package race draws them; a test compares.
const (
	lineSize     = 64
	rootLines    = 256 // root: what precedes the directory
	depthOff     = 64  // root: the global depth
	dirLockOff   = 72  // root: who is changing the directory
	partsOff     = 80  // root: where the parts of the directory are, from part rootBits on
	rootBits     = 3   // the first 1<<rootBits entries of the directory are in the root
	partHeader   = 64  // part of a directory: what precedes the entries
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
const rootSize = rootLines + 8<<rootBits

// partSize is the size of part k of a directory in bytes: of the entries from 1<<k to 2<<k.
func partSize(k int) uint32 { return partHeader + 8<<k }

// partWord is the offset in a root of the word that says where part k is.
func partWord(k int) uint32 { return partsOff + 8*uint32(k-rootBits) }

// frozen is a race.Space that cannot grow.
type frozen struct{ v *layout.View }

var errFrozen = errors.New("verify: an index that is being verified does not grow")

func (f frozen) View() *layout.View               { return f.v }
func (f frozen) ViewOn(*rdma.Thread) *layout.View { return f.v }
func (f frozen) NewExtent(*rdma.Coro, uint32) (memory.Extent, error) {
	return memory.Extent{}, errFrozen
}
func (f frozen) FreeExtent(memory.Extent) (bool, error)    { return false, errFrozen }
func (f frozen) ExtentAt(layout.Addr) (none memory.Extent) { return none }
