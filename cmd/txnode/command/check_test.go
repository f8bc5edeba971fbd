package command_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
	"txnode/memory/embedded"
	"txnode/txn"
)

// makeDatabase makes a database with three accounts in the bed's directory.
func makeDatabase(t *testing.T, b *bed) {
	t.Helper()
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{
		Dir: filepath.Join(b.dir, "data"), BladeSize: 16 << 20, SegmentSize: 1 << 20,
		LogArea: 64 << 10, IndexGroups: 8, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := txn.CreateTable(db, "accounts", txn.Uint64, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(ctx, func(tx *txn.Tx) error {
		for k := range uint64(3) {
			if err := accounts.Put(tx, k, fmt.Sprintf("balance %d", 100*k)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// place is where a record is, as txnode prints it.
var place = regexp.MustCompile(`points to (seg \d+ \+0x[0-9a-f]+)\n.*?: blade (\d+) \+(0x[0-9a-f]+),`)

// whereIs asks txnode inspect where a record is.
func whereIs(t *testing.T, b *bed, key string) (addr string, blade int, off int64) {
	t.Helper()
	code, out, stderr := b.run("inspect", "record", "$DIR/data", "--table", "accounts", "--key", key)
	m := place.FindStringSubmatch(out)
	if code != 0 || m == nil {
		t.Fatalf("exit code %d, %s%s", code, stderr, out)
	}
	if _, err := fmt.Sscanf(m[2]+" "+m[3], "%d 0x%x", &blade, &off); err != nil {
		t.Fatal(err)
	}
	return m[1], blade, off
}

// flip inverts a byte of a blade's file.
func flip(t *testing.T, b *bed, blade int, off int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(b.dir, "data", fmt.Sprintf("blade-%03d.region", blade)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 1)
	if _, err := f.ReadAt(p, off); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{^p[0]}, off); err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	code, out, stderr := b.run("check", "$DIR/data")
	if code != 0 || stderr != "" || !strings.Contains(out, "no findings\n") ||
		!strings.Contains(out, "accounts        3") || !strings.HasPrefix(out, "checked $DIR/data: 2 blades") {
		t.Fatalf("exit code %d, stderr %q\n%s", code, stderr, out)
	}
	addr, blade, off := whereIs(t, b, "1")
	flip(t, b, blade, off+24) // the key
	flip(t, b, 1, 16)         // a header
	for range 2 {             // a check without --repair changes nothing
		code, out, stderr = b.run("check", "$DIR/data")
		if code != command.ExitVerification || stderr != "txnode: verification failed: $DIR/data: 2 findings\n" ||
			!strings.Contains(out, "record at "+addr+" (") || !strings.Contains(out, "header at blade 1 +0x0: ") ||
			!strings.Contains(out, "findings: 2: 1 header, 1 record\n") {
			t.Errorf("exit code %d, stderr %q\n%s", code, stderr, out)
		}
	}
	if code, out, _ = b.run("check", "$DIR/data", "--limit", "1"); code != command.ExitVerification ||
		strings.Contains(out, "record at") || !strings.Contains(out, "... and 1 more findings\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}

	code, out, _ = b.run("check", "$DIR/data", "-o", "json")
	var objects []map[string]any
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		var o map[string]any
		if err := json.Unmarshal(s.Bytes(), &o); err != nil {
			t.Fatalf("%v: %s", err, s.Text())
		}
		objects = append(objects, o)
	}
	if code != command.ExitVerification || len(objects) != 3 || objects[0]["kind"] != "header" ||
		objects[1]["kind"] != "record" || objects[1]["blade_offset"] != float64(off) ||
		objects[2]["summary"].(map[string]any)["findings"] != 2.0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	code, out, _ = b.run("check", "$DIR/data", "-o", "csv")
	if rows, err := csv.NewReader(strings.NewReader(out)).ReadAll(); err != nil || code != command.ExitVerification ||
		len(rows) != 3 || rows[0][0] != "kind" || rows[2][0] != "record" {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}

	code, out, stderr = b.run("check", "$DIR/data", "--repair")
	if code != 0 || stderr != "" || strings.Count(out, "; repaired: ") != 3 ||
		!strings.Contains(out, "findings: 2: 1 header, 1 record; repaired: 2\n") {
		t.Errorf("exit code %d, stderr %q\n%s", code, stderr, out)
	}
	if code, out, _ = b.run("check", "$DIR/data"); code != 0 {
		t.Errorf("after repair: exit code %d\n%s", code, out)
	}
}

func TestCheckTellsWhatStandsInTheWay(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	data := filepath.Join(b.dir, "data")
	db, err := txn.Open(context.Background(), txn.Options{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "$DIR/data"}, {"check", "$DIR/data", "--repair"}, {"inspect", "region", "$DIR/data", "0"},
	} {
		if code, _, stderr := b.run(args...); code != command.ExitFailure || strings.Count(stderr, "\n") != 1 ||
			!strings.Contains(stderr, "in use") {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
	if err := db.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no directory": {[]string{"check", "$DIR/nowhere"}, 1, "no database in $DIR/nowhere"},
		"empty":        {[]string{"check", "$DIR/empty", "--repair"}, 1, "no database in $DIR/empty"},
		"no argument":  {[]string{"check"}, 2, "name one directory"},
		"limit":        {[]string{"check", "$DIR/data", "-n", "-1"}, 2, "must not be negative"},
		"no blade":     {[]string{"inspect", "region", "$DIR/data", "7"}, 2, "blade 7: there are 2"},
		"blade":        {[]string{"inspect", "region", "$DIR/data", "x"}, 2, `"x" is no number of a blade`},
		"address":      {[]string{"inspect", "bucket", "$DIR/data", "x"}, 2, `"x" is no address`},
		"transaction":  {[]string{"inspect", "tx", "$DIR/data", "x"}, 2, `"x" is no transaction`},
		"half a key":   {[]string{"inspect", "record", "$DIR/data", "--key", "1"}, 2, "belong together"},
		"no nodes": {
			[]string{"inspect", "node", "$DIR/data", "--table", "accounts", "--key", "1"}, 1, "has no nodes",
		},
		"nothing": {[]string{"inspect", "record", "$DIR/data"}, 2, "give the address"},
		"no table": {
			[]string{"inspect", "record", "$DIR/data", "--table", "x", "--key", "1"}, 1, `there are "accounts"`,
		},
		"key": {
			[]string{"inspect", "record", "$DIR/data", "--table", "accounts", "--key", "x"}, 2, "uint64",
		},
		"no key": {
			[]string{"inspect", "record", "$DIR/data", "--table", "accounts", "--key", "77"}, 1, "not in this database",
		},
		"no copy":        {[]string{"inspect", "segment", "$DIR/data", "1", "--copy", "9"}, 1, "copy 9"},
		"no coordinator": {[]string{"inspect", "log", "$DIR/data", "1"}, 1, "was closed"},
		"no command":     {[]string{"inspect", "nothing", "$DIR/data"}, 2, "unknown command"},
	} {
		code, out, stderr := b.run(c.args...)
		if code != c.code || out != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d, %q, %q", name, code, stderr, out)
		}
	}
	if left, err := os.ReadDir(filepath.Join(b.dir, "empty")); err != nil || len(left) > 0 {
		t.Errorf("a directory without a database has got %v", left)
	}

	// Files that are garbage, cut off or gone: one line. Of a check they are findings
	// (TestCheckMissingRegion, TestCheckCatalog).
	for name, spoil := range map[string]func(string) error{
		"garbage catalog": func(d string) error {
			return os.WriteFile(filepath.Join(d, "catalog.db"), []byte(strings.Repeat("garbage ", 10000)), 0o644)
		},
		"empty catalog": func(d string) error { return os.Truncate(filepath.Join(d, "catalog.db"), 0) },
		"cut blade":     func(d string) error { return os.Truncate(filepath.Join(d, "blade-001.region"), 4096) },
		"no blade":      func(d string) error { return os.Remove(filepath.Join(d, "blade-000.region")) },
	} {
		spoiled := filepath.Join(b.dir, strings.ReplaceAll(name, " ", "-"))
		if err := os.CopyFS(spoiled, os.DirFS(data)); err != nil {
			t.Fatal(err)
		}
		if err := spoil(spoiled); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"inspect", "segment", spoiled, "1"}, {"backup", spoiled, spoiled + ".backup"},
		} {
			if code, out, stderr := b.run(args...); code != command.ExitFailure || out != "" ||
				strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "internal error") {
				t.Errorf("%s: %v: exit code %d, %q, %q", name, args, code, stderr, out)
			}
		}
	}
	// A blade that is all garbage, or blank, is a database with findings.
	for name, fill := range map[string]byte{"garbage": 0xa5, "blank": 0} {
		spoiled := filepath.Join(b.dir, name+"-blade")
		if err := os.CopyFS(spoiled, os.DirFS(data)); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 16<<20)
		for i := range p {
			p[i] = fill
		}
		if err := os.WriteFile(filepath.Join(spoiled, "blade-000.region"), p, 0o644); err != nil {
			t.Fatal(err)
		}
		if code, out, stderr := b.run("check", spoiled, "-n", "3"); code != command.ExitVerification ||
			strings.Count(stderr, "\n") != 1 || !strings.Contains(out, "header at blade 0") {
			t.Errorf("%s: exit code %d, %q\n%s", name, code, stderr, out)
		}
	}
}

func TestInspect(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	addr, _, _ := whereIs(t, b, "2")
	for _, c := range []struct {
		args string
		want []string
	}{
		{"region $DIR/data 1", []string{"region header, copy 1: intact", "blocks of 64 bytes"}},
		{"segment $DIR/data 1", []string{"segment 1: ", "copy 0: blade"}},
		{"record $DIR/data " + addr, []string{
			"live, table 1", "guard: free at version c", "copy 1: blade", "the same bytes",
		}},
		{"record $DIR/data --copy 1 " + addr, []string{", copy 1: blade", "copy 0: blade"}},
		{"tx $DIR/data c1.1", []string{"whose", "blocks"}[1:]},
		{"record $DIR/data --table accounts --key 0x0000000000000002", []string{"points to " + addr}},
	} {
		code, out, stderr := b.run(append([]string{"inspect"}, strings.Fields(c.args)...)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: exit code %d: %s", c.args, code, stderr)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %q is not in\n%s", c.args, w, out)
			}
		}
	}
}

// TestCheckStrangeBlade: the file of a blade was lost, and somebody has made an empty one.
func TestCheckStrangeBlade(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	file := filepath.Join(b.dir, "data", "blade-001.region")
	if err := errors.Join(os.Truncate(file, 0), os.Truncate(file, 16<<20)); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(b.dir, "data", "blade-000.region")
	before, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	code, out, stderr := b.run("check", "$DIR/data", "--repair")
	if code != command.ExitVerification || stderr != "txnode: verification failed: $DIR/data: 2 findings\n" ||
		!strings.Contains(out,
			"checked $DIR/data without blade-001.region (not this database, an old copy of it, or not of a format "+
				"that this program reads), and repaired nothing") ||
		!strings.Contains(out, "blocks: 3 live") {
		t.Errorf("exit code %d, stderr %q\n%s", code, stderr, out)
	}
	if after, err := os.ReadFile(other); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the other blade was changed: %v", err)
	}
}

// TestCheckOldCopy: the file of a blade is of before the database was opened last, and is not said
// to be another's; or the catalog is, and nothing is repaired by it. Nobody is told to have copies
// built anew where that is refused.
func TestCheckOldCopy(t *testing.T) {
	for _, c := range []struct {
		name      string
		durable   bool // and not closed
		want, not []string
	}{
		{"blade-001.region", false, []string{
			"without blade-001.region (not this database, an old copy of it, or ", "--replace-lost",
		}, nil},
		{"blade-001.region", true, []string{
			"without blade-001.region (not this database, an old copy of it, or ", "restore a backup",
		}, []string{"--replace-lost"}},
		{
			"catalog.db", false,
			[]string{"repaired nothing", "catalog.db is older than the regions: bring the newest back"}, nil,
		},
	} {
		name := c.name
		b := newBed(t)
		makeDatabase(t, b)
		file := filepath.Join(b.dir, "data", name)
		old, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		db, err := txn.Open(t.Context(), txn.Options{Dir: filepath.Join(b.dir, "data")})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.durable {
			d, err := embedded.Open(embedded.Options{Dir: filepath.Join(b.dir, "data")})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Space().SetCheckpoint(1), d.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(file, old, 0o644); err != nil {
			t.Fatal(err)
		}
		code, out, stderr := b.run("check", "$DIR/data", "--repair")
		if code != command.ExitVerification || !strings.HasPrefix(stderr, "txnode: verification failed: $DIR/data: ") {
			t.Errorf("%s: exit code %d, stderr %q\n%s", name, code, stderr, out)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %q is not in\n%s", name, w, out)
			}
		}
		for _, w := range c.not {
			if strings.Contains(out, w) {
				t.Errorf("%s: %q is in\n%s", name, w, out)
			}
		}
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(old, after) {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
}

// TestCheckUnrecovered: a database that was open with DurabilityPower and not closed is
// checked, and not repaired, since only its logs prove what its copies should hold.
func TestCheckUnrecovered(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	db, err := embedded.Open(embedded.Options{Dir: filepath.Join(b.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Space().SetCheckpoint(1), db.Close()); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := b.run("check", "$DIR/data", "--repair")
	if code != 0 || !strings.Contains(out, "checked $DIR/data, and repaired nothing: ") ||
		!strings.Contains(out, "\nit was open with --durability power and not closed: ") {
		t.Errorf("exit code %d, stderr %q\n%s", code, stderr, out)
	}
	if code, out, _ := b.run("check", "$DIR/data", "-o", "json"); code != 0 ||
		!strings.Contains(out, `"unrecovered":true`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	_, blade, off := whereIs(t, b, "1")
	flip(t, b, blade, off+24)
	code, out, _ = b.run("check", "$DIR/data", "--repair")
	if code != command.ExitVerification || strings.Contains(out, "repaired:") ||
		strings.Contains(out, "a repair can help") {
		t.Errorf("damaged: exit code %d\n%s", code, out)
	}
}

// TestCheckRebuilds: a region file is gone. Nothing but --replace-lost puts another one in its
// place, which has copies of everything.
func TestCheckRebuilds(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	path := filepath.Join(b.dir, "data", "blade-001.region")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := b.run("check", "$DIR/data", "--repair")
	if code != command.ExitVerification || !strings.Contains(out, "blade-001.region") ||
		!strings.Contains(out, "--replace-lost") {
		t.Errorf("without its file: exit code %d, %s%s", code, stderr, out)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a check without --replace-lost has made a file")
	}
	code, out, stderr = b.run("check", "$DIR/data", "--replace-lost")
	if code != 0 || !strings.Contains(stderr, "blade 1: its region was missing or blank") ||
		!strings.Contains(out, "no findings") {
		t.Errorf("exit code %d, %s%s", code, stderr, out)
	}
	if err := os.Remove(filepath.Join(b.dir, "data", "blade-000.region")); err != nil { // the new one has it all
		t.Fatal(err)
	}
	if code, out, stderr = b.run("check", "$DIR/data", "--replace-lost"); code != 0 ||
		!strings.Contains(out, "no findings") {
		t.Errorf("exit code %d, %s%s", code, stderr, out)
	}
	whereIs(t, b, "1")
	for i := range 2 {
		if err := os.Remove(filepath.Join(b.dir, "data", fmt.Sprintf("blade-%03d.region", i))); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, stderr = b.run("check", "$DIR/data", "--replace-lost"); code == 0 ||
		!strings.Contains(stderr, "no blade would be left") {
		t.Errorf("without any file: exit code %d, %s%s", code, stderr, out)
	}
}

// TestCheckTellsOfMissingCopies: what is there is sound, but of a blade that was given up there
// are no copies yet, which is said.
func TestCheckTellsOfMissingCopies(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	dir := filepath.Join(b.dir, "data")
	if code, out, _ := b.run("check", "$DIR/data"); code != 0 || strings.Contains(out, "copies missing") {
		t.Errorf("before: exit code %d\n%s", code, out)
	}
	if err := os.Remove(filepath.Join(dir, "blade-001.region")); err != nil {
		t.Fatal(err)
	}
	h, err := embedded.Connect(embedded.Options{Dir: dir, ReplaceLost: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil { // before anything was built
		t.Fatal(err)
	}
	code, out, stderr := b.run("check", "$DIR/data")
	if code != 0 || !strings.Contains(out, "\ncopies missing: ") ||
		!strings.Contains(out, "(blade-001.region counts as lost); they are built while the database is open\n") {
		t.Errorf("exit code %d, %s%s", code, stderr, out)
	}
	if code, out, _ := b.run("check", "$DIR/data", "-o", "json"); code != 0 ||
		!strings.Contains(out, `"blades_down":[1],"copies_missing":`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestCheckMissingRegion: a region is not there, or not whole. That is a finding like any
// other, and the rest is checked with what the other blade has.
func TestCheckMissingRegion(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"cut off": func(path string) error { return os.Truncate(path, 1<<20) },
		"too long": func(path string) error {
			st, err := os.Stat(path)
			return errors.Join(err, os.Truncate(path, st.Size()+1))
		},
		"no file": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			makeDatabase(t, b)
			_, blade, off := whereIs(t, b, "1")
			file := func(blade int) string {
				return filepath.Join(b.dir, "data", fmt.Sprintf("blade-%03d.region", blade))
			}
			if err := damage(file(1 - blade)); err != nil {
				t.Fatal(err)
			}
			code, out, stderr := b.run("check", "$DIR/data")
			gone := fmt.Sprintf("blade-%03d.region", 1-blade)
			if code != command.ExitVerification || stderr != "txnode: verification failed: $DIR/data: 1 finding\n" ||
				!strings.HasPrefix(out, fmt.Sprintf("region at blade %d +0x0: ", 1-blade)) ||
				!strings.Contains(out, gone) ||
				!strings.Contains(out, "checked $DIR/data without "+gone+" (not there, or not whole): 2 blades") ||
				!strings.Contains(out, "blocks: 3 live") {
				t.Errorf("exit code %d, %s%s", code, stderr, out)
			}
			flip(t, b, blade, off+23) // of the checksum
			before, err := os.ReadFile(file(blade))
			if err != nil {
				t.Fatal(err)
			}
			code, out, _ = b.run("check", "$DIR/data", "--repair", "-o", "json")
			var kinds []string
			for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
				var x struct {
					Kind    string
					Blade   int
					Summary struct {
						Missing []int `json:"missing_blades"`
					}
				}
				if err := json.Unmarshal([]byte(line), &x); err != nil {
					t.Fatal(err)
				}
				kinds = append(kinds, fmt.Sprint(x.Kind, " ", x.Blade, x.Summary.Missing))
			}
			want := fmt.Sprintf("[region %d [] record %d []  0 [%d]]", 1-blade, blade, 1-blade)
			if got := fmt.Sprint(kinds); code != command.ExitVerification || got != want {
				t.Errorf("exit code %d, %s instead of %s", code, got, want)
			}
			if after, err := os.ReadFile(file(blade)); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the other blade was changed: %v", err)
			}
			// which needs all of them
			if _, _, stderr := b.run("inspect", "region", "$DIR/data", "0"); !strings.Contains(stderr, gone) {
				t.Errorf("inspect says %q", stderr)
			}
		})
	}
	t.Run("all", func(t *testing.T) {
		b := newBed(t)
		makeDatabase(t, b)
		for i := range 2 {
			if err := os.Remove(filepath.Join(b.dir, "data", fmt.Sprintf("blade-%03d.region", i))); err != nil {
				t.Fatal(err)
			}
		}
		code, out, _ := b.run("check", "$DIR/data")
		if code != command.ExitVerification || !strings.Contains(out, "no copy of the segment is left") ||
			!strings.Contains(out, "without blade-000.region and blade-001.region") {
			t.Errorf("exit code %d, %s", code, out)
		}
	})
}

// TestCheckCatalog: a catalog that is damaged or lost is a finding, too, and the only one.
func TestCheckCatalog(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"garbage": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("garbage!"), 8192), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			makeDatabase(t, b)
			if err := damage(filepath.Join(b.dir, "data", "catalog.db")); err != nil {
				t.Fatal(err)
			}
			for _, o := range []struct{ output, begins, has string }{
				{"table", "catalog at catalog.db: ", "nothing else in $DIR/data was checked"},
				{"json", `{"kind":"catalog",`, `"by_kind":{"catalog":1}`},
				{"csv", "kind,table,", "\ncatalog,0,0,0,0,0,0,"},
			} {
				code, out, stderr := b.run("check", "$DIR/data", "-o", o.output)
				if code != command.ExitVerification ||
					stderr != "txnode: verification failed: $DIR/data: 1 finding\n" ||
					!strings.HasPrefix(out, o.begins) || !strings.Contains(out, o.has) {
					t.Errorf("-o %s: exit code %d, %s%s", o.output, code, stderr, out)
				}
			}
		})
	}
	b := newBed(t)
	if code, _, stderr := b.run("check", "$DIR"); code != command.ExitFailure ||
		!strings.Contains(stderr, "no database in $DIR") {
		t.Errorf("of an empty directory: exit code %d, %s", code, stderr)
	}
}
