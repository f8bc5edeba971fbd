package command_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/cmd/txnode/command"
	"txnode/txn"
)

func TestBackupAndRestore(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	run := func(want int, says string, args ...string) string {
		t.Helper()
		code, out, stderr := b.run(args...)
		if code != want || !strings.Contains(out+stderr, says) {
			t.Errorf("%q: exit code %d, %s%s; want %d and %q", args, code, out, stderr, want, says)
		}
		return out
	}
	out := run(0, "", "backup", "$DIR/data", "$DIR/file", "-o", "json")
	var info struct{ Records, Bytes uint64 }
	if err := json.Unmarshal([]byte(out), &info); err != nil || info.Records != 3 {
		t.Errorf("%s: %v", out, err)
	}
	p, err := os.ReadFile(filepath.Join(b.dir, "file"))
	if err != nil || uint64(len(p)) != info.Bytes {
		t.Fatalf("%d bytes, %v", len(p), err)
	}
	// The two differ in when they were made, which is written with up to 9 decimals.
	if streamed := run(0, "", "backup", "$DIR/data", "-"); len(streamed) < len(p)-10 || len(streamed) > len(p)+10 ||
		streamed[:8] != string(p[:8]) {
		t.Errorf("standard output gets %d bytes, the file has %d", len(streamed), len(p))
	}
	run(0, "3 records", "restore", "$DIR/file", "$DIR/again")
	run(0, "no findings", "check", "$DIR/again")
	run(0, "32 30 30 00", "inspect", "record", "$DIR/again", "--table", "accounts", "--key", "2")

	run(1, "exists", "backup", "$DIR/data", "$DIR/file")
	if err := os.Chmod(filepath.Join(b.dir, "file"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(0, "3 records", "backup", "$DIR/data", "$DIR/file", "--force")
	if st, err := os.Stat(filepath.Join(b.dir, "file")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("a private file is replaced by %v, %v", st, err)
	}
	run(1, "not empty", "restore", "$DIR/file", "$DIR/again")
	run(1, "no database", "backup", "$DIR", "$DIR/other")
	run(1, "no such file", "restore", "$DIR/none", "$DIR/new")
	run(2, "name a directory", "backup", "$DIR/data")
	run(2, "--replicas", "restore", "$DIR/file", "$DIR/new", "--replicas", "3")
	run(2, "--blades", "restore", "$DIR/file", "$DIR/new", "--blades", "-1")
	run(2, "a blade of their own", "restore", "$DIR/file", "$DIR/new", "--blades", "2", "--replicas", "2")
	run(2, "--blades must be more", "restore", "$DIR/file", "$DIR/new", "--blades", "1")
	run(2, "unpack it to a file", "restore", "-", "$DIR/new")
	run(2, "--blade-size is 100KiB; it must be a multiple of 64KiB", "restore", "$DIR/file", "$DIR/new",
		"--blade-size", "100KiB")
	run(2, "at most 64TiB", "restore", "$DIR/file", "$DIR/new", "--blade-size", "65TiB")
	run(0, "3 records", "restore", "$DIR/file", "$DIR/large", "--blade-size", "320MiB")
	if st, err := os.Stat(filepath.Join(b.dir, "large", "blade-001.region")); err != nil || st.Size() != 320<<20 {
		t.Errorf("a blade that was to have 320 MiB: %v, %v", st, err)
	}
	run(0, "3 records", "restore", "$DIR/file", "$DIR/alone", "--blades", "1", "--replicas", "0")
	run(0, "alone: 1 blade, ", "check", "$DIR/alone")
	if err := os.Truncate(filepath.Join(b.dir, "alone", "blade-000.region"), 0); err != nil {
		t.Fatal(err)
	}
	run(3, "missing or cut off", "check", "$DIR/alone")
	run(1, "missing or cut off", "backup", "$DIR/alone", "$DIR/other")
	b.terminal = true
	if out := run(2, "standard output is a terminal", "backup", "$DIR/data", "-"); out != "" {
		t.Errorf("%d bytes go to the terminal", len(out))
	}
	b.terminal = false
	p[len(p)/2] ^= 1
	if err := os.WriteFile(filepath.Join(b.dir, "damaged"), p, 0o666); err != nil {
		t.Fatal(err)
	}
	run(1, "checksum mismatch", "restore", "$DIR/damaged", "$DIR/new")
	files, err := os.ReadDir(b.dir)
	for _, f := range files {
		if name := f.Name(); strings.HasPrefix(name, "new") || strings.HasPrefix(name, "other") ||
			strings.Contains(name, "partial") {
			t.Errorf("%s was left behind", name)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestStoreFlags(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		want int
		says string
		args []string
	}{
		{2, "must be one of process, power", []string{"--durability", "disk"}},
		{2, "needs --dir", []string{"--durability", "power"}},
		{2, "needs --policy default", []string{"--durability", "power", "--dir", "$DIR/db", "--policy", "ford"}},
		{0, "flushed before a commit is acknowledged", []string{"--durability", "power", "--dir", "$DIR/db"}},
		{0, "reads from backups", []string{"--read-backups"}},
		{2, "needs --replicas 1 or 2", []string{"--read-backups", "--blades", "1", "--replicas", "0"}},
		{0, "explicit huge pages", []string{"--huge-pages"}},
		{2, "without --dir", []string{"--huge-pages", "--dir", "$DIR/other"}},
	} {
		args := append([]string{
			"bench", "smallbank", "--accounts", "500", "--hot-accounts", "20", "--warmup", "0s",
			"--txns", "50", "--no-save",
		}, c.args...)
		code, out, stderr := b.run(args...)
		if text := strings.Join(strings.Fields(out+stderr), " "); code != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%q: exit code %d, %s; want %d and %q", args, code, text, c.want, c.says)
		}
	}
}

// TestBackupReplacesFilesOnly: --force is for a file of before. Whoever may replace a device,
// or a file of the database, is kept from it.
func TestBackupReplacesFilesOnly(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	at := func(name string) string { return filepath.Join(b.dir, name) }
	for _, err := range []error{
		unix.Mkfifo(at("pipe"), 0o600),
		os.WriteFile(at("old"), []byte("of before"), 0o600),
		os.Symlink("old", at("link")),
		os.Symlink("nothing", at("astray")),
		os.Symlink("data", at("same")),
		os.Symlink(filepath.Join("data", "catalog.db"), at("inside")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file, says string
	}{
		{"pipe", "no file that could be replaced"},
		{"data", "no file that could be replaced"},
		{"astray", "not there"},
		{"data/catalog.db", "in the directory that is copied"},
		{"same/LOCK", "in the directory that is copied"},
		{"inside", "in the directory that is copied"},
	} {
		if code, out, stderr := b.run("backup", "$DIR/data", "$DIR/"+c.file, "--force"); code != 1 ||
			!strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d, %s%s", c.file, code, out, stderr)
		}
	}
	if code, _, stderr := b.run("backup", "$DIR/data", "$DIR/link"); code != 1 || !strings.Contains(stderr, "--force") {
		t.Errorf("a link, without --force: exit code %d, %s", code, stderr)
	}
	if code, out, stderr := b.run("backup", "$DIR/data", "$DIR/link", "--force"); code != 0 ||
		!strings.Contains(out, "link: 3 records") {
		t.Errorf("a link: exit code %d, %s%s", code, out, stderr)
	}
	for name, kind := range map[string]os.FileMode{
		"pipe": os.ModeNamedPipe, "link": os.ModeSymlink,
		"astray": os.ModeSymlink, "inside": os.ModeSymlink, "data": os.ModeDir,
	} {
		if st, err := os.Lstat(at(name)); err != nil || st.Mode().Type() != kind {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if code, out, stderr := b.run("restore", "$DIR/old", "$DIR/again"); code != 0 {
		t.Errorf("what the link leads to: exit code %d, %s%s", code, out, stderr)
	}
	if code, out, _ := b.run("check", "$DIR/data"); code != 0 {
		t.Error(out)
	}
}

// TestBackupOfReadOnly: a directory that cannot be written to, as of a file system that is
// mounted read-only, can be copied.
func TestBackupOfReadOnly(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	for _, cause := range []error{unix.EROFS, unix.EACCES} {
		restore := command.SetOpenDatabase(func(ctx context.Context, o txn.Options) (*txn.DB, error) {
			if !o.ReadOnly {
				return nil, &os.PathError{Op: "open", Path: o.Dir, Err: cause}
			}
			return txn.Open(ctx, o)
		})
		code, out, stderr := b.run("backup", "$DIR/data", "$DIR/file", "--force")
		restore()
		if code != 0 || !strings.Contains(out, "3 records") {
			t.Errorf("%v: exit code %d, %s%s", cause, code, out, stderr)
		}
	}
}
