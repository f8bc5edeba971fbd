package remote_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
)

// cutter is a listener between clients and a daemon: it breaks each connection after some bytes,
// in either direction.
type cutter struct {
	l       net.Listener
	to      string
	mu      sync.Mutex
	rand    *rand.Rand
	least   int64       // bytes of a connection
	calm    atomic.Bool // it breaks none any more
	cuts    atomic.Int64
	running sync.WaitGroup
}

// newCutter cuts connections to a socket, each after at least so many bytes, until the test ends.
func newCutter(t *testing.T, to string, seed uint64, least int64) *cutter {
	t.Helper()
	l, err := net.Listen("unix", to+"-cut")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{l: l, to: to, least: least, rand: rand.New(rand.NewPCG(seed, 3))}
	c.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", c.to)
			if err != nil {
				_ = client.Close() // as a daemon that is away
				continue
			}
			c.running.Go(func() { c.pass(server, client) })
			c.running.Go(func() { c.pass(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // it has accepted enough
		c.running.Wait()
	})
	return c
}

// pass copies so many bytes, and closes both.
func (c *cutter) pass(to, from net.Conn) {
	c.mu.Lock()
	n := c.least + c.rand.Int64N(10*c.least)
	c.mu.Unlock()
	p := make([]byte, 512)
	for c.calm.Load() || n > 0 {
		k, err := from.Read(p)
		if k > 0 && !c.calm.Load() {
			k = int(min(int64(k), n))
		}
		if _, werr := to.Write(p[:k]); err != nil || werr != nil {
			break
		}
		if n -= int64(k); n <= 0 && !c.calm.Load() {
			c.cuts.Add(1)
			break
		}
	}
	_, _ = to.Close(), from.Close() // the other direction ends with it
}

// TestCutConnections: clients count in an entry of the catalog while their connections break in the
// middle of messages and the daemon restarts. Each change that was acknowledged is there once, one
// that was refused never, and one that is open once or never.
func TestCutConnections(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := newDaemon(t, inFile(t))
			cut := newCutter(t, d.socket, seed, 150) // a connection begins with 64 to 128 bytes
			const workers, each = 3, 40
			var made, open, finished atomic.Int64
			var working, watching sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			for range workers {
				var c *remote.Client
				for c == nil {
					c, _ = remote.Dial(t.Context(), "unix:"+cut.l.Addr().String(), tcp.Options{})
				}
				working.Go(func() {
					defer finished.Add(1)
					for done := 0; done < each; {
						entries, rev, err := c.Load()
						if err == nil {
							value := fmt.Append(nil, count(entries)+1)
							_, err = c.Apply(rev, []layout.Entry{{Key: "count", Value: value}})
							switch {
							case err == nil:
								made.Add(1)
								done++
							case errors.Is(err, remote.ErrAway):
								open.Add(1)
								done++
							}
						}
						if err != nil && !errors.Is(err, remote.ErrAway) && !errors.Is(err, memory.ErrRevision) {
							t.Error(err)
							return
						}
					}
				})
				watching.Go(func() { // it sees no revision twice, and the count never falls
					defer c.Close()
					var rev layout.Revision
					last := 0
					for {
						now, err := c.Await(ctx, rev)
						if errors.Is(err, context.Canceled) {
							return
						}
						if err != nil || now <= rev {
							t.Errorf("revision %d after %d, %v", now, rev, err)
							return
						}
						rev = now
						if entries, _, err := c.Load(); err == nil {
							n := count(entries)
							if n < last {
								t.Errorf("%d after %d", n, last)
							}
							last = n
						}
					}
				})
			}
			for round := range int64(3) {
				for made.Load()+open.Load() < (round+1)*workers*each/4 && finished.Load() < workers {
					time.Sleep(time.Millisecond)
				}
				d.stop()
				d.start()
			}
			working.Wait()
			cut.calm.Store(true)
			entries, _, err := d.dial().Load()
			if n := int64(count(entries)); err != nil || n < made.Load() || n > made.Load()+open.Load() {
				t.Errorf("%d changes were made and %d are open, and the count is %d, %v",
					made.Load(), open.Load(), n, err)
			}
			if open.Load() == 0 || cut.cuts.Load() == 0 {
				t.Errorf("%d connections were cut, and %d changes are open: nothing was tested",
					cut.cuts.Load(), open.Load())
			}
			stop()
			watching.Wait()
		})
	}
}

// count is the number in the entry.
func count(entries []layout.Entry) int {
	if len(entries) == 0 {
		return 0
	}
	n, err := strconv.Atoi(string(entries[0].Value))
	if err != nil {
		panic(err)
	}
	return n
}
