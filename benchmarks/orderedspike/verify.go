package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/index/blink"
	"txnode/memory"
	"txnode/memory/record"
)

func numberOf(key [8]byte) uint64 { return binary.BigEndian.Uint64(key[:]) }

// verify looks at the blades at rest: no lock is held, copies are equal, the fences of each level tile
// the key space, every committed key is in the tree once and leads to its row, and no other is there.
func (w *world) verify() (blink.Totals, error) {
	w.fabric.Settle()
	var faults []error
	fault := func(format string, a ...any) {
		if len(faults) < 10 {
			faults = append(faults, fmt.Errorf("orderedspike: "+format, a...))
		}
	}
	block := func(a memory.Addr, class memory.Class) (record.Image, error) {
		var images [copies]record.Image
		for i := range images {
			images[i] = make([]byte, class.Size())
			at := w.at(a, i)
			if err := w.fabric.ReadMemory(at.Blade, at.Off, images[i]); err != nil {
				return nil, err
			}
		}
		im := images[0]
		need, err := im.Check(a)
		switch {
		case err != nil:
			return nil, err
		case !im.Stable():
			return nil, fmt.Errorf("guard %#x of version %v", uint64(im.Guard()), im.Version())
		case !bytes.Equal(im[:need], images[1][:need]):
			return nil, errors.New("the copies differ")
		}
		return im, nil
	}
	im, err := block(rootAddr, 0)
	if err != nil {
		return blink.Totals{}, fmt.Errorf("orderedspike: root record: %w", err)
	}
	root, err := blink.DecodeRoot(im.Value())
	if err != nil {
		return blink.Totals{}, err
	}
	seen := make(map[uint64]bool, len(w.acked))
	live := 0
	rowOf := func(n blink.Node, i int) {
		var key [8]byte
		copy(key[:], n.AppendKey(nil, i))
		k := numberOf(key)
		if seen[k] {
			fault("key %x is in the tree twice", key)
		}
		seen[k] = true
		row, err := block(n.Addr(i), n.Class(i))
		if err != nil {
			fault("row of key %x at %v: %w", key, n.Addr(i), err)
			return
		}
		if !bytes.Equal(row.Key(), key[:]) {
			fault("key %x leads to a row of key %x", key, row.Key())
		}
		want, acked := w.acked[k]
		is := row.Meta().State() == record.Live
		if !acked || want != is {
			fault("row of key %x is %v; committed: %v, and live: %v", key, row.Meta().State(), acked, want)
		}
		if is {
			live++
		}
	}
	totals := blink.Verify(w.geometry, root, func(a memory.Addr) ([]byte, error) {
		im, err := block(a, w.geometry.Class)
		if err != nil {
			return nil, err
		}
		return im.Value(), nil
	}, func(_ memory.Addr, n blink.Node) {
		for i := 0; n.Level() == 0 && i < n.Count(); i++ {
			rowOf(n, i)
		}
	}, func(f blink.NodeError) { fault("%w", f) })
	if len(seen) != len(w.acked) {
		fault("%d keys are in the tree, and %d were committed", len(seen), len(w.acked))
	}
	return totals, errors.Join(faults...)
}
