package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/memory/embedded"
	"txnode/memory/layout"
)

// TestOldCopy: a region that is a copy of before the database was opened last is refused, and
// so is such a catalog: what has been committed since is not in it. All of them together are
// the database as it was.
func TestOldCopy(t *testing.T) {
	o := small(t.TempDir())
	names := []string{"blade-000.region", "blade-001.region", "catalog.db"}
	save := func() map[string][]byte {
		t.Helper()
		files := map[string][]byte{}
		for _, name := range names {
			p, err := os.ReadFile(filepath.Join(o.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files[name] = p
		}
		return files
	}
	put := func(files map[string][]byte, names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(o.Dir, name), files[name], 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeDB(t, open(t, o))
	old := save()
	closeDB(t, open(t, o))
	newest := save()
	for _, name := range names {
		put(newest, names...)
		put(old, name)
		for _, readOnly := range []bool{false, true} {
			o.ReadOnly = readOnly
			d, err := embedded.Open(o)
			if err == nil {
				closeDB(t, d)
			}
			kind := layout.ErrGeometry
			if name == "catalog.db" {
				kind = layout.ErrForeign
			}
			if !errors.Is(err, kind) || !strings.Contains(err.Error(), "old copy") ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("%s is an old copy, read-only %v: %v", name, readOnly, err)
			}
		}
	}
	o.ReadOnly = false
	for _, files := range []map[string][]byte{newest, old} {
		put(files, names...)
		closeDB(t, open(t, o))
	}
	// One that is moved away is built anew.
	put(newest, "blade-001.region")
	put(old, "catalog.db")
	if err := os.Remove(filepath.Join(o.Dir, names[0])); err != nil {
		t.Fatal(err)
	}
	o.ReplaceLost = true
	if d, err := embedded.Open(o); err == nil {
		t.Error("catalog.db is older than a region")
		closeDB(t, d)
	} else if !errors.Is(err, layout.ErrGeometry) {
		t.Error(err)
	}
	put(newest, "catalog.db")
	closeDB(t, open(t, o))
}

// TestCopyWhileOpen: a region that is a copy of when the database was open last, and not
// yet closed, is an old copy from the moment that it is closed: what was committed
// between is not in it.
func TestCopyWhileOpen(t *testing.T) {
	o := small(t.TempDir())
	path := filepath.Join(o.Dir, "blade-001.region")
	d := open(t, o)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	closeDB(t, d)
	newest, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		region []byte
		kind   error
	}{{old, layout.ErrStale}, {newest, nil}} {
		if err := os.WriteFile(path, x.region, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := embedded.Open(o)
		if !errors.Is(err, x.kind) || x.kind != nil && !strings.Contains(err.Error(), "old copy") {
			t.Errorf("%v, want %v", err, x.kind)
		}
		if err == nil {
			closeDB(t, d)
		}
	}
}
