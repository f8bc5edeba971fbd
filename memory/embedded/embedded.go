package embedded

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

const catalogName = "catalog.db"

// bladeName is the file of a blade.
func bladeName(i int) string { return fmt.Sprintf("blade-%03d.region", i) }

// Database is an open database. Its methods are safe for concurrent use.
type Database struct {
	space  *memory.Space
	fabric *inproc.Fabric
	cat    memory.Catalog
	lock   *os.File     // nil: anonymous
	thread *rdma.Thread // for opening and closing
}

// Open opens the database in the directory of the options, or creates it. On an
// error nothing stays open, and nothing of a database that was there has changed.
func Open(o Options) (*Database, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d := &Database{}
	if err := d.open(o); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

func (d *Database) open(o Options) error {
	var l *memory.Layout
	d.cat = &catalog.Mem{}
	if o.Dir != "" {
		if !o.ReadOnly {
			if err := os.MkdirAll(o.Dir, 0o755); err != nil {
				return fmt.Errorf("embedded: %w", err)
			}
		} else if _, err := os.Stat(o.Dir); err != nil {
			return fmt.Errorf("embedded: %w", err)
		}
		var err error
		if d.lock, err = lockDir(o.Dir, o.ReadOnly); err != nil {
			return err
		}
		cat, err := catalog.OpenBolt(filepath.Join(o.Dir, catalogName), o.ReadOnly)
		if err != nil {
			return err
		}
		d.cat = cat
		if l, err = memory.LoadLayout(cat); err != nil {
			return err
		}
	}
	if l == nil && o.ReadOnly {
		return fmt.Errorf("%w: %s", memory.ErrNotFormatted, o.Dir)
	}
	mo := o.withGeometry(l)
	blades, err := o.blades(l, &mo)
	if err != nil {
		return err
	}
	if o.Seed == 0 || o.Dir != "" {
		_, _ = rand.Read(mo.UUID[:]) // never fails
	}
	if d.fabric, err = inproc.New(inproc.Options{Blades: blades, Seed: o.Seed}); err != nil {
		return err
	}
	if d.thread, err = rdma.NewThread(d.fabric, rdma.ThreadOptions{Arena: 4 << 20}); err != nil {
		return err
	}
	d.space, err = memory.Open(d.thread.Plain(), d.fabric, d.cat, mo)
	return err
}

// blades describes the regions, and compares the files with what the catalog
// says of them before anything is mapped or made longer.
func (o *Options) blades(l *memory.Layout, mo *memory.Options) ([]inproc.BladeOptions, error) {
	if l != nil && len(l.Blades) != o.Blades {
		return nil, fmt.Errorf("%w: the database in %s has %d blades, not %d", memory.ErrGeometry, o.Dir, len(l.Blades), o.Blades)
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
			if b.Size, err = o.fileSize(b.Path, l != nil, stored); err != nil {
				return nil, err
			}
		}
		fill(&b.Size, DefaultBladeSize)
		out = append(out, b)
	}
	return out, nil
}

// fileSize is how large the region in a file will be, 0: default. A file that is
// longer than the catalog says was about to grow when the process was killed.
func (o *Options) fileSize(path string, exists bool, stored uint64) (uint64, error) {
	if exists && o.BladeSize != 0 && o.BladeSize < stored {
		return 0, fmt.Errorf("%w: %s has %d bytes; BladeSize is %d, and regions cannot shrink", memory.ErrGeometry, path, stored, o.BladeSize)
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !exists:
		return o.BladeSize, nil
	case errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("%w: %s, the region of a blade with %d bytes", ErrMissing, path, stored)
	case err != nil:
		return 0, fmt.Errorf("embedded: %w", err)
	}
	size := uint64(st.Size())
	if exists && size < stored {
		return 0, fmt.Errorf("%w: %s has %d bytes, the catalog says %d", ErrMissing, path, size, stored)
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

// checkBlank makes sure that a region file without a catalog is one that was
// being created: nothing is in its header area.
func checkBlank(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, memory.HeaderArea))
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	for _, x := range head {
		if x != 0 {
			return fmt.Errorf("%w: %s is not blank, and there is no catalog beside it: was it lost? Move the file away, or bring the catalog back", memory.ErrForeign, path)
		}
	}
	return nil
}

// Space returns the memory.
func (d *Database) Space() *memory.Space { return d.space }

// Fabric returns the fabric.
func (d *Database) Fabric() rdma.Fabric { return d.fabric }

// Close closes the space, the fabric and the catalog, and unlocks the directory.
// All threads on the fabric must have been closed. After an error of the space
// or the fabric it may be called again.
func (d *Database) Close() error {
	if d.thread != nil {
		if err := d.space.Close(d.thread.Plain()); err != nil && !errors.Is(err, memory.ErrClosed) {
			return err
		}
	}
	return d.release()
}

// release closes what is open, in order.
func (d *Database) release() error {
	if d.thread != nil {
		if err := d.thread.Close(); err != nil {
			return err
		}
		d.thread = nil
	}
	if d.fabric != nil {
		if err := d.fabric.Close(); err != nil {
			return err
		}
		d.fabric = nil
	}
	var err error
	if d.cat != nil {
		err = d.cat.Close()
		d.cat = nil
	}
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
		d.lock = nil
	}
	return err
}
