package check

// Class names a kind of violation.
type Class uint8

// Classes of the chain of one key.
const (
	// Malformed: the record itself makes no sense (an end before its start, an unknown kind, a
	// write of version zero).
	Malformed Class = iota + 1
	// DirtyRead: a version was read that no transaction installed; it was written by one that
	// aborted, or never (G1a).
	DirtyRead
	// IntermediateRead: a version was read that its own writer replaced before it committed (G1b).
	IntermediateRead
	// LostUpdate: two transactions replaced the same version, or one that wrote a key had missed
	// another's write to it (P4).
	LostUpdate
	// DuplicateVersion: one version was installed twice.
	DuplicateVersion
	// BrokenChain: a version was replaced that no transaction installed and that is not the only
	// initial one, or a transaction's own versions are not a chain.
	BrokenChain
	// WrongState: a key was found present at a version that is a tombstone, absent at one that is a
	// record, or absent without trace although nothing deleted it.
	WrongState
	// BrokenRange: the answer of a range read is out of order or out of bounds, or has a key twice.
	BrokenRange
	// MissingRow: a range read did not find a key that was there whenever the range can have been
	// read.
	MissingRow
	// Internal: a transaction did not read its own earlier write (lists only).
	Internal
	// IncompatibleOrder: two reads of a list are not prefixes of one another (lists only).
	IncompatibleOrder
)

// Classes of cycles.
const (
	// DirtyWrite: writes of two transactions interleave (G0: only ww).
	DirtyWrite Class = iota + 32
	// CircularInformationFlow: each saw something of the other (G1c: ww and wr).
	CircularInformationFlow
	// NonRepeatableRead: two reads of one key in one transaction saw different states
	// (G-single on one key).
	NonRepeatableRead
	// ReadSkew: a transaction saw one write of another and missed a second one (G-single: one rw).
	ReadSkew
	// WriteSkew: transactions missed each other's writes (G2-item: two rw or more).
	WriteSkew
	// LongFork: readers saw independent writes in opposite orders (G-nonadjacent: several
	// rw, no two in a row).
	LongFork
	// Phantom: as ReadSkew or WriteSkew, and what was missed is an insert of a key that was read as
	// absent, by itself or in a range (G2).
	Phantom
	// StaleRead: a transaction missed a write that had been over before it started (rw,
	// closed by real time).
	StaleRead
	// FutureRead: a transaction saw a write of one that started after it had ended (wr,
	// closed by real time).
	FutureRead
	// WriteInversion: writes are ordered against real time (ww, closed by real time).
	WriteInversion
)

var classNames = map[Class]string{
	Malformed: "malformed record", DirtyRead: "dirty read", IntermediateRead: "intermediate read",
	LostUpdate:  "lost update",
	BrokenRange: "broken range", MissingRow: "missing row",
	DuplicateVersion: "duplicate version", BrokenChain: "broken chain", WrongState: "wrong state",
	Internal:          "internal inconsistency",
	IncompatibleOrder: "incompatible order", DirtyWrite: "dirty write",
	CircularInformationFlow: "circular information flow",
	NonRepeatableRead:       "non-repeatable read", ReadSkew: "read skew", WriteSkew: "write skew",
	LongFork: "long fork", Phantom: "phantom",
	StaleRead: "stale read", FutureRead: "future read", WriteInversion: "write inversion",
}

func (c Class) String() string {
	if s := classNames[c]; s != "" {
		return s
	}
	return "unknown class"
}

// classify names a cycle by the kinds of its edges. phantoms says whether an
// absent read means a missing record (and not an empty list).
func classify(cycle []Edge, phantoms bool) (Class, string) {
	var n [RT + 1]int
	absent, oneKey, adjacent := false, true, false
	var key Edge // any edge with a key
	for _, e := range cycle {
		if e.Kind != RT {
			key = e
		}
	}
	for i, e := range cycle {
		n[e.Kind]++
		next := cycle[(i+1)%len(cycle)]
		if e.Kind == RW {
			absent = absent || e.Absent && phantoms
			adjacent = adjacent || next.Kind == RW
		}
		oneKey = oneKey && e.Kind != RT && e.Key == key.Key
	}
	switch {
	case n[RT] > 0 && n[RW] > 1:
		return StaleRead, "G2-realtime"
	case n[RT] > 0 && n[RW] == 1:
		return StaleRead, "G-single-realtime"
	case n[RT] > 0 && n[WR] > 0:
		return FutureRead, "G1c-realtime"
	case n[RT] > 0:
		return WriteInversion, "G0-realtime"
	case n[RW] == 0 && n[WR] == 0:
		return DirtyWrite, "G0"
	case n[RW] == 0:
		return CircularInformationFlow, "G1c"
	case n[RW] == 1 && oneKey:
		return classifySingle(cycle)
	case n[RW] == 1 && absent:
		return Phantom, "G-single"
	case n[RW] == 1:
		return ReadSkew, "G-single"
	case !adjacent:
		return LongFork, "G-nonadjacent"
	case absent:
		return Phantom, "G2"
	default:
		return WriteSkew, "G2-item"
	}
}

// classifySingle names a cycle on one key with one anti-dependency, by how its
// reader also depends on the writer that it missed.
func classifySingle(cycle []Edge) (Class, string) {
	for i, e := range cycle {
		if e.Kind != RW {
			continue
		}
		switch before := cycle[(i+len(cycle)-1)%len(cycle)]; {
		case before.Kind == WW:
			return LostUpdate, "G-single"
		case before.Version == e.Version && len(cycle) == 2:
			return IntermediateRead, "G1b" // it read one of several writes of a transaction
		}
	}
	return NonRepeatableRead, "G-single"
}
