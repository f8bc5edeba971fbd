package main

import (
	"fmt"
	"io"

	"txnode/memory"
)

// cost is what an operation takes, its background requests included.
type cost struct {
	name       string
	verbs      uint64
	roundTrips uint64
	bytes      uint64
	us         float64 // of virtual time
}

// spacing of the keys that are loaded: fresh ones fit between them.
const spacing = 1000

// counts measures single operations, one after the other by one coroutine, on a tree of w.preload rows that
// were inserted in order, or in random order. Inner nodes are cached and leaves are not.
func counts(c config, scattered bool) ([]cost, error) {
	w, err := newWorld(c)
	if err != nil {
		return nil, err
	}
	w.rowAt = map[uint64]memory.Addr{}
	if err := w.load(scattered); err != nil {
		return nil, err
	}
	var out []cost
	err = w.run(1, 1, func(k *client) error {
		var err error
		measure := func(name string, fn func() error) {
			if err != nil {
				return
			}
			before, from := *k.c.Count, k.c.Thread().Now()
			err = fn()
			took := k.c.Thread().Now() - from
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
				return
			}
			d := k.c.Count.Sub(&before)
			out = append(out, cost{name, d.Total(), d.RoundTrips, d.BytesRead + d.BytesWrite, float64(took) / 1e3})
		}
		want := func(n int) func([]uint64, error) error {
			return func(keys []uint64, err error) error {
				if err == nil && len(keys) != n {
					err = fmt.Errorf("%d rows, not %d", len(keys), n)
				}
				return err
			}
		}
		there := func(found bool, err error) error {
			if err == nil && !found {
				err = fmt.Errorf("not found")
			}
			return err
		}
		mid := uint64(w.preload/2) * spacing
		scan := func(n int) func() error {
			return func() error { return want(n)(k.scanRange(mid, mid+uint64(n)*spacing)) }
		}
		if scattered {
			measure("scan of 100, rows scattered", scan(100))
			return err
		}
		measure("point read, address cached", func() error { return there(k.get(mid, true)) })
		measure("point read, cold", func() error { return there(k.get(mid, false)) })
		measure("absent key, nothing else read", func() error {
			found, err := k.get(mid+1, false)
			if found {
				err = fmt.Errorf("found")
			}
			return err
		})
		measure("absent key, validated", func() error { return there(k.absent(mid + 1)) })
		for _, l := range []lockTime{early, late, lateRead} {
			w.lock = l
			one, ten := mid/2+uint64(l)*100*spacing+2, mid/2+uint64(l)*100*spacing+500
			full := func() error { return k.insertAll([]uint64{one - 1}) } // loading has filled the leaves
			if l == early {
				measure("insert into a full leaf, with the separator", full)
			} else if err == nil {
				err = full()
			}
			measure("insert, "+l.String(), func() error { return k.insertAll([]uint64{one}) })
			var keys []uint64
			for i := range uint64(10) {
				keys = append(keys, ten+i)
			}
			measure("ten adjacent rows, "+l.String(), func() error { return k.insertAll(keys) })
		}
		measure("delete, address cached", func() error { return k.remove(mid + 50*spacing) })
		measure("scan of 99, one of 100 deleted", func() error { return want(99)(k.scanRange(mid, mid+100*spacing)) })
		mid += 1000 * spacing
		measure("scan of 10, rows in order", scan(10))
		measure("scan of 100, rows in order", scan(100))
		// The leaf of an append that splits it, and what follows in the background.
		w.lock = early
		splits := w.stats.splits
		for n := uint64(w.preload) * spacing; err == nil && w.stats.splits == splits; n += spacing {
			measure("append that splits a leaf, with the separator", func() error { return k.insertAll([]uint64{n}) })
			if w.stats.splits == splits {
				out = out[:len(out)-1]
			}
		}
		return err
	})
	if err == nil {
		_, err = w.verify()
	}
	return out, err
}

// load fills the tree, by transactions of many rows, or in random order of one row each.
func (w *world) load(scattered bool) error {
	const batch = 48
	rows := w.preload
	think, lock := w.thinkNs, w.lock
	w.thinkNs, w.lock = 0, early
	err := w.run(1, 1, func(k *client) error {
		order := make([]uint64, rows)
		for i := range order {
			order[i] = uint64(i) * spacing
		}
		if scattered {
			for i := range order {
				j := i + int(k.c.Thread().Rand()%uint64(rows-i))
				order[i], order[j] = order[j], order[i]
			}
			for i := range order {
				if err := k.insertAll(order[i : i+1]); err != nil {
					return err
				}
			}
			return nil
		}
		if w.random {
			// Keys all over the space, in order: what is inserted later comes between them.
			for i := range order {
				order[i] = uint64(i) * (^uint64(0) / uint64(rows+1))
			}
		}
		for i := 0; i < rows; i += batch {
			if err := k.insertAll(order[i:min(i+batch, rows)]); err != nil {
				return err
			}
		}
		return nil
	})
	w.thinkNs, w.lock = think, lock
	w.stats = stats{}
	return err
}

// insertAll inserts rows of adjacent keys: in one transaction if one leaf takes them all.
func (k *client) insertAll(keys []uint64) error {
	for len(keys) > 0 {
		n, err := k.insert(keys)
		if err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func printCounts(out io.Writer, costs []cost) {
	fmt.Fprintf(out, "| %-46s | verbs | round trips | bytes | us |\n|---|---|---|---|---|\n", "operation")
	for _, c := range costs {
		fmt.Fprintf(out, "| %-46s | %d | %d | %d | %.1f |\n", c.name, c.verbs, c.roundTrips, c.bytes, c.us)
	}
}
