package recovery_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestDamageIsNotCopied: a bit of an index is damaged on the primary, and then the database
// is swept, as when a client has died. What can be repaired from the copy before, can be
// repaired after that.
func TestDamageIsNotCopied(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	ours, own := w.session()
	var keys, want []string
	for i := range 60 {
		key, value := fmt.Sprint("key ", i), fmt.Sprint(i)
		w.sure(ours, own, put(key, value))
		keys, want = append(keys, key), append(want, value)
	}
	own.Coro().Sleep(10_000) // until its locks are released
	must(t, ours.Close())
	w.sweep()
	all, err := w.table.Index.(*race.Index).Extents(w.ctl.Plain())
	must(t, err)
	sizes := map[layout.Addr]uint32{}
	for _, x := range w.space.Extents() {
		sizes[x.Addr] = x.Size
	}
	// repaired repairs the database, and reports whether nothing was left to be repaired.
	repaired := func() bool {
		w.repair()
		return w.repair() == 0 // what was repaired may be what the rest is judged by
	}
	tried, v := 0, w.space.View()
	for _, a := range all {
		p, q := v.At(a, 0), v.At(a, 1)
		primary, copied := w.f.Memory(p.Blade)[p.Off:][:sizes[a]], w.f.Memory(q.Blade)[q.Off:][:sizes[a]]
		was, slots, blank := slices.Clone(primary), 0, 0
		if !slices.Equal(primary, copied) {
			t.Fatal("the copies are not equal")
		}
		for off := uint32(0); off < sizes[a]; off += 8 {
			used := binary.LittleEndian.Uint64(was[off:]) != 0
			switch {
			case off <= 136: // heads, the directory, the first buckets
			case off%64 != 56 && used && slots < 4:
				slots++
			case off%64 != 56 && !used && blank < 1:
				blank++
			default:
				continue
			}
			for _, bit := range []uint32{0, 1, 9, 46, 50, 57} {
				damage := func() { primary[off+bit/8] ^= 1 << (bit % 8) }
				mend := func() { copy(primary, was); copy(copied, was) }
				if damage(); repaired() { // a lock, or a child, could be there
					tried++
					mend()
					damage()
					for _, alone := range []bool{false, true} {
						if _, err := recovery.Sweep(w.ctl.Plain(),
							recovery.Options{Space: w.space, Alone: alone}); err != nil &&
							!errors.Is(err, layout.ErrCorrupt) {
							t.Errorf("extent %v, word at %#x, bit %d: swept: %v", a, off, bit, err)
						}
					}
					if !repaired() {
						t.Errorf("extent %v, word at %#x, bit %d: it cannot be repaired any more", a, off, bit)
					}
				}
				mend()
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d bits were tried", tried)
	}
	ours, own = w.session()
	if got := w.values(ours, own, keys...); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestEmptiedSlotIsNotCopied: damage empties a slot on the primary, or its bucket, and then the
// database is swept, as when a client has died. The copy, which has the slot, is left as it is, and
// the index repaired from it.
func TestEmptiedSlotIsNotCopied(t *testing.T) {
	for _, backups := range []int{1, 2} {
		w := newWorld(t, setting{occ.PolicyDefault, backups, strong}, occ.Options{})
		ours, own := w.session()
		for i := range 40 {
			w.sure(ours, own, put(fmt.Sprint("key ", i), "1"))
		}
		own.Coro().Sleep(10_000) // until its locks are released
		must(t, ours.Close())
		w.sweep()
		w.spoilt = true
		var slots []layout.Addr
		must(t, w.table.Index.(*race.Index).Walk(w.ctl.Plain(), func(at layout.Addr, _ index.Candidate) error {
			slots = append(slots, at)
			return nil
		}))
		for i, at := range slots {
			for name, damage := range map[string]func(line []byte, off int){
				"zero":   func(line []byte, off int) { clear(line[off : off+8]) },
				"trace":  func(line []byte, off int) { binary.LittleEndian.PutUint64(line[off:], 1<<54|12345) },
				"bucket": func(line []byte, _ int) { clear(line) },
			} {
				p := w.space.View().At(at&^63, 0)
				damage(w.f.Memory(p.Blade)[p.Off:][:64], int(at&63))
				q := w.space.View().At(at, 1)
				copied := binary.LittleEndian.Uint64(w.f.Memory(q.Blade)[q.Off:])
				if _, err := recovery.Sweep(w.ctl.Plain(),
					recovery.Options{Space: w.space, Alone: i%2 == 0}); err != nil &&
					!errors.Is(err, layout.ErrCorrupt) {
					t.Errorf("%s at %v: swept: %v", name, at, err)
				}
				if binary.LittleEndian.Uint64(w.f.Memory(q.Blade)[q.Off:]) != copied {
					t.Fatalf("f=%d, %s at %v: the copy has changed", backups, name, at)
				}
				if w.repair(); w.repair() > 0 { // a record that no slot leads to is found, and not linked
					t.Fatalf("f=%d, %s at %v: it cannot be repaired any more", backups, name, at)
				}
			}
		}
		w.sweep()
		w.check("repaired")
	}
}

// TestInsertOverEmptiedSlot: damage empties the slot of a record on the primary, and an insert
// takes its place there, which cannot follow on the copy. Its client is told of the damage, the
// copy stays as it is, and the index is repaired from it.
func TestInsertOverEmptiedSlot(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	ours, own := w.loaded(put("key", "1"))
	w.spoilt = true
	at := layout.Addr(0)
	must(t, w.table.Index.(*race.Index).Walk(w.ctl.Plain(), func(a layout.Addr, _ index.Candidate) error {
		at = a
		return nil
	}))
	p := w.space.View().At(at, 0)
	clear(w.f.Memory(p.Blade)[p.Off:][:8])
	failed := 0
	for i := range 300 {
		err := w.do(own, put(fmt.Sprint("new ", i), "1"))
		if err == nil {
			continue
		}
		if failed++; !errors.Is(err, layout.ErrCorrupt) || errors.Is(err, occ.ErrConflict) ||
			errors.Is(err, occ.ErrBroken) {
			t.Fatalf("insert %d: %v", i, err)
		}
		if ours.Broken() != nil {
			must(t, ours.Rejoin(ours.Thread().Plain()))
		}
		if failed == 3 {
			break
		}
	}
	if failed == 0 {
		t.Error("nobody has come to use the slot")
	}
	own.Coro().Sleep(10_000) // until its locks are released
	must(t, ours.Close())
	w.repair()
	w.sweep()
	w.check("repaired")
	found := false
	w.blocks(w.ctl.Plain(), func(_ layout.Addr, line record.Image) { found = found || string(line.Key()) == "key" })
	if !found {
		t.Error("the record has no slot any more")
	}
}
