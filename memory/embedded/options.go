package embedded

import (
	"errors"
	"fmt"
	"math/bits"

	"txnode/memory"
	"txnode/memory/layout"
)

// Defaults of a new database.
const (
	DefaultBlades    = 2
	DefaultBladeSize = 16 << 30
	DefaultReplicas  = 2
	// DefaultFileSegment is the SegmentSize of a new database in a directory. A segment takes its
	// disk space at once, so that a full disk is an error and not a fault in the middle of a
	// transaction. Memory comes page by page: anonymous databases have memory.DefaultSegmentSize.
	DefaultFileSegment = 8 << 20
)

// Options of a database. The zero value is an anonymous database with two
// blades of 16 GiB (used as data arrives) and one backup. A database that exists
// has its geometry: what is zero here is taken from it, and what is not must be
// the same, but for BladeSize, which may be larger than it was.
type Options struct {
	// Dir is the directory; empty: anonymous memory. It is created if need be.
	Dir string
	// Blades is the number of memory blades, at most layout.MaxBlades; 0: 2.
	Blades int
	// BladeSize is the size of each blade's region in bytes, a multiple of 64
	// KiB; 0: 16 GiB. Memory and disk are used as data arrives.
	BladeSize uint64
	// Replicas is the number of copies of each segment, f + 1: 1, 2 or 3; 0:
	// 2, or 1 if there is only one blade.
	Replicas int
	// SegmentSize in bytes: see memory.Options; 0: 64 MiB, or in a directory 8 MiB, but
	// at most a 256th of BladeSize, or 4 MiB if that is less; of blades below 256 MiB 2 MiB, and of
	// those below 32 MiB a 16th of it; and at least LogArea.
	SegmentSize uint32
	// LogArea in bytes: see memory.Options; 0: 4 MiB, or SegmentSize if that is
	// smaller.
	LogArea uint32
	// ReadOnly opens a database that exists without changing it; other read-only
	// openers may share it.
	ReadOnly bool
	// ReplaceLost gives up the regions whose files are missing from the directory, or
	// blank: their blades count as lost (layout.DeclareDead) and begin anew with blank files.
	// Without it such a database is refused, since a file may come back: with its disk, or
	// from a copy. One region at least must be there.
	ReplaceLost bool
	// LeaveOut, of a ReadOnly one, leaves out the regions whose files are missing, too
	// short, or cannot be opened, instead of refusing the database: their blades are blank
	// memory, and Host.LeftOut says why. It is for who checks what is left.
	LeaveOut bool
	// HugePages takes anonymous memory from the explicit huge pages that the
	// system has reserved. Transparent ones are used anyway.
	HugePages bool
	// Durable makes the control path survive a loss of power: see memory.Options.
	Durable bool
	// KeepFaulty, of Connect: a region of whose file something cannot be accessed is not a
	// blade that has died; what meets it fails with rdma.StatusIO.
	KeepFaulty bool
	// Seed of all randomness; 0: from the clock.
	Seed uint64
}

// Validate lists every fault of the options at once.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...)))
	}
	if o.Blades < 0 || o.Blades > layout.MaxBlades {
		bad("Blades is %d: 1 to %d are possible", o.Blades, layout.MaxBlades)
	}
	if o.BladeSize%granule != 0 {
		bad("BladeSize is %d: a multiple of 64 KiB is needed", o.BladeSize)
	}
	if o.Replicas < 0 || o.Replicas > layout.MaxReplicas {
		bad("Replicas is %d: 1, 2 and 3 are possible", o.Replicas)
	}
	if o.Blades > 0 && o.Replicas > o.Blades {
		bad("%d Blades are too few for %d copies of everything, each of which needs a blade of its own",
			o.Blades, o.Replicas)
	}
	if o.HugePages && o.Dir != "" {
		bad("HugePages are for anonymous memory, and Dir is %q", o.Dir)
	}
	if o.LeaveOut && !o.ReadOnly {
		bad("LeaveOut is for ReadOnly: what is left out cannot be written")
	}
	if o.ReadOnly && o.Dir == "" {
		bad("ReadOnly needs a Dir")
	}
	if err := (memory.Options{SegmentSize: o.SegmentSize, LogArea: o.LogArea}).Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// WithDefaults returns the options of a new database with the geometry that it would have, but for
// LogArea.
func (o Options) WithDefaults() Options {
	o.withGeometry(nil)
	fill(&o.BladeSize, DefaultBladeSize)
	return o
}

// withGeometry completes the options with what the database has (nil: none
// exists), or the defaults. It returns memory's part.
func (o *Options) withGeometry(l *layout.Layout) memory.Options {
	if l != nil {
		fill(&o.Blades, len(l.Blades))
		fill(&o.Replicas, l.Backups+1)
		fill(&o.SegmentSize, l.SegmentSize)
		fill(&o.LogArea, l.LogArea)
	}
	if o.Blades == 0 {
		o.Blades = max(DefaultBlades, o.Replicas)
	}
	fill(&o.Replicas, min(DefaultReplicas, o.Blades))
	fill(&o.SegmentSize, o.defaultSegment())
	return memory.Options{
		Backups:     o.Replicas - 1,
		SegmentSize: o.SegmentSize,
		LogArea:     o.LogArea,
		ReadOnly:    o.ReadOnly,
		Durable:     o.Durable,
		Openings:    o.Dir != "",
		Parts:       o.Dir != "",
	}
}

// defaultSegment is the SegmentSize of a new database: blades have room for 256 segments, since
// each size of blocks takes one at least; but segments have room for a record of a megabyte, and
// for 4 MiB of log where that is not much.
func (o *Options) defaultSegment() uint32 {
	most := uint64(memory.DefaultSegmentSize)
	if o.Dir != "" {
		most = DefaultFileSegment
	}
	if size := o.BladeSize; size != 0 {
		least := uint64(2 << 20)
		if size >= 256<<20 {
			least = 4 << 20
		}
		share := max(size/256, min(least, size/16))
		share = 1 << (bits.Len64(share|1) - 1) // rounded down to a power of two
		most = min(most, max(share, layout.MinSegmentSize))
	}
	return max(uint32(most), o.LogArea)
}

func fill[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
