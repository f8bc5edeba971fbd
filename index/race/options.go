package race

import (
	"errors"
	"fmt"
	"strings"

	"txnode/memory/layout"
)

// Limits and defaults of the geometry.
const (
	SmallGroups     = 127  // 2,667 slots, 24 KiB: what an empty table takes
	DefaultGroups   = 1023 // 21,483 slots, 192 KiB: of an index that is made for more than SmallKeys keys
	SmallKeys       = 32 << 10
	DefaultMaxDepth = MaxMaxDepth // two billion keys in small sub-tables
	MaxMaxDepth     = 20
	MaxGroups       = (layout.MaxSegmentSize - tableHeader) / groupSize
)

// Options of a new index. The zero value is usable.
type Options struct {
	// Groups is the number of bucket groups of a sub-table, of 3 buckets and 21
	// slots each, at least 2; 0: DefaultGroups if Keys are more than SmallKeys, else
	// SmallGroups. A sub-table is what one resize splits, and must fit a segment.
	Groups uint32
	// MaxDepth limits the index to 1<<MaxDepth sub-tables, of 8 bytes each in the
	// directory; 0: DefaultMaxDepth, at most MaxMaxDepth.
	MaxDepth uint8
	// Keys is how many keys the index has room for from the start, without
	// splits; 0: one sub-table.
	Keys uint64
}

func (o Options) withDefaults() Options {
	if o.Groups == 0 {
		o.Groups = SmallGroups
		if o.Keys > SmallKeys {
			o.Groups = DefaultGroups
		}
	}
	if o.MaxDepth == 0 {
		o.MaxDepth = DefaultMaxDepth
	}
	return o
}

// Validate lists every fault at once.
func (o Options) Validate() error {
	o = o.withDefaults()
	err := Geometry{Groups: o.Groups, MaxDepth: o.MaxDepth}.validate()
	if err == nil && o.Keys > uint64(o.Groups)*groupSlots<<o.MaxDepth {
		err = fmt.Errorf("index: %d keys do not fit 1<<%d sub-tables of %d groups", o.Keys, o.MaxDepth, o.Groups)
	}
	return err
}

func (g Geometry) validate() error {
	var faults []string
	if g.Groups < 2 || g.Groups > MaxGroups {
		faults = append(faults, fmt.Sprintf("%d groups: between 2 and %d are possible", g.Groups, MaxGroups))
	}
	if g.MaxDepth == 0 || g.MaxDepth > MaxMaxDepth {
		faults = append(faults, fmt.Sprintf("maximum depth %d: between 1 and %d is possible", g.MaxDepth, MaxMaxDepth))
	}
	if len(faults) > 0 {
		return errors.New("index: " + strings.Join(faults, "; "))
	}
	return nil
}

// Extents are the sizes of the root and of a sub-table, in bytes: an index without keys has one of
// each.
func (o Options) Extents() (root, subTable uint64) {
	o = o.withDefaults()
	g := Geometry{Groups: o.Groups, MaxDepth: o.MaxDepth}
	return rootSize, uint64(g.tableSize())
}

// plannedLoad is how full sub-tables get before they are split, in 1/16: what
// sizes an index that is made for a number of keys.
const plannedLoad = 12

// KeysAtLeast is what Keys is for an index that will have n keys, and is not to be larger than
// their inserts would make it: half as many sub-tables would have fewer than n slots.
func KeysAtLeast(n uint64) uint64 { return n/16*plannedLoad + n%16*plannedLoad/16 }

// initialDepth is the depth at which o.Keys keys fit.
func (o Options) initialDepth() uint8 {
	d := uint8(0)
	for d < o.MaxDepth && uint64(o.Groups)*groupSlots*plannedLoad/16<<d < o.Keys {
		d++
	}
	return d
}
