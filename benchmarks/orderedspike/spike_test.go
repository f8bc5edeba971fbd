package main

import (
	"fmt"
	"testing"
	"time"

	"txnode/rdma/sim"
)

// TestCounts pins what single operations cost: the figures of docs/ordered.md.
func TestCounts(t *testing.T) {
	c := config{preload: 4000, seed: 1}
	inOrder, err := counts(c, false)
	if err != nil {
		t.Fatal(err)
	}
	scattered, err := counts(c, true)
	if err != nil {
		t.Fatal(err)
	}
	type vr struct{ verbs, roundTrips uint64 }
	want := map[string]vr{
		"point read, address cached":                    {1, 1},
		"point read, cold":                              {2, 2},
		"absent key, nothing else read":                 {1, 1},
		"absent key, validated":                         {2, 2},
		"insert, early":                                 {9, 2},
		"insert, late":                                  {9, 3},
		"insert, late+read":                             {10, 3},
		"ten adjacent rows, early":                      {27, 2},
		"ten adjacent rows, late":                       {27, 3},
		"ten adjacent rows, late+read":                  {28, 3},
		"delete, address cached":                        {6, 2},
		"scan of 100, rows in order":                    {8, 3},
		"scan of 100, rows scattered":                   {206, 3}, // at most
		"append that splits a leaf, with the separator": {19, 4},
	}
	for _, c := range append(inOrder, scattered...) {
		w, pinned := want[c.name]
		if !pinned {
			continue
		}
		delete(want, c.name)
		is := vr{c.verbs, c.roundTrips}
		if is != w && (c.name != "scan of 100, rows scattered" || is.roundTrips != w.roundTrips || is.verbs > w.verbs) {
			t.Errorf("%s: %d verbs and %d round trips, not %d and %d", c.name, is.verbs, is.roundTrips, w.verbs, w.roundTrips)
		}
	}
	for name := range want {
		t.Errorf("%s was not measured", name)
	}
}

// TestTreeStaysRight: whatever the order of the coroutines' requests, the tree at the end has every key
// that was committed once, and its fences tile. Leaves of 4 entries split all the time.
func TestTreeStaysRight(t *testing.T) {
	for _, lock := range []lockTime{early, late, lateRead} {
		for _, random := range []bool{false, true} {
			for _, queue := range []bool{false, true} {
				c := config{
					preload: 50, lock: lock, random: random, queue: queue, rows: 1, coroutines: 24, entries: 4, seed: 7,
					warmup: 100 * time.Microsecond, measure: time.Millisecond, freedom: sim.FreedomHostile,
				}
				t.Run(fmt.Sprintf("%v/random=%v/queue=%v", lock, random, queue), func(t *testing.T) {
					p, err := rate(c)
					if err != nil {
						t.Fatal(err)
					}
					if p.leaves < 10 || p.allCommits < 60 {
						t.Errorf("only %d inserts, and %d leaves", p.allCommits, p.leaves)
					}
					if !random && !queue && p.aborts == 0 {
						t.Error("24 coroutines have appended to one leaf, and none has met a lock")
					}
				})
			}
		}
	}
}

// TestScanBesideInserts: a scan beside inserts has every row that was there when it began, in order, and none
// that was not committed. And it is of one moment: with a row it has all that were committed before the insert of
// that row began.
func TestScanBesideInserts(t *testing.T) {
	w, err := newWorld(config{preload: 200, entries: 8, seed: 3, freedom: sim.FreedomHostile})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.load(false); err != nil {
		t.Fatal(err)
	}
	const from, to = 50, 80 // of the loaded rows
	grew, inserting := 0, 0
	begun, ended := map[uint64]int64{}, map[uint64]int64{} // times of inserts
	var scans [][]uint64
	err = w.run(2, 4, func(k *client) error {
		if k.c.Thread().Index() == 1 {
			inserting++
			defer func() { inserting-- }()
			for i := range uint64(40) {
				k.c.Sleep(300_000) // else scans begin anew until no insert is left
				n := (from+(i*7+uint64(k.c.ID())*3)%(to-from))*spacing + 10*i + uint64(k.c.ID()) + 1
				begun[n] = k.c.Thread().Now()
				if err := k.insertAll([]uint64{n}); err != nil {
					return err
				}
				ended[n] = k.c.Thread().Now()
			}
			return nil
		}
		for last := 0; last == 0 || inserting > 0; {
			before := map[uint64]bool{}
			for key, live := range w.acked {
				if live && key >= from*spacing && key < to*spacing {
					before[key] = true
				}
			}
			keys, err := k.scanRange(from*spacing, to*spacing)
			if err != nil {
				return err
			}
			for i, key := range keys {
				if i > 0 && keys[i-1] >= key {
					return fmt.Errorf("key %d behind %d", key, keys[i-1])
				}
				if !w.acked[key] {
					return fmt.Errorf("key %d was not committed", key)
				}
				delete(before, key)
			}
			if len(before) > 0 {
				return fmt.Errorf("the scan misses %d keys that were there before it began: %v", len(before), before)
			}
			if scans = append(scans, keys); len(keys) > last {
				grew++
			}
			last = len(keys)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(scans) < 100 || grew < 40 {
		t.Errorf("%d scans, of which %d saw more rows than the one before", len(scans), grew)
	}
	for _, keys := range scans {
		seen, newest := map[uint64]bool{}, uint64(0)
		for _, key := range keys {
			if seen[key] = true; begun[key] > begun[newest] {
				newest = key
			}
		}
		for key, at := range ended {
			if !seen[key] && at < begun[newest] {
				t.Fatalf("a scan has seen key %d, whose insert began at %d ns, and not key %d, whose insert had ended at %d ns", newest, begun[newest], key, at)
			}
		}
	}
	if _, err := w.verify(); err != nil {
		t.Error(err)
	}
}

// TestVerifySees: what verify is for, it finds.
func TestVerifySees(t *testing.T) {
	w, err := newWorld(config{preload: 100, seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.load(false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.verify(); err != nil {
		t.Fatal(err)
	}
	w.acked[5*spacing+1] = true
	if _, err := w.verify(); err == nil {
		t.Error("a committed key is not in the tree, and verify does not say so")
	}
	delete(w.acked, 5*spacing+1)
	delete(w.acked, 5*spacing)
	if _, err := w.verify(); err == nil {
		t.Error("a key is in the tree that was not committed, and verify does not say so")
	}
}
