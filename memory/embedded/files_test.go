package embedded_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/rdma"
)

// copyDir copies a closed database.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return to
}

func TestOptionsValidate(t *testing.T) {
	for _, c := range []struct {
		o    embedded.Options
		want string
	}{
		{embedded.Options{Blades: -1}, "Blades is -1"},
		{embedded.Options{Blades: 5000}, "Blades is 5000"},
		{embedded.Options{BladeSize: 1000}, "BladeSize is 1000"},
		{embedded.Options{Replicas: 4}, "Replicas is 4"},
		{embedded.Options{Replicas: -1}, "Replicas is -1"},
		{embedded.Options{Blades: 1, Replicas: 2}, "a blade of its own"},
		{embedded.Options{HugePages: true, Dir: "x"}, "HugePages"},
		{embedded.Options{ReadOnly: true}, "needs a Dir"},
		{embedded.Options{SegmentSize: 7}, "SegmentSize is 7"},
		{embedded.Options{LogArea: 7, Blades: -3}, "Blades is -3"},
	} {
		_, err := embedded.Open(c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		blades, replicas, wantBlades, wantBackups int
	}{{0, 0, 2, 1}, {1, 0, 1, 0}, {3, 0, 3, 1}, {0, 1, 2, 0}, {0, 3, 3, 2}, {4, 3, 4, 2}} {
		d := open(t, embedded.Options{Blades: c.blades, Replicas: c.replicas})
		if b := d.Fabric().Blades(); len(b) != c.wantBlades || b[0].Size != embedded.DefaultBladeSize ||
			d.Space().Backups() != c.wantBackups ||
			d.Space().SegmentSize() != memory.DefaultSegmentSize {
			t.Errorf("%+v: %d blades of %d, f=%d", c, len(b), b[0].Size, d.Space().Backups())
		}
		closeDB(t, d)
	}
}

// TestFileDefaults: a segment of a file takes its disk space at once, so a new
// database in a directory has small ones, unless its log areas are larger; and blades
// that are small have smaller ones.
func TestFileDefaults(t *testing.T) {
	for _, c := range []struct {
		segment, log, wantSegment, wantLog uint32
		blade                              uint64
	}{
		{0, 0, embedded.DefaultFileSegment, memory.DefaultLogArea, 0},
		{0, 16 << 20, 16 << 20, 16 << 20, 0},
		{1 << 20, 0, 1 << 20, 1 << 20, 0},
		{64 << 20, 0, 64 << 20, memory.DefaultLogArea, 0},
		{0, 0, 4 << 20, 4 << 20, 256 << 20},
		{0, 0, 2 << 20, 2 << 20, 255 << 20},
		{0, 0, 2 << 20, 2 << 20, 63 << 20},
		{0, 0, 1 << 20, 1 << 20, 31 << 20},
		{0, 128 << 10, 256 << 10, 128 << 10, 1 << 20},
	} {
		o := embedded.Options{Dir: t.TempDir(), SegmentSize: c.segment, LogArea: c.log, BladeSize: 2 << 30}
		if c.blade != 0 {
			o.BladeSize = c.blade
		}
		closeDB(t, open(t, o))
		d := open(t, embedded.Options{Dir: o.Dir}) // which has what it was created with
		if l := d.Space().Layout(); l.SegmentSize != c.wantSegment || l.LogArea != c.wantLog {
			t.Errorf("%+v: segments of %d, log areas of %d", c, l.SegmentSize, l.LogArea)
		}
		closeDB(t, d)
	}
}

// TestConflicts: options that contradict a database, and files that are not its
// own. Each is one clear error with the name of the file, and leaves everything
// as it was: the database opens again afterwards.
func TestConflicts(t *testing.T) {
	o := small(t.TempDir())
	d := open(t, o)
	if _, err := d.Space().CreateTable("t", nil); err != nil {
		t.Fatal(err)
	}
	closeDB(t, d)
	foreign := small(t.TempDir())
	closeDB(t, open(t, foreign))

	region := func(dir string) string { return filepath.Join(dir, "blade-001.region") }
	cat := func(dir string) string { return filepath.Join(dir, "catalog.db") }
	overwrite := func(path string, at int64, p []byte) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(p, at)
		return errors.Join(err, f.Close())
	}
	from := func(path string) []byte {
		p, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	junk := bytes.Repeat([]byte("junk"), 4096)
	for name, c := range map[string]struct {
		options func(*embedded.Options)
		files   func(dir string) error
		want    error
		text    string
	}{
		"more blades": {
			options: func(o *embedded.Options) { o.Blades = 3 }, want: layout.ErrGeometry, text: "has 2 blades, not 3",
		},
		"fewer blades": {
			options: func(o *embedded.Options) { o.Blades, o.Replicas = 1, 1 }, want: layout.ErrGeometry,
			text: "has 2 blades, not 1",
		},
		"no backup": {
			options: func(o *embedded.Options) { o.Replicas = 1 }, want: layout.ErrGeometry, text: "Backups 1, not 0",
		},
		"other segments": {
			options: func(o *embedded.Options) { o.SegmentSize = 1 << 20 }, want: layout.ErrGeometry,
			text: "has SegmentSize 262144, not 1048576",
		},
		"other logs": {
			options: func(o *embedded.Options) { o.LogArea = 128 << 10 }, want: layout.ErrGeometry,
			text: "LogArea 65536, not 131072",
		},
		"smaller": {
			options: func(o *embedded.Options) { o.BladeSize = 8 << 20 }, want: layout.ErrGeometry,
			text: "cannot shrink",
		},
		"cut off": {
			files: func(d string) error { return os.Truncate(region(d), 8<<20) },
			want:  embedded.ErrMissing, text: "has 8388608 bytes",
		},
		"removed": {
			files: func(d string) error { return os.Remove(region(d)) }, want: embedded.ErrMissing,
			text: "blade-001.region",
		},
		"odd length": {
			files: func(d string) error { return os.Truncate(region(d), 16<<20+1) },
			want:  layout.ErrForeign, text: "blade-001.region has 16777217 bytes",
		},
		"blank": {files: func(d string) error {
			return errors.Join(os.Truncate(region(d), 0), os.Truncate(region(d), 16<<20))
		},
			want: layout.ErrForeign, text: "blade-001.region"},
		"another's region": {files: func(d string) error { return overwrite(region(d), 0, from(region(foreign.Dir))) },
			want: layout.ErrForeign, text: "blade-001.region"},
		"junk in the header": {
			files: func(d string) error { return overwrite(region(d), 0, junk) },
			want:  layout.ErrForeign, text: "blade-001.region",
		},
		"damaged header": {files: func(d string) error {
			return errors.Join(overwrite(region(d), 16, []byte("xx")), overwrite(region(d), 4096+16, []byte("xx")))
		}, want: layout.ErrDamaged, text: "blade-001.region"},
		"swapped regions": {files: func(d string) error {
			return errors.Join(os.Rename(region(d), d+"/x"), os.Rename(d+"/blade-000.region", region(d)),
				os.Rename(d+"/x", d+"/blade-000.region"))
		}, want: layout.ErrGeometry, text: "blade-000.region"},
		"a directory": {files: func(d string) error {
			return errors.Join(os.Remove(region(d)),
				os.Mkdir(region(d), 0o755))
		}, want: layout.ErrForeign, text: "blade-001.region is a directory"},
		"a pipe": {files: func(d string) error {
			return errors.Join(os.Remove(region(d)),
				unix.Mkfifo(region(d), 0o644))
		}, want: layout.ErrForeign, text: "blade-001.region is a device, pipe"},
		"a pipe for catalog": {files: func(d string) error {
			return errors.Join(os.Remove(cat(d)),
				unix.Mkfifo(cat(d), 0o644))
		}, want: catalog.ErrDamaged, text: "catalog.db"},
		"no catalog": {
			files: func(d string) error { return os.Remove(cat(d)) }, want: layout.ErrForeign, text: "was it lost?",
		},
		"another's catalog": {
			files: func(d string) error { return overwrite(cat(d), 0, from(cat(foreign.Dir))) },
			want:  layout.ErrForeign, text: "catalog.db",
		},
		"junk for catalog": {
			files: func(d string) error { return os.WriteFile(cat(d), junk, 0o644) },
			want:  catalog.ErrDamaged, text: "catalog.db",
		},
		"empty catalog": {
			files: func(d string) error { return os.Truncate(cat(d), 0) }, want: catalog.ErrDamaged, text: "catalog.db",
		},
		"cut off catalog": {
			files: func(d string) error { return os.Truncate(cat(d), 8192) },
			want:  catalog.ErrDamaged, text: "catalog.db",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, o.Dir)
			if c.files != nil {
				if err := c.files(dir); err != nil {
					t.Fatal(err)
				}
			}
			o := o
			o.Dir = dir
			if c.options != nil {
				c.options(&o)
			}
			for range 2 { // again: nothing stays locked
				d, err := embedded.Open(o)
				if err == nil {
					closeDB(t, d)
					t.Fatal("it opens")
				}
				if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
					strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "runtime error") {
					t.Errorf("%v", err)
				}
			}
			if c.files == nil {
				o.Blades, o.BladeSize, o.Replicas, o.SegmentSize, o.LogArea = 0, 0, 0, 0, 0
				closeDB(t, open(t, o))
			}
		})
	}
	d = open(t, o)
	if tables, err := d.Space().Tables(); err != nil || len(tables) != 1 {
		t.Errorf("%+v, %v", tables, err)
	}
	closeDB(t, d)
}

// TestRemedy: of a database that was to survive a loss of power, and was not closed, nobody is told
// to have the copies of a region built anew that is missing or blank: that is refused.
func TestRemedy(t *testing.T) {
	for _, durable := range []bool{false, true} {
		o := small(t.TempDir())
		d := open(t, o)
		if durable {
			if err := d.Space().SetCheckpoint(1); err != nil {
				t.Fatal(err)
			}
		}
		closeDB(t, d)
		path := filepath.Join(o.Dir, "blade-001.region")
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, spoil := range map[string]func() error{
			"missing": func() error { return os.Remove(path) },
			"blank": func() error {
				return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, st.Size()))
			},
			"cut off": func() error { return os.WriteFile(path, nil, 0o644) },
		} {
			if err := spoil(); err != nil {
				t.Fatal(what, err)
			}
			_, err := embedded.Open(o)
			if err == nil || strings.Contains(err.Error(), "ReplaceLost") == durable ||
				strings.Contains(err.Error(), "restore a backup") != durable {
				t.Errorf("%s, durable %v: %v", what, durable, err)
			}
			if err := os.WriteFile(path, nil, 0o644); err != nil { // it is there for the next one
				t.Fatal(err)
			}
		}
	}
}

// TestNothingGivenUpInVain: while the regions that should have the copies are not those of the
// database, the missing one is not given up, and may be found before they are.
func TestNothingGivenUpInVain(t *testing.T) {
	o := small(t.TempDir())
	closeDB(t, open(t, o))
	older := copyDir(t, o.Dir)
	closeDB(t, open(t, o))
	foreign := small(t.TempDir())
	closeDB(t, open(t, foreign))
	for name, spoil := range map[string]func(path string) error{
		"cut off": func(path string) error { return os.Truncate(path, 8<<20) },
		"a pipe":  func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o644)) },
		"another's": func(path string) error {
			return os.Rename(filepath.Join(copyDir(t, foreign.Dir), "blade-000.region"), path)
		},
		"an old copy": func(path string) error { return os.Rename(filepath.Join(older, "blade-000.region"), path) },
		"mistaken": func(path string) error {
			return os.Rename(filepath.Join(copyDir(t, o.Dir), "blade-001.region"), path)
		},
		"overwritten": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("junk"), 4<<20), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, o.Dir)
			zero, one := filepath.Join(dir, "blade-000.region"), filepath.Join(dir, "blade-001.region")
			if err := errors.Join(spoil(zero), os.Remove(one)); err != nil {
				t.Fatal(err)
			}
			if _, err := embedded.Open(embedded.Options{Dir: dir, ReplaceLost: true}); err == nil ||
				!strings.Contains(err.Error(), "not given up") || !strings.Contains(err.Error(), zero) {
				t.Errorf("%v", err)
			}
			// The one is found, and the other given up.
			if err := errors.Join(os.Remove(zero),
				os.Rename(filepath.Join(copyDir(t, o.Dir), "blade-001.region"), one)); err != nil {
				t.Fatal(err)
			}
			d, err := embedded.Open(embedded.Options{Dir: dir, ReplaceLost: true})
			if err != nil {
				t.Fatal(err)
			}
			if l := d.Space().Layout(); l.Blades[1].State != layout.BladeUp {
				t.Errorf("%+v", l.Blades)
			}
			closeDB(t, d)
		})
	}
}

func TestGrow(t *testing.T) {
	o := small(t.TempDir())
	closeDB(t, open(t, o))
	o.BladeSize *= 2
	d := open(t, o)
	if l := d.Space().Layout(); l.Blades[1].Size != o.BladeSize {
		t.Errorf("blade 1 has %d bytes", l.Blades[1].Size)
	}
	closeDB(t, d)
	// A process that was killed between the file and the catalog.
	if err := os.Truncate(filepath.Join(o.Dir, "blade-000.region"), int64(o.BladeSize*2)); err != nil {
		t.Fatal(err)
	}
	d = open(t, o)
	if l := d.Space().Layout(); l.Blades[0].Size != 2*o.BladeSize || l.Blades[1].Size != o.BladeSize {
		t.Errorf("blades have %d and %d bytes", l.Blades[0].Size, l.Blades[1].Size)
	}
	closeDB(t, d)
}

func TestReadOnly(t *testing.T) {
	o := small(t.TempDir())
	ro := embedded.Options{Dir: o.Dir, ReadOnly: true}
	if _, err := embedded.Open(ro); !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("an empty directory: %v", err)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) != 0 {
		t.Errorf("who only looked has left %v (%v)", left, err)
	}
	if _, err := embedded.Open(embedded.Options{Dir: filepath.Join(o.Dir, "none"), ReadOnly: true}); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	d := open(t, o)
	if _, err := d.Space().CreateTable("t", nil); err != nil {
		t.Fatal(err)
	}
	closeDB(t, d)
	// Readers make no LOCK, so that the owner of the directory can go on after root has looked at
	// it.
	lock := filepath.Join(o.Dir, "LOCK")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	closeDB(t, open(t, ro))
	if _, err := os.Lstat(lock); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("LOCK of a reader: %v", err)
	}
	// What a process has left that died names nobody who is there, and stays as it is.
	if err := os.WriteFile(lock, []byte("process 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	first, second := open(t, ro), open(t, ro)
	if _, err := embedded.Open(o); !errors.Is(err, embedded.ErrLocked) || strings.Contains(err.Error(), "process") {
		t.Errorf("a writer beside readers: %v", err)
	}
	for _, d := range []*embedded.Database{first, second} {
		if tables, err := d.Space().Tables(); err != nil || len(tables) != 1 {
			t.Errorf("%+v, %v", tables, err)
		}
		if _, err := d.Space().CreateTable("u", nil); !errors.Is(err, memory.ErrReadOnly) {
			t.Errorf("%v", err)
		}
		closeDB(t, d)
	}
	if p, err := os.ReadFile(lock); err != nil || string(p) != "process 7\n" {
		t.Errorf("LOCK is %q, %v", p, err)
	}
	none := filepath.Join(o.Dir, "none")
	if _, err := os.Lstat(none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that was not there: %v", err)
	}
}

// TestNoSpace: blades that are full leave a database that works, and that goes
// on when it is reopened with larger ones.
func TestNoSpace(t *testing.T) {
	o := small(t.TempDir())
	o.BladeSize = 1 << 20
	d := open(t, o)
	thread, err := rdma.NewThread(d.Fabric(), rdma.ThreadOptions{Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err = d.Space().NewExtent(thread.Plain(), d.Space().MaxExtent()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = d.Space().NewExtent(thread.Plain(), 1); !errors.Is(err, memory.ErrNoSpace) ||
		!strings.Contains(err.Error(), "raise BladeSize") {
		t.Errorf("%v", err)
	}
	if _, err := d.Space().CreateTable("t", nil); err != nil {
		t.Error(err)
	}
	if err := thread.Close(); err != nil {
		t.Fatal(err)
	}
	closeDB(t, d)
	o.BladeSize = 2 << 20
	d = open(t, o)
	thread, err = rdma.NewThread(d.Fabric(), rdma.ThreadOptions{Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = d.Space().NewExtent(thread.Plain(), 1); err != nil {
		t.Error(err)
	}
	if err := thread.Close(); err != nil {
		t.Fatal(err)
	}
	closeDB(t, d)
}

// TestCloseNeedsThreads: a thread that is still open keeps the database open,
// and closing it again works.
func TestCloseNeedsThreads(t *testing.T) {
	o := small(t.TempDir())
	d := open(t, o)
	thread, err := rdma.NewThread(d.Fabric(), rdma.ThreadOptions{Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil {
		t.Fatal("closed with a thread on the fabric")
	}
	if _, err := embedded.Open(o); !errors.Is(err, embedded.ErrLocked) {
		t.Errorf("%v", err)
	}
	if err := thread.Close(); err != nil {
		t.Fatal(err)
	}
	closeDB(t, d)
	closeDB(t, open(t, o))
}

// TestCloseReleases: a database that can not be closed in order is unlocked none the less,
// and opens again.
func TestCloseReleases(t *testing.T) {
	o := small(t.TempDir())
	d := open(t, o)
	s := d.Space()
	thread, err := rdma.NewThread(d.Fabric(), rdma.ThreadOptions{Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.NewExtent(thread.Plain(), 1<<12)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.FreeExtent(x); err != nil {
		t.Fatal(err)
	}
	if err := thread.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Fabric().(rdma.Stopper).StopBlade(0); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil {
		t.Fatal("the words of a freed extent were cleared on a blade that had stopped")
	}
	closeDB(t, open(t, o))
}

// TestMakeDir: directories are made with those above them, and a file in the way is said
// to be one.
func TestMakeDir(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := embedded.MakeDir(filepath.Join(dir, "a", "b") + "/"); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "a", "b")); err != nil || !st.IsDir() {
		t.Fatal(st, err)
	}
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "g")} {
		if err := embedded.MakeDir(path); !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
