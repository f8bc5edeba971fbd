package txn_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/txn"
	"txnode/verify"
)

// slotted are the tables of a database that the last version with slots has made, of which
// testdata/slots has an archive: "t" of n keys, some of which are deleted, and some changed; "empty";
// "gone", which is dropped; "ordered"; and "people", which has indexes.
type slotted struct {
	n      uint64
	values map[uint64][]byte // of "t"
}

// unslot unpacks an archive to a new directory, whose database has so many keys.
func unslot(t testing.TB, name string, n uint64) (*slotted, txn.Options) {
	t.Helper()
	o := tiny()
	o.Dir = filepath.Join(t.TempDir(), "data")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join("testdata", "slots", name+".tar.gz"))
	check(err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	check(err)
	check(os.Mkdir(o.Dir, 0o700))
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
		p, err := io.ReadAll(r)
		check(err)
		check(os.WriteFile(filepath.Join(o.Dir, filepath.Base(h.Name)), p, 0o600))
	}
	o.BladeSize = 8 << 20
	s := &slotted{n: n, values: maps.Collect(numbered(0, n))}
	for k := uint64(0); k < n; k += 7 {
		if k%2 == 0 {
			delete(s.values, k)
		} else {
			s.values[k] = bytes.Repeat([]byte{1}, int(k%1500))
		}
	}
	return s, o
}

// slots are the archives of databases that were closed.
var slots = []struct {
	name string
	n    uint64
}{{"f0", 400}, {"f1", 240}, {"f2", 160}}

// holds demands that all is there, and can be changed.
func (s *slotted) holds(t testing.TB, what string, db *txn.DB) {
	t.Helper()
	tab := table(t, db, "t")
	same(t, what, contents(t, db, tab, s.n+10), s.values)
	all := map[uint64][]byte{}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		clear(all)
		for k, v := range tab.All(tx) {
			all[k] = bytes.Clone(v)
		}
		return tx.Err()
	}); err != nil || !maps.EqualFunc(all, s.values, bytes.Equal) {
		t.Errorf("%s: all records: %d of %d, or others; %v", what, len(all), len(s.values), err)
	}
	if got := contents(t, db, table(t, db, "empty"), 10); len(got) > 0 {
		t.Errorf("%s: the empty table has %d records", what, len(got))
	}
	if got := contents(t, db, inOrder(t, db, "ordered").Table, s.n/8+1); uint64(len(got)) != s.n/8 {
		t.Errorf("%s: the ordered table has %d records", what, len(got))
	}
	byName, byMail := peopleIndexes()
	people, err := txn.OpenTable(db, "people", txn.Uint64, txn.JSON[person](), byName, byMail)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		n := uint64(0)
		for mail, k := range byMail.Range(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
			if p, err := people.Get(tx, k); err != nil || p.Mail != mail {
				return fmt.Errorf("mail %q leads to %d, which has %q: %w", mail, k, p.Mail, err)
			}
			n++
		}
		if n != s.n/20 {
			return fmt.Errorf("%d mails", n)
		}
		return tx.Err()
	}); err != nil {
		t.Errorf("%s: people: %v", what, err)
	}
	for _, k := range []uint64{0, 1, 14, s.n + 3} { // deleted, present, deleted, never there
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			err := tab.Insert(tx, k, val(k))
			if _, there := s.values[k]; there != errors.Is(err, txn.ErrExists) {
				return fmt.Errorf("insert: %w", err)
			}
			if err = tab.Put(tx, k, val(k+1)); err != nil {
				return err
			}
			if err = tab.Delete(tx, k); err != nil {
				return err
			}
			if v, there := s.values[k]; there {
				return tab.Put(tx, k, v)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: key %d: %v", what, k, err)
		}
	}
}

// leafy demands that all hash tables have leaves, and no extents are left, and returns how many
// tables have leaves.
func leafy(t testing.TB, what string, db *txn.DB) (leaves int) {
	t.Helper()
	ts, err := db.Space().Tables()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range ts {
		switch {
		case x.State != layout.TableLive || x.Ordered():
		case x.InBlocks():
			leaves++
		default:
			t.Errorf("%s: table %q has slots", what, x.Name)
		}
		if bytes.Contains(x.Options, []byte("converting")) {
			t.Errorf("%s: table %q: %s", what, x.Name, x.Options)
		}
	}
	if n := len(db.Space().Extents()); n > 0 {
		t.Errorf("%s: %d extents are left", what, n)
	}
	return leaves
}

func closed(t testing.TB, db *txn.DB) {
	t.Helper()
	if err := db.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestConvert: a database whose hash tables have slots is opened: they have leaves then, and all
// records. It is sound, and stays so when it is opened again.
func TestConvert(t *testing.T) {
	for _, x := range slots {
		s, o := unslot(t, x.name, x.n)
		for _, what := range []string{x.name, x.name + ", again"} {
			db := mustOpen(t, o)
			if got := leafy(t, what, db); got != 3 {
				t.Errorf("%s: %d tables have leaves", what, got)
			}
			quiet(t, db)
			s.holds(t, what, db)
			closed(t, db)
			sound(t, o.Dir)
		}
	}
}

// TestConvertDeleted: a record that is deleted, and whose block is in use still, stays linked, so
// that a transaction that meets it frees the block.
func TestConvertDeleted(t *testing.T) {
	s, o := unslot(t, "f1", 240)
	db := mustOpen(t, o)
	copied := filepath.Join(t.TempDir(), "copied")
	if err := os.CopyFS(copied, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	closed(t, db)
	for _, x := range checkDir(t, copied, func(f verify.Finding) { t.Error(f) }).Tables {
		if x.Name == "t" && (x.Records != uint64(len(s.values)) || x.Tombstones > s.n-uint64(len(s.values))) {
			t.Errorf("%+v", x)
		}
	}
}

// TestConvertRefused: a database that was not closed by the earlier version, or that is only read, is
// refused with an error that says what to do, every time.
func TestConvertRefused(t *testing.T) {
	read := func(dir string) map[string]string {
		all := map[string]string{}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if filepath.Ext(f.Name()) != ".region" {
				continue
			}
			p, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all[f.Name()] = string(p)
		}
		return all
	}
	_, o := unslot(t, "open", 240)
	for range 2 {
		_, err := txn.Open(t.Context(), o)
		says(t, "not closed", err, txn.ErrUnrecovered, `"t"`, "index of slots", "was not closed",
			"open it by that version first")
	}
	same := func(what string, x, y map[string]string) {
		for name, p := range x {
			if y[name] != p {
				t.Errorf("%s: %s was changed", what, name)
			}
		}
	}
	s, o := unslot(t, "f1", 240)
	before := read(o.Dir)
	o.ReadOnly = true
	_, err := txn.Open(t.Context(), o)
	says(t, "read only", err, txn.ErrUnrecovered, "index of slots", "open the database once for writing")
	same("read only", before, read(o.Dir))
	o.ReadOnly = false
	db := mustOpen(t, o)
	s.holds(t, "for writing", db)
	closed(t, db)
	o.ReadOnly = true
	db = mustOpen(t, o)
	if got := contents(t, db, table(t, db, "t"), s.n); len(got) != len(s.values) {
		t.Errorf("%d records", len(got))
	}
	closed(t, db)
}

// looked is a context that calls a function when it is looked at.
type looked struct {
	context.Context
	look func() error
}

func (c *looked) Err() error {
	if err := c.look(); err != nil {
		return err
	}
	return c.Context.Err()
}

// TestConvertStops: a conversion that ends with its context, anywhere, and a process that dies in its
// midst, leave a database that has all records. The next opening converts it.
func TestConvertStops(t *testing.T) {
	raced.Skip(t)
	for _, d := range []txn.Durability{txn.DurabilityProcess, txn.DurabilityPower} {
		step := 1
		if testing.Short() {
			step = 9
		}
		for stop, done := 0, false; !done; stop += step {
			what := fmt.Sprintf("durability %v, stop %d", d, stop)
			s, o := unslot(t, "f1", 240)
			o.Durability = d
			dead, n := o, 0
			dead.Dir = filepath.Join(t.TempDir(), "dead")
			done = true
			db, err := txn.Open(&looked{t.Context(), func() error {
				if n++; n <= stop {
					return nil
				}
				if done {
					done = false
					if err := os.CopyFS(dead.Dir, os.DirFS(o.Dir)); err != nil {
						t.Error(err)
					}
				}
				return context.Canceled
			}}, o)
			if done {
				closed(t, db)
				if err != nil || stop < 20 {
					t.Errorf("%s: %v", what, err)
				}
				break
			}
			if err == nil { // it had come to the end
				closed(t, db)
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
			for _, o := range []txn.Options{o, dead} {
				db := mustOpen(t, o)
				leafy(t, what, db)
				quiet(t, db)
				s.holds(t, what, db)
				closed(t, db)
				sound(t, o.Dir)
			}
		}
	}
}

// TestConvertDamaged: a record that is damaged on its primary is linked by the key that a copy has.
// One that is damaged on all is an error that names its block, and so is a node of nothing; nothing
// is lost by that: without the damage the database is converted.
func TestConvertDamaged(t *testing.T) {
	for _, copies := range []int{1, 2} {
		for _, zero := range []bool{false, true} {
			what := fmt.Sprintf("%d copies, zero %v", copies, zero)
			s, o := unslot(t, "f1", 240)
			whole := o
			whole.Dir = filepath.Join(t.TempDir(), "whole")
			if err := os.CopyFS(whole.Dir, os.DirFS(o.Dir)); err != nil {
				t.Fatal(err)
			}
			needle := append(txn.Uint64.Append(nil, 21), bytes.Repeat([]byte{1}, 21)...)
			files, err := filepath.Glob(filepath.Join(o.Dir, "blade-*.region"))
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, file := range files {
				p, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				i := bytes.Index(p, needle)
				if i < 0 || found == copies {
					continue
				}
				found++
				if p[i]++; zero {
					clear(p[i&^(record.LineSize-1):][:record.LineSize])
				}
				if err := os.WriteFile(file, p, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if found != copies {
				t.Fatalf("%d copies", found)
			}
			if copies == 2 {
				if zero {
					continue // as a block that was never used
				}
				_, err := txn.Open(t.Context(), o)
				says(t, what, err, txn.ErrCorrupt, "block ", "no copy is intact", "earlier version")
				o = whole
			}
			db := mustOpen(t, o)
			leafy(t, what, db)
			s.holds(t, what, db)
			closed(t, db)
			sound(t, o.Dir)
		}
	}
}
