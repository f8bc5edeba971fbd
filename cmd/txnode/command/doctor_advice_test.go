package command_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"txnode/cluster"
	"txnode/cmd/txnode/command"
	"txnode/memory/layout"
)

// advice is what doctor says to do about a check that has a state and words.
func (c *smallCluster) advice(state, name string, words ...string) string {
	c.t.Helper()
	all := doctor(c.t, c.catalog)
	i := slices.IndexFunc(all, func(x check) bool {
		here := x.State == state && x.Check == name
		for _, w := range words {
			here = here && strings.Contains(x.Subject+" "+x.Text, w)
		}
		return here
	})
	if i < 0 {
		c.t.Fatalf("no %s: %s with %q: %+v", state, name, words, all)
	}
	return all[i].Mend
}

// commands are those in an advice: each ends with a semicolon, or the text.
var commands = regexp.MustCompile(`txnode [^;]*`)

// follow does what an advice says: its first command, with flags that are to be added, and words
// that stand for others.
func (c *smallCluster) follow(advice string, more []string, stands ...string) {
	c.t.Helper()
	text := strings.NewReplacer(stands...).Replace(commands.FindString(advice))
	args := append(strings.Fields(text), more...)
	if len(args) < 2 {
		c.t.Fatalf("no command in %q", advice)
	}
	if args[1] == "serve" {
		_, end := startServe(c.t, args[2:]...)
		if i := slices.Index(args, "--listen"); i > 0 {
			c.ends[filepath.Base(args[i+1])] = end
		}
		return
	}
	if code, out, stderr := inSystem(c.t, args[1:]...); code != 0 {
		c.t.Fatalf("%q: exit code %d, %s%s", args, code, out, stderr)
	}
}

// content: doctor finds nothing wrong with the cluster.
func (c *smallCluster) content() {
	c.t.Helper()
	for _, x := range doctor(c.t, c.catalog) {
		// of this host
		if x.State != "ok" && x.Check != "memlock" && x.Check != "open files" && x.Check != "huge pages" &&
			x.Check != "clock" {
			c.t.Errorf("%+v", x)
		}
	}
}

// TestAdviceOnBlades: what doctor says about a server that is away, a blade that has restarted or
// was declared dead, copies that are missing, and a blade that leaves, repairs each of them when it
// is done as it is written.
func TestAdviceOnBlades(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"}, "--places", "3")
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.content()
	c.ends["y"]()
	c.follow(c.advice("fail", "server", c.address("y")), nil)
	c.follow(c.advice("warn", "database", "blade 1", "blank"), nil)
	c.content()

	c.ends["y"]()
	inSystem(t, "cluster", "heal", c.catalog) // which declares the blade dead
	c.follow(c.advice("fail", "server", c.address("y")), nil)
	c.advice("warn", "copies", "are missing")
	c.follow(c.advice("warn", "database", "blade 1", "declared dead"), nil)
	c.content()

	c.serve("z")
	if code, out, stderr := inSystem(t, "cluster", "add-blade", c.catalog, c.address("z")); code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	leave := func() {
		t.Helper()
		cat, err := cluster.DialCatalog(t.Context(), c.catalog, cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer cat.Close()
		l, rev, err := layout.Load(cat)
		if err != nil {
			t.Fatal(err)
		}
		old := l.Clone()
		l.Blades[1].Leaving = true // a drain that was interrupted
		if _, err := cat.Apply(rev, layout.Difference(old.Entries(), l.Entries())); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	both := c.advice("warn", "leaving", "blade 1", "still to be moved")
	c.follow(commands.FindAllString(both, -1)[1], nil)
	c.content()
	leave()
	c.follow(both, nil)
	if st := c.status(0); st.Servers[1].Blades[0].State != "drained" && st.Servers[1].Blades[0].State != "vacant" {
		t.Errorf("%+v", st)
	}

	if testing.Short() {
		return
	}
	c.ends["z"]()
	inSystem(t, "cluster", "add-blade", c.catalog, c.address("y")) // so that there are two when one is given up
	inSystem(t, "cluster", "heal", c.catalog)
	all := commands.FindAllString(c.advice("fail", "server", c.address("z")), -1)
	if !strings.Contains(all[1], "cluster forget") { // as the pages say
		t.Errorf("for a blade that is gone for good: %q", all[1])
	}
	c.follow(all[1], nil)
	c.serve("v")
	c.follow(all[2], nil, "ADDRESS", c.address("v"))
	c.content()
}

// TestAdviceOnData: what doctor says about data that is unavailable brings it back, with the
// directories that the servers had; about data that is lost, it has a cluster with what was backed
// up; about a catalog that is away, or has no cluster, it has one.
func TestAdviceOnData(t *testing.T) {
	dir := socketDir(t)
	c := &smallCluster{
		t: t, dir: dir, catalog: "unix:" + filepath.Join(dir, "c2"), ends: map[string]func() (int, string){},
	}
	dirs := map[string][]string{"x": {"--dir", filepath.Join(c.dir, "dx")}, "y": {"--dir", filepath.Join(c.dir, "dy")}}
	_, end := startServe(t, "--listen", c.catalog, "--catalog", filepath.Join(c.dir, "data2"), "--memory", "0")
	c.serve("x", dirs["x"]...)
	c.serve("y", dirs["y"]...)
	c.follow(c.advice("fail", "catalog"), []string{
		"--blade", c.address("y"), "--replicas", "0", "--segment-size", "1MiB",
	}, "ADDRESS ...", c.address("x"))
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.content()
	end()
	c.follow(c.advice("fail", "catalog", c.catalog), nil, "DIRECTORY", filepath.Join(c.dir, "data2"))
	c.content()

	file := filepath.Join(c.dir, "backup")
	if code, out, stderr := inSystem(t, "backup", c.catalog, file); code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	c.ends["x"]()
	c.ends["y"]()
	unavailable := c.advice("fail", "copies", "unavailable")
	for _, name := range []string{"x", "y"} {
		c.follow(c.advice("fail", "server", c.address(name)), dirs[name])
	}
	c.follow(unavailable, nil)
	c.content()

	c.bury()
	all := commands.FindAllString(c.advice("fail", "copies", "data is lost"), -1)
	fresh := *c
	fresh.catalog = "unix:" + filepath.Join(c.dir, "c3")
	startServe(t, "--listen", fresh.catalog, "--catalog", filepath.Join(c.dir, "data3"), "--memory", "0")
	c.serve("z")
	fresh.follow(all[0], nil, "NEW", fresh.catalog, "ADDRESS ...", c.address("z"))
	fresh.follow(all[1], nil, "NEW", fresh.catalog, "FILE", file)
	fresh.content()
	if code, out, _ := inSystem(t, "get", fresh.catalog, "words", "1"); code != 0 || !strings.Contains(out, "1") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestAdviceOnSecret: the advice on a secret that is missing is followed, and advice from then on
// has the flag, in the words of a shell.
func TestAdviceOnSecret(t *testing.T) {
	dir := socketDir(t)
	c := &smallCluster{
		t: t, dir: dir, catalog: "unix:" + filepath.Join(dir, "c"), ends: map[string]func() (int, string){},
	}
	secret := filepath.Join(dir, "the secret")
	if err := os.WriteFile(secret, []byte("correct horse battery staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startServe(t, "--listen", c.catalog, "--catalog", "memory", "--memory", "0", "--secret-file", secret)
	c.serve("x", "--secret-file", secret, "--dir", filepath.Join(dir, "dx"))
	if code, out, stderr := inSystem(t, "cluster", "init", "--catalog", c.catalog, "--blade", c.address("x"),
		"--secret-file", secret); code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	if mend := c.advice("fail", "catalog", "secret"); !strings.Contains(mend, "--secret-file") {
		t.Error(mend)
	}
	c.ends["x"]()
	c.serve("x", "--secret-file", secret, "--dir", filepath.Join(dir, "dx"))
	all := doctor(t, c.catalog, "--secret-file", secret)
	finds(t, all, "warn", "database", "restarted", "txnode cluster heal "+c.catalog+" --secret-file '"+secret+"'")
	if code, out, stderr := inSystem(t, "cluster", "heal", c.catalog, "--secret-file", secret); code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	finds(t, doctor(t, c.catalog, "--secret-file", secret), "ok", "database")
}

// TestAdviceOnHost: limits of this host that are set as doctor says are enough.
func TestAdviceOnHost(t *testing.T) {
	files, memlock, pages, free := uint64(10), uint64(4<<10), "never", uint64(4<<10)
	defer command.SetHost(func(f, m *uint64, p *string, room *func(string) (uint64, uint64, error)) {
		*f, *m, *p = files, memlock, pages
		*room = func(string) (uint64, uint64, error) { return 1 << 30, free, nil }
	})()
	mend := func(name string) string {
		t.Helper()
		all := doctor(t)
		i := slices.IndexFunc(all, func(x check) bool { return x.Check == name && x.State != "ok" })
		if i < 0 {
			t.Fatalf("%s: %+v", name, all)
		}
		return all[i].Mend
	}
	scan := func(name, format string, to ...any) {
		t.Helper()
		if _, err := fmt.Sscanf(mend(name), format, to...); err != nil {
			t.Fatalf("%q: %v", mend(name), err)
		}
	}
	scan("open files", "ulimit -n %d;", &files)
	scan("memlock", "ulimit -l unlimited;")
	memlock = math.MaxUint64
	scan("huge pages", "echo %s > /sys/kernel/mm/transparent_hugepage/enabled", &pages)
	if runtime.GOOS == "linux" {
		m := regexp.MustCompile(`mount -o remount,size=(\d+)M /dev/shm`).FindStringSubmatch(mend("directory"))
		if m == nil {
			t.Fatal(mend("directory"))
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		free = uint64(n) << 20
	}
	for _, x := range doctor(t) {
		// which are as they are here
		if x.State != "ok" && x.Check != "clock" && !strings.Contains(x.Text, "those of shared memory") {
			t.Errorf("%+v", x)
		}
	}
}
