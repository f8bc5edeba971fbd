package command_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/txn"
)

// makeTables makes a database with tables of several types.
func makeTables(t *testing.T, b *bed) {
	t.Helper()
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{
		Dir: filepath.Join(b.dir, "data"), BladeSize: 16 << 20, SegmentSize: 1 << 20,
		LogArea: 64 << 10, IndexGroups: 8, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	put := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	users, err := txn.CreateTable(db, "users", txn.String, txn.JSON[map[string]any]())
	put(err)
	counts, err := txn.CreateTable(db, "counts", txn.Uint64, txn.Plain[uint64]("count"))
	put(err)
	posts, err := txn.CreateTable(db, "posts", txn.Tuple2Key(txn.String, txn.Desc(txn.Time)), txn.Text())
	put(err)
	raw, err := txn.CreateRawTable(db, "raw")
	put(err)
	put(db.Update(ctx, func(tx *txn.Tx) error {
		for _, name := range []string{"ann", "annabel", "ben", "b\tx"} {
			if err := users.Put(tx, name, map[string]any{"name": name, "n": 1}); err != nil {
				return err
			}
		}
		for k := range uint64(150) {
			if err := counts.Put(tx, k, k); err != nil {
				return err
			}
		}
		if err := posts.Put(tx, txn.T2("ann", time.Unix(0, 7).UTC()), "hello\nworld"); err != nil {
			return err
		}
		return raw.Put(tx, []byte{0, 255}, make([]byte, 100))
	}))
	put(db.Close(ctx))
}

// makeOrdered adds ordered tables to the database of makeTables.
func makeOrdered(t *testing.T, b *bed) {
	t.Helper()
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Dir: filepath.Join(b.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := txn.CreateOrderedTable(db, "numbers", txn.Int64, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	short := txn.String
	short.MaxBytes = 20
	words, err := txn.CreateOrderedTable(db, "words", short, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := numbers.Load(ctx, func(yield func(int64, string) bool) {
		for k := int64(-200); k < 200; k++ {
			if !yield(k, "v") {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error {
		for _, w := range []string{"pear", "apple", "peach", "plum", "fig"} {
			if err := words.Put(tx, w, w); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestOrderedTables: lists of ordered tables are in order, with bounds, in both directions.
func TestOrderedTables(t *testing.T) {
	b := newBed(t)
	makeTables(t, b)
	makeOrdered(t, b)
	for _, c := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"scan", "$DIR/data", "words", "--keys"}, 0, "apple\nfig\npeach\npear\nplum\n", ""},
		{[]string{"scan", "$DIR/data", "words", "--keys", "--desc", "--limit", "2"}, 0, "plum\npear\n", ""},
		{[]string{"scan", "$DIR/data", "words", "--keys", "--prefix", "pe"}, 0, "peach\npear\n", ""},
		{[]string{"scan", "$DIR/data", "words", "--keys", "--prefix", "pe", "--desc", "--limit", "1"}, 0, "pear\n", ""},
		{[]string{"scan", "$DIR/data", "words", "--from", "fig", "--to", "pear"}, 0, lines("fig", "peach"), ""},
		{[]string{"scan", "$DIR/data", "words", "--from", "", "--to", "b", "--keys"}, 0, "apple\n", ""},
		{[]string{"scan", "$DIR/data", "words", "--from", "z", "--to", "a"}, 0, "", ""},
		{
			[]string{"scan", "$DIR/data", "numbers", "--from", "-3", "--to", "3", "--keys"}, 0,
			"-3\n-2\n-1\n0\n1\n2\n", "",
		},
		{[]string{"dump", "$DIR/data", "words", "--from", "pear", "--desc"}, 0,
			`{"table":"words","key":"plum","value":"plum"}
{"table":"words","key":"pear","value":"pear"}
`, ""},
		{[]string{"get", "$DIR/data", "words", "plum"}, 0, "plum\n", ""},
		{[]string{"get", "$DIR/data", "words", "plums"}, 1, "", "has no key plums"},
		{[]string{"scan", "$DIR/data", "numbers", "--from", "x"}, 2, "", "--from"},
		{[]string{"scan", "$DIR/data", "words", "--from", "a", "--prefix", "p"}, 2, "", "exclude each other"},
		{[]string{"scan", "$DIR/data", "users", "--from", "a"}, 2, "", `table "users" is a hash table`},
		{[]string{"scan", "$DIR/data", "users", "--desc"}, 2, "", "--desc are for ordered tables"},
	} {
		code, out, stderr := b.run(c.args...)
		if code != c.code || out != c.out || !strings.Contains(stderr, c.err) || c.err == "" && stderr != "" {
			t.Errorf("%q: exit code %d, %s\n%s", c.args, code, stderr, out)
		}
	}
	code, out, stderr := b.run("tables", "$DIR/data", "-o", "json")
	if code != 0 ||
		!strings.Contains(out,
			`{"table":"words","key":"string","value":"string","index":"blink","max_key_bytes":20}`) ||
		!strings.Contains(out, `"index":"race"}`) {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
	code, out, stderr = b.run("stats", "$DIR/data", "numbers", "-o", "json")
	var st map[string]any
	if err := json.Unmarshal([]byte(out), &st); code != 0 || err != nil || st["rows"] != 400.0 || st["height"] != 2.0 ||
		st["leaves"].(float64) < 5 || st["load"].(float64) < 0.3 {
		t.Errorf("exit code %d, %v, %s\n%s", code, err, stderr, out)
	}
	code, out, stderr = b.run("stats", "$DIR/data", "numbers", "users")
	if code != 0 || strings.Count(out, " - ") < 3 {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
}

// sorted are the lines of a text, in order.
func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestTables(t *testing.T) {
	b := newBed(t)
	makeTables(t, b)
	for _, c := range []struct {
		args []string
		code int
		out  string // of lines that come in no order
		err  string
	}{
		//nolint:dupword // key and value
		{[]string{"tables", "$DIR/data"}, 0, `table   key                       value          index
counts  uint64                    plain:8:count  race
posts   tuple(string,desc(time))  string         race
raw     bytes                     bytes          race
users   string                    json           race
`, ""},
		{[]string{"get", "$DIR/data", "users", "ann"}, 0, `{"n":1,"name":"ann"}` + "\n", ""},
		{[]string{"get", "$DIR/data", "counts", "3"}, 0, "0x0300000000000000\n", ""},
		{[]string{"get", "$DIR/data", "posts", `["ann","1970-01-01T00:00:00.000000007Z"]`}, 0, "hello\nworld\n", ""},
		{[]string{"get", "$DIR/data", "raw", "0x00ff", "-o", "json"}, 0,
			`{"table":"raw","key_base64":"AP8=","value_base64":"` + strings.Repeat("A", 134) + `=="}` + "\n", ""},
		{[]string{"get", "$DIR/data", "users", "bob"}, 1, "", `table "users" has no key bob`},
		{[]string{"get", "$DIR/data", "counts", "bob"}, 2, "", `"bob" is no key of type uint64`},
		{
			[]string{"get", "$DIR/data", "none", "1"}, 1, "",
			`there is no table "none"; there are ["counts" "posts" "raw" "users"]`,
		},
		{[]string{"get", "$DIR/none", "users", "1"}, 1, "", "no such directory"},
		{
			[]string{"get", "$DIR/data", "users"}, 2, "",
			"name a directory or the address of a catalog, a table and a key",
		},
		{[]string{"scan", "$DIR/data", "users"}, 0, `"b\tx"	{"n":1,"name":"b\tx"}
ann	{"n":1,"name":"ann"}
annabel	{"n":1,"name":"annabel"}
ben	{"n":1,"name":"ben"}
`, ""},
		{[]string{"scan", "$DIR/data", "users", "--prefix", "ann", "--keys"}, 0, "ann\nannabel\n", ""},
		{[]string{"scan", "$DIR/data", "users", "--prefix", "0x6209"}, 0, `"b\tx"	{"n":1,"name":"b\tx"}` + "\n", ""},
		{
			[]string{"scan", "$DIR/data", "posts"}, 0, `["ann","1970-01-01T00:00:00.000000007Z"]	"hello\nworld"` +
				"\n",
			"",
		},
		{[]string{"scan", "$DIR/data", "raw"}, 0, "0x00ff\t0x" + strings.Repeat("00", 64) + "... (100 bytes)\n", ""},
		{[]string{"scan", "$DIR/data", "counts", "--prefix", "1"}, 2, "", `table "counts" has keys of type uint64`},
		{[]string{"scan", "$DIR/data", "counts", "--prefix", "0x1"}, 2, "", "bytes in hexadecimal"},
		{[]string{"scan", "$DIR/data", "counts", "--limit", "-1"}, 2, "", "may not be negative"},
		{[]string{"dump", "$DIR/data", "posts", "raw", "--keys"}, 0,
			`{"table":"posts","key":["ann","1970-01-01T00:00:00.000000007Z"]}
{"table":"raw","key_base64":"AP8="}
`, ""},
		{
			[]string{"dump", "$DIR/data", "counts", "--prefix", "0x0000000000000002"}, 0,
			`{"table":"counts","key":2,"value_base64":"AgAAAAAAAAA="}` + "\n", "",
		},
		{[]string{"stats", "$DIR/data", "none"}, 1, "", "no table"},
	} {
		code, out, stderr := b.run(c.args...)
		if code != c.code || sorted(out) != sorted(c.out) || !strings.Contains(stderr, c.err) || c.err == "" &&
			stderr != "" {
			t.Errorf("%q: exit code %d, %s\n%s", c.args, code, stderr, out)
		}
	}
	for _, c := range []struct {
		args  []string
		lines int
	}{
		{[]string{"scan", "$DIR/data", "counts"}, 100},
		{[]string{"scan", "$DIR/data", "counts", "--limit", "7"}, 7},
		{[]string{"scan", "$DIR/data", "counts", "--limit", "0"}, 150},
		{[]string{"dump", "$DIR/data"}, 156},
		{[]string{"dump", "$DIR/data", "--limit", "2"}, 6},
	} {
		if code, out, stderr := b.run(c.args...); code != 0 || strings.Count(out, "\n") != c.lines {
			t.Errorf("%q: exit code %d, %d lines, %s", c.args, code, strings.Count(out, "\n"), stderr)
		}
	}
}

// TestDump: each line is JSON, and the values are those that were put.
func TestDump(t *testing.T) {
	b := newBed(t)
	makeTables(t, b)
	code, out, stderr := b.run("dump", "$DIR/data", "users")
	if code != 0 {
		t.Fatal(stderr)
	}
	got := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		var l struct {
			Table, Key string
			Value      struct{ Name string }
		}
		if err := json.Unmarshal(s.Bytes(), &l); err != nil || l.Table != "users" {
			t.Fatalf("%v: %s", err, s.Text())
		}
		got[l.Key] = l.Value.Name
	}
	if want := map[string]string{"ann": "ann", "annabel": "annabel", "ben": "ben", "b\tx": "b\tx"}; !maps.Equal(got,
		want) {
		t.Errorf("%q", got)
	}
}

// TestReadersChangeNoFile: commands that only look at a directory leave each of its files as it
// was, and make none, not even a lock.
func TestReadersChangeNoFile(t *testing.T) {
	b := newBed(t)
	makeTables(t, b)
	dir := filepath.Join(b.dir, "data")
	if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	files := func() (all []string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			st, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(e.Name(), st.Size(), st.Mode(), st.ModTime().UnixNano()))
		}
		return all
	}
	was := files()
	for _, args := range [][]string{
		{"tables", "$DIR/data"}, {"stats", "$DIR/data"}, {"get", "$DIR/data", "counts", "1"},
		{"scan", "$DIR/data", "users"}, {"dump", "$DIR/data"},
		{"check", "$DIR/data"}, {"inspect", "region", "$DIR/data", "0"}, {
			"inspect", "record", "$DIR/data", "--table", "counts", "--key", "1",
		},
	} {
		if code, out, stderr := b.run(args...); code != 0 {
			t.Errorf("%q: exit code %d, %s%s", args, code, out, stderr)
		}
		if now := files(); !slices.Equal(now, was) {
			t.Errorf("%q: %q instead of %q", args, now, was)
		}
	}
}

// TestStatsCommand: the figures of all tables, for people and for programs.
func TestStatsCommand(t *testing.T) {
	b := newBed(t)
	makeTables(t, b)
	code, out, stderr := b.run("stats", "$DIR/data")
	if code != 0 || strings.Count(out, "\n") != 5 || !strings.Contains(strings.Join(strings.Fields(out), " "),
		" 150 2400 16 150 9600 ") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
	code, out, stderr = b.run("stats", "$DIR/data", "counts", "-o", "json")
	var st map[string]any
	if err := json.Unmarshal([]byte(out), &st); code != 0 || err != nil || st["rows"] != 150.0 ||
		st["bytes"] != 2400.0 || st["table"] != "counts" || st["load"].(float64) <= 0 {
		t.Errorf("exit code %d, %v, %s\n%s", code, err, stderr, out)
	}
}

// TestIndexesListed: tables says which secondary indexes there are, and stats how large they are.
func TestIndexesListed(t *testing.T) {
	b := newBed(t)
	makeTables(t, b)
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Dir: filepath.Join(b.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	byName := txn.NewIndex("by_name", txn.String, func(_ string, v map[string]any) []string {
		return []string{v["name"].(string), "all"}
	})
	byBoth := txn.NewUniqueIndex("by_both", txn.Tuple2Key(txn.String,
		txn.Uint64), func(k string, _ map[string]any) []txn.Tuple2[string, uint64] {
		return []txn.Tuple2[string, uint64]{txn.T2(k, uint64(1))}
	})
	if _, err := txn.CreateTable(db, "users", txn.String, txn.JSON[map[string]any](), byName, byBoth); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(byName.Build(ctx, nil), db.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := b.run("tables", "$DIR/data")
	if want := "by_name(string) by_both(tuple(string,uint64), unique, not built)\n"; code != 0 ||
		!strings.Contains(out, "race  "+want) || strings.Contains(out, " \n") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
	code, out, stderr = b.run("tables", "$DIR/data", "-o", "json")
	want := `"index":"race","secondary_indexes":[{"name":"by_name","key":"string","unique":false,"built":true},{` +
		`"name":"by_both","key":"tuple(string,uint64)","unique":true,"built":false}]}`
	if code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit code %d, %s\n%s", code, stderr, out)
	}
	code, out, stderr = b.run("stats", "$DIR/data", "users", "-o", "json")
	for _, want := range []string{
		`{"table":"users","rows":4,`, `{"table":"users.by_name","index_of":"users","rows":8,`,
		`{"table":"users.by_both","index_of":"users","rows":0,`,
	} {
		if code != 0 || strings.Count(out, want) != 1 || strings.Count(out, "\n") != 3 {
			t.Errorf("exit code %d, %s\n%s", code, stderr, out)
		}
	}
}

// lines are those of records whose values are their keys.
func lines(keys ...string) (out string) {
	for _, k := range keys {
		out += k + "\t" + k + "\n"
	}
	return out
}
