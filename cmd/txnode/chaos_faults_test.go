package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// upTo draws a duration.
func (c *chaos) upTo(d time.Duration) time.Duration { return time.Duration(c.rand.Int64N(int64(d))) }

// long draws how long a fault lasts: less than all deadlines of clients together, or long enough
// for a blade to be declared dead.
func (c *chaos) long() time.Duration {
	if c.rand.IntN(2) == 0 {
		return chaosLease/4 + c.upTo(2*chaosLease)
	}
	return 2*chaosLease + c.upTo(7*chaosLease)
}

// last has a fault last for a while, beside what is done meanwhile. of is the node concerned.
func (c *chaos) last(d time.Duration, of node, what string, begin func() (heal func() error, err error)) {
	c.t.Helper()
	c.say("  %s for %v", what, d.Round(time.Millisecond))
	heal, err := begin()
	if err != nil {
		c.t.Fatal(err)
	}
	over := func() {}
	if of < catalogNode {
		c.blade.Add(1)
		over = c.blade.Done
	}
	c.healing.Go(func() {
		defer over()
		time.Sleep(d)
		if err := heal(); err != nil {
			c.unhealed.Store(&err)
		}
	})
}

// cut cuts a node off others, in both directions or in one, for a while. of is the node concerned.
func (c *chaos) cut(of, n node, others ...node) {
	c.t.Helper()
	way := c.rand.IntN(3)
	var pairs [][2]node
	for _, o := range others {
		if way != 1 {
			pairs = append(pairs, [2]node{n, o})
		}
		if way != 2 {
			pairs = append(pairs, [2]node{o, n})
		}
	}
	what := fmt.Sprintf("nothing comes from %v to %v%s", n, others, map[bool]string{true: ", nor back"}[way == 0])
	if way == 1 {
		what = fmt.Sprintf("nothing comes to %v from %v", n, others)
	}
	c.last(c.long(), of, what, func() (func() error, error) { return c.net.cut(pairs) })
}

func (c *chaos) anyBlade() node  { return node(c.rand.IntN(chaosBlades)) }
func (c *chaos) anyWriter() node { return firstWriter + node(c.rand.IntN(chaosWriters)) }

// between are nodes from one to before another.
func between(from, to node) (all []node) {
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all
}

// lacks takes something from a writer that it needs to connect, has it connect anew, and
// demands that it suffers alone: all others go on, and no blade counts as dead. It returns
// which writer that was.
func (c *chaos) lacks(what string, begin func(i int) (heal func() error, err error)) int {
	c.t.Helper()
	c.ready("before a writer lacks " + what)
	i := c.rand.IntN(len(c.writers))
	c.say("  writer %d lacks %s", i, what)
	heal, err := begin(i)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		c.say("  SKIPPED: it cannot be taken here: %v", err)
		return i
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.killCatalog() // all are to connect to it again
	c.serveCatalog()
	if n := firstWriter + node(i); c.net != nil { // and this one to blades, too
		var pairs [][2]node
		for _, b := range between(0, catalogNode) {
			pairs = append(pairs, [2]node{n, b}, [2]node{b, n})
		}
		mend, err := c.net.cut(pairs)
		if err == nil {
			time.Sleep(3 * chaosLease)
			err = mend()
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	for range 2 {
		for k, j := range c.live {
			if had := commits(c.t, c.journal[j]); k != i {
				c.await(fmt.Sprintf("while writer %d lacks %s writer %d makes no progress", i, what, k), func() bool {
					return commits(c.t, c.journal[j]) > had
				})
			}
		}
		c.down("while a writer lacks " + what)
	}
	if err := heal(); err != nil {
		c.t.Fatal(err)
	}
	return i
}

// down demands that no blade counts as dead.
func (c *chaos) down(what string) {
	c.t.Helper()
	c.await(what+": the catalog does not answer", func() bool {
		r, err := c.look()
		if err != nil {
			return false
		}
		if len(r.Down) > 0 {
			c.t.Errorf("%s: blades %v were declared dead", what, r.Down)
		}
		return true
	})
}

// faults are what happens in a round. Each returns when the processes run again, though they may
// not have found that out; what happens to the network and to disks may go on beside the next one.
var faults = []struct {
	name string
	net  bool // it takes a network
	do   func(c *chaos)
}{
	{"kill a writer", false, func(c *chaos) {
		i := c.rand.IntN(len(c.writers))
		c.kill(c.writers[i])
		c.startWriter(i)
	}},
	{"stop a writer past its lease", false, func(c *chaos) {
		p := c.writers[c.rand.IntN(len(c.writers))].Process
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			c.t.Fatal(err)
		}
		time.Sleep(chaosLease + c.upTo(chaosLease))
		if err := p.Signal(syscall.SIGCONT); err != nil {
			c.t.Fatal(err)
		}
	}},
	{"kill a blade", false, func(c *chaos) {
		c.ready("before a blade is killed")
		i := c.rand.IntN(len(c.blades))
		c.kill(c.blades[i])
		time.Sleep(c.upTo(time.Second))
		c.serveBlade(i)
	}},
	{"kill the catalog", false, func(c *chaos) {
		c.killCatalog()
		time.Sleep(c.upTo(chaosLease))
		c.serveCatalog()
	}},
	{"lose a blade while there are no writers", false, func(c *chaos) {
		c.ready("before a blade is lost")
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
	{"drain a blade, stop it, and add it blank", false, func(c *chaos) {
		c.ready("before a blade is drained")
		i := c.rand.IntN(len(c.blades))
		c.must("cluster", "drain-blade", c.address, strconv.Itoa(i))
		c.kill(c.blades[i])
		if d := c.disk(node(i)); d != "" {
			if err := os.RemoveAll(d + "/blade"); err != nil {
				c.t.Fatal(err)
			}
		}
		c.serveBlade(i)
		c.must("cluster", "add-blade", c.address, c.at(node(i))) // into its own place: no other is vacant
		c.must("cluster", "rebalance", c.address)
	}},
	{"take descriptors from a writer", false, func(c *chaos) {
		c.lacks("descriptors", func(i int) (func() error, error) { return c.limit(i, unix.RLIMIT_NOFILE, 1) })
	}},
	{"take memory from a writer", false, func(c *chaos) {
		i := c.lacks("memory", func(i int) (func() error, error) { return c.limit(i, unix.RLIMIT_AS, 64<<20) })
		c.kill(c.writers[i]) // it may have ended already
		c.startWriter(i)
	}},
	{"take ports from a writer", true, func(c *chaos) {
		c.lacks("ports", func(i int) (func() error, error) { return c.net.ports(firstWriter + node(i)) })
	}},
	{"take its certificate from a writer", true, func(c *chaos) {
		c.lacks("a certificate that others know", func(i int) (func() error, error) {
			c.giveTLS(i, "node.crt", "stranger.crt")
			return func() error { c.giveTLS(i, "node.crt", "node.crt"); return nil }, nil
		})
	}},
	{"kill all writers", false, func(c *chaos) {
		for _, p := range c.writers {
			c.kill(p)
		}
		for i := range c.writers {
			c.startWriter(i)
		}
	}},
	{"cut a writer off the catalog", true, func(c *chaos) {
		w := c.anyWriter()
		c.cut(w, w, catalogNode)
	}},
	{"cut a writer off all", true, func(c *chaos) {
		w := c.anyWriter()
		c.cut(w, w, between(0, firstWriter)...)
	}},
	{"cut the catalog off all writers", true, func(c *chaos) {
		c.cut(catalogNode, catalogNode, between(firstWriter, nodes)...)
	}},
	{"cut a writer off a blade", true, func(c *chaos) {
		c.ready("before a writer is cut off a blade")
		b := c.anyBlade()
		c.cut(b, c.anyWriter(), b)
	}},
	{"cut a writer off all blades", true, func(c *chaos) {
		c.ready("before a writer is cut off all blades")
		c.cut(0, c.anyWriter(), between(0, catalogNode)...)
	}},
	{"cut a writer off two blades", true, func(c *chaos) {
		c.ready("before a writer is cut off two blades")
		b := c.rand.Perm(chaosBlades)
		c.cut(0, c.anyWriter(), node(b[0]), node(b[1]))
	}},
	{"cut a blade off all writers", true, func(c *chaos) {
		c.ready("before a blade is cut off")
		b := c.anyBlade()
		c.cut(b, b, between(firstWriter, nodes)...)
	}},
	{"a slow link", true, func(c *chaos) {
		n := node(c.rand.IntN(int(nodes)))
		if n < catalogNode {
			c.ready("before a blade is slow")
		}
		kbit := 100 << c.rand.IntN(6)
		c.last(c.long(), n, fmt.Sprintf("%d kbit/s from and to %v", kbit, n), func() (func() error, error) {
			return c.net.slow(n, kbit)
		})
	}},
	{"a full disk of a blade", true, func(c *chaos) {
		c.ready("before the disk of a blade is full")
		n := node(c.rand.IntN(chaosDisks))
		c.last(c.long(), n, fmt.Sprintf("the disk of %v is full", n), func() (func() error, error) {
			return c.net.fill(c.disk(n))
		})
		if c.rand.IntN(2) == 0 { // another one has to be replaced: copies are built where there is room
			c.say("  blade %d is killed", chaosDisks)
			c.kill(c.blades[chaosDisks])
			c.serveBlade(chaosDisks)
		}
	}},
	{"a full disk of the catalog", true, func(c *chaos) {
		if c.etcd == nil { // an etcd ends itself then
			c.last(c.long(), catalogNode, "the disk of the catalog is full", func() (func() error, error) {
				return c.net.fill(c.disk(catalogNode))
			})
		}
	}},
}
