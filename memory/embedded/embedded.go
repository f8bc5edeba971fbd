package embedded

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"txnode/internal/owndir"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// CatalogName is the name of the catalog's file: a directory that has none has no database.
const CatalogName = "catalog.db"

// bladeName is the file of a blade.
func bladeName(i int) string { return fmt.Sprintf("blade-%03d.region", i) }

const bladePattern = "blade-*.region"

// Host is the resources of a database: its memory, its catalog, and the lock on its directory. It
// is for callers that attach a [memory.Space] themselves; [Open] does that.
type Host struct {
	Fabric  rdma.Fabric
	Catalog layout.Catalog
	// Options are for memory.Open: the geometry of the database that is there,
	// or of the new one.
	Options memory.Options
	// Tightened: other users had rights to the directory, or to files in it, and have none any
	// more.
	Tightened bool

	fabric *inproc.Fabric
	lock   *dirLock // nil: anonymous
	dir    string   // of a database that is open for writing, and promises to survive a loss of power
	// sound are the region files of which the disk has what the system shows of them, but for
	// what is written from now on; marks are what was noted of them when they were closed.
	sound []string
	marks marks
	// own is what the sound ones were when they were mapped: later, another file may have the name.
	own map[string]mark
	// Replaced are the blades whose regions were given up: see Options.ReplaceLost.
	Replaced []rdma.BladeID
	// LeftOut are the blades in use whose regions are not there, and why: see
	// Options.LeaveOut.
	LeftOut map[rdma.BladeID]error
}

// Connect locks the directory of the options, opens or creates the catalog, and
// maps the regions. On an error nothing stays open, and nothing of a database
// that was there has changed, but that its regions may have to be written again (marks.go).
func Connect(o Options) (*Host, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	h := &Host{}
	if err := h.connect(o); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *Host) connect(o Options) error {
	l, err := h.openCatalog(&o)
	if err != nil {
		return err
	}
	if o.ReplaceLost && l != nil {
		if l, err = h.replaceLost(&o, l); err != nil {
			return err
		}
	}
	h.Options = o.withGeometry(l)
	blades, err := h.blades(&o, l)
	if err != nil {
		return err
	}
	if o.Seed == 0 || o.Dir != "" {
		_, _ = rand.Read(h.Options.UUID[:]) // never fails
	}
	if h.fabric, err = inproc.New(inproc.Options{Blades: blades, Seed: o.Seed, KeepFaulty: o.KeepFaulty}); err != nil {
		switch {
		case !errors.Is(err, unix.ENOMEM):
		case o.HugePages:
			err = fmt.Errorf("%w: too few are reserved; reserve more of 2 MiB, or choose a smaller BladeSize", err)
		default:
			err = fmt.Errorf("%w: the address space that a blade reserves is limited here (ulimit -v): raise the "+
				"limit, or choose a smaller BladeSize for a new database", err)
		}
		return err
	}
	h.Fabric = h.fabric
	h.recognize()
	return nil
}

// openCatalog locks the directory and reads the layout of the database in it,
// nil if there is none yet.
func (h *Host) openCatalog(o *Options) (*layout.Layout, error) {
	if o.Dir == "" {
		h.Catalog = &catalog.Mem{}
		return nil, nil
	}
	var err error
	if o.ReadOnly {
		_, err = os.Stat(o.Dir)
	} else {
		err = MakeDir(o.Dir)
	}
	if _, e := os.Readlink(o.Dir); e == nil && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("memory: %s is a link, and what it leads to is not there: mount or make that "+
			"directory, or name another: %w", o.Dir, err)
	}
	if errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("memory: %s is no directory, or one above it is none: name that of a database: %w",
			o.Dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	if !o.ReadOnly {
		if h.Tightened, err = owndir.Dir(o.Dir, lockName, CatalogName, bladePattern, marksName, marksName+
			".new"); err != nil {
			return nil, fmt.Errorf("memory: %w", err)
		}
	}
	path := filepath.Join(o.Dir, CatalogName)
	if o.ReadOnly {
		// Nothing is left in a directory of something else, not even a lock.
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s", catalog.ErrNotFound, path)
		}
	}
	if h.lock, err = lockDir(o.Dir, o.ReadOnly); err != nil {
		return nil, err
	}
	if !o.ReadOnly {
		h.marks = takeMarks(o.Dir)
		if o.Durable { // the working directory may be another one when it is closed
			h.dir, _ = filepath.Abs(o.Dir) // without it nothing is noted
		}
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !o.ReadOnly {
		// No new catalog beside the regions of a database that has lost its own.
		for i := range layout.MaxBlades {
			if err := checkBlank(filepath.Join(o.Dir, bladeName(i))); err != nil {
				return nil, err
			}
		}
	}
	cat, err := catalog.OpenBolt(path, o.ReadOnly)
	if errors.Is(err, catalog.ErrLocked) { // by who has it without LOCK
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	if err != nil {
		return nil, err
	}
	h.Catalog = cat
	l, err := layout.LoadLayout(cat)
	switch {
	case err != nil:
		return nil, err
	case l == nil && o.ReadOnly:
		return nil, fmt.Errorf("%w: %s", layout.ErrNotFormatted, o.Dir)
	case l != nil && o.SegmentSize != 0 && o.SegmentSize != l.SegmentSize:
		return nil, fmt.Errorf("%w: the database in %s has SegmentSize %d, not %d", layout.ErrGeometry, o.Dir,
			l.SegmentSize, o.SegmentSize)
	}
	return l, nil
}

// MakeDir makes a directory, and those above it that are missing, for this user alone, so that they
// survive a loss of power: what is flushed in a directory is of no use without its name.
func MakeDir(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil
	}
	above := filepath.Dir(path)
	if above != path {
		if err := MakeDir(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, owndir.DirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if st, err := os.Stat(path); err != nil {
		return err
	} else if !st.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
	}
	if err := Sync(above); !errors.Is(err, fs.ErrPermission) { // else it is its owner's business
		return err
	}
	return nil
}

// Sync makes what is in a file durable, or the names that are in a directory.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Close unmaps the regions, closes the catalog, and unlocks the directory.
// Spaces and threads on the fabric must have been closed; if one was not,
// nothing else is closed either, and Close may be called again.
func (h *Host) Close() error {
	if h.fabric != nil {
		noted := h.note()
		if err := h.fabric.Close(); err != nil {
			return err
		}
		h.fabric = nil
		noted.put(h.dir)
	}
	var err error
	if h.Catalog != nil {
		err = h.Catalog.Close()
		h.Catalog = nil
	}
	if h.lock != nil {
		err = errors.Join(err, h.lock.release())
		h.lock = nil
	}
	return err
}

// blades describes the regions, and compares the files with what the catalog
// says of them before anything is mapped or made longer.
func (h *Host) blades(o *Options, l *layout.Layout) ([]inproc.BladeOptions, error) {
	mo := &h.Options
	if l != nil && len(l.Blades) != o.Blades {
		return nil, fmt.Errorf("%w: the database in %s has %d blades, not %d", layout.ErrGeometry, o.Dir,
			len(l.Blades), o.Blades)
	}
	var out []inproc.BladeOptions
	for i := range o.Blades {
		b := inproc.BladeOptions{Size: o.BladeSize, HugePages: o.HugePages, ReadOnly: o.ReadOnly}
		if o.Dir != "" {
			b.Path = filepath.Join(o.Dir, bladeName(i))
			mo.BladeNames = append(mo.BladeNames, b.Path)
			var stored uint64
			if l != nil {
				stored = l.Blades[i].Size
			}
			var err error
			down := l != nil && l.Blades[i].State == layout.BladeDown
			b.Size, err = o.fileSize(rdma.BladeID(i), b.Path, l, stored, down)
			spare := o.LeaveOut || down && o.ReadOnly
			if err == nil && spare {
				err = openable(b.Path)
			}
			switch {
			case err != nil && !spare:
				return nil, err
			case err != nil:
				b = inproc.BladeOptions{Size: stored}
				if down { // who only reads does not need it
					break
				}
				if h.LeftOut == nil {
					h.LeftOut = map[rdma.BladeID]error{}
				}
				h.LeftOut[rdma.BladeID(i)] = err
			}
		}
		fill(&b.Size, DefaultBladeSize)
		if b.Path != "" && l != nil && l.Blades[i].State == layout.BladeUp && !o.ReadOnly {
			b.Reserve = holes(b.Path, l, rdma.BladeID(i))
		}
		if b.Path != "" && l != nil && l.Blades[i].State == layout.BladeUp && (l.Checkpoint != 0 || o.Durable) {
			if !h.marks.hold(b.Path) {
				b.Settle = l.Provisioned(rdma.BladeID(i))
			}
			h.sound = append(h.sound, b.Path)
		} else if _, err := os.Lstat(b.Path); b.Path != "" && l == nil && errors.Is(err, fs.ErrNotExist) {
			h.sound = append(h.sound, b.Path) // it is made now
		}
		out = append(out, b)
	}
	return out, nil
}

// openable says why a file cannot be opened for reading.
func openable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	return f.Close()
}

// regular says that something is no file, of which a directory has a length, too, and
// which a pipe keeps waiting who opens it.
func regular(path string, st fs.FileInfo) error {
	if st.Mode().IsRegular() {
		return nil
	}
	what := "a directory"
	if !st.IsDir() {
		what = "a device, pipe or socket"
	}
	return fmt.Errorf("%w: %s is %s, and no file: move it away", layout.ErrForeign, path, what)
}

// holes are the parts of a blade that have to have disk blocks, if its file has fewer than it takes
// to hold them: a copy that was made sparse, which would be found out by a fault on a full disk.
func holes(path string, l *layout.Layout, b rdma.BladeID) [][2]uint64 {
	parts, all := l.Provisioned(b), uint64(0)
	for _, p := range parts {
		all += p[1]
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || uint64(st.Blocks)*512 >= all {
		return nil
	}
	return parts
}

// granule is what the size of a region is a multiple of.
const granule = 64 << 10

// fileSize is how large the region in a file will be, 0: default. A file that is longer than the
// catalog says was about to grow when the process was killed. That of a blade that is down may be
// missing, or shorter: it is out of date. l is nil if there is no database yet.
func (o *Options) fileSize(b rdma.BladeID, path string, l *layout.Layout, stored uint64, down bool) (uint64, error) {
	exists := l != nil
	if exists && o.BladeSize != 0 && o.BladeSize < stored {
		return 0, fmt.Errorf("%w: %s has %d bytes; BladeSize is %d, and regions cannot shrink",
			layout.ErrGeometry, path, stored, o.BladeSize)
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !exists:
		return o.BladeSize, nil
	case errors.Is(err, fs.ErrNotExist) && down && !o.ReadOnly:
		return max(stored, o.BladeSize), nil
	case errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("%w: %s, the region of a blade with %d bytes: bring the file back, or %s",
			ErrMissing, path, stored, l.Remedy(b))
	case err != nil:
		return 0, fmt.Errorf("memory: %w", err)
	}
	if err := regular(path, st); err != nil {
		return 0, err
	}
	size := uint64(st.Size())
	if exists && size < stored && (!down || o.ReadOnly) {
		return 0, fmt.Errorf("%w: %s has %d bytes, the catalog says %d: bring the whole file back, or move "+
			"it away and %s", ErrMissing, path, size, stored, l.Remedy(b))
	}
	if exists && !down && size > stored && size%granule != 0 {
		return 0, fmt.Errorf("%w: %s has %d bytes, the catalog says %d, and regions have whole 64 KiB: cut off what "+
			"was appended", layout.ErrForeign, path, size, stored)
	}
	if !exists {
		if err := checkBlank(path); err != nil {
			return 0, err
		}
	}
	if o.ReadOnly {
		return size, nil
	}
	return max(size, stored, o.BladeSize), nil
}

// Lost lists the blades of the database in a directory, which nobody else has open for
// writing, whose regions are missing or blank although they are in use. missing is how many
// copies there are too few besides, since a blade was lost or given up before.
func Lost(dir string) (blades []rdma.BladeID, missing int, err error) {
	h := &Host{}
	l, err := h.openCatalog(&Options{Dir: dir, ReadOnly: true})
	if err == nil {
		missing = l.Redundancy().Missing
		blades, err = lost(dir, l)
	}
	return blades, missing, errors.Join(err, h.Close())
}

func lost(dir string, l *layout.Layout) (blades []rdma.BladeID, err error) {
	for i := range l.Blades {
		if l.Blades[i].State == layout.BladeDown {
			continue
		}
		switch err := checkBlank(filepath.Join(dir, bladeName(i))); {
		case errors.Is(err, layout.ErrForeign): // something is in it
		case err != nil:
			return nil, err
		default:
			blades = append(blades, rdma.BladeID(i))
		}
	}
	return blades, nil
}

// replaceLost gives up the regions that are missing or blank, and returns the layout
// without them.
func (h *Host) replaceLost(o *Options, l *layout.Layout) (_ *layout.Layout, err error) {
	if h.Replaced, err = lost(o.Dir, l); err != nil || len(h.Replaced) == 0 {
		return l, err
	}
	// Nothing is given up for copies that are not there: the error of the blade that has none is
	// that of an opening, and the files may all be found later.
	for i := range l.Blades {
		if l.Formatted && l.Blades[i].State == layout.BladeUp && !slices.Contains(h.Replaced, rdma.BladeID(i)) {
			if err := o.owned(l, i); err != nil {
				return nil, fmt.Errorf("%w; the regions of blades %v, which are missing or blank, were not given up",
					err, h.Replaced)
			}
		}
	}
	if err := layout.DeclareDead(h.Catalog, h.Replaced...); err != nil {
		return nil, fmt.Errorf("memory: %s: giving up the regions of blades %v, which are missing or blank: %w",
			o.Dir, h.Replaced, err)
	}
	return layout.LoadLayout(h.Catalog)
}

// owned makes sure that the file of a blade has the region that the layout says it has.
func (o *Options) owned(l *layout.Layout, i int) error {
	path := filepath.Join(o.Dir, bladeName(i))
	if _, err := o.fileSize(rdma.BladeID(i), path, l, l.Blades[i].Size, false); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	defer f.Close()
	head := make([]byte, layout.HeaderArea)
	if _, err := f.ReadAt(head, 0); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	x, err := layout.ParseRegionHeader(head)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch l.Judge(rdma.BladeID(i), &x) {
	case layout.HeaderForeign:
		return fmt.Errorf("%w: the region %s belongs to database %v, the catalog to %v",
			layout.ErrForeign, path, x.UUID, l.UUID)
	case layout.HeaderMisplaced:
		return fmt.Errorf("%w: %s is the region of blade %d of %d", layout.ErrGeometry, path, x.Blade, x.Blades)
	case layout.HeaderGeometry:
		return fmt.Errorf("%w: the region %s has %d backups and segments of %d bytes, the catalog says %d and %d",
			layout.ErrGeometry, path, x.Backups, x.SegmentSize, l.Backups, l.SegmentSize)
	case layout.HeaderAhead:
		return fmt.Errorf("%w: the region %s is of epoch %d and %d bytes, the catalog of %d and %d: the catalog "+
			"is an old copy", layout.ErrGeometry, path, x.Epoch, x.Size, l.Epoch, l.Blades[i].Size)
	case layout.HeaderBehind:
		return fmt.Errorf("%w: the region %s is of epoch %d, and all were written in epoch %d: it is an old copy",
			layout.ErrGeometry, path, x.Epoch, l.Opened)
	}
	return nil
}

// checkBlank makes sure that a region file without a catalog, if there is one, was
// only being created: nothing is in its header area.
func checkBlank(path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if err := regular(path, st); err != nil {
			return err
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, layout.HeaderArea))
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	for _, x := range head {
		if x != 0 {
			return fmt.Errorf("%w: %s is not blank, and there is no catalog beside it: was it lost? Move the file "+
				"away, or bring the catalog back", layout.ErrForeign, path)
		}
	}
	return nil
}

// Database is a host with a space attached to it. Its methods are safe for
// concurrent use.
type Database struct {
	host   *Host
	space  *memory.Space
	thread *rdma.Thread // for opening and closing; nil once closed
}

// Open opens the database that the options name, or creates it.
func Open(o Options) (*Database, error) {
	h, err := Connect(o)
	if err != nil {
		return nil, err
	}
	d := &Database{host: h}
	if d.thread, err = rdma.NewThread(h.Fabric, rdma.ThreadOptions{Arena: 4 << 20}); err == nil {
		d.space, err = memory.Open(d.thread.Plain(), h.Fabric, h.Catalog, h.Options)
	}
	if err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// Space returns the memory.
func (d *Database) Space() *memory.Space { return d.space }

// Replaced are the blades whose regions were given up: see Options.ReplaceLost.
func (d *Database) Replaced() []rdma.BladeID { return d.host.Replaced }

// Tightened reports whether other users had rights to the directory, or to files in it, and
// have none any more.
func (d *Database) Tightened() bool { return d.host.Tightened }

// Fabric returns the fabric.
func (d *Database) Fabric() rdma.Fabric { return d.host.Fabric }

// Close closes the space and its host. All threads on the fabric must have been
// closed: while one is open, the directory stays locked, and Close may be called
// again. What else fails is left to the next opening, as after a crash.
func (d *Database) Close() error {
	var err error
	if d.thread != nil {
		if err = d.space.Close(d.thread.Plain()); errors.Is(err, memory.ErrClosed) {
			err = nil
		}
	}
	return errors.Join(err, d.release())
}

func (d *Database) release() error {
	if d.thread != nil {
		if err := d.thread.Close(); err != nil {
			return err
		}
		d.thread = nil
	}
	return d.host.Close()
}
