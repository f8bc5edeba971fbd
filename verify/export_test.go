package verify

import "txnode/index/race"

// IndexBytes is the size of an index with so many sub-tables and a directory of such a depth.
func IndexBytes(g race.Geometry, tables, depth int) uint64 {
	n := uint64(rootSize) + uint64(tables)*uint64(subTableSize(g))
	for k := rootBits; k < depth; k++ {
		n += uint64(partSize(k))
	}
	return n
}
