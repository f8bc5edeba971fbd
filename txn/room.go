package txn

import (
	"fmt"
	"os"
	"path/filepath"

	"txnode/index/race"
	"txnode/memory/embedded"
	"txnode/memory/layout"
)

// Limits of BladeSize, in bytes.
const (
	// maxBladeSize is half of the address space that a process has.
	maxBladeSize = 64 << 40
	// leastSegments are on a blade of the smallest database that can have a record: logs, and
	// either what leads to it or the record.
	leastSegments = 2
)

// checkBladeSize lists what is wrong with BladeSize whatever else there is.
func (o *Options) checkBladeSize(bad func(cond bool, format string, args ...any)) {
	segment := uint64(max(o.SegmentSize, o.LogArea, layout.MinSegmentSize))
	least := layout.HeaderArea + leastSegments*segment
	switch size := o.BladeSize; {
	case size == 0:
	case size > maxBladeSize:
		bad(true, "BladeSize is %d: at most %d (64 TiB) are possible", size, uint64(maxBladeSize))
	case size < least:
		table, _, _ := o.leastBladeSize()
		bad(true, "BladeSize is %d: it is too small for segments of %d bytes, at least %d are needed for a table",
			size, segment, max(table, least))
	default:
		bad(size%bladeUnit != 0, "BladeSize is %d: a multiple of 64 KiB is needed", size)
	}
}

// checkRoom refuses a new database whose blades have no room for a table with one record: after
// a first Put that failed only another database would help.
func (o *Options) checkRoom() error {
	if o.Fabric != nil || o.BladeSize == 0 || o.ReadOnly {
		return nil
	}
	if o.Dir != "" {
		if _, err := os.Lstat(filepath.Join(o.Dir, embedded.CatalogName)); err == nil {
			return nil // it is there, and opening it compares
		}
	}
	least, segments, e := o.leastBladeSize()
	if o.BladeSize >= least {
		return nil
	}
	return fmt.Errorf("%w: BladeSize is %d: a table takes %d segments of %d bytes on a blade, if the number of "+
		"blades is %d, and that of copies %d: raise BladeSize to %d at least, and further for more tables and workers",
		ErrOptions, o.BladeSize, segments, e.SegmentSize, e.Blades, e.Replicas, least)
}

// leastBladeSize is how large the blades of a new database have to be for a table with one record:
// for so many segments each. e is the geometry that the database would have.
func (o *Options) leastBladeSize() (size, segments uint64, e embedded.Options) {
	e = o.embedded().WithDefaults()
	// The extents of an index have their primaries on different blades, and so are in
	// different segments.
	index := uint64(2)
	if root, sub := (race.Options{Groups: o.IndexGroups}).Extents(); e.Blades == 1 &&
		root+sub <= uint64(e.SegmentSize) {
		index = 1
	}
	blades, copies := uint64(max(e.Blades, 1)), uint64(max(e.Replicas, 1)) // other faults are found beside
	segments = 1 + ((index+1)*copies+blades-1)/blades                      // logs are on every blade
	return layout.HeaderArea + segments*uint64(e.SegmentSize), segments, e
}
