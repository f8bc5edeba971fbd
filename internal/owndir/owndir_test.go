package owndir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/internal/owndir"
)

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()
}

// directory makes files of modes in a directory with a mode, whatever the umask is.
func directory(t *testing.T, dirMode fs.FileMode, files map[string]fs.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	for name, m := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("data"), m), os.Chmod(path, m)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDir: a directory is made for this user alone. One with wider modes gets that, once, and so do
// the program's files in it. Among files of other programs others keep what they can read.
func TestDir(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "a", "b")
	if tightened, err := owndir.Dir(fresh, "*.db"); err != nil || tightened || mode(t, fresh) != 0o700 {
		t.Errorf("a new one: %v, %v, mode %o", tightened, err, mode(t, fresh))
	}
	for _, x := range []struct {
		what        string
		dir         fs.FileMode
		files, want map[string]fs.FileMode // "": the directory
		tightened   bool
	}{
		{
			"with files", 0o755, map[string]fs.FileMode{"a.db": 0o644, "other": 0o644},
			map[string]fs.FileMode{"": 0o700, "a.db": 0o600, "other": 0o644}, true,
		},
		{
			"with a file", 0o700, map[string]fs.FileMode{"a.db": 0o640},
			map[string]fs.FileMode{"": 0o700, "a.db": 0o600},
			true,
		},
		{"empty", 0o777, nil, map[string]fs.FileMode{"": 0o700}, true},
		{
			"of another program", 0o775, map[string]fs.FileMode{"other": 0o644},
			map[string]fs.FileMode{"": 0o755, "other": 0o644}, true,
		},
		{
			"tight", 0o700, map[string]fs.FileMode{"a.db": 0o600}, map[string]fs.FileMode{"": 0o700, "a.db": 0o600},
			false,
		},
	} {
		dir := directory(t, x.dir, x.files)
		if tightened, err := owndir.Dir(dir, "*.db"); err != nil || tightened != x.tightened {
			t.Errorf("%s: tightened %v, %v", x.what, tightened, err)
		}
		for name, want := range x.want {
			if m := mode(t, filepath.Join(dir, name)); m != want {
				t.Errorf("%s: %q has mode %o, and not %o", x.what, name, m, want)
			}
		}
		if tightened, err := owndir.Dir(dir, "*.db"); err != nil || tightened {
			t.Errorf("%s, again: tightened %v, %v", x.what, tightened, err)
		}
	}
}

// TestDirOfOthers: links in a directory are refused, and what another user has, or can write to.
func TestDirOfOthers(t *testing.T) {
	refused := func(what, say string, err error) {
		t.Helper()
		if !errors.Is(err, owndir.ErrOthers) || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", what, err)
		}
	}
	dir := directory(t, 0o700, map[string]fs.FileMode{"victim": 0o600})
	if err := os.Symlink(filepath.Join(dir, "victim"), filepath.Join(dir, "a.db")); err != nil {
		t.Fatal(err)
	}
	_, err := owndir.Dir(dir, "*.db")
	refused("a link", "is a link", err)
	if _, err := owndir.Dir(dir, "*.other"); err != nil {
		t.Errorf("a link that is none of the program's: %v", err)
	}
	me := uint32(os.Geteuid())
	_, err = owndir.Check(dir, me+1)
	refused("another user's", "belongs to user", err)
	if _, err := owndir.Check(dir, me+1, me); err != nil {
		t.Error(err)
	}
	if me != 0 {
		t.Skip("what is of other users is made by root")
	}
	others := directory(t, 0o700, map[string]fs.FileMode{"a.db": 0o600})
	if err := os.Chown(filepath.Join(others, "a.db"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	_, err = owndir.Dir(others, "*.db")
	refused("a file of another user", "a.db belongs to user 65534", err)
	if err := os.Chown(others, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	_, err = owndir.Dir(others, "*.db")
	refused("a directory of another user", "belongs to user 65534", err)
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(dir, link), os.Lchown(link, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	_, err = owndir.Dir(link)
	refused("another user's link", "link belongs to user 65534", err)
}
