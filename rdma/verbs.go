package rdma

import "fmt"

// Op is the kind of a work request.
type Op uint8

// The verbs.
const (
	OpRead      Op = iota // copy Len bytes from the blade to the arena
	OpWrite               // copy Len bytes from the arena to the blade
	OpCAS                 // if the word equals Cmp, replace it by Swap; Result is the prior value
	OpFAA                 // add Swap to the word; Result is the prior value
	OpMaskedCAS           // compare and swap under masks: see Batch.MaskedCAS
	OpFlush               // make earlier WRITEs of this queue pair to [Off, Off+Len) durable and visible
	NumOps
)

// String returns the verb's name.
func (o Op) String() string {
	if o < NumOps {
		return [...]string{"READ", "WRITE", "CAS", "FAA", "MCAS", "FLUSH"}[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Flags modify a work request.
type Flags uint8

// FlagFence makes the verb wait until all earlier READs and atomics of its
// queue pair have completed (the fence bit of ibverbs).
const FlagFence Flags = 1 << 0

// FlagLookup says that a READ is part of a lookup in an index. It changes nothing; a
// fabric may account for it.
const FlagLookup Flags = 1 << 1

// BladeID names a memory blade, from 0.
type BladeID uint16

// Key is the access key of a blade's region. Fencing changes it, so that a late
// verb of a client that was declared dead fails instead of landing.
type Key uint32

// RemoteAddr is a place in a blade's region, with the key that opens it.
type RemoteAddr struct {
	Blade BladeID
	Key   Key
	Off   uint64 // bytes from the start of the region
}

// String returns "blade 1 +0x40".
func (a RemoteAddr) String() string { return fmt.Sprintf("blade %d +%#x", a.Blade, a.Off) }

// WR is one work request. It holds no pointers: Local is an offset into the
// arena of the thread that posts it.
type WR struct {
	Op     Op
	Flags  Flags
	Blade  BladeID
	Key    Key
	Off    uint64 // in the blade's region
	Local  uint32 // READ, WRITE: buffer; masked CAS: two words, compare mask then swap mask
	Len    uint32 // bytes; 8 for atomics
	Cmp    uint64 // CAS: compare
	Swap   uint64 // CAS: new value; FAA: addend
	Result uint64 // atomics: prior value, when Status is StatusOK
	Status Status
}

// Status is how a work request ended.
type Status uint8

// Statuses. Anything but StatusOK and StatusBarred puts the queue pair into the error state.
const (
	StatusOK       Status = iota
	StatusBounds          // past the end of the region
	StatusKey             // stale or wrong access key
	StatusAccess          // the region may not be written
	StatusAlign           // atomic on a word that is not 8-byte aligned
	StatusBadOp           // a verb that this fabric does not know
	StatusLocal           // local buffer outside the arena
	StatusFlushed         // behind a failed request of the same queue pair: not executed
	StatusTimeout         // no answer; may have taken effect
	StatusNoBlade         // the blade is not connected or gone
	StatusIO              // the backing store failed
	StatusInternal        // the fabric broke; may have taken effect
	StatusBarred          // the thread does without a blade of the batch, and has posted nothing of it: see Thread.Bar
)

// String says it in words.
func (s Status) String() string {
	names := [...]string{
		"ok", "past the end of the region", "stale access key", "region is read-only",
		"atomic on an unaligned word", "verb not supported", "local buffer outside the arena",
		"queue pair in error state", "no answer in time", "blade not connected", "backing store failed", "fabric error",
		"not posted: the thread does without the blade",
	}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Uncertain reports whether the verb may have taken effect although it failed.
func (s Status) Uncertain() bool { return s == StatusTimeout || s == StatusInternal }

// LineSize is the unit of atomicity of a READ, in bytes.
const LineSize = 64
