package memory

import (
	"errors"
	"fmt"
	"strings"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Errors of this package; test with errors.Is.
var (
	// ErrNoSpace: the blades have no room for another segment; what it is
	// wrapped in, a *NoSpaceError, says how much is missing where.
	ErrNoSpace = errors.New("memory: blades are full")
	// ErrTooLarge: a block or extent is larger than a segment can hold: use a
	// larger SegmentSize when the database is created.
	ErrTooLarge = errors.New("memory: larger than a segment")
	// ErrTableExists: there is a table of this name.
	ErrTableExists = errors.New("memory: table exists")
	// ErrNoTable: there is no table of this number.
	ErrNoTable = errors.New("memory: no such table")
	// ErrNoCoordinator: there is no open coordinator of this number.
	ErrNoCoordinator = errors.New("memory: no such coordinator")
	// ErrClaimed: another claimant is recovering the coordinator: wait until the coordinator is
	// gone, or the claim has expired.
	ErrClaimed = errors.New("memory: coordinator is being recovered")
	// ErrGated: a blade has died, and the transactions that were at work are not all
	// decided yet: wait until they are.
	ErrGated = errors.New("memory: a blade has died, and its transactions are being decided")
	// ErrReadOnly: the database was attached read-only.
	ErrReadOnly = errors.New("memory: attached read-only")
	// ErrShared: other processes have the database open, and what was asked for needs to be alone
	// with it.
	ErrShared = errors.New("memory: other processes have the database open")
	// ErrCut: a backup beside other processes has failed: see Space.EndCut.
	ErrCut = errors.New("memory: the backup has failed")
	// ErrClosed: the space was closed.
	ErrClosed = errors.New("memory: closed")
	// ErrEnded: others have taken this process, or its coordinator, for dead, and what it
	// had begun before has no effect any more: begin anew. It is an rdma.ErrStaleKey, which
	// verbs of that time get.
	ErrEnded = fmt.Errorf("memory: others have taken this process for dead, and what it had begun has no effect: %w",
		rdma.ErrStaleKey)
	// ErrRevision: the catalog was changed by another process since the revision that was given, or
	// changes all the time, while it is asked what has become of a change.
	ErrRevision = errors.New("memory: catalog was changed by another process")
	// ErrAway: the catalog is elsewhere and does not answer. A change of it may have been made, or
	// may be yet. What needs no change of the catalog goes on.
	ErrAway = errors.New("memory: the catalog does not answer")
	// ErrSettled: no copy is to be dropped, or the blade is none that can retire: another
	// process was first.
	ErrSettled = errors.New("memory: nothing is to be moved any more")
	// ErrUnrevoked: late verbs may take effect on a blade, since it has not changed its
	// access keys: try again.
	ErrUnrevoked = errors.New("memory: a blade has not ended the access keys of earlier epochs yet")
	// ErrExtentGone: an extent that was to be reserved is not the caller's any more:
	// allocate another one.
	ErrExtentGone = errors.New("memory: the extent was given back, or another process has discarded it")
	// ErrCutOff: nothing is heard of blades that may serve other processes, or of so many that data
	// would be lost without them, so they were not declared dead. A *CutOffError names them.
	ErrCutOff = errors.New("it may serve others, so it is not declared dead: look after the way to it, or the blade, " +
		"and try again")
	// ErrStuck: copies cannot be made, since a block stays locked.
	ErrStuck = errors.New("memory: copies wait for a lock")
)

// AwayError is a sentinel that says which kind of catalog does not answer. It is an ErrAway.
type AwayError string

func (e AwayError) Error() string { return string(e) }

// Is matches ErrAway.
func (e AwayError) Is(target error) bool { return target == ErrAway }

// NoSpaceError says which blades lack room for a segment. It is an ErrNoSpace.
type NoSpaceError struct {
	What    string       // what the segment was for
	Need    uint64       // bytes of one copy of the segment, or of the part of it that has no memory
	Copies  int          // how many blades must have room
	Free    []uint64     // bytes left, by blade
	Sizes   []uint64     // bytes of the region, by blade; 0: the blade is down
	Backing error        // why a blade could not provision, if that was it
	Blade   rdma.BladeID // which one that was
}

// Error says what the blades' memory comes from lacks, if that was it; else it names the bytes
// per blade and the option to raise.
func (e *NoSpaceError) Error() string {
	var b strings.Builder
	if e.Backing != nil {
		return fmt.Sprintf("memory: a blade cannot grow: a segment for %s needs %s on %d of %d blades: %v",
			e.What, byteCount(e.Need), e.Copies, len(e.Free), e.Backing)
	}
	fmt.Fprintf(&b, "memory: blades are full: a segment for %s needs %s on %d of %d blades; free:",
		e.What, byteCount(e.Need), e.Copies, len(e.Free))
	for i := range e.Free {
		if e.Sizes[i] == 0 {
			fmt.Fprintf(&b, " blade %d: down;", i)
			continue
		}
		fmt.Fprintf(&b, " blade %d: %s of %s;", i, byteCount(e.Free[i]), byteCount(e.Sizes[i]))
	}
	b.WriteString(" raise BladeSize (a database in a directory grows when it is reopened), or delete records: others " +
		"of their size, or smaller, find room then, and a copy that is restored from a backup has all of it for any")
	return b.String()
}

// byteCount is n in the largest unit of which it is a multiple.
func byteCount(n uint64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n > 0 && n&(1<<u.shift-1) == 0 {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// Is matches ErrNoSpace.
func (e *NoSpaceError) Is(target error) bool { return target == ErrNoSpace }

// Unwrap returns why a blade could not provision.
func (e *NoSpaceError) Unwrap() error { return e.Backing }

// LostError says which segment has no copy left. It is an ErrLost.
type LostError struct {
	Segment layout.SegmentID
	Kind    layout.SegmentKind
	Blades  []string // that had the last copies, the last to die first
}

// Error names the segment and the blades, and says what is left to do.
func (e *LostError) Error() string {
	where := "its blade"
	if len(e.Blades) > 0 {
		where = strings.Join(e.Blades, " and ")
	}
	return fmt.Sprintf("memory: segment %d (%v) is lost: every copy died, with %s; everything outside of it goes on. "+
		"Restore the database from a backup", e.Segment, e.Kind, where)
}

// Is matches ErrLost.
func (e *LostError) Is(target error) bool { return target == layout.ErrLost }
