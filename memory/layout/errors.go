package layout

import (
	"errors"
	"fmt"

	"txnode/rdma"
)

// Errors about bytes and layouts; test with errors.Is.
var (
	// ErrExhausted: numbers that are never reused (coordinators, tables,
	// segments, epochs) are used up. A backup, restored as a new database, has those of
	// coordinators and epochs anew.
	ErrExhausted = errors.New("memory: numbers are used up")
	// ErrCorrupt: stored data is damaged. All errors are that which say so of a part of
	// the database, here and in the packages above.
	ErrCorrupt = errors.New("stored data is damaged")
	// ErrDamaged: the catalog or a structure on a blade has bytes that cannot be.
	ErrDamaged error = DamageError("memory: damaged")
	// ErrForeign: a blade belongs to another database, or to none that is known.
	ErrForeign = errors.New("memory: foreign blade")
	// ErrNotFormatted: there is no database, and options forbid to create one.
	ErrNotFormatted = errors.New("memory: no database here")
	// ErrFormat: the database was written by a version that this one cannot read.
	ErrFormat = errors.New("memory: unknown format version")
	// ErrDown: the blade was declared dead already.
	ErrDown = errors.New("memory: blade was declared dead before")
	// ErrStale: a blade has come with an old copy of its region, and the last copy of some segments
	// was on it; a *StaleError says which. Nothing has changed.
	ErrStale = errors.New("memory: old copy of a blade")
	// ErrGeometry: the options contradict the database, or an old copy of a file the others.
	ErrGeometry = errors.New("memory: geometry differs")
	// ErrLost: every copy of a segment died with its blade; a *LostError says which.
	ErrLost = errors.New("memory: data is lost")
	// ErrLayout: a change of the layout would break one of its invariants.
	ErrLayout = errors.New("memory: impossible layout")
)

// DamageError is a sentinel that says which part of a database is damaged. It is an
// ErrCorrupt.
type DamageError string

func (c DamageError) Error() string { return string(c) }

// Is matches ErrCorrupt.
func (c DamageError) Is(target error) bool { return target == ErrCorrupt }

// StaleError says that the region of a blade is an old copy: the blade has been told of a later
// revision of the catalog than the region. It is an ErrStale, and, as other old copies of
// files, an ErrGeometry.
type StaleError struct {
	Blade  rdma.BladeID
	Name   string
	Has    Revision // of which the region was told last; 0: of none
	Knows  Revision // of which the blade was told, as the catalog knows
	Advice string   // what to do
	// Unflushed: its host has restarted without having written the region to its disk.
	Unflushed bool
}

// Error has both revisions, and says what to do.
func (e *StaleError) Error() string {
	if e.Unflushed {
		return fmt.Sprintf("memory: %s: its host has restarted before its region was on the disk, so what was "+
			"written last may be missing; it was told of revision %d of the catalog last: %s", e.Name, e.Has, e.Advice)
	}
	return fmt.Sprintf("memory: %s: its region is an old copy: it was told of revision %d of the catalog last, and "+
		"the newest of revision %d or later: %s", e.Name, e.Has, e.Knows, e.Advice)
}

// Is matches ErrStale and ErrGeometry.
func (e *StaleError) Is(target error) bool { return target == ErrStale || target == ErrGeometry }

// Anew is what helps when coordinators or epochs are used up.
const Anew = "restore a backup of it as a new database, which begins with new ones"

// BladeError says what is wrong with a blade, by the name that the options give it.
type BladeError struct {
	Blade rdma.BladeID
	Name  string
	Err   error // ErrForeign, ErrDamaged, ErrGeometry, ErrFormat or a verb's error
	What  string
}

// Error returns "memory: blade 0 (file): what: kind".
func (e *BladeError) Error() string { return fmt.Sprintf("memory: %s: %s: %v", e.Name, e.What, e.Err) }

// Unwrap returns the kind of error.
func (e *BladeError) Unwrap() error { return e.Err }
