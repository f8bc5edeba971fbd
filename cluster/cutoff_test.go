package cluster_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// relay forwards connections to a server. While it is cut, what the server replies goes nowhere.
type relay struct {
	mu  sync.Mutex // held while it is cut
	all sync.WaitGroup
}

// relay relays a socket to that of a server until the test ends.
func (b *bed) relay(name, server string) *relay {
	b.t.Helper()
	l, err := net.Listen("unix", filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	r := &relay{}
	var conns []net.Conn // of the goroutine that accepts them, until it has ended
	accepting := make(chan struct{})
	b.t.Cleanup(func() {
		_ = l.Close()
		<-accepting
		for _, c := range conns {
			_ = c.Close()
		}
		r.all.Wait()
	})
	r.all.Go(func() {
		defer close(accepting)
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", filepath.Join(b.dir, server))
			if err != nil {
				_ = client.Close()
				continue
			}
			conns = append(conns, client, to)
			r.all.Go(func() {
				_, _ = io.Copy(to, client) // until one is closed
				_, _ = client.Close(), to.Close()
			})
			r.all.Go(func() {
				p := make([]byte, 1<<16)
				for {
					n, err := to.Read(p)
					r.mu.Lock()
					r.mu.Unlock() //nolint:staticcheck // it was waited for
					if err == nil {
						_, err = client.Write(p[:n])
					}
					if err != nil {
						_, _ = client.Close(), to.Close()
						return
					}
				}
			})
		}
	})
	return r
}

// TestCutOff: nothing comes to a process from some blades, or all. It declares none of these
// dead, since another process hears them, and is told so (ErrCutOff), or goes on without them.
// The other process goes on, also with what the first one has locked, and the first one goes on
// when it is reached again.
func TestCutOff(t *testing.T) {
	for _, c := range []struct {
		name  string
		blade int // the first one of those that it is cut off
		n, f  int // how many these are; backups
		short bool
	}{
		{"all blades", 0, 3, 1, true},
		{"two of three, one backup", 0, 2, 1, false},
		{"one of three, two backups", 0, 1, 2, false},
		{"one of three, one backup", 1, 1, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !c.short && testing.Short() {
				t.Skip("takes time")
			}
			cutOff(t, c.blade, c.n, c.f)
		})
	}
}

// cutOff cuts a process off some of three blades of a database with f backups, until it is told so.
func cutOff(t *testing.T, blade, n, f int) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b.catalogFile("c")()
	var addresses []string
	var relays []*relay
	names := []string{"b0", "b1", "b2"}
	for _, name := range names {
		b.blades([]uint64{size}, name)
		relays = append(relays, b.relay("r"+name, name))
		addresses = append(addresses, b.address("r"+name))
	}
	g := cluster.Geometry{Backups: &f, SegmentSize: 256 << 10, LogArea: 64 << 10}
	if err := cluster.Init(ctx, b.client("c"), b.list(names...), g, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	o := txn.Options{LeaseTerm: time.Second, Workers: 1, IndexGroups: 16}
	near, err := cluster.Open(ctx, b.address("c"), o, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := txn.CreateTable(near, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	const patience = 100 * time.Millisecond
	if o.Fabric, err = tcp.Dial(ctx, addresses, tcp.Options{
		Connect: patience, Control: patience, Verb: patience,
	}); err != nil {
		t.Fatal(err)
	}
	o.Catalog, o.Shared, o.LeaseTerm = b.client("c"), true, 5*time.Second
	far, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	farNumbers, err := txn.OpenTable(far, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	// add adds one to a number, again after errors: those of blades that do not answer, and locks
	// of a process that is cut off.
	add := func(db *txn.DB, table *txn.Table[uint64, uint64], key uint64) {
		t.Helper()
		for {
			err := db.Update(ctx, func(tx *txn.Tx) error {
				v, err := table.Get(tx, key)
				if err != nil && !errors.Is(err, txn.ErrNotFound) {
					return err
				}
				return table.Put(tx, key, v+1)
			})
			if err == nil {
				return
			}
			if ctx.Err() != nil || errors.Is(err, txn.ErrLost) {
				t.Fatalf("key %d: %v", key, err)
			}
		}
	}
	for range 20 {
		add(near, numbers, 1)
		add(far, farNumbers, 1)
	}
	cut := relays[blade : blade+n]
	for _, r := range cut {
		r.mu.Lock()
	}
	heal := sync.OnceFunc(func() {
		for _, r := range cut {
			r.mu.Unlock()
		}
	})
	t.Cleanup(heal) // before the relays end
	// For longer than the term of the process that hears the blades: the other one, whose own is
	// longer, must not take it for gone meanwhile.
	for over, since := false, time.Now(); !over || time.Since(since) < 2500*time.Millisecond; {
		tried := make(chan error, 1)
		go func() {
			tried <- far.Update(ctx, func(tx *txn.Tx) error { return farNumbers.Put(tx, 2, 2) })
		}()
		select {
		case err := <-tried:
			// it needs blades that are cut off, or not
			over = over || errors.Is(err, txn.ErrCutOff) || far.Space().IsCutOff()
		case <-ctx.Done():
			heal()
			t.Fatalf("the process that is cut off goes on and on: %+v", near.Redundancy())
		}
	}
	add(near, numbers, 2)
	add(near, numbers, 3)
	if r := near.Redundancy(); r.Lost > 0 || len(r.Down) > 0 {
		t.Errorf("%d segments are lost, and blades %v are down", r.Lost, r.Down)
	}
	if outages := near.Redundancy().Outages; len(outages) > 0 {
		t.Errorf("blades were declared dead: %+v", outages)
	}
	heal()
	add(far, farNumbers, 1)
	add(near, numbers, 1)
	if err := errors.Join(far.Close(ctx), o.Catalog.Close(), o.Fabric.Close(), near.Close(ctx)); err != nil {
		t.Error(err)
	}
}

// tunnel relays connections to a server until it ends: they break, and nothing listens there
// until it begins again.
type tunnel struct {
	b        *bed
	path, to string
	mu       sync.Mutex
	l        net.Listener
	conns    []net.Conn
	all      sync.WaitGroup
}

// tunnel begins at once.
func (b *bed) tunnel(name, server string) *tunnel {
	b.t.Helper()
	x := &tunnel{b: b, path: filepath.Join(b.dir, name), to: filepath.Join(b.dir, server)}
	x.begin()
	b.t.Cleanup(x.end)
	return x
}

func (x *tunnel) begin() {
	x.b.t.Helper()
	l, err := net.Listen("unix", x.path)
	if err != nil {
		x.b.t.Fatal(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.l = l
	x.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", x.to)
			if err != nil {
				_ = client.Close() // as a tunnel whose other end is away
				continue
			}
			x.mu.Lock()
			if x.l != l {
				_, _ = client.Close(), to.Close() // it has ended meanwhile
			}
			x.conns = append(x.conns, client, to)
			x.mu.Unlock()
			for _, pair := range [][2]net.Conn{{client, to}, {to, client}} {
				x.all.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // until one is closed
					_, _ = client.Close(), to.Close()
				})
			}
		}
	})
}

// end breaks all connections. To end again does nothing.
func (x *tunnel) end() {
	x.mu.Lock()
	if x.l != nil {
		_ = x.l.Close() // it has accepted enough
	}
	for _, c := range x.conns {
		_ = c.Close() // they are to break
	}
	x.l, x.conns = nil, nil
	x.mu.Unlock()
	x.all.Wait()
}
