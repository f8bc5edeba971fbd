package layout

import "context"

// Catalog is the durable memory of the control path: a small ordered set of
// entries, changed atomically and rarely, never on the data path. Package
// memory/catalog has implementations, memory/catalog/catalogtest what each must
// pass. All methods are safe for concurrent use.
//
// What the entries mean is the business of this package; a catalog keeps bytes.
type Catalog interface {
	// Name says what the catalog is, for errors: a path, or "in memory".
	Name() string
	// Load returns all entries in the order of their keys, and the revision that
	// they are. The caller may keep and change what it gets.
	Load() ([]Entry, Revision, error)
	// Apply makes the changes durable, all or none, provided that the catalog is
	// still at revision rev; otherwise it returns ErrRevision. An entry without
	// a value is deleted. An error other than ErrRevision leaves open whether
	// the changes were made, or are yet, while the catalog is at revision rev.
	Apply(rev Revision, changes []Entry) (Revision, error)
	// Revision asks at which revision the catalog is. Without an answer it fails: nothing is known then, not even
	// that nothing has changed.
	Revision() (Revision, error)
	// Await returns the revision as soon as it is larger than after, at once if it is known to be so already. When
	// ctx ends before, it returns the error of ctx. ErrClosed: the catalog is closed, or is so meanwhile, if that
	// ends its use.
	Await(ctx context.Context, after Revision) (Revision, error)
	// Close releases the catalog's resources.
	Close() error
}

// Entry is a key and its value.
type Entry struct {
	Key   string
	Value []byte // nil: deleted
}

// Revision counts the changes of a catalog. It is comparable within one opening
// of a catalog only.
type Revision uint64
