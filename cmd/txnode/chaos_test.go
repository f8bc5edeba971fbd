package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/check"
	"txnode/cluster"
	"txnode/history"
	"txnode/memory/catalog/etcd/etcdtest"
	"txnode/memory/layout"
	"txnode/txn"
)

// Chaos: four blades, a catalog and three writers are processes of their own. Each round something
// happens to some of them: a writer is killed, or stopped past its lease and continued; a blade is
// killed and begins anew, or is drained and added again; the catalog, which may be in an etcd, is
// killed and begins again. Where the host can do it (see apart), each process is on a node of its
// own, with mutual TLS between them: then nodes are cut off each other in one direction or both,
// links are slow, and disks are full, beside all of that. A writer that lacks descriptors, ports,
// memory or a certificate that others know is in trouble alone: no blade counts as dead, and others
// go on. After each round the money is the same, every transaction that a writer was told to have
// committed is there, the history of all of them is strictly serializable, txnode check finds
// nothing, and all writers go on.

var (
	chaosRounds = flag.Int("chaos.rounds", 0, "how many rounds of faults there are; 0: a few")
	chaosNet    = flag.Bool("chaos.net", true,
		"each process is on a node of its own in a network, where the host can do it, and not all on unix sockets")
	chaosFaults = flag.String("chaos.faults", "", "regular expression of the faults that there are; empty: all")
	chaosEtcd   = flag.Bool("chaos.etcd", false, "the catalog is in an etcd, and not in a process of txnode serve")
	chaosSeed   = flag.Uint64("chaos.seed", 1, "seed of the faults (not of when the system schedules what)")
)

const (
	// address, journal, seed, directory of TLS files or "-", lease and spinning goroutines, with
	// spaces between them
	asWriter      = "TXNODE_TEST_AS_WRITER"
	chaosBlades   = 4
	chaosWriters  = 3
	chaosAccounts = 40
	chaosMoney    = 1000 // of each account
	chaosLease    = time.Second
	chaosDisks    = 2 // blades that are on disks of their own, if there is a network
	// chaosPatience bounds how long writers may make no progress: a lease, a failover and a
	// machine that is busy.
	chaosPatience = 2 * time.Minute
)

// A node is where a process runs: blades first, then the catalog, then writers.
type node int

const (
	catalogNode node = chaosBlades
	firstWriter node = chaosBlades + 1
	nodes       node = chaosBlades + 1 + chaosWriters
)

// String names a node.
func (n node) String() string {
	switch {
	case n < catalogNode:
		return fmt.Sprintf("blade %d", int(n))
	case n == catalogNode:
		return "the catalog"
	}
	return fmt.Sprintf("writer %d", int(n-firstWriter))
}

// network is what the nodes are in. Each fault lasts until heal is called, which may be
// called by any goroutine.
type network interface {
	// host is the address of a node, without a port.
	host(n node) string
	// inside runs fn on a node: the processes that it starts are there.
	inside(n node, fn func()) error
	// cut has packets disappear on their way from the first node of each pair to the second one.
	cut(pairs [][2]node) (heal func() error, err error)
	// slow has a node send and get at most so many kbit/s.
	slow(n node, kbit int) (heal func() error, err error)
	// ports takes all ports from a node that connections from there could have.
	ports(n node) (heal func() error, err error)
	// disk makes a file system of so many MiB, in a directory.
	disk(dir string, mib int) error
	// fill has a file take all that is left of such a file system.
	fill(dir string) (heal func() error, err error)
}

// chaos is what runs.
type chaos struct {
	t       *testing.T
	dir     string
	address string
	rand    *rand.Rand
	blades  []*exec.Cmd
	copies  string           // what the catalog has said of them last
	missing int              // of which so many
	catalog *exec.Cmd        // nil: it is in etcd
	etcd    *etcdtest.Server // nil: txnode serve has it
	writers []*exec.Cmd
	journal []string // of all writers that there ever were
	audits  []history.Txn
	live    []int // journals of those of now
	log     *os.File
	lease   time.Duration
	spin    int

	net      network // nil: all on unix sockets
	tls      string  // directory of TLS files; "-": there are none
	tlsFlags []string
	// healing are faults that last; those of blades among them are in blade, too.
	healing, blade sync.WaitGroup
	unhealed       atomic.Pointer[error]
}

// run starts a process of a node, whose output goes to the log.
func (c *chaos) run(n node, env string, args ...string) *exec.Cmd {
	c.t.Helper()
	p := exec.Command(os.Args[0], args...)
	p.Env = append(os.Environ(), env)
	p.Stdout, p.Stderr = c.log, c.log
	if err := c.on(n, p.Start); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { c.kill(p) })
	return p
}

func (c *chaos) kill(p *exec.Cmd) {
	if p.ProcessState == nil {
		_ = p.Process.Kill() // it may have ended
		_ = p.Wait()
	}
}

// on runs fn on a node.
func (c *chaos) on(n node, fn func() error) (err error) {
	if c.net == nil {
		return fn()
	}
	return errors.Join(c.net.inside(n, func() { err = fn() }), err)
}

// at is the address of a node's server.
func (c *chaos) at(n node) string {
	if c.net == nil {
		return fmt.Sprintf("unix:%s/%d", c.dir, n)
	}
	return "tcp:" + c.net.host(n) + ":7000"
}

// disk is where the disk of a node is, "": it has none.
func (c *chaos) disk(n node) string {
	if c.net == nil || n >= chaosDisks && n != catalogNode {
		return ""
	}
	return filepath.Join(c.dir, fmt.Sprintf("disk%d", n))
}

func (c *chaos) serveBlade(i int) {
	args := append([]string{"serve", "--listen", c.at(node(i)), "--memory", "1GiB"}, c.tlsFlags...)
	if d := c.disk(node(i)); d != "" {
		args = append(args, "--dir", d+"/blade")
	}
	c.blades[i] = c.run(node(i), asProgram+"=1", args...)
}

func (c *chaos) killCatalog() {
	if c.etcd != nil {
		c.etcd.Kill()
		return
	}
	c.kill(c.catalog)
}

// serveCatalog has the catalog served, again after killCatalog. An etcd that Start has started
// is served already.
func (c *chaos) serveCatalog() {
	if c.etcd != nil {
		if err := c.on(catalogNode, func() error { c.etcd.Restart(c.t); return nil }); err != nil {
			c.t.Fatal(err)
		}
		return
	}
	dir := c.dir
	if d := c.disk(catalogNode); d != "" {
		dir = d
	}
	c.catalog = c.run(catalogNode, asProgram+"=1",
		append([]string{"serve", "--listen", c.at(catalogNode), "--catalog", dir + "/data", "--memory", "0"},
			c.tlsFlags...)...)
}

// startEtcd starts an etcd on the node of the catalog.
func (c *chaos) startEtcd() {
	var args []string
	if c.net != nil {
		at := "https://" + c.net.host(catalogNode) + ":7000"
		args = []string{"--listen-client-urls", "unix://client:1," + at, "--advertise-client-urls", at,
			"--client-cert-auth", "--trusted-ca-file", c.tls + "/ca.crt", "--cert-file", c.tls + "/node.crt",
			"--key-file", c.tls + "/node.key"}
	}
	if err := c.on(catalogNode, func() error { c.etcd = etcdtest.Start(c.t, args...); return nil }); err != nil {
		c.t.Fatal(err)
	}
	c.address = "etcd://" + c.etcd.Address
	if c.net != nil {
		c.address = "etcd://" + c.net.host(catalogNode) + ":7000"
	}
}

func (c *chaos) startWriter(i int) {
	n := len(c.journal)
	j := filepath.Join(c.dir, "journal"+strconv.Itoa(n))
	c.live[i] = n
	c.journal = append(c.journal, j)
	c.writers[i] = c.run(firstWriter+node(i), fmt.Sprintf("%s=%s %s %d %s %v %d", asWriter, c.address, j, writerOf(n),
		c.tlsOf(i), c.lease, c.spin))
}

// await fails when something does not come to be, and no copy was finished for long.
func (c *chaos) await(what string, fn func() bool) {
	c.t.Helper()
	missing := c.missing
	for since := time.Now(); !fn(); time.Sleep(20 * time.Millisecond) {
		if c.missing < missing { // there may be hundreds to be built
			since = time.Now()
		}
		missing = c.missing
		if time.Since(since) > chaosPatience {
			p, _ := os.ReadFile(c.log.Name())
			_, _ = c.look()
			c.t.Fatalf("%s; copies: %s; the processes have said:\n%s", what, c.copies, p[max(len(p)-8000, 0):])
		}
	}
}

// goOn waits until each writer has committed something since now.
func (c *chaos) goOn(what string) {
	c.t.Helper()
	for i, j := range c.live {
		had := commits(c.t, c.journal[j])
		c.await(fmt.Sprintf("%s: writer %d makes no progress", what, i), func() bool {
			return commits(c.t, c.journal[j]) > had
		})
	}
}

// audit counts the money, looks for all transactions that writers were told of, and holds the
// history against them.
func (c *chaos) audit(what string) {
	c.t.Helper()
	told := map[string]bool{}
	for i, j := range c.journal {
		for _, a := range attempts(c.t, j, writerOf(i)) {
			if a.end != 0 {
				told[a.key()] = true
			}
		}
	}
	var x chaosTables
	var err error
	c.await(what+": the database cannot be opened", func() bool {
		x, err = openChaos(c.t.Context(), c.address, c.tls, c.lease)
		if err != nil {
			fmt.Fprintf(c.log, "audit: %v\n", err)
		}
		return err == nil
	})
	sum, found := int64(0), 0
	var seen history.Txn
	c.await(what+": an audit does not come to its end", func() bool {
		err := x.db.View(c.t.Context(), func(tx *txn.Tx) error {
			sum, found = 0, 0
			seen = history.Txn{ID: uint64(len(c.audits)), Start: clock(), Outcome: history.Committed}
			for a := range uint64(chaosAccounts) {
				v, err := x.accounts.Get(tx, a)
				if err != nil {
					return err
				}
				sum += v.Money
				seen.Ops = append(seen.Ops, history.Op{
					Key: history.Key(a), Kind: history.Read, Version: history.Version(v.Version),
				})
			}
			for k := range x.done.Keys(tx) {
				if told[k] {
					found++
				}
			}
			return tx.Err()
		})
		if err != nil {
			fmt.Fprintf(c.log, "audit: %v\n", err)
		}
		return err == nil
	})
	if sum != chaosAccounts*chaosMoney || found != len(told) {
		c.t.Errorf("%s: %d of %d transactions are there, and %d of %d in the accounts", what, found, len(told), sum,
			chaosAccounts*chaosMoney)
	}
	seen.End = clock()
	c.audits = append(c.audits, seen)
	if err := check.Check(c.history(), check.Options{FromEmpty: true}).Err(); err != nil {
		c.t.Errorf("%s: %v", what, err)
	}
	if err := x.db.Close(context.Background()); err != nil {
		c.t.Errorf("%s: closing: %v", what, err)
	}
}

// must runs a command that has to succeed, again if it does not at first: what comes before
// it may not be over.
func (c *chaos) must(args ...string) {
	c.t.Helper()
	c.await("txnode "+strings.Join(args, " ")+" fails", func() bool {
		p := exec.Command(os.Args[0], slices.Concat(args, c.tlsFlags)...)
		p.Env = append(os.Environ(), asProgram+"=1")
		out, err := p.CombinedOutput()
		if err != nil {
			fmt.Fprintf(c.log, "%v: %v\n%s", args, err, out)
		}
		return err == nil
	})
}

// whole waits until every segment has all of its copies.
func (c *chaos) whole(what string) {
	c.t.Helper()
	c.await(what+": copies are missing", func() bool {
		r, err := c.look()
		return err == nil && len(r.Down) == 0 && r.Missing == 0 && r.Lost == 0
	})
}

// look asks the catalog how things stand, and notes it for what fails.
func (c *chaos) look() (r layout.Redundancy, err error) {
	var o cluster.Options
	if c.net != nil {
		o.TCP.Credentials = filesOf(c.tls).Client
	}
	st, err := cluster.Ask(c.t.Context(), c.address, o)
	if err == nil && st.Layout == nil {
		err = errors.New("it has no cluster")
	}
	if err != nil {
		c.copies = fmt.Sprintf("the catalog does not say: %v", err)
		return r, err
	}
	r = st.Layout.Redundancy()
	c.missing = r.Missing
	c.copies = fmt.Sprintf("epoch %d, %+v; rights %+v, processes %+v, they say %+v", st.Layout.Epoch, r,
		st.Layout.Rights, st.Layout.Processes, st.Layout.Sights)
	return r, nil
}

// ready waits until a blade can be lost: a database with one backup survives one at a time.
func (c *chaos) ready(what string) {
	c.t.Helper()
	c.blade.Wait()
	c.goOn(what)
	c.whole(what)
}

// say writes to the log, and to that of the test if it is verbose.
func (c *chaos) say(format string, args ...any) {
	fmt.Fprintf(c.log, format+"\n", args...)
	if testing.Verbose() {
		c.t.Logf(format, args...)
	}
}

// serve starts blades and catalog, and makes a cluster of them.
func (c *chaos) serve() {
	t := c.t
	t.Helper()
	if c.net == nil {
		dir, err := os.MkdirTemp("", "chaos") // t.TempDir is too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		c.dir = dir
	}
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	c.log, c.tls = log, "-"
	c.rand, c.live = rand.New(rand.NewPCG(*chaosSeed, 7)), make([]int, len(c.writers))
	if c.net != nil {
		c.makeTLS()
		for n := range nodes {
			if d := c.disk(n); d != "" {
				if err := c.net.disk(d, 64+2**chaosRounds); err != nil { // the data grows with each round
					t.Fatal(err)
				}
			}
		}
	}
	for i := range c.blades {
		c.serveBlade(i)
	}
	if *chaosEtcd {
		c.startEtcd()
	} else {
		c.address = c.at(catalogNode)
		c.serveCatalog()
	}
	c.await("the cluster cannot be created", func() bool {
		args := []string{"cluster", "init", "--catalog", c.address, "--segment-size", "256KiB", "--log-area", "64KiB"}
		for i := range c.blades {
			args = append(args, "--blade", c.at(node(i)))
		}
		p := c.run(firstWriter, asProgram+"=1", append(args, c.tlsFlags...)...)
		return p.Wait() == nil
	})
}

// begin makes the database, and starts the writers.
func (c *chaos) begin() {
	c.serve()
	t := c.t
	t.Helper()
	x, err := openChaos(t.Context(), c.address, c.tls, c.lease)
	if err != nil {
		t.Fatal(err)
	}
	first := history.Txn{Start: clock(), Outcome: history.Committed}
	for a := range uint64(chaosAccounts) {
		first.Ops = append(first.Ops, history.Op{Key: history.Key(a), Kind: history.Write, Version: 1})
	}
	if err := x.db.Update(t.Context(), func(tx *txn.Tx) error {
		for a := range uint64(chaosAccounts) {
			if err := x.accounts.Put(tx, a, account{chaosMoney, 1}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	first.End = clock()
	c.audits = append(c.audits, first)
	if err := x.db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range c.writers {
		c.startWriter(i)
	}
	c.goOn("at the start")
}

// TestChaos: see above.
func TestChaos(t *testing.T) {
	rounds := *chaosRounds
	if rounds == 0 {
		rounds = 2
		if testing.Short() {
			rounds = 1
		}
	}
	only, err := regexp.Compile(*chaosFaults)
	if err != nil {
		t.Fatal(err)
	}
	net, dir := joined()
	if net == nil && *chaosNet {
		why := apart(t, rounds)
		if why == "" {
			return
		}
		t.Logf("faults of the network and of disks: SKIPPED, this host has no network for the test alone: %s", why)
	}
	c := &chaos{
		t: t, net: net, dir: dir, lease: chaosLease, blades: make([]*exec.Cmd, chaosBlades),
		writers: make([]*exec.Cmd, chaosWriters),
	}
	c.begin()
	kinds := c.rand.Perm(len(faults))
	kinds = slices.DeleteFunc(kinds, func(k int) bool {
		return faults[k].net && net == nil || !only.MatchString(faults[k].name)
	})
	if len(kinds) == 0 {
		t.Fatalf("no fault here is called %q", *chaosFaults)
	}
	for round := range rounds {
		n := 1 + c.rand.IntN(2)
		if net != nil {
			n = 1 + c.rand.IntN(3)
		}
		var names []string
		var now []int
		for k := range n {
			f := kinds[(round+k)%len(kinds)]
			if !slices.Contains(now, f) {
				now, names = append(now, f), append(names, faults[f].name)
			}
		}
		what := fmt.Sprintf("round %d: %s", round, strings.Join(names, ", and "))
		c.say("%s", what)
		for _, f := range now {
			faults[f].do(c)
		}
		c.healing.Wait()
		if err := c.unhealed.Load(); err != nil {
			t.Fatal(*err)
		}
		c.goOn(what)
		c.whole(what)
		c.audit(what)
		c.must("check", c.address) // the whole database, beside the writers
		if t.Failed() {
			p, _ := os.ReadFile(c.log.Name())
			t.Fatalf("the processes have said:\n%s", p[max(len(p)-8000, 0):])
		}
	}
	n := 0
	for _, j := range c.journal {
		n += commits(t, j)
	}
	t.Logf("%d rounds, %d writers, %d transactions", rounds, len(c.journal), n)
}
