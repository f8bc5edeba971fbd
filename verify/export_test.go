package verify

import "txnode/index/race"

// IndexBytes is the size of an index with so many sub-tables.
func IndexBytes(g race.Geometry, tables int) uint64 {
	return uint64(rootSize(g)) + uint64(tables)*uint64(subTableSize(g))
}
