package tatp

import "encoding/binary"

// Tables, by number.
const (
	Subscriber = iota
	Secondary
	SpecialFacility
	AccessInfo
	CallForwarding
	numTables
)

var tables = [numTables]struct {
	name string
	size int // bytes of a value
	per  int // rows per 100 subscribers, expected
}{
	Subscriber:      {"subscriber", 40, 100},
	Secondary:       {"secondary", 8, 100},
	SpecialFacility: {"special_facility", 8, 250},
	AccessInfo:      {"access_info", 16, 250},
	CallForwarding:  {"call_forwarding", 16, 375},
}

// numKinds is the number of types of access info, and of special facilities.
const numKinds = 4

// starts are the hours at which call forwarding may start; it ends at an hour
// from 1 to numHours.
var starts = [...]uint64{0, 8, 16}

const (
	numStarts = len(starts)
	numHours  = 24
)

func subscriberKey(s uint32) uint64            { return uint64(s) }
func facilityKey(s uint32, kind uint64) uint64 { return uint64(s) | kind<<32 }
func accessKey(s uint32, kind uint64) uint64   { return uint64(s) | kind<<32 }

func forwardingKey(s uint32, kind, start uint64) uint64 {
	return uint64(s) | kind<<32 | start<<40
}

// subscriberNumber returns sub_nbr, the decimal digits of s, four bits each, the
// last one lowest. It is also the key of the secondary table.
func subscriberNumber(s uint32) uint64 {
	n := uint64(0)
	for shift := 0; s > 0; shift += 4 {
		n |= uint64(s%10) << shift
		s /= 10
	}
	return n
}

// Offsets in values.
const (
	subNumber     = 0  // 8 bytes
	subMSC        = 8  // 4
	subVLR        = 12 // 4
	subBits       = 16 // 2, of which 10 bits are used; bit_1 is the lowest
	subHex        = 18 // 5
	subBytes      = 23 // 10
	subEnd        = 33
	secSubscriber = 0 // 4
	secEnd        = 4
	sfActive      = 0
	sfError       = 1
	sfDataA       = 2
	sfDataB       = 3 // 5 letters
	sfEnd         = 8
	aiData1       = 0
	aiData2       = 1
	aiData3       = 2 // 3 letters
	aiData4       = 5 // 5 letters
	aiEnd         = 10
	cfEnds        = 0
	cfNumber      = 1 // 15 digits
	cfEnd         = 16
)

type (
	subscriberRow [40]byte
	secondaryRow  [8]byte
	facilityRow   [8]byte
	accessRow     [16]byte
	forwardingRow [16]byte
)

// number returns the sub_nbr in a row.
func (r *subscriberRow) number() uint64 { return binary.LittleEndian.Uint64(r[subNumber:]) }

// setLocation sets vlr_location.
func (r *subscriberRow) setLocation(vlr uint32) { binary.LittleEndian.PutUint32(r[subVLR:], vlr) }

// setBit1 sets bit_1 to the lowest bit of b.
func (r *subscriberRow) setBit1(b byte) { r[subBits] = r[subBits]&^1 | b&1 }

func letters(text []byte) bool {
	for _, c := range text {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return true
}

func digits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func zero(bytes []byte) bool {
	for _, b := range bytes {
		if b != 0 {
			return false
		}
	}
	return true
}

// The methods whole report whether a row is one that the benchmark may have
// written, as far as the row alone can tell.

func (r *subscriberRow) whole(s uint32) bool {
	return r.number() == subscriberNumber(s) && binary.LittleEndian.Uint16(r[subBits:]) < 1<<10 && zero(r[subEnd:])
}

func (r *secondaryRow) whole(s uint32) bool {
	return binary.LittleEndian.Uint32(r[secSubscriber:]) == s && zero(r[secEnd:])
}

func (r *facilityRow) whole() bool { return r[sfActive] <= 1 && letters(r[sfDataB:sfEnd]) }

func (r *accessRow) whole() bool { return letters(r[aiData3:aiEnd]) && zero(r[aiEnd:]) }

func (r *forwardingRow) whole() bool {
	return r[cfEnds] >= 1 && r[cfEnds] <= numHours && digits(r[cfNumber:cfEnd])
}
