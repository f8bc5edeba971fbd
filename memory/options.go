package memory

import (
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Defaults of the geometry, in bytes.
const (
	DefaultSegmentSize = layout.MaxSegmentSize
	DefaultLogArea     = 4 << 20
)

// Options of a database's memory. The zero value is a database without backups.
type Options struct {
	// Backups is f, the number of copies of each segment beside its primary: 0,
	// 1 or 2. There must be more blades than backups.
	Backups int
	// SegmentSize is the unit in which a blade's region is handed out, in bytes:
	// a power of two from 256 KiB to 64 MiB; 0: 64 MiB.
	SegmentSize uint32
	// LogArea is the size of one coordinator's log area on each blade, in bytes:
	// a power of two from 4 KiB to SegmentSize; 0: 4 MiB, or SegmentSize if
	// that is smaller.
	LogArea uint32
	// Attach takes the geometry above from the catalog instead, and demands that
	// the database exists.
	Attach bool
	// ReadOnly attaches without writing anything, neither to the blades nor to
	// the catalog; whatever would have to returns ErrReadOnly.
	ReadOnly bool
	// Durable flushes what the control path writes to the blades before it goes
	// on, so that extents survive a loss of power on a fabric whose memory does.
	// Headers and cleared logs are flushed always.
	Durable bool
	// Shared makes a new database one that several processes can have open at once: each registers,
	// and leaves the segments of the others alone. It belongs to the database: one that is there
	// stays as it was created. The first process, when no other one has it open, recovers what is
	// left, and is alone until Space.EndAlone: others wait in Open. What the segments of those have
	// that are gone is adopted by those that need it.
	Shared bool
	// Until, of a shared database, is until when the process is registered at first, in
	// nanoseconds of the fabric's clock, counted from the call of Open, which may wait for longer
	// before; then others may end that, and its segments have no owner, unless Space.Renew has
	// made it longer. 0: for ever.
	Until int64
	// ClockDrift bounds how much faster another process's clock may run, as a part of the term of a
	// registration: see Fresh.
	ClockDrift float64
	// Damaged, if not nil, is told of damage that the Space leaves alone and goes on beside.
	Damaged func(err error)
	// GiveUp opens a shared database although blades have restarted without what they had that have
	// the last copies of some segments: these are lost then. Without it that is ErrForeign. Blades
	// whose segments have other copies count as lost in any case.
	GiveUp bool
	// Buried, if not nil, is told of blades that count as lost from this opening on: they do not
	// answer, are blank, or came with an old copy of their region (ErrStale), and all that they had
	// is on other blades, too. It must not call the Space.
	Buried func(err error)
	// Openings begins an epoch whenever the database is opened for writing, and notes it in the
	// regions and the catalog. An old copy of a region or of the catalog is then noticed. It is for
	// memory in files.
	Openings bool
	// Parts has segments and log areas take memory in parts, as they are used, instead of as a
	// whole, and notes in the catalog how much they have. It is for memory in files, where
	// what is provisioned takes disk space at once. A database may be opened with it and
	// without it in turn.
	Parts bool
	// UUID names the database; zero: drawn from the fabric's seed and clock. It
	// matters when the database is created, and never again.
	UUID layout.UUID
	// Domains name what blades share with others that fail together with them
	// (layout.Blade.Domain), by id. They matter when the database is created, and never again. May
	// be shorter than the number of blades.
	Domains []string
	// BladeNames are what errors call the blades, by id: their files, their
	// hosts. May be shorter than the number of blades.
	BladeNames []string
}

func (o Options) withDefaults() Options {
	if o.SegmentSize == 0 {
		o.SegmentSize = DefaultSegmentSize
	}
	if o.LogArea == 0 {
		o.LogArea = min(DefaultLogArea, o.SegmentSize)
	}
	return o
}

// Validate lists every fault of the options at once.
func (o Options) Validate() error {
	g := layout.Geometry{Backups: o.Backups, SegmentSize: o.SegmentSize, LogArea: o.LogArea}
	if g.SegmentSize == 0 {
		g.SegmentSize = DefaultSegmentSize
	}
	if g.LogArea == 0 {
		g.LogArea = layout.MinLogArea // the default fits whatever segments are possible
	}
	var errs []error
	if err := g.Validate(); err != nil {
		errs = append(errs, err)
	}
	if o.Shared && o.Openings {
		errs = append(errs,
			errors.New("memory: Shared does not go with Openings: an epoch that each opening begins would be one for "+
				"the others, too"))
	}
	return errors.Join(errs...)
}

// Fit returns why there can be no database with these options on some blades, an
// ErrGeometry, or nil.
func (o Options) Fit(blades []rdma.BladeInfo) error {
	o = o.withDefaults()
	if n := len(blades) - vacancies(blades); n <= o.Backups {
		return fmt.Errorf("%w: %d blades cannot hold %d backups of a segment on distinct blades: at least "+
			"%d are needed", layout.ErrGeometry, n, o.Backups, o.Backups+1)
	}
	if len(blades) > layout.MaxBlades {
		return fmt.Errorf("%w: %d blades; at most %d are possible", layout.ErrGeometry, len(blades), layout.MaxBlades)
	}
	for _, b := range blades {
		if b.Size > 0 && b.Size < layout.HeaderArea+uint64(o.SegmentSize) {
			return fmt.Errorf("%w: %s has %d bytes: too small for one segment of %d beside its header, for which %d "+
				"are needed: raise BladeSize, or choose a smaller SegmentSize",
				layout.ErrGeometry, o.bladeName(b.ID), b.Size, o.SegmentSize, layout.HeaderArea+uint64(o.SegmentSize))
		}
	}
	return nil
}

// vacancies is how many of the blades are places without one: they have no bytes.
func vacancies(blades []rdma.BladeInfo) (n int) {
	for _, b := range blades {
		if b.Size == 0 {
			n++
		}
	}
	return n
}

// bladeName is how errors call a blade.
func (o *Options) bladeName(b rdma.BladeID) string {
	if int(b) < len(o.BladeNames) && o.BladeNames[b] != "" {
		return fmt.Sprintf("blade %d (%s)", b, o.BladeNames[b])
	}
	return fmt.Sprintf("blade %d", b)
}
