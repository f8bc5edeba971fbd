package rdma

import (
	"errors"
	"fmt"
)

// Evidence is what an error of a connection says about the blades of the server that was to be
// connected to. Trouble of one process is no evidence about a blade that others use, and a server
// that refuses to talk lives. See EvidenceOf.
type Evidence uint8

const (
	// NoEvidence: the error is none of a connection. An ErrBladeDown is then what the fabric knows
	// itself, or what the server says of its blade.
	NoEvidence Evidence = iota
	// Own: trouble of this process, such as too few descriptors, ports or rights, a name that was
	// not found, options, or a context that has ended. It says nothing of the server. An error of a
	// connection that is in no other class is in this one.
	Own
	// Silent: nothing was heard, or the connection ended without a word. The server may be gone, or
	// stopped, or serve others.
	Silent
	// Refused: nothing listens at the address. It is a sign that the server is gone and no proof: a
	// firewall or a tunnel refuses, too.
	Refused
	// Alive: something talks there, and not to this process: for its version, its secret, its
	// certificate or its user, or because there are too many connections.
	Alive
	// Restarted: another incarnation of the server talks, so the memory of the earlier one is gone.
	Restarted
)

// String returns the name in lower case.
func (e Evidence) String() string {
	names := [...]string{"no evidence", "own", "silent", "refused", "alive", "restarted"}
	if int(e) >= len(names) {
		return fmt.Sprintf("evidence %d", uint8(e))
	}
	return names[e]
}

// EvidenceOf returns the class of an error: that of the first error in its tree that has
// a method Evidence.
func EvidenceOf(err error) Evidence {
	var e interface{ Evidence() Evidence }
	if !errors.As(err, &e) {
		return NoEvidence
	}
	return e.Evidence()
}
