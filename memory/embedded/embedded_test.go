package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/rdma"
)

// small is a database that tests can afford.
func small(dir string) embedded.Options {
	return embedded.Options{Dir: dir, BladeSize: 16 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10, Seed: 1}
}

func open(t *testing.T, o embedded.Options) *embedded.Database {
	t.Helper()
	d, err := embedded.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func closeDB(t *testing.T, d *embedded.Database) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReopenFindsEverything(t *testing.T) {
	o := small(t.TempDir())
	d := open(t, o)
	s := d.Space()
	tab, err := s.CreateTable("accounts", []byte("opts"))
	if err != nil {
		t.Fatal(err)
	}
	thread, err := rdma.NewThread(d.Fabric(), rdma.ThreadOptions{Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c := thread.Plain()
	root, err := s.NewExtent(c, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetTableRoot(tab.ID, root.Addr); err != nil {
		t.Fatal(err)
	}
	a, err := s.NewAllocator(thread)
	if err != nil {
		t.Fatal(err)
	}
	class, _ := layout.ClassOf(100)
	block, err := a.Alloc(c, class)
	if err != nil {
		t.Fatal(err)
	}
	buf, _ := thread.Alloc(64)
	thread.PutWord(buf, 77)
	var b rdma.Batch
	for i := range s.View().Copies(block) {
		b.Write(s.View().At(block, i), buf, 64)
	}
	if err := c.Do(&b); err != nil {
		t.Fatal(err)
	}
	coord, err := s.NewCoordinator()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(c); err != nil {
		t.Fatal(err)
	}
	if err := thread.Close(); err != nil {
		t.Fatal(err)
	}
	closeDB(t, d)

	d = open(t, embedded.Options{Dir: o.Dir})
	defer closeDB(t, d)
	tables, err := d.Space().Tables()
	if err != nil || len(tables) != 1 || tables[0].Root != root.Addr || string(tables[0].Options) != "opts" {
		t.Fatalf("tables %+v, %v", tables, err)
	}
	coords, err := d.Space().Coordinators()
	if err != nil || len(coords) != 1 || coords[0].ID != coord.ID || len(coords[0].Logs) != 2 {
		t.Fatalf("coordinators %+v, %v", coords, err)
	}
	thread, err = rdma.NewThread(d.Fabric(), rdma.ThreadOptions{Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer thread.Close()
	c = thread.Plain()
	buf, _ = thread.Alloc(64)
	b.Reset()
	b.Read(d.Space().View().At(block, 1), buf, 64)
	if err := c.Do(&b); err != nil || thread.Word(buf) != 77 {
		t.Fatalf("block holds %d, %v", thread.Word(buf), err)
	}
}

func TestSecondOpenerFailsAtOnce(t *testing.T) {
	o := small(t.TempDir())
	d := open(t, o)
	defer closeDB(t, d)
	for _, ro := range []bool{false, true} {
		o.ReadOnly = ro
		if _, err := embedded.Open(o); !errors.Is(err, embedded.ErrLocked) {
			t.Errorf("ReadOnly %v: %v", ro, err)
		}
	}
}

func TestMissingRegion(t *testing.T) {
	o := small(t.TempDir())
	closeDB(t, open(t, o))
	if err := os.Remove(filepath.Join(o.Dir, "blade-001.region")); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(o); !errors.Is(err, embedded.ErrMissing) {
		t.Fatal(err)
	}
}
