package command_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
)

// TestReports: bench and compare write the pages that they are asked for, and print what
// they print without.
func TestReports(t *testing.T) {
	b := newBed(t)
	at := func(name string) string { return filepath.Join(b.dir, name) }
	page := func(name string) string {
		t.Helper()
		p, err := os.ReadFile(at(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(p)
	}
	bench := []string{
		"bench", "smallbank", "--accounts", "1000", "--hot-accounts", "40", "--txns", "2000", "--warmup",
		"0s", "--threads", "1",
	}
	code, with, stderr := b.run(append(bench, "--report", "$DIR/bench.html", "--save", "first")...)
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	for _, want := range []string{
		"<!DOCTYPE html>", "txnode bench smallbank", "over time", "<svg", "Imaginary 9000", "FORD+", "#1", "--report=",
	} {
		if !strings.Contains(page("bench.html"), want) {
			t.Errorf("the page of bench lacks %q", want)
		}
	}
	if !strings.Contains(with, "committed") {
		t.Errorf("bench has printed %q", with)
	}

	// A page that is there is replaced, also behind a link, which stays, and keeps its mode.
	if err := errors.Join(os.WriteFile(at("old.html"), []byte(strings.Repeat("old ", 1<<20)), 0o640),
		os.Symlink("old.html", at("link.html")), os.Chmod(at("old.html"), 0o640)); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := b.run("compare", "first", "--report", "$DIR/link.html"); code != 0 ||
		!strings.Contains(out, "SMART-DTX") {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	if p := page("old.html"); !strings.Contains(p, "#1 smallbank first") || !strings.HasPrefix(p, "<!DOCTYPE html>") ||
		!strings.HasSuffix(p, "</html>\n") {
		t.Errorf("the page of compare: %.300s", p)
	}
	if st, err := os.Lstat(at("link.html")); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v", st, err)
	}
	if st, err := os.Stat(at("old.html")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the mode: %v, %v", st, err)
	}

	// What cannot be written is said before anything is measured, and the history is
	// nothing to write over.
	before := b.hours
	if code, out, stderr := b.run(append(bench, "--report", "$DIR/none/bench.html")...); code != 1 || out != "" ||
		!strings.Contains(stderr, "no report") || b.hours != before {
		t.Errorf("exit code %d, %s%s", code, out, stderr)
	}
	history := "$DIR/txnode/history.db"
	for _, args := range [][]string{append(bench, "--report", history), {"compare", "--report", history}} {
		if code, _, stderr := b.run(args...); code != 2 || !strings.Contains(stderr, "name two") {
			t.Errorf("%v over the history: exit code %d, %s", args, code, stderr)
		}
	}
	if code, _, stderr := b.run("compare", "first", "--report", "$DIR/bench.html"); code != 0 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if left, err := filepath.Glob(at("*.partial")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestReportKeepsPrivate: a page about a database that others may not read is not for them either.
func TestReportKeepsPrivate(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	if err := os.Chmod(filepath.Join(b.dir, "data", "catalog.db"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := b.run("bench", "smallbank", "--accounts", "1000", "--hot-accounts", "40", "--txns", "1000",
		"--warmup", "0s", "--dir", "$DIR/data", "--report", "$DIR/page.html"); code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	if st, err := os.Stat(filepath.Join(b.dir, "page.html")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

// TestWriteFile: a file is there as a whole or not at all, and one that was there stays when it can
// not be replaced; what is no file is written to.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path, long := filepath.Join(dir, "f"), filepath.Join(dir, strings.Repeat("n", 250))
	says := func(s string, fails error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, s)
			return errors.Join(err, fails)
		}
	}
	content := func(path, want string) {
		t.Helper()
		if p, err := os.ReadFile(path); err != nil || string(p) != want {
			t.Errorf("%.20s is %q, %v, instead of %q", filepath.Base(path), p, err, want)
		}
	}
	bad := errors.New("bad")
	if err := command.WriteFile(path, says("half", bad)); !errors.Is(err, bad) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a file is there: %v", err)
	}
	if err := command.WriteFile(path, says("whole", nil)); err != nil {
		t.Error(err)
	}
	content(path, "whole")
	if err := command.WriteFile(path, says("h", bad)); !errors.Is(err, bad) {
		t.Error(err)
	}
	content(path, "whole")
	if err := command.WriteFile(long, says("x", nil)); err != nil {
		t.Error(err)
	}
	content(long, "x")
	if err := command.WriteFile(os.DevNull, says("x", nil)); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode()&os.ModeDevice == 0 {
		t.Errorf("%s is %v, %v", os.DevNull, st, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}
