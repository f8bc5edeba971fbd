package command_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"txnode/cluster"
	"txnode/cmd/txnode/command"
)

// TestHeal: a cluster that no program has open is healed: a blade that has restarted is taken in,
// one that is gone is declared dead, and copies are built when it is back. Without --wait the
// command ends when nothing is left that it can do, and says what is wrong.
func TestHeal(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"})
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	heal := func(want int, says string, args ...string) {
		t.Helper()
		code, out, stderr := inSystem(t, append([]string{"cluster", "heal", c.catalog}, args...)...)
		if code != want || !strings.Contains(out, says) || (stderr == "") != (code == 0) {
			t.Errorf("%v: exit code %d: %s%s", args, code, out, stderr)
		}
	}
	heal(0, ": all\n")
	c.ends["y"]()
	c.serve("y") // blank
	c.status(1).says(t, "its region is blank")
	heal(0, ": all\n")
	c.status(0)
	c.ends["y"]()
	heal(1, "\nwrong: blade 1 was declared dead")
	healed := make(chan struct{})
	go func() {
		defer close(healed)
		heal(0, ": all\n", "--wait")
	}()
	c.serve("y")
	<-healed
	if st := c.status(0); st.Servers[1].Blades[0].Copies != st.Database.Segments {
		t.Errorf("%+v", st)
	}
	if code, _, stderr := inSystem(t, "cluster", "heal", c.catalog, "--timeout", "-1s"); code != 2 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// TestHealGoesOn: a server begins anew after heal --wait has seen the cluster whole, and before
// the command ends. The command goes on.
func TestHealGoesOn(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"})
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	overtaken := false
	ask := func(ctx context.Context, address string, o cluster.Options) (*cluster.Status, error) {
		st, err := cluster.Ask(ctx, address, o)
		if err == nil && len(st.Processes) == 0 && !overtaken { // the command has closed the database
			overtaken = true
			c.ends["y"]()
			st, err = cluster.Ask(ctx, address, o)
			c.serve("y")
		}
		return st, err
	}
	defer command.SetAsk(ask)()
	code, out, stderr := inSystem(t, "cluster", "heal", c.catalog, "--wait", "--timeout", "1m")
	if code != 0 || !overtaken {
		t.Errorf("exit code %d, overtaken %v: %s%s", code, overtaken, out, stderr)
	}
}

// TestHealLost: data is lost, and no wait brings it back: the command ends, with --wait, too, and
// says so.
func TestHealLost(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"}, "--replicas", "0")
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.bury()
	code, out, stderr := inSystem(t, "cluster", "heal", c.catalog, "--wait")
	if code != 1 || !strings.Contains(out, "\nwrong: data is lost") || !strings.Contains(stderr, "data is lost") ||
		strings.Contains(out, "declared dead") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
}

// told is an output that says when it has been written to.
type told struct {
	once sync.Once
	was  chan struct{}
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *told) Write(p []byte) (int, error) {
	defer w.once.Do(func() { close(w.was) })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// TestHealBeforeServers: with --wait the command may be there before the catalog and the servers
// are, and says for whom it waits; a limit ends that, with the cause.
func TestHealBeforeServers(t *testing.T) {
	c := &smallCluster{t: t, dir: socketDir(t), ends: map[string]func() (int, string){}}
	c.catalog = "unix:" + filepath.Join(c.dir, "c")
	serve := func() {
		for _, name := range []string{"x", "y"} {
			c.serve(name, "--dir", filepath.Join(c.dir, name+".d"))
		}
	}
	c.serveCatalog()
	serve()
	if code, _, stderr := inSystem(t, "cluster", "init", "--catalog", c.catalog, "--segment-size", "1MiB", "--blade",
		c.address("x"), "--blade", c.address("y")); code != 0 {
		t.Fatal(stderr)
	}
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		for _, name := range []string{"x", "y", "catalog"} {
			c.ends[name]()
		}
	}
	heal := func() (said *told, code chan int) {
		said, code = &told{was: make(chan struct{})}, make(chan int, 1)
		w := command.System()
		w.Getenv = func(string) string { return "" }
		w.Stdout, w.Stderr, w.StdoutTerminal, w.StderrTerminal = io.Discard, said, false, true
		go func() { code <- command.Main(t.Context(), w, []string{"cluster", "heal", c.catalog, "--wait"}) }()
		return said, code
	}
	stop()
	said, code := heal()
	<-said.was
	c.serveCatalog()
	serve()
	if got := <-code; got != 0 || !strings.Contains(said.text.String(), "waiting: ") ||
		!strings.Contains(said.text.String(), c.catalog) {
		t.Errorf("before the catalog: exit code %d, %s", got, said.text.String())
	}
	c.status(0)
	stop()
	c.serveCatalog()
	said, code = heal()
	<-said.was
	serve()
	if got := <-code; got != 0 || !strings.Contains(said.text.String(), "waiting: ") ||
		!strings.Contains(said.text.String(), c.address("x")) {
		t.Errorf("before the blades: exit code %d, %s", got, said.text.String())
	}
	c.status(0)
	stop()
	if got, _, stderr := inSystem(t, "cluster", "heal", c.catalog, "--wait", "--timeout", "1ms"); got != 1 ||
		!strings.Contains(stderr, "after 1ms") || !strings.Contains(stderr, c.catalog) {
		t.Errorf("with a limit: exit code %d, %s", got, stderr)
	}
	if got, _, stderr := inSystem(t, "cluster", "heal", c.catalog); got != 1 || strings.Contains(stderr, "after") {
		t.Errorf("without --wait: exit code %d, %s", got, stderr)
	}
}
