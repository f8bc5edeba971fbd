package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	c := config{preload: 20_000, seed: 1}
	table := flag.String("table", "counts,append,random", "`tables` to print: counts, append, random")
	counts := flag.String("coroutines", "1,2,8,32,96,256,768", "`numbers` of coroutines that insert")
	locks := flag.String("locks", "early,late,late+read", "lock `times`: early, late, late+read")
	flag.IntVar(&c.preload, "preload", c.preload, "rows of the tree before the measurement")
	flag.IntVar(&c.rows, "rows", 1, "rows of a transaction, with adjacent keys")
	flag.BoolVar(&c.queue, "queue", false, "coroutines of the process wait for each other before they lock a leaf")
	flag.BoolVar(&c.shared, "shared", false, "blocks come from one pool of the process, not from one of the thread")
	flag.IntVar(&c.patience, "patience", 0, "how `often` a lock that is held is asked for again at once, before the attempt fails")
	flag.Float64Var(&c.thinkNs, "think", 0, "`ns` of user code between execution and commit")
	flag.Float64Var(&c.readNs, "node-read", defaultReadNs, "`ns` of processor time to decode and search a node")
	flag.Float64Var(&c.applyNs, "node-apply", defaultApplyNs, "`ns` of processor time to change a node")
	flag.DurationVar(&c.warmup, "warmup", defaultWarmup, "virtual `time` before the measurement")
	flag.DurationVar(&c.measure, "measure", defaultMeasure, "virtual `time` to measure")
	delta := flag.Uint("delta", 0, "`bytes` that the log has for each new entry of a leaf, instead of the leaf's image; 0: the image")
	flag.Uint64Var(&c.seed, "seed", c.seed, "of everything random")
	flag.Parse()
	c.delta = uint32(*delta)
	if err := printAll(c, *table, *counts, *locks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Processor time for a full node of 1 KiB with rows, as `go test ./index/blink -bench .` has it at best of some
// runs: Decode and Search; Apply with its Check, and the image.
const (
	defaultReadNs  = 700
	defaultApplyNs = 3500
)

func printAll(c config, tables, numbers, locks string) error {
	for _, table := range strings.Split(tables, ",") {
		if table == "counts" {
			if err := printBoth(c); err != nil {
				return err
			}
			continue
		}
		c.random = table == "random"
		if !c.random && table != "append" {
			return fmt.Errorf("orderedspike: no table %q: there are counts, append, random", table)
		}
		for _, name := range strings.Split(locks, ",") {
			var err error
			if c.lock, err = lockByName(name); err != nil {
				return err
			}
			begin := time.Now()
			var points []point
			for _, number := range strings.Split(numbers, ",") {
				if c.coroutines, err = strconv.Atoi(number); err != nil {
					return fmt.Errorf("orderedspike: -coroutines: %w", err)
				}
				p, err := rate(c)
				if err != nil {
					return fmt.Errorf("%s, locks %v, %d coroutines: %w", table, c.lock, c.coroutines, err)
				}
				points = append(points, p)
			}
			printPoints(os.Stdout, fmt.Sprintf("%s, locks %v, %d rows each, queue %v, user code %.0f ns (%v)", table, c.lock, c.rows, c.queue, c.thinkNs,
				time.Since(begin).Round(time.Second)), points)
		}
	}
	return nil
}

func printBoth(c config) error {
	costs, err := counts(c, false)
	if err != nil {
		return err
	}
	more, err := counts(c, true)
	if err != nil {
		return err
	}
	printCounts(os.Stdout, append(costs, more...))
	return nil
}

func lockByName(name string) (lockTime, error) {
	for i, s := range lockTimes {
		if s == name {
			return lockTime(i), nil
		}
	}
	return 0, fmt.Errorf("orderedspike: no lock time %q: there are %s", name, strings.Join(lockTimes[:], ", "))
}
