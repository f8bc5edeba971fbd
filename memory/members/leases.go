package members

import "txnode/memory/layout"

// Lease is how a member's lease stands, by the clock of the observer.
type Lease uint8

// States of a lease.
const (
	LeaseUnknown Lease = iota // no sign of life was heard yet, and the term has not passed
	LeaseAlive
	// LeaseLate: more than two thirds of the term have passed since the last sign of life, of which
	// there are three in a term
	LeaseLate
	LeaseExpired // the term has passed
)

// String returns the word.
func (l Lease) String() string { return [...]string{"unknown", "alive", "late", "expired"}[l] }

// Leases are the signs of life of members, as one observer hears of them. Clocks of others do not
// count: a lease lasts for its term from when the observer has seen its count move. The zero Leases
// have heard of none.
type Leases struct {
	of map[uint32]heard
}

type heard struct {
	count uint64
	at    int64 // ns of the observer's clock, when it was first seen
	moved bool  // since the observer has listened
}

// Heed takes over what a catalog says of all members at a time, in ns.
func (l *Leases) Heed(beats []layout.Beat, now int64) {
	next := make(map[uint32]heard, len(beats))
	for _, b := range beats {
		h, known := l.of[b.Member]
		switch {
		case !known:
			h = heard{count: b.Count, at: now}
		case h.count != b.Count:
			h = heard{count: b.Count, at: now, moved: true}
		}
		next[b.Member] = h
	}
	l.of = next
}

// Known reports whether the catalog tells of a member at all. One of an earlier release tells
// of processes alone.
func (l *Leases) Known(member uint32) bool {
	_, ok := l.of[member]
	return ok
}

// State is how the lease of a member stands that has a term in ns. A member of which the catalog
// does not tell is unknown.
func (l *Leases) State(member uint32, term, now int64) Lease {
	h, ok := l.of[member]
	switch since := now - h.at; {
	case !ok:
		return LeaseUnknown
	case since > term:
		return LeaseExpired
	case !h.moved:
		return LeaseUnknown
	case since > term/3*2:
		return LeaseLate
	}
	return LeaseAlive
}

// Over reports whether the lease of a member has ended more than a number of terms ago.
func (l *Leases) Over(member uint32, term int64, terms int64, now int64) bool {
	h, ok := l.of[member]
	return ok && (now-h.at)/term > terms
}
