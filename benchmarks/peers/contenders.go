package main

import (
	"context"
	"fmt"
	"strings"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/txn"
)

// contender is a store that takes part.
type contender struct {
	name string
	open func(ctx context.Context, o *options) (workload.Store, error)
	// coroutines is the number of workers per thread; 0 stands for the option.
	coroutines int
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

func nameList(cs []contender) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = c.name
	}
	return strings.Join(names, ",")
}
