package cluster_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory"
	"txnode/txn"
)

// silentCatalog is a catalog that answers some calls, and is silent at the next one until it is released.
type silentCatalog struct {
	memory.Catalog
	left            *atomic.Int64
	asked, released chan struct{}
	closed          chan struct{}
	once            *sync.Once
}

func (c *silentCatalog) wait() {
	if c.left.Add(-1) == 0 {
		close(c.asked)
		<-c.released
	}
}

func (c *silentCatalog) Load() ([]memory.Entry, memory.Revision, error) {
	c.wait()
	return c.Catalog.Load()
}

func (c *silentCatalog) Apply(rev memory.Revision, changes []memory.Entry) (memory.Revision, error) {
	c.wait()
	return c.Catalog.Apply(rev, changes)
}

func (c *silentCatalog) Revision() (memory.Revision, error) {
	c.wait()
	return c.Catalog.Revision()
}

func (c *silentCatalog) KeepAlive(b memory.Beat) ([]memory.Beat, error) {
	c.wait()
	return c.Catalog.KeepAlive(b)
}

func (c *silentCatalog) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.Catalog.Close()
}

// silentNow is what the next catalog of scheme "silent" is.
var (
	silentNow   atomic.Pointer[silentCatalog]
	silentFirst sync.Once
)

// TestSilentCatalogIsLeft: the catalog is silent at any call of an opening, a connecting and a question. When its context ends the caller has an
// answer, and what was begun is ended when the catalog answers.
func TestSilentCatalogIsLeft(t *testing.T) {
	silentFirst.Do(func() {
		cluster.RegisterCatalog("silent", func(context.Context, string, cluster.Options) (memory.Catalog, error) {
			return silentNow.Load(), nil
		})
	})
	b := newBed(t)
	b.catalogFile("c")()
	b.blades([]uint64{size}, "b")
	none := 0
	g := cluster.Geometry{Backups: &none, SegmentSize: 256 << 10, LogArea: 64 << 10}
	if err := cluster.Init(t.Context(), b.client("c"), b.list("b"), g, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	const address = "silent://c"
	for name, call := range map[string]func(ctx context.Context) (end func() error, err error){
		"Connect": func(ctx context.Context) (func() error, error) {
			h, err := cluster.Connect(ctx, address, cluster.Options{})
			if err != nil {
				return nil, err
			}
			return h.Close, nil
		},
		"Ask": func(ctx context.Context) (func() error, error) {
			_, err := cluster.Ask(ctx, address, cluster.Options{})
			return func() error { return nil }, err
		},
		"AskLeases": func(ctx context.Context) (func() error, error) {
			_, err := cluster.AskLeases(ctx, address, cluster.Options{})
			return func() error { return nil }, err
		},
		"Open": func(ctx context.Context) (func() error, error) {
			db, err := cluster.Open(ctx, address, txn.Options{Workers: 1}, cluster.Options{Post: -1})
			if err != nil {
				return nil, err
			}
			return func() error { return db.Close(context.Background()) }, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			for over := false; !over; calls++ {
				c := &silentCatalog{Catalog: b.client("c"), left: new(atomic.Int64), asked: make(chan struct{}), released: make(chan struct{}), closed: make(chan struct{}), once: new(sync.Once)}
				c.left.Store(int64(calls + 1))
				silentNow.Store(c)
				ctx, cancel := context.WithCancel(t.Context())
				type result struct {
					end func() error
					err error
				}
				done := make(chan result, 1)
				go func() {
					end, err := call(ctx)
					done <- result{end, err}
				}()
				var r result
				select {
				case r = <-done:
					over = true
				case <-c.asked:
					cancel()
					select {
					case r = <-done:
					case <-time.After(5 * time.Minute):
						t.Fatalf("the catalog is silent at call %d, and the end of the context is not heard", calls+1)
					}
				}
				close(c.released)
				if r.err != nil && (over || !errors.Is(r.err, context.Canceled)) {
					t.Fatalf("call %d: %v", calls+1, r.err)
				}
				if r.err == nil {
					if err := r.end(); err != nil {
						t.Fatal(err)
					}
				}
				<-c.closed
				cancel()
			}
			if calls < 2 {
				t.Errorf("the catalog was asked %d times", calls-1)
			}
		})
	}
}
