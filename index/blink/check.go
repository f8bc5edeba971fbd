package blink

import (
	"bytes"

	"txnode/memory/layout"
)

// Check verifies everything that Decode does not, in time proportional to the image: keys are in
// order and between the fences; the prefix is the longest; addresses and classes can exist; an
// inner node's first separator is its low fence; the limits of the geometry hold. An image that
// passes is the only one of its contents. The error wraps ErrMalformed.
func (n Node) Check(g Geometry) error {
	if err := n.checkHeader(g); err != nil {
		return err
	}
	if n.count == 0 && n.Level() > 0 {
		return malformed("an inner node without children")
	}
	return n.checkEntries(g)
}

// checkEntries is one loop without calls, because every change of a node waits for it. Suffixes are
// compared with those of the fences: the prefix is the same.
func (n Node) checkEntries(g Geometry) error {
	b, level := n.b, n.Level()
	previous, longest := n.Low()[n.prefix:], g.MaxKey-n.prefix
	start := n.start(0)
	for i := range n.count {
		end := len(b)
		if i+1 < n.count {
			end = u16(b, n.slots+slotSize*(i+1))
		}
		e := b[start:end]
		s := e[n.payload:]
		if !blockAt(addrAt(e, 0)) || n.payload == rowPayload && e[addrSize] >= layout.NumClasses {
			return n.badPayload(i)
		}
		c := bytes.Compare(previous, s)
		if len(s) > longest || c > 0 || c == 0 && i > 0 || c != 0 && i == 0 && level > 0 {
			return n.badKey(g, i)
		}
		previous, start = s, end
	}
	if h := n.high(); n.count > 0 && !h.open && bytes.Compare(previous, h.key[n.prefix:]) >= 0 {
		return malformed("entry %d (key %x) is not below the high fence %x",
			n.count-1, n.AppendKey(nil, n.count-1), h.key)
	}
	return nil
}

// badKey is the error for the key of entry i, which checkEntries has found.
func (n Node) badKey(g Geometry, i int) error {
	key := n.AppendKey(nil, i)
	switch {
	case len(key) > g.MaxKey:
		return malformed("entry %d has a key of %d bytes: at most %d", i, len(key), g.MaxKey)
	case i > 0:
		return malformed("entry %d (key %x) is not above the entry before it", i, key)
	case n.Level() > 0:
		return malformed("the first separator %x is not the low fence %x", key, n.Low())
	default:
		return malformed("entry 0 (key %x) is below the low fence %x", key, n.Low())
	}
}

// badPayload is the error for the payload of entry i, which checkEntries has found.
func (n Node) badPayload(i int) error {
	if !blockAt(n.Addr(i)) {
		return malformed("entry %d leads to %v, where no block can be", i, n.Addr(i))
	}
	return malformed("entry %d has class %d: there are %d", i, n.Class(i), layout.NumClasses)
}

func (n Node) checkHeader(g Geometry) error {
	low, high := n.Low(), n.high()
	switch {
	case n.Level() > MaxLevel:
		return malformed("level %d: at most %d", n.Level(), MaxLevel)
	case g.full(n.count, len(n.b)):
		return malformed("%d entries of %d bytes: the room is %d, the limit %d (0: none)",
			n.count, len(n.b), g.Room(), g.MaxEntries)
	case len(low) > g.MaxKey || len(high.key) > g.MaxKey:
		return malformed("fences of %d and %d bytes: keys have at most %d", len(low), len(high.key), g.MaxKey)
	case high.open != (n.Right() == 0):
		return malformed("right link %#x with a high fence: %v", uint64(n.Right()), !high.open)
	case !high.open && !blockAt(n.Right()):
		return malformed("right link to %v, where no block can be", n.Right())
	case !high.open && bytes.Compare(low, high.key) >= 0:
		return malformed("low fence %x is not below the high fence %x", low, high.key)
	case !high.open && n.prefix != commonPrefix(low, high.key) || high.open && n.prefix != n.lastPrefix():
		return malformed("prefix of %d bytes, of fences %x and %x", n.prefix, low, high.key)
	}
	return nil
}

// lastPrefix is the length of the prefix of the last node of a level.
func (n Node) lastPrefix() int {
	if n.Level() > 0 || n.count == 0 {
		return 0
	}
	return n.prefix + commonPrefix(n.Low()[n.prefix:], n.Suffix(n.count-1))
}
