package layout

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Catalog is the durable memory of the control path: a small ordered set of
// entries, changed atomically and rarely, never on the data path. Package
// memory/catalog has implementations, memory/catalog/catalogtest what each must
// pass. All methods are safe for concurrent use.
//
// What the entries mean is the business of this package; a catalog keeps bytes.
//
// A catalog does not go back: its revisions compare across openings of it, and across all of its
// handles. A question that is asked when a revision is known is answered with that one or a later
// one; an earlier one is of an old copy, of which a *BehindError tells.
type Catalog interface {
	// Name says what the catalog is, for errors: a path, or "in memory".
	Name() string
	// Identity tells the catalog from all others. It is random, made with the catalog, and the same
	// in each opening of it. Zero: it has none, since it was made by an earlier release, and was
	// not opened for writing since.
	Identity() (Identity, error)
	// Load returns all entries in the order of their keys, and the revision that
	// they are. The caller may keep and change what it gets.
	Load() ([]Entry, Revision, error)
	// Apply makes the changes durable, all or none, provided that the catalog is
	// still at revision rev; otherwise it returns ErrRevision. An entry without
	// a value is deleted. An error other than ErrRevision leaves open whether
	// the changes were made, or are yet, while the catalog is at revision rev.
	Apply(rev Revision, changes []Entry) (Revision, error)
	// Revision asks at which revision the catalog is. Without an answer it fails: nothing is known
	// then, not even that nothing has changed.
	Revision() (Revision, error)
	// Await returns the revision as soon as it is larger than after, at once if it is known to be
	// so already. When ctx ends before, it returns the error of ctx. ErrClosed: the catalog is
	// closed, or is so meanwhile, if that ends its use.
	Await(ctx context.Context, after Revision) (Revision, error)
	// KeepAlive notes that a member is alive, and what it knows, and returns what was noted of
	// every member last, in order. It is no change: it makes no new revision, and is forgotten when
	// the catalog is opened anew. ErrEnded: the member is registered no more, and nothing was
	// noted. Member 0 only asks.
	KeepAlive(b Beat) ([]Beat, error)
	// Close releases the catalog's resources.
	Close() error
}

// Beat is a sign of life of a member: a process, or a server of blades, by the number of
// its registration. A member whose count has not changed for its term, by the clock of
// whoever looks, is late.
type Beat struct {
	Member uint32
	Count  uint64 // of beats since the catalog was opened; KeepAlive counts
	Knows  Epoch  // what the member does behind the beat, it does by this epoch, or a later one
	// Rested: all that the member had begun before it knew of a change that all must know
	// (memory/rest.go) has ended, for the changes up to this revision.
	Rested Revision
}

// MemberOf returns the member that is registered as long as there is an entry of a key; false: it
// is none of a member.
func MemberOf(key string) (member uint32, ok bool) {
	prefix := prefixProcess
	if strings.HasPrefix(key, PrefixServer) {
		prefix = PrefixServer
	}
	text, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil || KeyOf(prefix, uint32(n)) != key || prefix == PrefixServer != (n >= FirstServer) { // of 32 bits
		return 0, false
	}
	return uint32(n), true // of 32 bits
}

// Entry is a key and its value.
type Entry struct {
	Key   string
	Value []byte // nil: deleted
}

// Identity is of a catalog.
type Identity [16]byte

// String returns 32 hexadecimal digits.
func (id Identity) String() string { return fmt.Sprintf("%x", id[:]) }

// Revision counts the changes of a catalog since it was made. It is as durable as they are.
type Revision uint64

// BehindError is of a catalog that does not have what was seen of it: an old copy was brought back.
// It is an ErrForeign.
type BehindError struct {
	Name string   // of the catalog
	Have Revision // of what is there
	Seen Revision // the latest that was seen
}

// Error has both revisions, and says what to do.
func (e *BehindError) Error() string {
	return fmt.Sprintf("memory: catalog %s is an old copy: it is at revision %d, and was seen at %d. Bring the "+
		"newest back; if it is lost, restore the database from a backup", e.Name, e.Have, e.Seen)
}

// Is matches ErrForeign.
func (e *BehindError) Is(target error) bool { return target == ErrForeign }

// Behind returns a *BehindError if a catalog is at an earlier revision than one that was seen
// before it was asked; else nil.
func Behind(name string, have, seen Revision) error {
	if have < seen {
		return &BehindError{Name: name, Have: have, Seen: seen}
	}
	return nil
}
