package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/cluster"
	"txnode/cmd/txnode/command"
	"txnode/occ"
	"txnode/txn"
)

// contender is a store that takes part.
type contender struct {
	name string
	open func(ctx context.Context, o *options) (workload.Store, error)
	// coroutines is the number of workers per thread; 0 stands for the option.
	coroutines int
	// workers are numbers of workers per thread of which the best is taken, unless the option says
	// one.
	workers []int
	// server: it is, or has, processes of its own, and takes part if it is asked for.
	server bool
}

// contenders are all stores, in the order of reports. Ratios compare the first
// one asked for with the others.
var contenders = []contender{
	{name: "txnode", open: openEngine},
	{name: "sharded-map", open: openReference, coroutines: 1},
	{name: "badger", open: openBadger},
	{name: "buntdb", open: openBuntDB, coroutines: 1},
	{name: "pebble", open: openPebble, coroutines: 1},
	{name: "btree", open: openTree, coroutines: 1},
	{name: "sqlite", open: openSQLite, coroutines: 1},
	{name: "txnode-unix", open: openBlades("unix"), workers: []int{8, 32, 64, 128}, server: true},
	{name: "txnode-tcp", open: openBlades("tcp"), workers: []int{8, 32, 64, 128}, server: true},
	{name: "txnode-shm", open: openBlades("shm"), workers: []int{2, 8}, server: true},
	{name: "redis", open: openRedis, workers: []int{8, 32, 64, 128, 256}, server: true},
	{name: "postgres", open: openPostgres, workers: []int{2, 4, 8, 16}, server: true},
}

// openBlades opens a database on two blades in processes of their own, with one backup of
// everything. They are this program, as txnode.
func openBlades(fabric string) func(ctx context.Context, o *options) (workload.Store, error) {
	return func(ctx context.Context, _ *options) (workload.Store, error) {
		w := command.System()
		self := w.Self
		w.Self = func(args ...string) *exec.Cmd { return self(append([]string{asTxnode}, args...)...) }
		catalog, end, err := command.StartBlades(ctx, w, fabric)
		if err != nil {
			return nil, err
		}
		db, err := cluster.Open(ctx, catalog, txn.Options{Retries: math.MaxInt32}, cluster.Options{})
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return &bladesStore{engine.New(db, occ.PolicyDefault), end}, nil
	}
}

// bladesStore is a database with its blades.
type bladesStore struct {
	*engine.Store
	end func() error
}

// Close implements workload.Store.
func (s *bladesStore) Close(ctx context.Context) error {
	return errors.Join(s.Store.Close(ctx), s.end())
}

// openEngine opens the embedded default: two blades, one backup of everything.
func openEngine(ctx context.Context, _ *options) (workload.Store, error) {
	return engine.Open(ctx, txn.Options{})
}

func openReference(context.Context, *options) (workload.Store, error) {
	return reference.Open(reference.Options{}), nil
}

// choose returns the contenders of a list of names, in its order.
func choose(all []contender, names string) ([]contender, error) {
	var chosen []contender
	for name := range strings.SplitSeq(names, ",") {
		i := 0
		for i < len(all) && all[i].name != name {
			i++
		}
		if i == len(all) {
			return nil, fmt.Errorf("there is no store %q; there are %s", name, nameList(all))
		}
		for _, c := range chosen {
			if c.name == name {
				return nil, fmt.Errorf("the store %q is named twice", name)
			}
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// inProcess are the contenders that run in this process.
func inProcess(all []contender) (some []contender) {
	for _, c := range all {
		if !c.server {
			some = append(some, c)
		}
	}
	return some
}

func nameList(cs []contender) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = c.name
	}
	return strings.Join(names, ",")
}
