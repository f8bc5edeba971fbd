package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/tpcc"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/ycsb"
	"txnode/memory/catalog"
	"txnode/rdma/inproc"
	"txnode/txn"
)

// sharedDatabase is a function that opens one database as one process more.
func sharedDatabase(t *testing.T) func() *engine.Store {
	t.Helper()
	f, err := inproc.New(inproc.Options{Seed: 1, Blades: []inproc.BladeOptions{{Size: 64 << 20}, {Size: 64 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	o := txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, Shared: true, SegmentSize: 1 << 20, LogArea: 64 << 10, IndexGroups: 16,
	}
	return func() *engine.Store {
		db, err := txn.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return engine.New(db, o.Policy)
	}
}

// TestLoadTogether: of processes that begin a benchmark at the same moment on an empty database one
// loads, the others wait for it, and all go on.
func TestLoadTogether(t *testing.T) {
	open := sharedDatabase(t)
	for name, driver := range map[string]func() (workload.Driver, error){
		"smallbank": func() (workload.Driver, error) {
			o := smallbank.DefaultOptions()
			o.Accounts = 500
			return smallbank.New(o)
		},
		"tatp": func() (workload.Driver, error) {
			o := tatp.DefaultOptions()
			o.Subscribers = 100
			return tatp.New(o)
		},
		"tpcc": func() (workload.Driver, error) {
			o := tpcc.DefaultOptions()
			o.Warehouses, o.Customers, o.Items = 1, 30, 100
			return tpcc.New(o)
		},
		"ycsb": func() (workload.Driver, error) {
			o := ycsb.DefaultOptions()
			o.Records = 500
			return ycsb.New(o)
		},
	} {
		var wg sync.WaitGroup
		results, errs := [3]*runner.Result{}, [3]error{}
		for i := range results {
			s := open()
			wg.Go(func() {
				d, err := driver()
				if err == nil {
					results[i], err = runner.Bench(t.Context(), s, d,
						runner.Config{Threads: 1, Coroutines: 2, Txns: 50, Runs: 1})
				}
				errs[i] = errors.Join(err, s.Close(context.Background()))
			})
		}
		wg.Wait()
		loaded := 0
		for i, r := range results {
			switch {
			case errs[i] != nil:
				t.Errorf("%s: process %d: %v", name, i, errs[i])
			case !r.Load.Existed:
				loaded++
			}
		}
		if loaded != 1 {
			t.Errorf("%s: %d processes have loaded", name, loaded)
		}
	}
}

var twoTables = []workload.Table{{Name: "one", MaxValue: 8}, {Name: "two", MaxValue: 8, Ordered: true}}

// fill puts records into both tables, or counts those that are there.
func fill(t *testing.T, s *engine.Store, from, n uint64) (there int) {
	t.Helper()
	err := s.Run(t.Context(), 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		for k := from; k < from+n; k++ {
			if err := w.Update(ctx, func(tx workload.Tx) error {
				return errors.Join(tx.Insert(0, k, []byte("x")), tx.Insert(1, k, []byte("x")))
			}); errors.Is(err, workload.ErrExists) {
				there++
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// begin begins to load the two tables, and says whether they are to be filled.
func begin(t *testing.T, s *engine.Store, waiting func()) (end func(bool) error, there bool) {
	t.Helper()
	end, err := s.BeginLoad(t.Context(), waiting)
	if err == nil {
		there, err = s.Tables(t.Context(), twoTables)
	}
	if err != nil {
		t.Fatal(err)
	}
	return end, there
}

// TestLoadInterrupted: what a load has left unfinished is emptied by the next one, in a directory
// and in a database of several processes, and what is loaded stays.
func TestLoadInterrupted(t *testing.T) {
	dir := t.TempDir()
	for name, open := range map[string]func() *engine.Store{
		"shared": sharedDatabase(t),
		"dir": func() *engine.Store {
			s, err := engine.Open(t.Context(), txn.Options{
				Dir: dir, BladeSize: 64 << 20, SegmentSize: 1 << 20, LogArea: 64 << 10, IndexGroups: 16,
			})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			closed := func(s *engine.Store) {
				t.Helper()
				if err := s.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			s := open()
			end, there := begin(t, s, nil)
			fill(t, s, 0, 100)
			if there {
				t.Fatal("an empty database has tables")
			}
			if err := end(false); err != nil {
				t.Fatal(err)
			}
			closed(s)

			s = open() // and its process ends without a word
			_, there = begin(t, s, nil)
			if n := fill(t, s, 50, 100); there || n != 0 {
				t.Fatalf("%d records of the first load, which counts as whole: %v", n, there)
			}
			closed(s)

			s = open()
			end, there = begin(t, s, nil)
			if n := fill(t, s, 0, 200); there || n != 0 {
				t.Fatalf("%d records of the second load, which counts as whole: %v", n, there)
			}
			if err := end(true); err != nil {
				t.Fatal(err)
			}
			closed(s)

			s = open()
			end, there = begin(t, s, nil)
			if n := fill(t, s, 0, 200); !there || n != 200 {
				t.Fatalf("%d records of the third load, which counts as whole: %v", n, there)
			}
			if err := end(true); err != nil {
				t.Fatal(err)
			}
			names, err := s.DB().Tables()
			if err != nil || strings.Join(names, " ") != "one two" {
				t.Errorf("%q, %v", names, err)
			}
			one, err := txn.OpenRawTable(s.DB(), "one")
			if err != nil {
				t.Fatal(err)
			}
			if st, err := one.Stats(t.Context()); err != nil || st.Rows != 200 {
				t.Errorf("%d records, %v", st.Rows, err)
			}
			closed(s)
		})
	}
}

// TestLoadWaits: a process waits, and says so once, until the one that loads has loaded, or is
// gone.
func TestLoadWaits(t *testing.T) {
	for _, loaded := range []bool{true, false} {
		open := sharedDatabase(t)
		a, b := open(), open()
		end, _ := begin(t, a, nil)
		fill(t, a, 0, 10)
		waits, went := make(chan struct{}), make(chan bool)
		go func() {
			defer close(went)
			end, err := b.BeginLoad(t.Context(), func() { close(waits) })
			if err != nil {
				t.Error(err)
				return
			}
			there, err := b.Tables(t.Context(), twoTables)
			if err = errors.Join(err, end(err == nil)); err != nil {
				t.Error(err)
			}
			went <- there
		}()
		select {
		case <-waits:
		case there := <-went:
			t.Fatalf("a process has not waited; it has found tables: %v", there)
		}
		if loaded {
			if err := end(true); err != nil {
				t.Fatal(err)
			}
		} else if err := a.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if there := <-went; there != loaded {
			t.Errorf("loaded: %v, and found: %v", loaded, there)
		}
		if loaded {
			if err := a.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		c := open()
		if _, err := b.BeginLoad(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.BeginLoad(ctx, cancel); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled while it waits: %v", err)
		}
		for _, s := range []*engine.Store{b, c} {
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
