package layout

// Bounds of the unit of extents.
const (
	maxGranules = 1 << 14
	minGranule  = 256 // bytes
)

// Granule is the unit of extents in bytes.
func Granule(segmentSize uint32) uint32 { return max(segmentSize/maxGranules, minGranule) }

// TableGranules is how many granules the table takes.
func TableGranules(segmentSize uint32) uint32 {
	g := Granule(segmentSize)
	return (segmentSize/g*8 + g - 1) / g
}
