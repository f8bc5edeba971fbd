package blink

import (
	"txnode/internal/validate"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// Geometry is what all nodes of a tree have in common. It is a part of the table's definition.
type Geometry struct {
	// Class is the size class of the nodes' blocks. Fit chooses it.
	Class layout.Class
	// MaxKey is the length of the longest key in bytes, from 1 to record.MaxKey.
	MaxKey int
	// MaxEntries limits the entries of a node; 0: as many as have room. At least 2. It is for
	// tests, which want high trees of few keys.
	MaxEntries int
}

const (
	// minEntries is how many of the longest entries each node has room for. Then a split for one
	// more entry always has a cut that leaves two nodes which fit.
	minEntries = 4
	// minBlock is the size of the smallest block that Fit chooses.
	minBlock = 1 << 10
	// maxRoom is the length of the longest node: its end has 16 bits.
	maxRoom = 1<<16 - 1
)

// Room is the length in bytes of the longest image that a block of the class can hold: that of
// the record's value, which lies behind the first line.
func (g Geometry) Room() int { return int(g.Class.Size()) - record.LineSize }

// need is the length of a node with the longest fences and minEntries of the longest entries.
func (g Geometry) need() int {
	return headerSize + 2*g.MaxKey + minEntries*(slotSize+rowPayload+g.MaxKey)
}

// Fit returns g with the smallest class, from 1 KiB on, in which four of the longest entries fit,
// or an error that wraps ErrGeometry.
func (g Geometry) Fit() (Geometry, error) {
	if err := g.validateLimits(); err != nil {
		return g, err
	}
	class, _ := layout.ClassOf(uint32(max(minBlock, record.LineSize+g.need())))
	g.Class = class
	return g, g.Validate()
}

// Validate returns nil, or an error that wraps ErrGeometry and lists every fault.
func (g Geometry) Validate() error {
	if err := g.validateLimits(); err != nil {
		return err
	}
	var f validate.Faults
	f.Check(g.Class < layout.NumClasses, "class %d: there are %d", g.Class, layout.NumClasses)
	f.Check(g.need() <= maxRoom, "four of the longest entries need %d bytes: nodes have at most %d", g.need(), maxRoom)
	f.Check(g.Room() <= maxRoom, "class %d has room for %d bytes: nodes have at most %d", g.Class, g.Room(), maxRoom)
	f.Check(g.Room() >= g.need(), "class %d has room for %d bytes: four of the longest entries need %d",
		g.Class, g.Room(), g.need())
	return f.Err(ErrGeometry)
}

func (g Geometry) validateLimits() error {
	var f validate.Faults
	f.Check(g.MaxKey >= 1 && g.MaxKey <= record.MaxKey, "longest key of %d bytes: must be from 1 to %d",
		g.MaxKey, record.MaxKey)
	f.Check(g.MaxEntries == 0 || g.MaxEntries >= 2, "at most %d entries: must be at least 2, or 0 for no limit",
		g.MaxEntries)
	return f.Err(ErrGeometry)
}

// full reports whether a node of count entries and size bytes is too large.
func (g Geometry) full(count, size int) bool {
	return size > g.Room() || g.MaxEntries > 0 && count > g.MaxEntries
}
