package command_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOutputsApart: a file that a benchmark writes is none of the database in --dir,
// whatever its name there.
func TestOutputsApart(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	at := func(name string) string { return filepath.Join(b.dir, name) }
	for _, err := range []error{
		os.Symlink("data", at("alias")),
		os.Symlink(filepath.Join("data", "blade-009.region"), at("dangling")),
		os.Link(at("data/catalog.db"), at("hard")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(at("data/catalog.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{
		{"--cpuprofile", "$DIR/data/catalog.db"},
		{"--cpuprofile", "$DIR/alias/new"},
		{"--cpuprofile", "$DIR/dangling"},
		{"--cpuprofile", "$DIR/hard"},
		{"--cpuprofile", "$DIR/data"},
		{"--report", "$DIR/data/page.html"},
		{"--report", "$DIR/alias/page.html"},
		{"--report", "$DIR/dangling"},
		{"--report", "$DIR/hard"},
		{"--report", "$DIR/h.html", "--cpuprofile", "$DIR/h.html"},
		{"--verify", "--history", "$DIR/h.edn", "--report", "$DIR/h.2.edn"},
		{"--verify", "--history", "$DIR/data/h.edn"},
		{"--verify", "--history", "$DIR/h.edn", "--cpuprofile", "$DIR/h.2.edn"},
	} {
		code, out, stderr := b.run(append([]string{"bench", "smallbank", "--no-save", "--dir", "$DIR/data"},
			flags...)...)
		if code != 2 || !strings.Contains(stderr, "name a") && !strings.Contains(stderr, "name two") {
			t.Errorf("%v: exit code %d, %s%s", flags, code, out, stderr)
		}
	}
	if after, err := os.ReadFile(at("data/catalog.db")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the catalog has changed: %v", err)
	}
}

// TestBackupKeepsPrivate: a backup is no more readable than the database, and a database no more
// than its backup. Names may be as long as the file system allows.
func TestBackupKeepsPrivate(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	at := func(name string) string { return filepath.Join(b.dir, name) }
	long := strings.Repeat("n", 250)
	for _, name := range []string{"catalog.db", "blade-000.region", "blade-001.region"} {
		if err := os.Chmod(at("data/"+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"backup", "$DIR/data", "$DIR/" + long}, {"restore", "$DIR/" + long, "$DIR/r" + long},
	} {
		if code, out, stderr := b.run(args...); code != 0 {
			t.Fatalf("%s: exit code %d, %s%s", args[0], code, out, stderr)
		}
	}
	for name, want := range map[string]os.FileMode{long: 0o600, "r" + long: 0o700, "r" + long + "/catalog.db": 0o600} {
		if st, err := os.Stat(at(name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%.10s...: %v, %v; want mode %o", name, st, err, want)
		}
	}
}

// TestUnusableNames: what is no file or no directory is refused in plain words, and not waited for.
func TestUnusableNames(t *testing.T) {
	b := newBed(t)
	at := func(name string) string { return filepath.Join(b.dir, name) }
	if err := unix.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", at("link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{2, "read twice", []string{"restore", "$DIR/pipe", "$DIR/new"}},
		{1, "is a directory: name a file", []string{"restore", "$DIR", "$DIR/new"}},
		{1, "is a link, and what it leads to is not there", []string{"restore", "$DIR/link", "$DIR/new"}},
		{1, "is a link, and what it leads to is not there", []string{"check", "$DIR/link"}},
		{1, "there is no such directory", []string{"check", "$DIR/none"}},
	} {
		if code, out, stderr := b.run(c.args...); code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit code %d, %s%s", c.args, code, out, stderr)
		}
	}
}
