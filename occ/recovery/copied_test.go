package recovery_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index/race"
	"txnode/memory"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestDamageIsNotCopied: a bit of an index is damaged on the primary, and then the database is swept,
// as when a client has died. What can be repaired from the copy before, can be repaired after that.
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
	sizes := map[memory.Addr]uint32{}
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
						if _, err := recovery.Sweep(w.ctl.Plain(), recovery.Options{Space: w.space, Alone: alone}); err != nil && !errors.Is(err, memory.ErrCorrupt) {
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
