package command_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/rdma/tcp"
)

// TestServeBlades: one daemon has several blades, and a cluster has them in the order in
// which they were named.
func TestServeBlades(t *testing.T) {
	dir := socketDir(t)
	b := newBed(t)
	address := "unix:" + filepath.Join(dir, "s")
	line, end := startServe(t, "--listen", address, "--blade", "64MiB", "--blade", "32MiB", "--catalog", "memory",
		"--dir", filepath.Join(dir, "blades"))
	if want := "2 blades of 64MiB, 32MiB, kept in " + filepath.Join(dir, "blades") +
		", and a catalog in memory serve " + address + "\n"; line != want {
		t.Errorf("%q; want %q", line, want)
	}
	if code, out, stderr := b.run("cluster", "init", "--catalog", address, "--blade", address); code != 0 ||
		!strings.Contains(out, "2 blades of 1 server, 96MiB together") || stderr != "" {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	f, err := tcp.Dial(t.Context(), []string{address}, tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if blades := f.Blades(); len(blades) != 2 || blades[0].Size != 64<<20 || blades[1].Size != 32<<20 ||
		!f.Caps().Durable {
		t.Errorf("%+v, %+v", blades, f.Caps())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if code, stderr := end(); code != 0 || stderr != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestServeDirErrors: a directory that cannot be what it must be is one clear line, and stays as it
// is.
func TestServeDirErrors(t *testing.T) {
	dir := socketDir(t)
	b := newBed(t)
	data := filepath.Join(dir, "blades")
	listen := "unix:" + filepath.Join(dir, "s")
	one := func(code int, say string, args ...string) {
		t.Helper()
		got, out, stderr := b.run(append([]string{"serve", "--listen", listen}, args...)...)
		if got != code || !strings.Contains(stderr, say) || strings.Count(stderr, "\n") != 1 || out != "" {
			t.Errorf("%v: exit code %d, not %d: %s%s", args, got, code, out, stderr)
		}
	}
	good := func(args ...string) {
		t.Helper()
		line, end := startServe(t, append([]string{"--listen", listen, "--dir", data}, args...)...)
		if !strings.HasPrefix(line, "2 blades of 1MiB, 64KiB, kept in ") {
			t.Errorf("%q", line)
		}
		if code, stderr := end(); code != 0 || stderr != "" {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	}
	one(2, "--blade is 1000; it must be a positive multiple of 64KiB", "--blade", "1000")
	one(2, "--memory and --blade are both given", "--blade", "1MiB", "--memory", "1MiB")
	one(2, "multiple of 2MiB with --huge-pages", "--blade", "1MiB", "--huge-pages")
	one(2, "--huge-pages is for memory", "--huge-pages", "--dir", data)
	one(2, "--huge-pages is for blades", "--huge-pages", "--catalog", "memory", "--memory", "0")
	one(2, "--dir is for blades", "--dir", data, "--catalog", "memory", "--memory", "0")
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("wrong usage has made a directory: %v", err)
	}
	// What an end in the middle leaves is no blade yet.
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "blade-007.region"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good("--blade", "1MiB", "--blade", "64KiB")
	identities := func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(data, "blades.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	was := identities()
	good()
	good("--blade", "1MiB", "--blade", "64KiB")
	if now := identities(); now != was || strings.Count(was, `"id"`) != 2 {
		t.Errorf("identities were %s, and are %s", was, now)
	}
	one(1, "it has blades of 1MiB,64KiB, and 1MiB was asked for", "--dir", data, "--memory", "1MiB")

	_, end := startServe(t, "--listen", listen+"2", "--dir", data)
	one(1, "has it open; end it first", "--dir", data)
	if code, stderr := end(); code != 0 || stderr != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	region := filepath.Join(data, "blade-001.region")
	if err := os.Truncate(region, 100); err != nil {
		t.Fatal(err)
	}
	one(1, "blade-001.region has 100 bytes, and blades.json says 65536", "--dir", data)
	if err := os.Remove(region); err != nil {
		t.Fatal(err)
	}
	one(1, "blade-001.region is missing", "--dir", data)
	for content, say := range map[string]string{
		"{": "damaged", `{"format":2}`: "format 2", `{"format":1}`: "0 blades",
		`{"format":1,"blades":[{"id":"x","bytes":65536}]}`: `identity "x"`, `{"fromat":1}`: "fromat",
	} {
		if err := os.WriteFile(filepath.Join(data, "blades.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		one(1, say, "--dir", data)
	}
	if err := os.Remove(filepath.Join(data, "blades.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "blade-000.region"), []byte("the data of a database"),
		0o600); err != nil {
		t.Fatal(err)
	}
	one(1, "blade-000.region is there without blades.json", "--dir", data)
}

// TestServeModes: the directories of a daemon, and the files in them, are for its user alone, also
// if they were not before, which the log says once. A link in them is refused, and what it leads
// to stays as it is.
func TestServeModes(t *testing.T) {
	dir := socketDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	flags := []string{"--listen", "unix:" + at("s"), "--catalog", at("c"), "--blade", "1MiB", "--dir", at("d")}
	for round, told := range []int{0, 2, 0} {
		_, end := startServe(t, flags...)
		code, log := end()
		if n := strings.Count(log, "have none any more"); code != 0 || n != told {
			t.Errorf("round %d: exit code %d, told %d times, not %d: %s", round, code, n, told, log)
		}
		for _, name := range []string{"c", "d"} {
			if err := filepath.WalkDir(at(name), func(path string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				want := fs.FileMode(0o600)
				if e.IsDir() {
					want = 0o700
				}
				if st, err := e.Info(); err != nil || st.Mode().Perm() != want {
					t.Errorf("round %d: %s has mode %v: %v", round, path, st.Mode(), err)
				}
				if round == 0 {
					return os.Chmod(path, want|0o055)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for flag, link := range map[string]string{"--catalog": "catalog.db.new", "--dir": "LOCK", "--shm": "lanes"} {
		victim, own := at("victim"), t.TempDir()
		if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600),
			os.Symlink(victim, filepath.Join(own, link))); err != nil {
			t.Fatal(err)
		}
		args := []string{"serve", flag, own, "--memory", "1MiB", "--listen", "unix:" + at("s")}
		if flag == "--shm" {
			args = args[:5]
		}
		if code, _, stderr := newBed(t).run(args...); code != 1 || !strings.Contains(stderr, link+" is a link") {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
		if p, err := os.ReadFile(victim); err != nil || string(p) != "precious" {
			t.Errorf("%s: the file that the link leads to has %q, %v", flag, p, err)
		}
	}
}
