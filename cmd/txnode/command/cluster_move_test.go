package command_test

import (
	"path/filepath"
	"strings"
	"testing"

	"txnode/cluster"
	"txnode/txn"
)

// TestClusterGrows: a cluster with a vacant place gets a blade, copies are spread, and a blade is
// drained, whose server stops and whose place is vacant then; what was stored is there.
func TestClusterGrows(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	catalog := "unix:" + filepath.Join(dir, "c")
	startServe(t, "--listen", catalog, "--catalog", filepath.Join(dir, "data"), "--memory", "0")
	address := map[string]string{}
	ends := map[string]func() (int, string){}
	for _, name := range []string{"a", "b", "d"} {
		address[name] = "unix:" + filepath.Join(dir, name)
		_, ends[name] = startServe(t, "--memory", "64MiB", "--listen", address[name])
	}
	run := func(want int, says string, args ...string) {
		t.Helper()
		code, out, stderr := b.run(append([]string{"cluster"}, args...)...)
		if all := strings.Join(strings.Fields(out+stderr), " "); code != want || !strings.Contains(all, says) ||
			code != 0 && strings.Count(stderr, "\n") != 1 {
			t.Fatalf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
	run(2, "--places is 65; 0 to 64 are possible", "init", "--catalog", catalog, "--blade",
		address["a"], "--places", "65")
	run(0, "has 2 blades of 2 servers, 128MiB together, and 1 vacant place", "init", "--catalog", catalog, "--blade",
		address["a"], "--blade", address["b"],
		"--places", "3", "--segment-size", "1MiB")
	db, err := cluster.Open(ctx, catalog, txn.Options{IndexGroups: 64}, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, 7, 9) }); err != nil {
		t.Fatal(err)
	}
	run(0, "2 - - - vacant", "status", catalog)
	run(1, "a segment has 2 copies", "drain-blade", catalog, "0")
	run(2, "the blade is \"x\"", "drain-blade", catalog, "x")
	run(2, "blade 3: there are 3, from 0", "drain-blade", catalog, "3")
	run(2, "is another name of "+address["a"], "add-blade", catalog,
		strings.Replace(address["a"], "unix:", "unix://", 1))
	run(2, "are all there from the beginning", "add-blade", catalog, "shm:"+filepath.Join(dir, "s"))
	run(0, "blades of "+address["d"]+" that take part: 2", "add-blade", catalog, address["d"])
	run(0, "copies that have moved: ", "rebalance", catalog)
	run(0, "copies that have moved: 0", "rebalance", catalog)
	run(0, "blade 0 is empty, and takes part no more", "drain-blade", catalog, "0")
	if code, stderr := ends["a"](); code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	run(0, address["d"]+" up", "status", catalog)
	if err := db.View(ctx, func(tx *txn.Tx) error {
		v, err := table.Get(tx, 7)
		if err == nil && v != 9 {
			t.Errorf("%d; want 9", v)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
