package command_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestDumbTerminal: a terminal that knows no escape sequences gets none.
func TestDumbTerminal(t *testing.T) {
	b := newBed(t)
	b.terminal = true
	for term, want := range map[string]bool{"xterm": true, "dumb": false} {
		b.env["TERM"] = term
		code, out, stderr := b.run("bench", "smallbank", "--accounts", "500", "--hot-accounts", "20", "--warmup", "0s",
			"--txns", "50", "--no-save")
		if got := strings.Contains(out, "\x1b["); code != 0 || got != want {
			t.Errorf("TERM=%s: exit code %d, escape sequences: %v, want %v; %s", term, code, got, want, stderr)
		}
	}
}

// TestInspectDamagedPrimary: the key of a record whose primary is damaged is found by a backup.
func TestInspectDamagedPrimary(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	args := []string{"inspect", "record", "$DIR/data", "--table", "accounts", "--key", "2"}
	_, out, _ := b.run(args...)
	m := regexp.MustCompile(`copy 0: blade (\d+) \+0x([0-9a-f]+),`).FindStringSubmatch(out)
	if m == nil {
		t.Fatal(out)
	}
	off, err := strconv.ParseInt(m[2], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(b.dir, "data", "blade-00"+m[1]+".region"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff}, off+0x24); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := b.run(args...); code != 0 || !strings.Contains(out, "checksum mismatch") {
		t.Errorf("exit code %d, %s%s", code, stderr, out)
	}
	if code, out, stderr := b.run("backup", "$DIR/data", "$DIR/file"); code != 0 || strings.Contains(out, "left out") {
		t.Errorf("a backup beside a damaged primary: exit code %d, %s%s", code, stderr, out)
	}
	if code, out, stderr := b.run("check", "$DIR/data"); code != 0 {
		t.Errorf("the backup has not mended the record: exit code %d, %s%s", code, stderr, out)
	}
}

// TestBackupSkipsDamaged: a record that is damaged on every copy makes a backup fail, or is
// left out and listed.
func TestBackupSkipsDamaged(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	_, out, _ := b.run("inspect", "record", "$DIR/data", "--table", "accounts", "--key", "2")
	copies := regexp.MustCompile(`copy \d+: blade (\d+) \+0x([0-9a-f]+)[,:]`).FindAllStringSubmatch(out, -1)
	if len(copies) != 2 {
		t.Fatal(out)
	}
	for _, m := range copies {
		off, err := strconv.ParseInt(m[2], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(b.dir, "data", "blade-00"+m[1]+".region"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0xff}, off+0x24); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, stderr := b.run("backup", "$DIR/data", "$DIR/file"); code != 1 ||
		!strings.Contains(stderr, "checksum mismatch") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	code, out, stderr := b.run("backup", "$DIR/data", "$DIR/file", "--skip-damaged")
	if code != 3 || !strings.Contains(out, "2 records") || !strings.Contains(out, "1 left out") ||
		!strings.Contains(stderr, `left out: table "accounts": record with key 0x0000000000000002: `) ||
		!strings.Contains(stderr, "1 place left out") {
		t.Errorf("exit code %d, %s%s", code, stderr, out)
	}
	if code, out, stderr := b.run("restore", "$DIR/file", "$DIR/new"); code != 0 ||
		!strings.Contains(out, "2 records") {
		t.Errorf("exit code %d, %s%s", code, stderr, out)
	}
}
