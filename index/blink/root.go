package blink

import (
	"slices"

	"txnode/memory/layout"
)

// header is what precedes the slots of a node.
type header struct {
	level, count, prefix int
	low                  []byte
	high                 fence
	right                layout.Addr
}

// putHeader writes header and fences of a node of len(out) bytes. It returns the offset of the
// slots.
func putHeader(out []byte, h header) int {
	out[levelOff], out[flagsOff] = byte(h.level), 0
	putU16(out, countOff, h.count)
	putU16(out, prefixOff, h.prefix)
	putU16(out, lowOff, len(h.low))
	putU16(out, highOff, unbounded)
	if !h.high.open {
		putU16(out, highOff, len(h.high.key))
	}
	putU16(out, endOff, len(out))
	putAddr(out, rightOff, h.right)
	at := headerSize + copy(out[headerSize:], h.low)
	return at + copy(out[at:], h.high.key)
}

// AppendLeaf appends the image of an empty tree to dst: a leaf that is responsible for all keys.
func AppendLeaf(dst []byte) []byte {
	start := len(dst)
	dst = slices.Grow(dst, headerSize)[:start+headerSize]
	putHeader(dst[start:], header{high: fence{open: true}})
	return dst
}

// AppendRoot appends the image of a new root of that level to dst. left is the old root, which has
// been split, and right its part from the separator on. Both are of level-1. Further separators are
// posted to the new root.
func AppendRoot(dst []byte, level int, left layout.Addr, separator []byte, right layout.Addr) []byte {
	start := len(dst)
	size := headerSize + 2*(slotSize+childPayload) + len(separator)
	dst = slices.Grow(dst, size)[:start+size]
	out := dst[start:]
	slot := putHeader(out, header{level: level, count: 2, high: fence{open: true}})
	at := slot + 2*slotSize
	putU16(out, slot, at)
	putU16(out, slot+slotSize, at+childPayload)
	putAddr(out, at, left)
	putAddr(out, at+childPayload, right)
	copy(out[at+2*childPayload:], separator)
	return dst
}

// RootSize is the length of a Root in bytes.
const RootSize = 8

// Root says where a tree begins: the first node of its highest level. It is the value of a record
// of its own. An old Root leads into the tree as well: to the first node of a lower level, which
// keeps its block for ever.
type Root struct {
	Addr  layout.Addr
	Level int
}

// Append appends the RootSize bytes of r to dst: address 48, level 8, 0 8.
func (r Root) Append(dst []byte) []byte {
	dst = append(dst, make([]byte, RootSize)...)
	b := dst[len(dst)-RootSize:]
	putAddr(b, 0, r.Addr)
	b[addrSize] = byte(r.Level)
	return dst
}

// DecodeRoot is the inverse of Append. Its error wraps ErrMalformed.
func DecodeRoot(b []byte) (Root, error) {
	if len(b) != RootSize {
		return Root{}, malformed("root of %d bytes: must be %d", len(b), RootSize)
	}
	r := Root{Addr: addrAt(b, 0), Level: int(b[addrSize])}
	if !blockAt(r.Addr) || r.Level > MaxLevel || b[RootSize-1] != 0 {
		return Root{}, malformed("root %x", b)
	}
	return r, nil
}
