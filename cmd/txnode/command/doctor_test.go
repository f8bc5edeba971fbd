package command_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/cmd/txnode/command"
	"txnode/memory/catalog"
	"txnode/memory/catalog/remote"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// inSystem runs a command as a process of this host.
func inSystem(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	w := command.System()
	w.Getenv = func(string) string { return "" }
	w.Stdout, w.Stderr, w.StdoutTerminal, w.StderrTerminal = &out, &errs, false, false
	code = command.Main(t.Context(), w, args)
	return code, out.String(), errs.String()
}

// check is a check of txnode doctor, as it is printed for programs.
type check struct {
	State, Check, Subject, Text, Mend string
	MedianNs                          int64 `json:"median_ns"`
}

// doctor runs txnode doctor, of which the exit code must be 1 if a check fails and 0 otherwise.
func doctor(t *testing.T, args ...string) (all []check) {
	t.Helper()
	code, out, stderr := inSystem(t, append([]string{"doctor", "-o", "json"}, args...)...)
	var got struct {
		Fail   int
		Checks []check
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: exit code %d, %s%s", err, code, out, stderr)
	}
	want, fails := 0, 0
	for _, c := range got.Checks {
		if c.State == "fail" {
			want = 1
			fails++
		}
		if (c.State == "ok") != (c.Mend == "") {
			t.Errorf("%+v: what is not ok says what mends it, and nothing else", c)
		}
	}
	if code != want || got.Fail != fails || want == 1 && stderr != fmt.Sprintf("txnode: %d of %d checks fail\n",
		fails, len(got.Checks)) {
		t.Errorf("exit code %d, %d fail: %s", code, got.Fail, stderr)
	}
	return got.Checks
}

// finds has exactly one check of a name and state whose text or mend has words.
func finds(t *testing.T, all []check, state, name string, words ...string) {
	t.Helper()
	n := 0
	for _, c := range all {
		if c.Check != name || c.State != state {
			continue
		}
		here := strings.Count(c.Text, "\n") == 0
		for _, w := range words {
			here = here && strings.Contains(c.Subject+" "+c.Text+" "+c.Mend, w)
		}
		if here {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d checks are %s: %s with %q: %+v", n, state, name, words, all)
	}
}

// TestDoctorAlone: without an address this host is examined, with the same exit codes, and it is
// said that no server was asked.
func TestDoctorAlone(t *testing.T) {
	all := doctor(t)
	finds(t, all, "ok", "servers", "none was asked", "address of a catalog")
	for _, name := range []string{"memlock", "open files", "clock"} {
		if !slices.ContainsFunc(all, func(c check) bool { return c.Check == name }) {
			t.Errorf("no %s in %+v", name, all)
		}
	}
	defer command.SetHost(func(openFiles, _ *uint64, _ *string, room *func(string) (size, free uint64, err error)) {
		*openFiles = 10
		*room = func(string) (uint64, uint64, error) { return 64 << 10, 4 << 10, nil }
	})()
	all = doctor(t)
	finds(t, all, "fail", "open files", "ulimit -n")
	if runtime.GOOS == "linux" {
		finds(t, all, "fail", "directory", "/dev/shm", "4 KiB are free")
	}
	for _, args := range [][]string{{"doctor", "a", "b"}, {"doctor", ""}} {
		if code, _, stderr := inSystem(t, args...); code != 2 ||
			!strings.Contains(stderr, "or none to examine this host alone") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestDoctor: a cluster is healthy, its blades are left as they were, and what breaks is found.
func TestDoctor(t *testing.T) {
	for _, kind := range []string{"unix", "shm"} {
		if kind == "shm" && runtime.GOOS != "linux" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			dir := socketDir(t)
			ctx := t.Context()
			file := func(name string) string { return filepath.Join(dir, name) }
			catalog := "unix:" + file("c")
			_, endCatalog := startServe(t, "--listen", catalog, "--catalog", file("data"), "--memory", "0")
			start := func(name, data string) (end func() (int, string)) {
				how := []string{"--listen", "unix:" + file(name)}
				if kind == "shm" {
					how = []string{"--shm", dir, "--name", name}
				}
				_, end = startServe(t, append(how, "--memory", "64MiB", "--dir", file(data))...)
				return end
			}
			ends := []func() (int, string){start("a", "data-a"), start("b", "data-b")}
			finds(t, doctor(t, catalog), "fail", "catalog", "txnode cluster init")
			init := []string{
				"cluster", "init", "--catalog", catalog, "--blade", kind + ":" + file("a"), "--blade",
				kind + ":" + file("b"),
			}
			if code, _, stderr := inSystem(t, init...); code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			db, err := cluster.Open(ctx, catalog, txn.Options{IndexGroups: 64}, cluster.Options{})
			if err != nil {
				t.Fatal(err)
			}
			table, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]())
			if err == nil {
				err = db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, "hello", 1) })
			}
			if err = errors.Join(err, db.Close(ctx)); err != nil {
				t.Fatal(err)
			}
			content := func() (all [][]byte) {
				for _, name := range []string{"data-a", "data-b"} {
					p, err := os.ReadFile(filepath.Join(file(name), "blade-000.region"))
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, p)
				}
				return all
			}
			before := content()
			all := doctor(t, catalog)
			for i, p := range content() {
				if !bytes.Equal(p, before[i]) {
					t.Errorf("blade %d is not as it was", i)
				}
			}
			verbs := 0
			for _, c := range all {
				if c.State == "fail" {
					t.Errorf("%+v", c)
				}
				if c.MedianNs > 0 {
					verbs++
				}
			}
			if verbs != 6 {
				t.Errorf("%d measurements of verbs", verbs)
			}
			finds(t, all, "ok", "catalog", "it answers")
			for i, name := range []string{"a", "b"} {
				finds(t, all, "ok", "server", kind+":"+file(name))
				finds(t, all, "ok", "clock", kind+":"+file(name))
				finds(t, all, "ok", "database", fmt.Sprintf("blade %d", i), "backups 1")
			}
			if kind == "shm" {
				defer command.SetHost(func(_, _ *uint64, _ *string, room *func(string) (uint64, uint64, error)) {
					*room = func(string) (uint64, uint64, error) { return 64 << 10, 4 << 10, nil }
				})()
				finds(t, doctor(t, catalog), "fail", "directory", dir, "4 KiB are free of 64 KiB", "size=64M")
			}
			if code, out, stderr := inSystem(t, "doctor", catalog); kind == "unix" &&
				(code != 0 || stderr != "" || !strings.Contains(out, "\nok    READ blade 0 ")) {
				t.Errorf("exit code %d: %s%s", code, out, stderr)
			}

			// A blade that has restarted, one that is away, and one in the place of another.
			for _, end := range ends {
				if code, stderr := end(); code != 0 {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
			}
			ends = []func() (int, string){start("a", "data-a")}
			all = doctor(t, catalog)
			finds(t, all, "warn", "database", "blade 0", "restarted")
			finds(t, all, "fail", "server", kind+":"+file("b"), "txnode serve --")
			for _, end := range append(ends, endCatalog) {
				if code, stderr := end(); code != 0 {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
			}
			finds(t, doctor(t, catalog), "fail", "catalog", catalog, "txnode serve --listen "+catalog)
		})
	}
}

// TestDoctorForeign: a blade of another database, and other blades than the catalog says.
func TestDoctorForeign(t *testing.T) {
	dir := socketDir(t)
	at := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	fresh := &catalog.Mem{} // in which the address of the second cluster is that of the first one's blade
	var end func() (int, string)
	for _, c := range []string{"c1", "c2"} {
		_, endCatalog := startServe(t, "--listen", at(c), "--catalog", "memory", "--memory", "0")
		defer endCatalog()
		if end != nil {
			if code, stderr := end(); code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
		}
		_, end = startServe(t, "--listen", at("a"), "--memory", "64MiB")
		if code, _, stderr := inSystem(t, "cluster", "init", "--catalog", at(c), "--blade", at("a")); code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
	}
	finds(t, doctor(t, at("c2")), "ok", "database", "blade 0")
	finds(t, doctor(t, at("c1")), "fail", "database", "blade 0", "has a blade of database")

	// The entries of a cluster whose blade is taken to be known: its incarnation is.
	c, err := remote.Dial(t.Context(), at("c1"), tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	entries, _, err := c.Load()
	if err = errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	c2, err := remote.Dial(t.Context(), at("c2"), tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	others, _, err := c2.Load()
	if err = errors.Join(err, c2.Close()); err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		if strings.HasPrefix(entries[i].Key, "blade/") {
			entries[i] = others[i]
		}
	}
	if _, err := fresh.Apply(0, entries); err != nil {
		t.Fatal(err)
	}
	serveTCP(t, nil, fresh, tcp.ServerOptions{}, at("c3"))
	finds(t, doctor(t, at("c3")), "fail", "database", "blade 0", "of database", "--dir")

	if code, stderr := end(); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for sizes, want := range map[string][]string{
		"32MiB": {"size", "--blade 64MiB"}, "64MiB,64MiB": {"blades", "it has 2"},
	} {
		args := []string{"--listen", at("a")}
		for _, s := range strings.Split(sizes, ",") {
			args = append(args, "--blade", s)
		}
		_, end := startServe(t, args...)
		finds(t, doctor(t, at("c2")), "fail", want[0], want[1])
		if code, stderr := end(); code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
	}
}

// serveTCP serves blades and a catalog, of which either may be nil, until the test ends.
func serveTCP(t *testing.T, set *region.Set, cat *catalog.Mem, o tcp.ServerOptions, address string) (at string) {
	t.Helper()
	if cat != nil {
		if o.Services == nil {
			o.Services = map[string]tcp.Service{}
		}
		o.Services[remote.ServiceName] = remote.NewService(cat)
	}
	s, err := tcp.NewServer(set, o)
	if err != nil {
		t.Fatal(err)
	}
	network, name, err := tcp.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen(network, name)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	})
	return network + ":" + l.Addr().String()
}

// TestDoctorClock: a daemon whose clock is an hour off, and one that tells nothing of itself.
func TestDoctorClock(t *testing.T) {
	dir := socketDir(t)
	for name, off := range map[string]time.Duration{
		"behind": -time.Hour, "ahead": time.Hour, "seconds": 10 * time.Second, "silent": 0,
	} {
		t.Run(name, func(t *testing.T) {
			set, err := region.New(region.Config{Regions: []region.Options{{Size: 64 << 20}}, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := set.Close(); err != nil {
					t.Error(err)
				}
			})
			address := "unix:" + filepath.Join(dir, name)
			o := tcp.ServerOptions{Services: map[string]tcp.Service{}}
			if name != "silent" {
				r := cluster.NewReporter(func() cluster.Report {
					return cluster.Report{
						Version: "v9.9.9", Limit: 10, Connections: 10, OpenFiles: 20, Time: time.Now().Add(off),
					}
				})
				o.Services[cluster.ReportService] = r.Answer
			}
			serveTCP(t, set, &catalog.Mem{}, o, address)
			if code, _, stderr := inSystem(t, "cluster", "init", "--catalog", address, "--blade", address); code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			if name == "behind" { // and so is a process, which is on the same host
				post(t, address, cluster.ProcessReport{
					Life: 1, Process: 7, Program: "teller", Time: time.Now().Add(off),
				})
			}
			switch all := doctor(t, address); name {
			case "behind", "ahead":
				if name == "behind" {
					finds(t, all, "fail", "clock", "process 7 (teller", "behind", "timedatectl")
					all = slices.DeleteFunc(all, func(c check) bool {
						return strings.HasPrefix(c.Subject, "process 7")
					})
				}
				if n := count(all, "fail", "clock"); n != 2 || !strings.Contains(text(all, "clock"), name) {
					t.Errorf("%d clocks are wrong: %+v", n, all)
				}
				if count(all, "warn", "connections") != 2 || count(all, "warn", "open files") != 2 {
					t.Errorf("a daemon with too many connections: %+v", all)
				}
				if n := count(all, "warn", "release"); n != 2 || !strings.Contains(text(all, "release"), "v9.9.9") {
					t.Errorf("%d other releases: %+v", n, all)
				}
			case "seconds":
				if n := count(all, "warn", "clock"); n != 2 || count(all, "fail", "clock") != 0 {
					t.Errorf("%+v", all)
				}
			default:
				if count(all, "warn", "release") != 2 || count(all, "fail", "clock") != 0 {
					t.Errorf("%+v", all)
				}
			}
		})
	}
}

// post tells a daemon of a process.
func post(t *testing.T, address string, r cluster.ProcessReport) {
	t.Helper()
	c, err := tcp.DialService(t.Context(), address, cluster.ReportService, tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err == nil {
		_, err = c.Call(t.Context(), text)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
}

func count(all []check, state, name string) (n int) {
	for _, c := range all {
		if c.State == state && c.Check == name {
			n++
		}
	}
	return n
}

func text(all []check, name string) (s string) {
	for _, c := range all {
		if c.Check == name {
			s += c.Text + "\n"
		}
	}
	return s
}

// TestDoctorHost: limits of this host that are too low are found, and what is no address is wrong
// usage.
func TestDoctorHost(t *testing.T) {
	dir := socketDir(t)
	address := "unix:" + filepath.Join(dir, "c")
	_, end := startServe(t, "--listen", address, "--catalog", "memory", "--memory", "64MiB")
	defer end()
	if code, _, stderr := inSystem(t, "cluster", "init", "--catalog", address, "--blade", address); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	restore := command.SetHost(func(files, memlock *uint64, pages *string, _ *func(string) (uint64, uint64, error)) {
		*files, *memlock, *pages = 60, 64<<10, "never"
	})
	all := doctor(t, address)
	restore()
	finds(t, all, "fail", "open files", "60 at a time", "ulimit -n")
	finds(t, all, "warn", "memlock", "64 KiB may be pinned", "ulimit -l unlimited")
	finds(t, all, "warn", "huge pages", "transparent_hugepage/enabled")
	for _, args := range [][]string{
		{"here"}, {"tcp:127.0.0.1"}, {address, "--tls-cert", "x"}, {address, "--tls-name", "x"},
	} {
		if code, out, stderr := inSystem(t, append([]string{"doctor"}, args...)...); code != 2 || out != "" ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
	finds(t, doctor(t, address, "--secret-file", filepath.Join(dir, "none")), "fail", "secret", "no such file")
}

// TestDoctorPorts: a port that is closed, a secret that is missing.
func TestDoctorPorts(t *testing.T) {
	dir := socketDir(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "tcp:" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	finds(t, doctor(t, closed), "fail", "catalog", "refused", "txnode serve --listen "+closed)
	if !testing.Short() { // etcd's client tries for 5 seconds
		member := strings.TrimPrefix(closed, "tcp:")
		finds(t, doctor(t, "etcd://"+member+"/bank"), "fail", "catalog", "etcdctl --endpoints="+member+" ")
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("correct horse battery staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := "unix:" + filepath.Join(dir, "c")
	_, end := startServe(t, "--listen", address, "--catalog", "memory", "--memory", "1MiB", "--secret-file", secret)
	defer end()
	finds(t, doctor(t, address), "fail", "catalog", "secret", "--secret-file")
}

// TestDoctorTLS: certificates of either side.
func TestDoctorTLS(t *testing.T) {
	dir := socketDir(t)
	ca := newAuthority(t, dir, "ca")
	other := newAuthority(t, dir, "other-ca")
	for _, name := range []string{"server", "client"} {
		ca.leaf(t, name, true, -time.Hour, 30*24*time.Hour)
	}
	ca.leaf(t, "named", false, -time.Hour, time.Hour)
	ca.leaf(t, "expired", true, -2*time.Hour, -time.Hour)
	other.leaf(t, "stranger", true, -time.Hour, time.Hour)
	flags := func(name string) []string { return tlsFlags(dir, name, "ca") }

	line, end := startServe(t, append(flags("server"), "--listen", "tcp:0.0.0.0:0", "--memory", "64MiB",
		"--catalog", "memory")...)
	defer end()
	address := served(t, line)
	if code, out, stderr := inSystem(t, append([]string{"cluster", "init", "--catalog", address, "--blade", address},
		flags("client")...)...); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	all := doctor(t, append(flags("client"), address)...)
	finds(t, all, "ok", "TLS files", "client.example, 127.0.0.1")
	if n := count(all, "ok", "certificate"); n != 2 {
		t.Errorf("%d certificates of servers: %+v", n, all)
	}
	if err := os.Chmod(filepath.Join(dir, "named.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	all = doctor(t, append(flags("named"), address)...)
	finds(t, all, "warn", "TLS files", "named.example", "ends on")
	finds(t, all, "warn", "TLS files", "chmod 600")
	finds(t, doctor(t, append(flags("expired"), address)...), "fail", "TLS files", "has expired on", "openssl x509")
	finds(t, doctor(t, append(tlsFlags(dir, "client", "other-ca"), address)...), "fail", "catalog",
		"unknown authority", "--tls-ca")
	finds(t, doctor(t, append(flags("stranger"), address)...), "fail", "catalog", "--tls-cert")
	finds(t, doctor(t, append(flags("client"), address, "--tls-name", "elsewhere")...), "fail", "catalog",
		"elsewhere", "--tls-name")
	finds(t, doctor(t, address), "fail", "catalog", "--tls-cert")

	// A daemon does not begin with a certificate that has expired, and may go on until it has.
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "expired.crt"), filepath.Join(dir, "expired.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	late := serveTCP(t, nil, &catalog.Mem{},
		tcp.ServerOptions{TLS: &tls.Config{
			Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		}}, "tcp:127.0.0.1:0")
	finds(t, doctor(t, append(flags("client"), late)...), "fail", "catalog", "expired", "clock")
}

// TestServeTwice: a second daemon on a directory, of blades, of a catalog or of shared memory, is
// refused in one line.
func TestServeTwice(t *testing.T) {
	dir := socketDir(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	kinds := map[string]struct {
		args []string
		say  string
	}{
		"blades":  {[]string{"--memory", "1MiB", "--dir", file("blades")}, "end it first, or take another directory"},
		"catalog": {[]string{"--memory", "0", "--catalog", file("catalog")}, "--catalog " + file("catalog")},
	}
	if runtime.GOOS == "linux" {
		kinds["shm"] = struct {
			args []string
			say  string
		}{[]string{"--memory", "1MiB", "--shm", file("shm")}, "give this one another name"}
	}
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			listen := func(i int) []string {
				if kind == "shm" {
					return append([]string{"serve"}, k.args...)
				}
				return append([]string{"serve", "--listen", fmt.Sprintf("unix:%s%d", file(kind), i)}, k.args...)
			}
			_, end := startServe(t, listen(1)[1:]...)
			if code, out, stderr := inSystem(t, listen(2)...); code != 1 || out != "" ||
				strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, k.say) {
				t.Errorf("exit code %d: %s%s", code, out, stderr)
			}
			if code, stderr := end(); code != 0 {
				t.Errorf("exit code %d: %s", code, stderr)
			}
		})
	}
}

// changing is a fabric whose keys end as soon as they are asked for, so many times.
type changing struct {
	rdma.Fabric
	times int
}

func (c *changing) Blades() []rdma.BladeInfo {
	all := c.Fabric.Blades()
	if c.times > 0 {
		c.times--
		if k, err := c.Grant(0); err != nil || c.Revoke(0, k) != nil {
			panic(err)
		}
	}
	return all
}

// TestProofKeys: a key that ends while verbs are tested is asked for anew, and not for ever.
func TestProofKeys(t *testing.T) {
	for times, fine := range map[int]bool{0: true, 2: true, 100: false} {
		f, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 1 << 20}}})
		if err != nil {
			t.Fatal(err)
		}
		err = command.Prove(&changing{f, times}, 0)
		if fine && err != nil || !fine && !errors.Is(err, rdma.ErrStaleKey) {
			t.Errorf("%d changes: %v", times, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
