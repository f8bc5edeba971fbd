package command_test

import (
	"path/filepath"
	"strings"
	"testing"

	"txnode/cluster"
	"txnode/txn"
)

// TestRestartCheck: memory blades are restarted one after the other while no process has the
// database open. A second one must not be stopped before the copies of the first are there again;
// so nothing is lost.
func TestRestartCheck(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	at := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	run := func(want int, says string, args ...string) {
		t.Helper()
		code, out, stderr := b.run(append([]string{"cluster"}, args...)...)
		if code != want || !strings.Contains(out+stderr, says) {
			t.Fatalf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
	startServe(t, "--listen", at("c"), "--catalog", "memory", "--memory", "0")
	ends := map[string]func() (int, string){}
	start := func(name string) { _, ends[name] = startServe(t, "--memory", "64MiB", "--listen", at(name)) }
	start("a")
	start("b")
	run(0, "", "init", "--catalog", at("c"), "--blade", at("a"), "--blade", at("b"), "--segment-size", "1MiB")
	open := func() (*txn.DB, *txn.Table[string, string]) {
		db, err := cluster.Open(ctx, at("c"), txn.Options{}, cluster.Options{Post: -1})
		if err != nil {
			t.Fatal(err)
		}
		words, err := txn.CreateTable(db, "words", txn.String, txn.Text())
		if err != nil {
			t.Fatal(err)
		}
		return db, words
	}
	db, words := open()
	if err := db.Update(ctx, func(tx *txn.Tx) error { return words.Put(tx, "here", "still") }); err != nil {
		t.Fatal(err)
	}
	run(0, "the server of blade 0 may be stopped now\n", "restart-check", at("c"), "0")
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	run(2, "it must be a number below 2", "restart-check", at("c"), "2")
	run(2, "name the address", "restart-check", at("c"))
	run(2, "--timeout", "restart-check", at("c"), "0", "--timeout", "1s")
	run(0, "txnode cluster heal "+at("c")+" --wait builds its copies", "restart-check", at("c"), at("a"))
	ends["a"]()
	run(1, "the server of blade 1 must not be stopped now", "restart-check", at("c"), "1")
	start("a")
	run(1, "have no whole copy elsewhere", "restart-check", at("c"), "1")
	run(1, "after 1ms", "restart-check", at("c"), "1", "--wait", "--timeout", "1ms")
	run(0, "", "heal", at("c"), "--wait")
	run(0, "the server of blade 1 may be stopped now", "restart-check", at("c"), "1", "--wait")
	ends["b"]()
	start("b")
	run(0, "", "heal", at("c"), "--wait")
	db, words = open()
	if err := db.View(ctx, func(tx *txn.Tx) error {
		v, err := words.Get(tx, "here")
		if err == nil && v != "still" {
			t.Errorf("%q", v)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
