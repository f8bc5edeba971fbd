package main

import (
	"fmt"
	"io"
	"slices"

	"txnode/rdma"
)

// point is what a number of coroutines that insert have reached.
type point struct {
	coroutines   int
	perMs        float64 // committed transactions per millisecond of virtual time
	aborts       float64 // attempts that failed, per committed transaction
	p50us, p99us float64
	verbs        float64 // per committed transaction, retries and structure included
	right        float64 // hops along right links, per committed transaction
	fill         float64 // entries per leaf, at the end
	leaves       int
	commits      uint64
	allCommits   uint64
	scanned      cost // of 100 rows at the end
}

// rate measures inserts: of keys that grow, or of random ones.
func rate(c config) (point, error) {
	w, err := newWorld(c)
	if err != nil {
		return point{}, err
	}
	if err := w.load(false); err != nil {
		return point{}, err
	}
	threads := (w.coroutines + perThread - 1) / perThread
	coroutines := (w.coroutines + threads - 1) / threads
	p := point{coroutines: threads * coroutines}
	from := w.fabric.Now() + w.warmup.Nanoseconds()
	end := from + w.measure.Nanoseconds()
	next := uint64(w.preload)
	var latencies []int64
	var verbs uint64
	var begin, last stats
	begun := false
	err = w.run(threads, coroutines, func(k *client) error {
		keys := make([]uint64, w.config.rows)
		for {
			start := k.c.Thread().Now()
			if start >= end {
				return nil
			}
			if !begun && start >= from {
				begun, begin = true, w.stats
			}
			for i := range keys {
				keys[i] = (next + uint64(i)) * spacing
			}
			if w.random {
				first := mix(next) &^ 0xff
				for i := range keys {
					keys[i] = first + uint64(i) + 1
				}
			}
			next += uint64(len(keys))
			before := k.c.Count.Total()
			if err := k.insertAll(keys); err != nil {
				return err
			}
			now := k.c.Thread().Now()
			if now >= from && now < end {
				latencies = append(latencies, now-start)
				verbs += k.c.Count.Total() - before
				last = w.stats
			}
		}
	})
	if err != nil {
		return p, err
	}
	n := float64(len(latencies))
	if n == 0 {
		return p, fmt.Errorf("orderedspike: nothing was committed in %v", w.measure)
	}
	p.commits, p.allCommits = uint64(len(latencies)), w.stats.commits
	p.perMs = n * 1e6 / float64(end-from)
	p.aborts = float64(last.held+last.moved-begin.held-begin.moved) / n
	p.right = float64(last.right-begin.right) / n
	p.verbs = float64(verbs) / n
	slices.Sort(latencies)
	p.p50us, p.p99us = float64(latencies[len(latencies)/2])/1e3, float64(latencies[len(latencies)*99/100])/1e3
	totals, err := w.verify()
	if err != nil {
		return p, err
	}
	p.leaves, p.fill = totals.Leaves, float64(totals.Entries)/float64(totals.Leaves)
	if !w.random {
		err = w.run(1, 1, func(k *client) error { return p.scanTail(k, next) })
	}
	return p, err
}

// scanTail counts what a scan of 100 rows costs that the run has inserted.
func (p *point) scanTail(k *client, next uint64) error {
	var before rdma.Counters
	to := next - next/4
	for range 2 { // the first one fills the cache
		before = *k.c.Count
		if _, err := k.scanRange((to-100)*spacing, to*spacing); err != nil {
			return err
		}
	}
	d := k.c.Count.Sub(&before)
	p.scanned = cost{verbs: d.Total(), roundTrips: d.RoundTrips}
	return nil
}

// mix is a bijection of the numbers below 2^56 that scatters them: the lowest byte of its value is 0.
func mix(x uint64) uint64 {
	const bits = 56
	x &= 1<<bits - 1
	for range 3 {
		x = x * 0x9e3779b97f4a7c15 & (1<<bits - 1)
		x ^= x >> 29
	}
	return x << 8
}

func printPoints(out io.Writer, title string, points []point) {
	fmt.Fprintf(out, "\n%s\n\n| coroutines | inserts/ms | failed attempts each | p50 us | p99 us | verbs each | right hops each | leaves | entries per leaf | scan of 100 |\n|---|---|---|---|---|---|---|---|---|---|\n", title)
	for _, p := range points {
		scan := "-"
		if p.scanned.verbs > 0 {
			scan = fmt.Sprintf("%d / %d", p.scanned.verbs, p.scanned.roundTrips)
		}
		fmt.Fprintf(out, "| %d | %.0f | %.2f | %.1f | %.1f | %.1f | %.2f | %d | %.0f | %s |\n",
			p.coroutines, p.perMs, p.aborts, p.p50us, p.p99us, p.verbs, p.right, p.leaves, p.fill, scan)
	}
}
