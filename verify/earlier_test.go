package verify_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"txnode/verify"
)

// unpack unpacks a database with tables of an earlier version.
func unpack(t *testing.T, name string) (dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "txn", "testdata", "slots", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), p, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestEarlier: each table with slots is a finding of a kind of its own, which the next opening
// settles. Nothing else is found, and nothing is repaired, though something could be.
func TestEarlier(t *testing.T) {
	for _, name := range []string{"f0", "f1", "f2"} {
		dir := unpack(t, name)
		sum, found := check(t, dir, false)
		if sum.Earlier == 0 || len(found) != sum.Earlier || !sum.Clean() || sum.Live == 0 {
			t.Errorf("%s: %+v\n%s", name, sum, show(found))
		}
		for _, f := range found {
			if f.Kind != verify.KindEarlier || !f.Unfinished || f.Remedy != "" {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if sum, _ := check(t, dir, true); sum.Repaired != 0 {
			t.Errorf("%s: repaired: %+v", name, sum)
		}
	}
}
