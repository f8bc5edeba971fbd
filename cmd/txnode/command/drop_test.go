package command_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/txn"
)

// TestDrop: a table is dropped if the answer is yes, with its secondary indexes, and others stay.
func TestDrop(t *testing.T) {
	ctx := t.Context()
	b := newBed(t)
	makeTables(t, b)
	data := filepath.Join(b.dir, "data")
	db, err := txn.Open(ctx, txn.Options{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	type user struct {
		Name string `json:"name"`
	}
	byName := txn.NewIndex("name", txn.String, func(_ uint64, u user) []string { return []string{u.Name} })
	if _, err := txn.CreateTable(db, "members", txn.Uint64, txn.JSON[user](), byName); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	run := func(want int, stdin, says string, args ...string) {
		t.Helper()
		b.stdin = stdin
		code, out, stderr := b.run(args...)
		if code != want || !strings.Contains(out+stderr, says) {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
	run(2, "", "and a table", "drop", data)
	run(1, "", `there is no table "none"`, "drop", data, "none")
	run(1, "", "nothing was dropped: there was no answer", "drop", data, "counts")
	run(1, "y\n", `nothing was dropped: the answer was "y"`, "drop", data, "counts")
	run(1, "no\n", "drop table counts of $DIR/data (150 records) for good? yes or no: ", "drop", data, "counts")
	run(0, "yes\n", "table counts is dropped: 150 records\n", "drop", data, "counts")
	run(0, "", "table members is dropped: 0 records, secondary indexes name\n", "drop", data, "members", "--yes")
	run(1, "", `there is no table "counts"; there are ["posts" "raw" "users"]`, "get", data, "counts", "1")
	run(0, "", "no findings", "check", data)
	db, err = txn.Open(ctx, txn.Options{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	run(1, "", "in use", "drop", data, "users", "--yes")
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestDropOfCluster: a table is dropped while a process has the database open, when that has ended
// the transaction which uses it.
func TestDropOfCluster(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	catalog, blade := "unix:"+filepath.Join(dir, "c"), "unix:"+filepath.Join(dir, "b")
	startServe(t, "--listen", catalog, "--catalog", "memory", "--memory", "0")
	startServe(t, "--memory", "64MiB", "--listen", blade)
	if code, _, stderr := b.run("cluster", "init", "--catalog", catalog, "--blade", blade, "--segment-size",
		"1MiB"); code != 0 {
		t.Fatal(stderr)
	}
	db, err := cluster.Open(ctx, catalog, txn.Options{}, cluster.Options{Post: -1})
	if err != nil {
		t.Fatal(err)
	}
	words, err := txn.CreateTable(db, "words", txn.String, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(ctx, false)
	if err == nil {
		err = words.Put(tx, "a", "b")
	}
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		code        int
		out, stderr string
	}
	done := make(chan result, 1)
	go func() {
		code, out, stderr := b.run("drop", catalog, "words", "--yes")
		done <- result{code, out, stderr}
	}()
	for err == nil && len(done) == 0 { // until it is told
		time.Sleep(time.Millisecond)
		var tables []string
		if tables, err = db.Tables(); len(tables) == 0 {
			break
		}
	}
	if len(done) > 0 || err != nil {
		t.Errorf("it waits for no transaction: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	if r := <-done; r.code != 0 || r.out != "table words is dropped: 0 records\n" {
		t.Errorf("exit code %d, %s%s", r.code, r.out, r.stderr)
	}
	if err := db.Close(ctx); err != nil {
		t.Error(err)
	}
}
