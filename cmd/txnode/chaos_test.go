package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/catalog/etcd/etcdtest"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// Chaos: four blades, a catalog and three writers are processes of their own. Each round something happens to some of them: a writer is
// killed, or stopped past its lease and continued; a blade is killed and begins anew, or is drained and added again; the catalog, which
// may be in an etcd, is killed and begins again. Then the money is the same, every transaction that a writer was told to have committed is
// there, txnode check finds nothing, and all writers go on.

var (
	chaosRounds = flag.Int("chaos.rounds", 0, "how many rounds of faults there are; 0: a few")
	chaosEtcd   = flag.Bool("chaos.etcd", false, "the catalog is in an etcd, and not in a process of txnode serve")
	chaosBeat   = flag.Duration("chaos.heartbeat", 0, "heartbeat of the writers; 0: none")
	chaosSeed   = flag.Uint64("chaos.seed", 1, "seed of the faults (not of when the system schedules what)")
)

const (
	asWriter      = "TXNODE_TEST_AS_WRITER" // address, journal, seed, heartbeat, lease and spinning goroutines, with spaces between them
	chaosAccounts = 40
	chaosMoney    = 1000 // of each account
	chaosLease    = time.Second
	// chaosPatience bounds how long writers may make no progress: a lease, a failover and a machine that is busy.
	chaosPatience = 2 * time.Minute
)

// chaosTables are what writers use.
type chaosTables struct {
	db       *txn.DB
	accounts *txn.Table[uint64, int64]
	done     *txn.OrderedTable[string, uint64] // transactions, by writer and number
}

func openChaos(ctx context.Context, address string, beat, lease time.Duration) (x chaosTables, err error) {
	x.db, err = cluster.Open(ctx, address, txn.Options{LeaseTerm: lease, Heartbeat: beat, Workers: 4, IndexGroups: 16}, cluster.Options{TCP: tcp.Options{Verb: 5 * time.Second}})
	if err != nil {
		return x, err
	}
	if x.accounts, err = txn.CreateTable(x.db, "accounts", txn.Uint64, txn.Plain[int64]()); err == nil {
		x.done, err = txn.CreateOrderedTable(x.db, "done", txn.String, txn.Plain[uint64]())
	}
	if err != nil {
		err = errors.Join(err, x.db.Close(ctx))
	}
	return x, err
}

// runWriter moves money between accounts, and notes in its journal what it was told is committed, until it is killed.
func runWriter(args string) error {
	f := strings.Fields(args)
	seed, err := strconv.ParseUint(f[2], 10, 64)
	beat, err2 := time.ParseDuration(f[3])
	lease, err3 := time.ParseDuration(f[4])
	spin, err4 := strconv.Atoi(f[5])
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return err
	}
	for range spin {
		go func() {
			for n := 0; ; n++ { // it keeps a processor busy
			}
		}()
	}
	journal, err := os.OpenFile(f[1], os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	ctx := context.Background()
	var x chaosTables
	for { // a blade may be down, or the catalog away
		if x, err = openChaos(ctx, f[0], beat, lease); err == nil {
			break
		}
		fmt.Fprintf(os.Stderr, "opening: %v\n", err)
		time.Sleep(100 * time.Millisecond)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for n := 0; ; n++ {
		from, to, amount := r.Uint64N(chaosAccounts), r.Uint64N(chaosAccounts), r.Int64N(10)
		key := fmt.Sprintf("%020d/%d", seed, n)
		err := x.db.Update(ctx, func(tx *txn.Tx) error {
			a, err := x.accounts.Get(tx, from)
			if err != nil {
				return err
			}
			if err := x.accounts.Put(tx, from, a-amount); err != nil {
				return err
			}
			b, err := x.accounts.Get(tx, to)
			if err != nil {
				return err
			}
			return errors.Join(x.accounts.Put(tx, to, b+amount), x.done.Insert(tx, key, uint64(amount)))
		})
		if err == nil {
			_, err = journal.WriteString(key + "\n")
		}
		if err != nil { // an outcome that is unknown, or no worker yet: it was promised nothing
			fmt.Fprintf(os.Stderr, "transaction %s: %v\n", key, err)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Millisecond) // hundreds of rounds are not to fill the blades
	}
}

// chaos is what runs.
type chaos struct {
	t       *testing.T
	dir     string
	address string
	rand    *rand.Rand
	blades  []*exec.Cmd
	catalog *exec.Cmd        // nil: it is in etcd
	etcd    *etcdtest.Server // nil: txnode serve has it
	writers []*exec.Cmd
	journal []string // of all writers that there ever were
	live    []int    // journals of those of now
	log     *os.File
	beat    time.Duration // of the writers
	lease   time.Duration
	spin    int
}

// run starts a process whose output goes to the log.
func (c *chaos) run(env string, args ...string) *exec.Cmd {
	c.t.Helper()
	p := exec.Command(os.Args[0], args...)
	p.Env = append(os.Environ(), env)
	p.Stdout, p.Stderr = c.log, c.log
	if err := p.Start(); err != nil {
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

func (c *chaos) serveBlade(i int) {
	c.blades[i] = c.run(asProgram+"=1", "serve", "--listen", "unix:"+c.dir+"/b"+strconv.Itoa(i), "--memory", "1GiB")
}

func (c *chaos) killCatalog() {
	if c.etcd != nil {
		c.etcd.Kill()
		return
	}
	c.kill(c.catalog)
}

// serveCatalog has the catalog served, again after killCatalog. An etcd that Start has started is served already.
func (c *chaos) serveCatalog() {
	if c.etcd != nil {
		c.etcd.Restart(c.t)
		return
	}
	c.catalog = c.run(asProgram+"=1", "serve", "--listen", c.address, "--catalog", c.dir+"/data", "--memory", "0")
}

func (c *chaos) startWriter(i int) {
	j := filepath.Join(c.dir, "journal"+strconv.Itoa(len(c.journal)))
	c.live[i] = len(c.journal)
	c.journal = append(c.journal, j)
	c.writers[i] = c.run(fmt.Sprintf("%s=%s %s %d %v %v %d", asWriter, c.address, j, len(c.journal), c.beat, c.lease, c.spin))
}

// keys are those of a journal: lines that are whole.
func keys(t *testing.T, journal string) (all []string) {
	t.Helper()
	p, err := os.ReadFile(journal)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(p[:bytes.LastIndexByte(p, '\n')+1])); s.Scan(); {
		all = append(all, s.Text())
	}
	return all
}

// await fails when something does not come to be.
func (c *chaos) await(what string, fn func() bool) {
	c.t.Helper()
	for since := time.Now(); !fn(); time.Sleep(20 * time.Millisecond) {
		if time.Since(since) > chaosPatience {
			p, _ := os.ReadFile(c.log.Name())
			c.t.Fatalf("%s; the processes have said:\n%s", what, p[max(len(p)-8000, 0):])
		}
	}
}

// goOn waits until each writer has committed something since now.
func (c *chaos) goOn(what string) {
	c.t.Helper()
	for i, j := range c.live {
		had := len(keys(c.t, c.journal[j]))
		c.await(fmt.Sprintf("%s: writer %d makes no progress", what, i), func() bool { return len(keys(c.t, c.journal[j])) > had })
	}
}

// audit counts the money, and looks for all transactions that writers were told of.
func (c *chaos) audit(what string) {
	c.t.Helper()
	told := map[string]bool{}
	for _, j := range c.journal {
		for _, k := range keys(c.t, j) {
			told[k] = true
		}
	}
	var x chaosTables
	var err error
	c.await(what+": the database cannot be opened", func() bool {
		x, err = openChaos(c.t.Context(), c.address, c.beat, c.lease)
		if err != nil {
			fmt.Fprintf(c.log, "audit: %v\n", err)
		}
		return err == nil
	})
	sum, found := int64(0), 0
	c.await(what+": an audit does not come to its end", func() bool {
		err := x.db.View(c.t.Context(), func(tx *txn.Tx) error {
			sum, found = 0, 0
			for a := range uint64(chaosAccounts) {
				v, err := x.accounts.Get(tx, a)
				if err != nil {
					return err
				}
				sum += v
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
		c.t.Errorf("%s: %d of %d transactions are there, and %d of %d in the accounts", what, found, len(told), sum, chaosAccounts*chaosMoney)
	}
	if err := x.db.Close(context.Background()); err != nil {
		c.t.Errorf("%s: closing: %v", what, err)
	}
}

// must runs a command that has to succeed, again if it does not at first: what comes before it may not be over.
func (c *chaos) must(args ...string) {
	c.t.Helper()
	c.await("txnode "+strings.Join(args, " ")+" fails", func() bool {
		p := exec.Command(os.Args[0], args...)
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
		st, err := cluster.Ask(c.t.Context(), c.address, cluster.Options{})
		if err != nil || st.Layout == nil {
			return false
		}
		r := st.Layout.Redundancy()
		return len(r.Down) == 0 && r.Missing == 0 && r.Lost == 0
	})
}

// faults are what happens in a round. Each returns when the processes run again, though they may not have found that out.
var faults = []struct {
	name string
	do   func(c *chaos)
}{
	{"kill a writer", func(c *chaos) {
		i := c.rand.IntN(len(c.writers))
		c.kill(c.writers[i])
		c.startWriter(i)
	}},
	{"stop a writer past its lease", func(c *chaos) {
		p := c.writers[c.rand.IntN(len(c.writers))].Process
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			c.t.Fatal(err)
		}
		time.Sleep(chaosLease + time.Duration(c.rand.Int64N(int64(chaosLease))))
		if err := p.Signal(syscall.SIGCONT); err != nil {
			c.t.Fatal(err)
		}
	}},
	{"kill a blade", func(c *chaos) {
		c.whole("before a blade is killed") // a database with one backup survives one blade at a time
		i := c.rand.IntN(len(c.blades))
		c.kill(c.blades[i])
		time.Sleep(time.Duration(c.rand.Int64N(int64(time.Second))))
		c.serveBlade(i)
	}},
	{"kill the catalog", func(c *chaos) {
		c.killCatalog()
		time.Sleep(time.Duration(c.rand.Int64N(int64(chaosLease))))
		c.serveCatalog()
	}},
	{"lose a blade while there are no writers", func(c *chaos) {
		c.whole("before a blade is lost")
		i := c.rand.IntN(len(c.blades))
		for _, p := range c.writers {
			c.kill(p)
		}
		c.kill(c.blades[i])
		for i := range c.writers {
			c.startWriter(i)
		}
		c.goOn("without a blade")
		c.serveBlade(i)
	}},
	{"drain a blade, stop it, and add it blank", func(c *chaos) {
		c.whole("before a blade is drained")
		i := c.rand.IntN(len(c.blades))
		c.must("cluster", "drain-blade", c.address, strconv.Itoa(i))
		c.kill(c.blades[i])
		c.serveBlade(i)
		c.must("cluster", "add-blade", c.address, "unix:"+c.dir+"/b"+strconv.Itoa(i)) // into its own place: no other is vacant
		c.must("cluster", "rebalance", c.address)
	}},
	{"kill all writers", func(c *chaos) {
		for _, p := range c.writers {
			c.kill(p)
		}
		for i := range c.writers {
			c.startWriter(i)
		}
	}},
}

// begin starts blades and catalog, makes the database, and starts the writers.
func (c *chaos) begin() {
	t := c.t
	t.Helper()
	dir, err := os.MkdirTemp("", "chaos") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	c.dir, c.address, c.log = dir, "unix:"+dir+"/c", log
	c.rand, c.live = rand.New(rand.NewPCG(*chaosSeed, 7)), make([]int, len(c.writers))
	for i := range c.blades {
		c.serveBlade(i)
	}
	if *chaosEtcd {
		c.etcd = etcdtest.Start(t)
		c.address = "etcd://" + c.etcd.Address
	} else {
		c.serveCatalog()
	}
	c.await("the cluster cannot be created", func() bool {
		args := []string{"cluster", "init", "--catalog", c.address, "--segment-size", "256KiB", "--log-area", "64KiB"}
		for i := range c.blades {
			args = append(args, "--blade", "unix:"+dir+"/b"+strconv.Itoa(i))
		}
		p := c.run(asProgram+"=1", args...)
		return p.Wait() == nil
	})
	x, err := openChaos(t.Context(), c.address, c.beat, c.lease)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.db.Update(t.Context(), func(tx *txn.Tx) error {
		for a := range uint64(chaosAccounts) {
			if err := x.accounts.Put(tx, a, chaosMoney); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
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
		rounds = 5
		if testing.Short() {
			rounds = 2
		}
	}
	c := &chaos{t: t, beat: *chaosBeat, lease: chaosLease, blades: make([]*exec.Cmd, 4), writers: make([]*exec.Cmd, 3)}
	c.begin()
	kinds := c.rand.Perm(len(faults))
	for round := range rounds {
		n := 1 + c.rand.IntN(2)
		var names []string
		var now []int
		for k := range n {
			f := kinds[(round+k)%len(kinds)]
			if !slices.Contains(now, f) {
				now, names = append(now, f), append(names, faults[f].name)
			}
		}
		what := fmt.Sprintf("round %d: %s", round, strings.Join(names, ", and "))
		fmt.Fprintln(c.log, what)
		for _, f := range now {
			faults[f].do(c)
		}
		c.goOn(what)
		c.whole(what)
		c.audit(what)
		c.must("check", c.address) // the whole database, beside the writers
		if t.Failed() {
			p, _ := os.ReadFile(c.log.Name())
			t.Fatalf("the processes have said:\n%s", p[max(len(p)-8000, 0):])
		}
		if testing.Verbose() {
			t.Log(what)
		}
	}
	n := 0
	for _, j := range c.journal {
		n += len(keys(t, j))
	}
	t.Logf("%d rounds, %d writers, %d transactions", rounds, len(c.journal), n)
}
