package command_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// statusJSON is what txnode cluster status prints for programs.
type statusJSON struct {
	Whole   bool
	Wrong   []string
	Servers []statusServer
	Members []struct {
		Registered, Reports bool
		Epoch               uint32
		Program             string
	}
	Witness  *struct{}
	Database struct {
		Segments    int
		Lost        int `json:"segments_lost"`
		Unavailable int `json:"segments_unavailable"`
		Missing     int `json:"copies_missing"`
		Down        int `json:"blades_down"`
		Build       *struct {
			Done uint64        `json:"done_bytes"`
			Left time.Duration `json:"left_ns"`
		}
	}
}

type statusServer struct {
	Answers bool
	Full    []string
	Blades  []struct {
		ID, Bytes, Copies int
		Free              int `json:"free_bytes"`
		State, Error      string
	}
}

// smallCluster is a catalog and servers with one blade each, made into a cluster.
type smallCluster struct {
	t       *testing.T
	dir     string
	catalog string
	ends    map[string]func() (int, string)
}

func newSmallCluster(t *testing.T, names []string, init ...string) *smallCluster {
	t.Helper()
	c := &smallCluster{t: t, dir: socketDir(t), ends: map[string]func() (int, string){}}
	c.catalog = "unix:" + filepath.Join(c.dir, "c")
	c.serveCatalog()
	args := []string{"cluster", "init", "--catalog", c.catalog, "--segment-size", "1MiB"}
	for _, name := range names {
		c.serve(name)
		args = append(args, "--blade", c.address(name))
	}
	if code, out, stderr := inSystem(t, append(args, init...)...); code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	return c
}

// serveCatalog starts the server of the catalog.
func (c *smallCluster) serveCatalog() {
	c.t.Helper()
	_, c.ends["catalog"] = startServe(c.t, "--listen", c.catalog, "--catalog", filepath.Join(c.dir, "data"), "--memory",
		"0")
}

func (c *smallCluster) address(name string) string { return "unix:" + filepath.Join(c.dir, name) }

// serve starts the server of a blade.
func (c *smallCluster) serve(name string, args ...string) {
	c.t.Helper()
	_, c.ends[name] = startServe(c.t, append([]string{"--memory", "64MiB", "--listen", c.address(name)}, args...)...)
}

// open opens the database, and puts a record there.
func (c *smallCluster) open() *txn.DB {
	c.t.Helper()
	db, err := cluster.Open(c.t.Context(), c.catalog, txn.Options{IndexGroups: 64},
		cluster.Options{Post: time.Millisecond})
	if err != nil {
		c.t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[uint64]())
	if err == nil {
		err = db.Update(c.t.Context(), func(tx *txn.Tx) error { return table.Put(tx, 1, 1) })
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return db
}

// status asks, and wants an exit code; -1: any.
func (c *smallCluster) status(code int, args ...string) (st statusJSON) {
	c.t.Helper()
	got, out, stderr := inSystem(c.t, append([]string{"cluster", "status", c.catalog, "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &st); err != nil || got != code && code >= 0 || st.Whole != (got == 0) ||
		st.Whole != (len(st.Wrong) == 0) || (stderr == "") != st.Whole {
		c.t.Fatalf("%v: exit code %d: %s%s", err, got, out, stderr)
	}
	return st
}

// bury declares a blade dead that has data, while no process has the database open.
func (c *smallCluster) bury() {
	c.t.Helper()
	cat, err := cluster.DialCatalog(c.t.Context(), c.catalog, cluster.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	held := slices.IndexFunc(c.status(-1).Servers, func(s statusServer) bool { return s.Blades[0].Copies > 0 })
	if err := errors.Join(layout.DeclareDead(cat, rdma.BladeID(held)), cat.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// says wants one of what is wrong to have words.
func (st statusJSON) says(t *testing.T, words string) {
	t.Helper()
	if !slices.ContainsFunc(st.Wrong, func(s string) bool { return strings.Contains(s, words) }) {
		t.Errorf("nothing says %q: %q", words, st.Wrong)
	}
}

// until waits for a condition.
func until(cond func() bool) {
	for !cond() {
		time.Sleep(time.Millisecond)
	}
}

// TestStatusOfLostBlade: members, a blade that was declared dead, and copies that are missing are
// told of; --wait ends when all copies are there again, and with its time.
func TestStatusOfLostBlade(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"})
	db := c.open()
	var st statusJSON
	until(func() bool { st = c.status(0); return len(st.Members) == 1 && st.Members[0].Reports })
	if m := st.Members[0]; !m.Registered || m.Epoch == 0 || m.Program == "" || st.Witness == nil ||
		st.Database.Segments == 0 {
		t.Errorf("%+v", st)
	}
	for _, s := range st.Servers {
		if b := s.Blades[0]; b.State != "up" || b.Copies != st.Database.Segments || b.Free == 0 || b.Free >= b.Bytes {
			t.Errorf("%+v", b)
		}
	}
	c.status(0, "--wait")
	c.ends["y"]()
	until(func() bool { return len(db.Redundancy().Down) > 0 })
	st = c.status(1, "--wait", "--timeout", "1ms")
	if b := st.Servers[1].Blades[0]; b.State != "down" || b.Copies != 0 ||
		st.Database.Missing != st.Database.Segments || st.Database.Lost+st.Database.Unavailable != 0 ||
		st.Database.Down != 1 {
		t.Errorf("%+v", st)
	}
	st.says(t, "blade 1 was declared dead")
	st.says(t, "are missing")
	code, out, _ := inSystem(t, "cluster", "status", c.catalog)
	if code != 1 || !strings.Contains(out, "\nwrong: blade 1 was declared dead") || !strings.Contains(out, " down\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	waited := make(chan statusJSON)
	go func() { waited <- c.status(0, "--wait") }()
	c.serve("y")
	if st := <-waited; st.Servers[1].Blades[0].State != "up" || st.Database.Missing+st.Database.Down != 0 {
		t.Errorf("%+v", st)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestStatusOfLostData: data whose only copy is on a blade that is away is unavailable, and not
// missing; when the blade is given up, it is lost, and --wait ends at once.
func TestStatusOfLostData(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"}, "--replicas", "0")
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ends["x"]()
	c.ends["y"]()
	st := c.status(1)
	if d := st.Database; d.Unavailable != d.Segments || d.Missing+d.Lost+d.Down != 0 ||
		st.Servers[0].Blades[0].State != "silent" || st.Servers[0].Blades[0].Free != 0 {
		t.Errorf("%+v", st)
	}
	st.says(t, "data is unavailable")
	c.serve("x")
	c.serve("y")
	if st = c.status(1); st.Servers[0].Blades[0].State != "blank" || st.Database.Unavailable == 0 {
		t.Errorf("%+v", st)
	}
	st.says(t, "its region is blank")
	c.bury()
	st = c.status(1, "--wait")
	if st.Database.Lost == 0 || st.Database.Missing != 0 || !strings.HasPrefix(st.Wrong[0], "data is lost") {
		t.Errorf("%+v", st)
	}
}

// TestStatusUsage: a time-out without --wait is wrong usage; a wait for a catalog that does not
// answer ends with its time.
func TestStatusUsage(t *testing.T) {
	none := "unix:" + filepath.Join(socketDir(t), "none")
	for _, args := range [][]string{{"--timeout", "1s"}, {"--wait", "--timeout", "-1s"}} {
		if code, _, stderr := inSystem(t, append([]string{"cluster", "status", none}, args...)...); code != 2 ||
			!strings.Contains(stderr, "--timeout is") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	if code, _, stderr := inSystem(t, "cluster", "status", none, "--wait", "--timeout", "1ms"); code != 1 ||
		!strings.Contains(stderr, "after 1ms: ") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
