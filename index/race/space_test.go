package race_test

import (
	"fmt"
	"log"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// blocks takes record blocks from an allocator.
type blocks struct {
	*memory.Space
	alloc *memory.Allocator
}

func (b blocks) AllocBlock(c *rdma.Coro, class layout.Class) (layout.Addr, error) {
	return b.alloc.Alloc(c, class)
}

func (b blocks) FreeBlock(a layout.Addr, class layout.Class) { b.alloc.Free(a, class) }

// TestReopen grows an index in a database directory, and finds it again after the
// database was closed and opened.
func TestReopen(t *testing.T) {
	o := embedded.Options{
		Dir: t.TempDir(), Blades: 3, BladeSize: 64 << 20, Replicas: 3, SegmentSize: 256 << 10, LogArea: 64 << 10,
	}
	const keys = 3000
	name := func(i int) []byte { return fmt.Appendf(nil, "key %d", i) }
	var root layout.Addr
	session := func(body func(c *rdma.Coro, s *memory.Space, client func(ix index.Slots) *indextest.Client)) {
		t.Helper()
		db, err := embedded.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		th, err := rdma.NewThread(db.Fabric(), rdma.ThreadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		co, err := db.Space().NewCoordinator()
		if err != nil {
			t.Fatal(err)
		}
		alloc, err := db.Space().NewAllocator(th)
		if err != nil {
			t.Fatal(err)
		}
		body(th.Plain(), db.Space(), func(ix index.Slots) *indextest.Client {
			k, err := indextest.NewClient(th.Plain(), blocks{db.Space(), alloc}, co.ID, ix, 1)
			if err != nil {
				t.Fatal(err)
			}
			return k
		})
		for _, f := range []func() error{
			func() error { return alloc.Close(th.Plain()) },
			func() error { return db.Space().CloseCoordinator(co.ID) },
			th.Close, db.Close,
		} {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
	}
	session(func(c *rdma.Coro, s *memory.Space, client func(index.Slots) *indextest.Client) {
		table, err := s.CreateTable("accounts", nil)
		if err != nil {
			t.Fatal(err)
		}
		var ix *race.Index
		if root, ix, err = race.Create(c, s, table.ID, race.Options{Groups: 16, MaxDepth: 10}); err != nil {
			t.Fatal(err)
		}
		if err := s.SetTableRoot(table.ID, root); err != nil {
			t.Fatal(err)
		}
		k := client(ix)
		for i := range keys {
			if _, err := k.Insert(name(i), name(i)); err != nil {
				t.Fatal(i, err)
			}
			if i%7 == 0 {
				if err := k.Delete(name(i)); err != nil {
					t.Fatal(i, err)
				}
			}
		}
		if ix.Events().Splits < 5 {
			t.Errorf("%+v: the index has not grown", ix.Events())
		}
	})
	session(func(c *rdma.Coro, s *memory.Space, client func(index.Slots) *indextest.Client) {
		ix, err := race.Open(c, s, root, 1)
		if err != nil {
			t.Fatal(err)
		}
		k := client(ix)
		for i := range keys {
			v, err := k.Get(name(i))
			if err != nil || (v == nil) != (i%7 == 0) || v != nil && string(v) != string(name(i)) {
				t.Fatalf("key %d: %q, %v", i, v, err)
			}
		}
		if err := ix.Verify(c); err != nil {
			t.Error(err)
		}
	})
}

func Example() {
	db, err := embedded.Open(embedded.Options{Blades: 2, BladeSize: 64 << 20, SegmentSize: 1 << 20, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	t, err := rdma.NewThread(db.Fabric(), rdma.ThreadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	const table = 1
	c := t.Plain()
	root, _, err := race.Create(c, db.Space(), table, race.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ix, err := race.Open(c, db.Space(), root, table) // as another process would
	if err != nil {
		log.Fatal(err)
	}
	buf, err := t.Alloc(ix.BufferSize())
	if err != nil {
		log.Fatal(err)
	}

	key := []byte("Ada")
	q := index.Query{Key: key, Hash: record.Hash(table, key), Local: buf, View: db.Space().View()}
	var b rdma.Batch
	for again := true; again; {
		b.Reset()
		ix.Search(&b, &q)
		if err := c.Do(&b); err != nil {
			log.Fatal(err)
		}
		if again, err = ix.Resolve(c, &q); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("candidates:", len(q.Candidates))
	// Output: candidates: 0
}
