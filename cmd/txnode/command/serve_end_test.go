package command_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/txn"
)

// logged is a log that a daemon in a process of its own writes.
type logged struct {
	t    *testing.T
	file *os.File
}

func newLog(t *testing.T) *logged {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &logged{t, f}
}

func (l *logged) text() string {
	l.t.Helper()
	text, err := os.ReadFile(l.file.Name())
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

// says waits until the log has a text so many times.
func (l *logged) says(text string, times int) {
	l.t.Helper()
	for begin := time.Now(); strings.Count(l.text(), text) < times; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 5*time.Minute {
			l.t.Fatalf("it does not say %q: %s", text, l.text())
		}
	}
}

// interrupt asks a daemon to end, and does not wait for that.
func (p *process) interrupt(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

// ended waits for the end of a daemon, and returns how it has ended.
func (p *process) ended() string {
	_ = p.cmd.Wait() // which says what String says
	return p.cmd.ProcessState.String()
}

// TestServeLastCopies: blades in memory are restarted one after the other while no program has the
// database open. A daemon that knows of the catalog does not end before others have copies of all
// that it has, or before it is asked a second time.
func TestServeLastCopies(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	at := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	startServe(t, "--listen", at("c"), "--catalog", "memory", "--memory", "0")
	logs := map[string]*logged{"a": newLog(t), "b": newLog(t)}
	start := func(name string) *process {
		return serveTo(t, logs[name].file, "--memory", "64MiB", "--listen", at(name), "--cluster", at("c"))
	}
	x, y := start("a"), start("b")
	if code, _, stderr := b.run("cluster", "init", "--catalog", at("c"), "--blade", at("a"), "--blade", at("b"),
		"--segment-size", "1MiB"); code != 0 {
		t.Fatal(stderr)
	}
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
	err := db.Update(ctx, func(tx *txn.Tx) error { return words.Put(tx, "here", "still") })
	if err == nil {
		err = db.Close(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}

	if how := x.end(t); how != "exit status 0" {
		t.Fatalf("the other blade has all, and it ends by %s: %s", how, logs["a"].text())
	}
	start("a")
	y.interrupt(t)
	logs["b"].says("not ending yet", 1)
	logs["b"].says("have no whole copy elsewhere, and the blades of this daemon are in memory", 1)
	logs["b"].says("txnode cluster heal "+at("c"), 1)
	b.run("cluster", "heal", at("c")) // as the log says; it may see that the daemon ends
	if how := y.ended(); how != "exit status 0" {
		t.Errorf("when there are copies it ends by %s: %s", how, logs["b"].text())
	}
	start("b")
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
		t.Error(err)
	}
}

// TestServeEndMeans: a daemon that ends says what that means for data: lost with a catalog in
// memory, away with blades in files; and a catalog that does not answer keeps none from ending.
func TestServeEndMeans(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	at := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	fill := func(catalog, blade string) {
		t.Helper()
		if code, _, stderr := b.run("cluster", "init", "--catalog", catalog, "--blade", blade, "--replicas", "0",
			"--segment-size", "1MiB"); code != 0 {
			t.Fatal(stderr)
		}
		db, err := cluster.Open(ctx, catalog, txn.Options{}, cluster.Options{Post: -1})
		if err == nil {
			_, err = txn.CreateTable(db, "words", txn.String, txn.Text())
		}
		if err == nil {
			err = db.Close(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	blades := filepath.Join(dir, "blades")
	log := newLog(t)
	d := serveTo(t, log.file, "--listen", at("m"), "--catalog", "memory", "--memory", "64MiB", "--dir", blades)
	fill(at("m"), at("m"))
	d.interrupt(t)
	log.says("the catalog is in memory", 1)
	log.says("txnode backup "+at("m")+" FILE", 1)
	if how := d.end(t); how != "exit status 0" {
		t.Errorf("at a second signal it ends by %s: %s", how, log.text())
	}
	if err := os.RemoveAll(blades); err != nil {
		t.Fatal(err)
	}

	log = newLog(t)
	d = serveTo(t, log.file, "--listen", at("f"), "--catalog", filepath.Join(dir, "catalog"), "--memory",
		"64MiB", "--dir", blades)
	fill(at("f"), at("f"))
	if how := d.end(t); how != "exit status 0" ||
		!strings.Contains(log.text(), "data is unavailable until this daemon is back") {
		t.Errorf("it ends by %s: %s", how, log.text())
	}

	silent, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	log = newLog(t)
	d = serveTo(t, log.file, "--listen", at("b"), "--memory", "64MiB", "--cluster", at("s"))
	if how := d.end(t); how != "exit status 0" ||
		!strings.Contains(log.text(), "it is not known whether other blades have copies") {
		t.Errorf("it ends by %s: %s", how, log.text())
	}
}
