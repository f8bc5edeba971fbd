package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// filed serves a blade in a file, which has the name of the socket and ".region".
func (b *bed) filed(name string) (stop func()) {
	b.t.Helper()
	b.seeds++
	set, err := region.New(region.Config{Seed: b.seeds, Regions: []region.Options{{Size: size, Path: b.fileOf(name)}}})
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := tcp.NewServer(set, tcp.ServerOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.listen(s, set, name)
}

func (b *bed) fileOf(name string) string { return filepath.Join(b.dir, name+".region") }

// filedBed is a cluster of blades in files.
type filedBed struct {
	*bed
	names []string
	stops map[string]func()
}

// newFiledBed makes a database with one backup.
func newFiledBed(t *testing.T, names ...string) *filedBed {
	t.Helper()
	return newFiledBedOf(t, 1, names...)
}

func newFiledBedOf(t *testing.T, backups int, names ...string) *filedBed {
	t.Helper()
	b := &filedBed{bed: newBed(t), names: names, stops: map[string]func(){}}
	c := b.catalog(&catalog.Mem{}, "c")
	b.start()
	if err := cluster.Init(t.Context(), c, b.list(names...), cluster.Geometry{
		Backups: &backups, SegmentSize: 256 << 10, LogArea: 64 << 10,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *filedBed) start() {
	for _, name := range b.names {
		b.stops[name] = b.filed(name)
	}
}

// stopped stops all servers for fn.
func (b *filedBed) stopped(fn func()) {
	for _, name := range b.names {
		b.stops[name]()
	}
	fn()
	b.start()
}

func (b *filedBed) read(name string) []byte {
	b.t.Helper()
	p, err := os.ReadFile(b.fileOf(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *filedBed) write(name string, p []byte) {
	b.t.Helper()
	if err := os.WriteFile(b.fileOf(name), p, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// open opens the database, with its table.
func (b *filedBed) open() (*txn.DB, *txn.Table[uint64, uint64], error) {
	db, err := cluster.Open(b.t.Context(), b.address("c"), txn.Options{Workers: 1, IndexGroups: 16},
		cluster.Options{Post: -1})
	if err != nil {
		return nil, nil, err
	}
	table, err := txn.CreateTable(db, "numbers", txn.Uint64, txn.Plain[uint64]())
	return db, table, err
}

// session has a program write a value to all keys.
func (b *filedBed) session(value uint64) {
	b.t.Helper()
	db, table, err := b.open()
	if err == nil {
		err = errors.Join(db.Update(b.t.Context(), func(tx *txn.Tx) (err error) {
			for key := range uint64(filedKeys) {
				err = errors.Join(err, table.Put(tx, key, value))
			}
			return err
		}), db.Close(b.t.Context()))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

const filedKeys = 40

// values reads all keys, and closes the database when no copy is missing.
func (b *filedBed) values() (all map[uint64]int) {
	b.t.Helper()
	db, table, err := b.open()
	if err != nil {
		b.t.Fatal(err)
	}
	all = map[uint64]int{}
	if err := db.View(b.t.Context(), func(tx *txn.Tx) error {
		clear(all)
		for key := range uint64(filedKeys) {
			v, err := table.Get(tx, key)
			if err != nil {
				return err
			}
			all[v]++
		}
		return nil
	}); err != nil {
		b.t.Error(err)
	}
	for r := db.Redundancy(); r.Missing+r.Building+r.Dirty > 0; r = db.Redundancy() {
		time.Sleep(time.Millisecond)
	}
	if err := db.Close(b.t.Context()); err != nil {
		b.t.Error(err)
	}
	return all
}

// TestOldDirectory: a blade is started with the file of before the last program used the database.
// Its copies are built anew, and all that was acknowledged is there. If both blades come with such
// files, the database does not open until the newest are back.
func TestOldDirectory(t *testing.T) {
	b := newFiledBed(t, "a", "b")
	old, newest := map[string][]byte{}, map[string][]byte{}
	b.session(1)
	b.stopped(func() { old["a"], old["b"] = b.read("a"), b.read("b") })
	b.session(2)
	b.stopped(func() {
		newest["a"], newest["b"] = b.read("a"), b.read("b")
		b.write("a", old["a"])
		b.write("b", old["b"])
	})
	if _, _, err := b.open(); !errors.Is(err, layout.ErrStale) {
		t.Fatalf("both are old: %v", err)
	}
	b.stopped(func() { b.write("b", newest["b"]) })
	if got := b.values(); got[2] != filedKeys {
		t.Errorf("the old one of a, and the newest of b: %v", got)
	}
	b.session(3)
	b.stopped(func() { b.write("b", newest["b"]) }) // that of a is one that was built
	if got := b.values(); got[3] != filedKeys {
		t.Errorf("the old one of b: %v", got)
	}
}

// TestStatusOfRegions: of a blade that came with another region than its newest, the status says
// which kind it is, and what to do; and so does an opening, which takes in blank what is old or
// blank, and refuses the others.
func TestStatusOfRegions(t *testing.T) {
	other := newFiledBed(t, "a", "b")
	foreign := other.read("a")
	b := newFiledBed(t, "a", "b", "x")
	b.session(1)
	files := map[string][]byte{"foreign": foreign, "blank": make([]byte, size)}
	b.stopped(func() { files["old"] = b.read("a") })
	b.session(2)
	b.stopped(func() { files["a"], files["b"] = b.read("a"), b.read("b") })
	for _, x := range []struct {
		is    cluster.BladeState
		a, b  string // whose files these blades have
		says  string
		opens error
	}{
		{cluster.BladeForeign, "foreign", "b", "bring back the one that belongs", layout.ErrForeign},
		{cluster.BladeMisplaced, "b", "a", "the directory that it had", layout.ErrGeometry},
		{cluster.BladeOld, "old", "old", "--trust 0", layout.ErrGeometry}, // which is that of the other place for b
		{cluster.BladeBlank, "blank", "b", "was its memory or file lost", nil},
		{cluster.BladeOld, "old", "b", "or open the database", nil},
		{cluster.BladeRestarted, "a", "b", "", nil},
	} {
		b.stopped(func() {
			b.write("a", files[x.a])
			b.write("b", files[x.b])
		})
		st, err := cluster.Ask(t.Context(), b.address("c"), cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		blade := &st.Blades[0]
		if blade.State != x.is || !strings.Contains(blade.Why, x.says) {
			t.Errorf("%s: %s: %s", x.is, blade.State, blade.Why)
		}
		if troubles := st.Troubles(); len(troubles) == 0 {
			t.Errorf("%s: nothing is wrong", x.is)
		}
		db, _, err := b.open()
		if !errors.Is(err, x.opens) {
			t.Errorf("%s: opened: %v", x.is, err)
		}
		if err == nil { // it counts as lost, and is taken in
			for r := db.Redundancy(); r.Missing+r.Building+r.Dirty+len(r.Down) > 0; r = db.Redundancy() {
				time.Sleep(time.Millisecond)
			}
			if err := db.Close(t.Context()); err != nil {
				t.Error(err)
			}
			b.stopped(func() { files["a"], files["b"] = b.read("a"), b.read("b") })
		}
	}
}
