package command_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/cmd/txnode/command"
	"txnode/memory/catalog"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
)

// failing are the checks of doctor that fail. It asks again as long as a daemon has not answered in
// time, as on a busy machine.
func failing(t *testing.T, args ...string) (out []check) {
	t.Helper()
	late := true
	for late {
		out, late = nil, false
		for _, x := range doctor(t, args...) {
			if x.State == "fail" {
				out = append(out, x)
				late = late || strings.Contains(x.Text, "deadline exceeded") || strings.Contains(x.Text, "timeout")
			}
		}
	}
	return out
}

// advises: one of the checks has an advice with these words.
func advises(t *testing.T, all []check, words string) {
	t.Helper()
	for i := range all {
		if strings.Contains(all[i].Mend, words) {
			return
		}
	}
	t.Errorf("none advises %q: %+v", words, all)
}

// TestAdviceOnCertificates: what doctor says to do about certificates of either side is enough.
func TestAdviceOnCertificates(t *testing.T) {
	dir := socketDir(t)
	ca, other := newAuthority(t, dir, "ca"), newAuthority(t, dir, "other-ca")
	for _, name := range []string{"server", "client"} {
		ca.leaf(t, name, true, -time.Hour, 30*24*time.Hour)
	}
	other.leaf(t, "stranger", true, -time.Hour, 30*24*time.Hour)
	flags := func(name, ca, address string, more ...string) []string {
		return append(append(tlsFlags(dir, name, ca), more...), address)
	}
	line, end := startServe(t, append(tlsFlags(dir, "server", "ca"), "--listen", "tcp:127.0.0.1:0", "--memory", "64MiB",
		"--catalog", "memory")...)
	defer end()
	address := served(t, line)
	if code, out, stderr := inSystem(t, append([]string{"cluster", "init", "--catalog", address},
		flags("client", "ca", "--blade="+address)...)...); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	content := func(flags ...string) {
		t.Helper()
		if all := failing(t, flags...); len(all) > 0 {
			t.Errorf("%+v", all)
		}
	}
	content(flags("client", "ca", address)...)

	advises(t, failing(t, flags("client", "other-ca", address)...),
		"give in --tls-ca the authority that has issued the server's certificate")
	content(flags("client", "ca", address)...)
	advises(t, failing(t, flags("stranger", "ca", address)...),
		"give in --tls-cert a certificate of an authority that the server trusts: its --tls-ca")
	content(flags("client", "ca", address)...)

	ca.leaf(t, "named", false, -time.Hour, 30*24*time.Hour)
	for _, end := range []string{".key", ".crt"} {
		if err := os.Rename(filepath.Join(dir, "named"+end), filepath.Join(dir, "server"+end)); err != nil {
			t.Fatal(err)
		}
	}
	advises(t, failing(t, flags("client", "ca", address)...), "give it with --tls-name")
	content(flags("client", "ca", address, "--tls-name", "named.example")...)

	// A daemon goes on with a certificate that has expired meanwhile, until it is replaced.
	pair := func(name string) *tls.Certificate {
		c, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		return &c
	}
	ca.leaf(t, "expired", true, -2*time.Hour, -time.Hour)
	var current atomic.Pointer[tls.Certificate]
	current.Store(pair("expired"))
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	late := serveTCP(t, nil, &catalog.Mem{}, tcp.ServerOptions{Credentials: func() tcp.Credentials {
		return tcp.Credentials{TLS: &tls.Config{
			Certificates: []tls.Certificate{*current.Load()},
			ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool,
		}}
	}}, "tcp:127.0.0.1:0")
	all := failing(t, flags("client", "ca", late)...)
	advises(t, all, "compare its clock with this one (date), and issue a new certificate: docs/daemons.md")
	if _, err := os.Stat("../../../docs/daemons.md"); err != nil {
		t.Error(err)
	}
	ca.leaf(t, "renewed", true, -time.Hour, 30*24*time.Hour)
	current.Store(pair("renewed"))
	if all := failing(t, flags("client", "ca", late)...); len(all) != 1 ||
		!strings.Contains(all[0].Mend, "txnode cluster init") {
		t.Errorf("of an empty catalog: %+v", all)
	}
}

// TestAdviceOnOwnFiles: what doctor says about a certificate of this host that is not for clients,
// or ends soon, about a key that all can read, and about TLS that one side alone uses, is enough.
func TestAdviceOnOwnFiles(t *testing.T) {
	dir := socketDir(t)
	ca := newAuthority(t, dir, "ca")
	ca.leaf(t, "good", true, -time.Hour, 30*24*time.Hour)
	line, end := startServe(t, append(tlsFlags(dir, "good", "ca"), "--listen", "tcp:127.0.0.1:0", "--memory", "64MiB",
		"--catalog", "memory")...)
	defer end()
	address := served(t, line)
	if code, out, stderr := inSystem(t, append([]string{"cluster", "init", "--catalog", address, "--blade", address},
		tlsFlags(dir, "good", "ca")...)...); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	files := func() (bad []check) {
		t.Helper()
		for _, x := range doctor(t, append(tlsFlags(dir, "own", "ca"), address)...) {
			if x.Check == "TLS files" && x.State != "ok" || x.State == "fail" {
				bad = append(bad, x)
			}
		}
		return bad
	}
	use := func(until time.Duration, uses ...x509.ExtKeyUsage) {
		ca.issue(t, "own", &x509.Certificate{
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: uses,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(until),
		})
	}
	const month = 30 * 24 * time.Hour
	use(month, x509.ExtKeyUsageServerAuth)
	advises(t, files(), "issue it with extendedKeyUsage=serverAuth,clientAuth")
	use(24*time.Hour, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	advises(t, files(), "issue a new certificate, and replace the files before that")
	use(month, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	key := filepath.Join(dir, "own.key")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	all := files()
	advises(t, all, "chmod 600 "+key)
	if out, err := exec.Command("sh", "-c", all[0].Mend).CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	if all := files(); len(all) > 0 {
		t.Errorf("%+v", all)
	}

	// files() has done so
	advises(t, failing(t, address), "give --tls-cert, --tls-key and --tls-ca if the server uses TLS")
	line, endPlain := startServe(t, "--listen", "tcp:127.0.0.1:0", "--memory", "64MiB", "--catalog", "memory")
	defer endPlain()
	plain := served(t, line)
	if code, out, stderr := inSystem(t, "cluster", "init", "--catalog", plain, "--blade", plain); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	advises(t, failing(t, append(tlsFlags(dir, "own", "ca"), plain)...), "and leave them out if it does not")
	if all := failing(t, plain); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}

// TestAdviceOnSizes: a server has begun with other blades than the cluster has of it, and then
// begins as doctor says.
func TestAdviceOnSizes(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"})
	again := func(args ...string) {
		t.Helper()
		c.ends["y"]()
		_, c.ends["y"] = startServe(t, append(args, "--listen", c.address("y"))...)
	}
	again("--blade", "32MiB")
	size := regexp.MustCompile(`--blade \S+[^,\s]`).FindString(c.advice("fail", "size"))
	again("--blade", "64MiB", "--blade", "64MiB")
	c.advice("fail", "blades", "it has 2, and the catalog says 1")
	again(strings.Fields(size)...)
	for _, x := range failing(t, c.catalog) {
		t.Errorf("%+v", x)
	}
}

// TestAdviceOnUser: a client that does not trust the user of a daemon names that user, as doctor
// says.
func TestAdviceOnUser(t *testing.T) {
	c := newSmallCluster(t, []string{"x"}, "--replicas", "0")
	me := uint32(os.Geteuid())
	_, err := tcp.DialService(t.Context(), c.catalog, "catalog", tcp.Options{Users: []uint32{me + 1}})
	if err == nil {
		t.Skip("this system does not tell the users of sockets")
	}
	advice := command.RemedyOf(err, c.catalog)
	flag := regexp.MustCompile(`--server-user (\d+)$`).FindStringSubmatch(advice)
	if flag == nil || flag[1] != fmt.Sprint(me) {
		t.Fatalf("%q, about: %v", advice, err)
	}
	if all := failing(t, c.catalog, "--server-user", flag[1]); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}

// TestAdviceOnConnections: a daemon has as many connections as it takes. As doctor says, processes
// are ended, or it takes more.
func TestAdviceOnConnections(t *testing.T) {
	c := newSmallCluster(t, []string{"x"}, "--replicas", "0")
	c.ends["catalog"]()
	serve := func(connections string) {
		_, c.ends["catalog"] = startServe(t, "--listen", c.catalog, "--catalog", filepath.Join(c.dir, "data"),
			"--memory", "0", "--connections", connections)
	}
	serve("16")
	until(func() bool { return len(failing(t, c.catalog)) == 0 })
	var open []*tcp.Caller
	for {
		s, err := tcp.DialService(t.Context(), c.catalog, "catalog", tcp.Options{})
		if err == nil {
			open = append(open, s)
		} else if strings.Contains(err.Error(), "as many connections") {
			break
		}
	}
	advises(t, failing(t, c.catalog), "give the daemon a larger --connections, or end processes")
	for _, s := range open {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	until(func() bool { return len(failing(t, c.catalog)) == 0 }) // the daemon notices ends by and by
	c.ends["catalog"]()
	serve("64")
	until(func() bool { return len(failing(t, c.catalog)) == 0 })
}

// TestAdviceOnFullDisk: the directory of a daemon whose disk is full is copied to a larger one, and
// the daemon started there.
func TestAdviceOnFullDisk(t *testing.T) {
	var full atomic.Bool
	defer command.SetDiskRoom(func(at string) uint64 {
		if full.Load() && strings.HasSuffix(at, "small") {
			return 1000
		}
		return 1 << 40
	})()
	c := &smallCluster{t: t, dir: socketDir(t), ends: map[string]func() (int, string){}}
	c.catalog = "unix:" + filepath.Join(c.dir, "c")
	c.serveCatalog()
	small, large := filepath.Join(c.dir, "small"), filepath.Join(c.dir, "large")
	c.serve("x", "--dir", small)
	if code, _, stderr := inSystem(t, "cluster", "init", "--catalog", c.catalog, "--segment-size", "1MiB", "--blade",
		c.address("x"), "--replicas", "0"); code != 0 {
		t.Fatal(stderr)
	}
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	all := failing(t, c.catalog)
	advises(t, all, "end the daemon, copy its directory to a larger disk (cp -a --sparse=always), and start it there")
	c.ends["x"]()
	if out, err := exec.Command("cp", "-a", "--sparse=always", small, large).CombinedOutput(); err != nil {
		t.Skipf("cp of this system: %v, %s", err, out)
	}
	c.serve("x", "--dir", large)
	c.follow(c.advice("warn", "database", "restarted"), nil)
	until(func() bool { return len(failing(t, c.catalog)) == 0 })
	if code, out, _ := inSystem(t, "get", c.catalog, "words", "1"); code != 0 || !strings.Contains(out, "1") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestAdviceOnClocks: nothing keeps the clock of this host right, and the clocks of a daemon and of
// a process are ahead. Each advice has commands that set them. A program in the place of
// timedatectl takes those commands alone, and the clocks of this test are right from then on.
func TestAdviceOnClocks(t *testing.T) {
	dir := socketDir(t)
	address, set := "unix:"+filepath.Join(dir, "s"), filepath.Join(dir, "set")
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in\n'set-ntp true') : >'%s' ;;\ntimesync-status) test -e '%s' ;;\n"+
		"*) exit 1 ;;\nesac\n", set, set)
	if err := os.WriteFile(filepath.Join(dir, "timedatectl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	kept := func() bool { _, err := os.Stat(set); return err == nil }
	defer command.SetClock(kept)()
	now := func() time.Time {
		if kept() {
			return time.Now()
		}
		return time.Now().Add(time.Hour)
	}
	regions, err := region.New(region.Config{Regions: []region.Options{{Size: 64 << 20}}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := regions.Close(); err != nil {
			t.Error(err)
		}
	})
	r := cluster.NewReporter(func() cluster.Report { return cluster.Report{Limit: 10, Time: now()} })
	serveTCP(t, regions, &catalog.Mem{},
		tcp.ServerOptions{Services: map[string]tcp.Service{cluster.ReportService: r.Answer}}, address)
	if code, _, stderr := inSystem(t, "cluster", "init", "--catalog", address, "--blade", address); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	// advised is what doctor says to do about clocks, of which so many are wrong. It asks again, as
	// on a busy machine reports come late.
	advised := func(wrong int) (mends []string) {
		t.Helper()
		var all []check
		for range 20 {
			post(t, address, cluster.ProcessReport{Life: 1, Process: 7, Program: "teller", Time: now()})
			all, mends = slices.DeleteFunc(append(doctor(t, address), doctor(t)...), func(x check) bool {
				return x.Check != "clock"
			}), nil
			for _, x := range all {
				if x.State != "ok" {
					mends = append(mends, x.Mend)
				}
			}
			if len(all) == 4 && len(mends) == wrong { // of the catalog, the server, the process, and this host
				return mends
			}
		}
		t.Fatalf("of 4 clocks not %d are wrong: %+v", wrong, all)
		return nil
	}
	mends := advised(4)
	slices.Sort(mends)
	mends = slices.Compact(mends)
	if len(mends) != 2 {
		t.Errorf("%q", mends)
	}
	for _, mend := range mends {
		if err := os.Remove(set); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		todo := regexp.MustCompile(`timedatectl [^;,]*`).FindAllString(mend, -1)
		if len(todo) != 2 {
			t.Fatalf("%q has %q", mend, todo)
		}
		for _, line := range todo {
			if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
				t.Fatalf("%q of %q: %v, %s", line, mend, err, out)
			}
		}
		advised(0)
	}
}
