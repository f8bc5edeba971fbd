package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/cluster"
	"txnode/txn"
)

// TestClusterRecover: both servers of a cluster come with directories of before. Status and doctor
// say so, no program opens the database, and an operator takes what one of them has, after the
// command has said what is given up, and asked.
func TestClusterRecover(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	catalog := "unix:" + filepath.Join(dir, "c")
	startServe(t, "--listen", catalog, "--catalog", filepath.Join(dir, "data"), "--memory", "0")
	names := []string{"a", "b"}
	ends := map[string]func() (int, string){}
	start := func() {
		for _, name := range names {
			_, ends[name] = startServe(t, "--memory", "16MiB", "--dir", filepath.Join(dir, name+".d"), "--listen",
				"unix:"+filepath.Join(dir, name))
		}
	}
	stop := func() {
		t.Helper()
		for _, name := range names {
			if code, stderr := ends[name](); code != 0 {
				t.Fatalf("exit code %d, %s", code, stderr)
			}
		}
	}
	file := func(name string) string { return filepath.Join(dir, name+".d", "blade-000.region") }
	run := func(want int, stdin, says string, args ...string) {
		t.Helper()
		b.stdin = stdin
		code, out, stderr := b.run(args...)
		if all := strings.Join(strings.Fields(out+stderr), " "); code != want || !strings.Contains(all, says) {
			t.Errorf("%v: exit code %d, not %d, and not %q: %s%s", args, code, want, says, out, stderr)
		}
	}
	write := func(v uint64) {
		t.Helper()
		db, err := cluster.Open(ctx, catalog, txn.Options{IndexGroups: 16, Workers: 1}, cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[uint64]())
		if err == nil {
			err = db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, 7, v) })
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	start()
	run(0, "", "2 blades", "cluster", "init", "--catalog", catalog, "--blade", "unix:"+filepath.Join(dir, "a"),
		"--blade", "unix:"+filepath.Join(dir, "b"))
	write(1)
	stop()
	old := map[string][]byte{}
	for _, name := range names {
		p, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		old[name] = p
	}
	start()
	write(2)
	run(0, "", "the database opens, and nothing was given up", "cluster", "recover", catalog)
	stop()
	for _, name := range names {
		if err := os.WriteFile(file(name), old[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start()
	run(1, "", "is an old copy", "cluster", "status", catalog)
	run(1, "", "has an old copy of the blade", "doctor", catalog)
	run(1, "", "is an old copy", "get", catalog, "words", "7")
	run(1, "", "nothing was given up: there was no answer", "cluster", "recover", catalog, "--trust", "0")
	run(1, "no\n", "tables that may have records there: words", "cluster", "recover", catalog, "--trust", "0")
	run(2, "", "there are 2 blades", "cluster", "recover", catalog, "--trust", "5")
	run(0, "yes\n", "blade 0 (unix:"+dir+"/a) is taken as it is: ", "cluster", "recover", catalog, "--trust", "0")
	run(0, "", "", "cluster", "heal", catalog)
	run(0, "", "1", "get", catalog, "words", "7")

	// The host restarts: after an orderly end all is on the disk, and otherwise a blade is built
	// anew.
	reboot := func(name, state string) {
		t.Helper()
		if code, stderr := ends[name](); code != 0 {
			t.Fatalf("exit code %d, %s", code, stderr)
		}
		boot := filepath.Join(dir, name+".d", "boot")
		if p, err := os.ReadFile(boot); err != nil || !strings.HasSuffix(string(p), " written\n") {
			t.Errorf("%q, %v", p, err)
		}
		if err := os.WriteFile(boot, []byte("another life "+state+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, ends[name] = startServe(t, "--dir", filepath.Join(dir, name+".d"), "--listen",
			"unix:"+filepath.Join(dir, name))
	}
	reboot("b", "written")
	run(1, "", "the server of blade 1 has restarted", "cluster", "status", catalog)
	run(0, "", "", "cluster", "heal", catalog)
	reboot("b", "in use")
	run(1, "", "its host has restarted before", "cluster", "status", catalog)
	run(0, "", "", "cluster", "heal", catalog)
	run(0, "", "1", "get", catalog, "words", "7")

	run(2, "", "neither the number of a blade nor process=NUMBER", "cluster", "evict", catalog, "x", "--yes")
	run(1, "", "nothing was changed: there was no answer", "cluster", "evict", catalog, "1")
	run(1, "", "no other process 999 is registered", "cluster", "evict", catalog, "process=999", "--yes")
	run(2, "", "blade 1 is up", "cluster", "forget", catalog, "1")
	run(2, "", "there is no blade 9", "cluster", "forget", catalog, "9")
	if code, stderr := ends["b"](); code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	run(0, "", "blade 1 is declared dead", "cluster", "evict", catalog, "1", "--yes")
	run(0, "", "the place of blade 1 is vacant", "cluster", "forget", catalog, "1")
}
