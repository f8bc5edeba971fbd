//go:build unix && !linux

package ibverbs

const mapHuge = 0

// adviseHuge does nothing.
func adviseHuge([]byte) {}
