package embedded

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/memory/layout"
)

// settled is how many bytes of each region would be written again by who opens the database
// to have it survive a loss of power.
func settled(t *testing.T, o Options) (n []uint64) {
	t.Helper()
	h := &Host{}
	o.Durable = true
	l, err := h.openCatalog(&o)
	if err != nil {
		t.Fatal(err)
	}
	o = o.withDefaultsOf(l)
	blades, err := h.blades(&o, l)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blades {
		all := uint64(0)
		for _, p := range b.Settle {
			all += p[1]
		}
		n = append(n, all)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// known skips a test where it is not known when files change.
func known(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok := markOf(path); !ok {
		t.Skip("it is not known of this file system when its files change")
	}
	if _, ok := markOf("/proc/self/exe"); ok {
		t.Error("a link counts as a file")
	}
}

func (o Options) withDefaultsOf(l *layout.Layout) Options {
	o.Blades, o.Replicas = len(l.Blades), l.Backups+1
	return o
}

// TestMarks: region files are written again, before a promise to survive a loss of power is
// based on them, unless they are as they were when such a promise was fulfilled last. That
// counts once.
func TestMarks(t *testing.T) {
	known(t)
	file := func(dir string) string { return filepath.Join(dir, bladeName(1)) }
	session := func(t *testing.T, o Options) {
		d, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if !o.ReadOnly {
			if _, err := d.Space().NewCoordinator(); err != nil { // with a segment on each blade
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		since func(t *testing.T, o Options) error
		again [2]bool // of each region
	}{
		"closed":            {func(*testing.T, Options) error { return nil }, [2]bool{}},
		"opened and closed": {func(t *testing.T, o Options) error { session(t, o); return nil }, [2]bool{}},
		"only read": {func(t *testing.T, o Options) error {
			o.ReadOnly, o.Durable = true, false
			session(t, o)
			return nil
		}, [2]bool{}},
		"open without a promise": {func(t *testing.T, o Options) error {
			o.Durable = false
			session(t, o)
			return nil
		}, [2]bool{true, true}},
		"not closed": {func(t *testing.T, o Options) error {
			h, err := Connect(o)
			if err != nil {
				return err
			}
			h.dir = "" // what is done at the end was not done
			return h.Close()
		}, [2]bool{true, true}},
		"looked at": {func(t *testing.T, o Options) error {
			settled(t, o)
			return nil
		}, [2]bool{true, true}},
		"written by another program": {func(t *testing.T, o Options) error {
			f, err := os.OpenFile(file(o.Dir), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			b := make([]byte, 1)
			_, err = f.ReadAt(b, 100)
			_, e := f.WriteAt(b, 100)
			return errors.Join(err, e, f.Close())
		}, [2]bool{false, true}},
		"written through a mapping": {func(t *testing.T, o Options) error {
			f, err := os.OpenFile(file(o.Dir), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			m[100]++
			m[100]--
			return errors.Join(unix.Munmap(m), f.Close())
		}, [2]bool{false, true}},
		"brought back from a copy": {func(t *testing.T, o Options) error {
			p, err := os.ReadFile(file(o.Dir))
			return errors.Join(err, os.WriteFile(file(o.Dir)+".copy", p, 0o644),
				os.Rename(file(o.Dir)+".copy", file(o.Dir)))
		}, [2]bool{false, true}},
		"the system was started again": {func(t *testing.T, o Options) error {
			boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
			p, err := os.ReadFile(filepath.Join(o.Dir, marksName))
			p = bytes.ReplaceAll(p, bytes.TrimSpace(boot), []byte("another"))
			return errors.Join(err, os.WriteFile(filepath.Join(o.Dir, marksName), p, 0o644))
		}, [2]bool{true, true}},
		"the note is damaged": {func(t *testing.T, o Options) error {
			return os.Truncate(filepath.Join(o.Dir, marksName), 50)
		}, [2]bool{true, true}},
		"the note stays": {func(t *testing.T, o Options) error {
			path := filepath.Join(o.Dir, marksName)
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o755))
		}, [2]bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{
				Dir: t.TempDir(), Blades: 2, Replicas: 2, BladeSize: 1 << 20, SegmentSize: 256 << 10,
				LogArea: 256 << 10, Durable: true,
			}
			session(t, o)
			if err := c.since(t, o); err != nil {
				t.Fatal(err)
			}
			if got := settled(t, o); (got[0] > 0) != c.again[0] || (got[1] > 0) != c.again[1] {
				t.Errorf("%#x bytes are written again; want %v", got, c.again)
			}
			if got := settled(t, o); got[0] == 0 || got[1] == 0 {
				t.Errorf("it is good twice: %#x", got)
			}
		})
	}
}

// TestMarksOfUnsettled: a file that was open without such a promise has to be written once.
func TestMarksOfUnsettled(t *testing.T) {
	known(t)
	o := Options{
		Dir: t.TempDir(), Blades: 2, Replicas: 2, BladeSize: 1 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10,
	}
	for i, durable := range []bool{false, true, true} {
		o.Durable = durable
		d, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.host.marks.hold(filepath.Join(o.Dir, bladeName(0))); got && i < 2 {
			t.Errorf("open %d: nothing is to be written", i)
		}
		if _, err := os.Stat(filepath.Join(o.Dir, marksName)); err == nil {
			t.Errorf("open %d: the note is there", i)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(o.Dir, marksName)); (err == nil) != durable {
			t.Errorf("closed %d: %v", i, err)
		}
	}
}

// TestMarksOfLost: nothing is noted of the file of a blade that counts as lost, of which
// nothing was written again when it was mapped.
func TestMarksOfLost(t *testing.T) {
	known(t)
	o := Options{
		Dir: t.TempDir(), Blades: 2, Replicas: 2, BladeSize: 1 << 20, SegmentSize: 256 << 10,
		LogArea: 64 << 10, Durable: true,
	}
	d, err := Open(o)
	if err == nil {
		err = d.Close()
	}
	if err == nil {
		err = os.Remove(filepath.Join(o.Dir, bladeName(1)))
	}
	if err != nil {
		t.Fatal(err)
	}
	o.ReplaceLost = true
	if d, err = Open(o); err == nil {
		err = d.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	m := takeMarks(o.Dir)
	if _, ok := m[bladeName(0)]; !ok || len(m) != 1 {
		t.Errorf("%v", m)
	}
}

// TestMarksOutlast: a region file is noted when another change of it would move its change time,
// and not at all if the clock does not come to that.
func TestMarksOutlast(t *testing.T) {
	known(t)
	was := fileClock
	defer func() { fileClock = was }()
	o := Options{Dir: t.TempDir(), BladeSize: 1 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10, Durable: true}
	file := filepath.Join(o.Dir, bladeName(0))
	for name, c := range map[string]struct {
		stands int // for so many looks, or for ever
		wrong  bool
		noted  bool
	}{
		"goes on":         {0, false, true},
		"stands":          {3, false, true},
		"is set back":     {1 << 30, false, false},
		"cannot be asked": {1 << 30, true, false},
	} {
		looks := 0
		fileClock = func() (int64, int64, bool) {
			x, ok := markOf(file)
			if !ok {
				t.Error("the file cannot be looked at")
			}
			if looks++; looks > c.stands {
				return x.Sec, x.Nsec + 1, true
			}
			return x.Sec, x.Nsec, !c.wrong
		}
		d, err := Open(o)
		if err == nil {
			err = d.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, noted := takeMarks(o.Dir)[bladeName(0)]; noted != c.noted || looks <= c.stands && c.noted {
			t.Errorf("the clock %s: noted %v after %d looks", name, noted, looks)
		}
	}
}

// TestMarksElsewhere: by the time that a database is closed its directory may have another name,
// or be somewhere else, seen from the working directory. What is noted then is of its own
// files, and not of those of another one in its place.
func TestMarksElsewhere(t *testing.T) {
	known(t)
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name, "db") }
	o := Options{Blades: 1, Replicas: 1, BladeSize: 1 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10}
	begin := func(dir string, durable bool) *Database {
		o.Dir, o.Durable = dir, durable
		d, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	noted := func(name string) bool {
		_, err := os.Stat(filepath.Join(at(name), marksName))
		return err == nil
	}
	shut := func(d *Database) {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "other"} {
		shut(begin(at(name), true)) // so that there is something to be noted
		shut(begin(at(name), name == "one"))
	}
	t.Chdir(filepath.Join(base, "one"))
	d := begin("db", true)
	t.Chdir(filepath.Join(base, "other"))
	shut(d)
	if !noted("one") || noted("other") {
		t.Errorf("after a change of the working directory: noted of its own %v, of the other %v",
			noted("one"), noted("other"))
	}

	d = begin(at("one"), true)
	for _, move := range [][2]string{{"one", "away"}, {"other", "one"}} {
		if err := os.Rename(filepath.Join(base, move[0]), filepath.Join(base, move[1])); err != nil {
			t.Fatal(err)
		}
	}
	shut(d)
	if noted("one") {
		t.Error("something is noted of another database that is in the place now")
	}
}
