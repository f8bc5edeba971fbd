package recovery_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestSplitOverEmptiedSlots: damage empties slots on the primary, and then their sub-table is
// split, which moves what the primary has. The records are found when the index is repaired, and
// what is deleted meanwhile is not. While somebody has not closed what a repair can not tell from
// that stays as it is.
func TestSplitOverEmptiedSlots(t *testing.T) {
	for f := range 3 {
		w := newWorld(t, setting{occ.PolicyDefault, f, strong}, occ.Options{})
		ix := w.table.Index.(*race.Index)
		ours, own := w.session()
		var keys, want []string
		for i := range 30 {
			key := fmt.Sprint("key ", i)
			w.sure(ours, own, put(key, "1"))
			keys, want = append(keys, key), append(want, "1")
		}
		w.spoilt = true
		n := 0
		must(t, ix.Walk(w.ctl.Plain(), func(at layout.Addr, _ index.Candidate) error {
			if n++; n%2 == 0 {
				p := w.space.View().At(at, 0)
				clear(w.f.Memory(p.Blade)[p.Off:][:8])
			}
			return nil
		}))
		for i := 0; ix.Events().Splits == 0; i++ {
			err := w.do(own, put(fmt.Sprint("new ", i), "1"))
			if err == nil && i%3 == 0 {
				w.sure(ours, own, del(fmt.Sprint("new ", i)))
			}
			if ours.Broken() != nil {
				must(t, ours.Rejoin(ours.Thread().Plain()))
			}
			if i > 2000 {
				t.Fatal("there was no split")
			}
		}
		own.Coro().Sleep(10_000) // until its locks are released
		w.repair()
		orphans := w.repair()
		must(t, ours.Close())
		if w.sweep(); f == 0 && orphans == 0 {
			t.Errorf("f=%d: records were linked while somebody was at work", f)
		}
		for range 3 { // what was repaired may be what the rest is judged by
			w.repair()
		}
		if left := w.repair(); left > 0 {
			t.Errorf("f=%d: %d findings are left", f, left)
		}
		w.mended(fmt.Sprintf("f=%d", f), keys, want)
		s, tx := w.session()
		for i := range 100 {
			if got := w.values(s, tx, fmt.Sprint("new ", 3*i)); got[0] != "" {
				t.Errorf("f=%d: new %d was deleted, and is back", f, 3*i)
			}
		}
		must(t, s.Close())
	}
}

// TestReclaimWithoutSlot: damage empties the slot of a deleted record, on the primary or
// everywhere. The session that is to reclaim it goes on, and can be closed; a repair, and a sweep,
// leave nothing behind.
func TestReclaimWithoutSlot(t *testing.T) {
	for copies := 1; copies <= 2; copies++ {
		w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
		ours, own := w.session()
		for i := range 4 {
			w.sure(ours, own, put(fmt.Sprint("key ", i), "1"))
		}
		w.sure(ours, own, del("key 1"), del("key 2"))
		own.Coro().Sleep(10_000) // until its locks are released
		w.spoilt = true
		slots := map[layout.Addr]layout.Addr{}
		must(t, w.table.Index.(*race.Index).Walk(w.ctl.Plain(), func(at layout.Addr, b index.Candidate) error {
			slots[b.Addr] = at
			return nil
		}))
		w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
			for k := range copies {
				if p := w.space.View().At(slots[a], k); string(line.Key()) == "key 1" {
					clear(w.f.Memory(p.Blade)[p.Off:][:8])
				}
			}
		})
		if err := ours.Close(); err != nil {
			t.Errorf("closed: %v", err)
		}
		w.repair()
		gone, _ := w.session() // whoever dies next
		w.recover(gone.Coordinator())
		w.mended(fmt.Sprintf("lost on %d copies", copies), []string{"key 0", "key 1", "key 2"}, []string{"1", "", ""})
	}
}

// TestDeadBesideEmptiedSlot: damage empties the slot of a record on the primary, and a client dies
// that moves the record, whose place it remembers, or that inserts another one in the place of the
// slot. When the database has been repaired, and opened, the record is there.
func TestDeadBesideEmptiedSlot(t *testing.T) {
	for _, s := range []setting{
		{occ.PolicyDefault, 0, strong}, {occ.PolicyDefault, 1, strong}, {occ.PolicyFORD, 1, strong},
	} {
		t.Run(s.String()+" moves", func(t *testing.T) {
			for stop := 0; deadBesideEmptiedSlot(t, s, stop); stop++ {
			}
		})
		if s.backups > 0 {
			t.Run(s.String()+" inserts", func(t *testing.T) { deadBesideEmptiedSlot(t, s, -1) })
		}
	}
}

// deadBesideEmptiedSlot is TestDeadBesideEmptiedSlot of who moves the record, and dies after
// so many verbs, or inserts another one, negative, and dies when it has the place. It
// reports whether it has.
func deadBesideEmptiedSlot(t *testing.T, s setting, stop int) bool {
	w := newWorld(t, s, occ.Options{})
	victim, dying := w.loaded(put("key", "1"), put("other", "1"))
	at := layout.Addr(0)
	w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
		must(t, w.table.Index.(*race.Index).Walk(w.ctl.Plain(), func(slot layout.Addr, b index.Candidate) error {
			if b.Addr == a && string(line.Key()) == "key" {
				at = slot
			}
			return nil
		}))
	})
	w.spoilt = true
	p := w.space.View().At(at, 0)
	slot := w.f.Memory(p.Blade)[p.Off:][:8]
	clear(slot)
	long := strings.Repeat("2", 300)
	if stop >= 0 {
		w.arm(stop)
		_ = w.do(dying, put("key", long))
	} else {
		w.stop.at = func() {
			if binary.LittleEndian.Uint64(slot) != 0 {
				w.stop.left = 0
			}
		}
		for i := 0; !w.stop.hit; i++ {
			_ = w.do(dying, put(fmt.Sprint("new ", i), "1"))
		}
	}
	died := w.disarm()
	w.decideUntil(victim.Coordinator(), -1)
	for range 4 {
		for _, alone := range []bool{false, true} {
			_, err := recovery.Sweep(w.ctl.Plain(), recovery.Options{Space: w.space, Alone: alone})
			if err != nil && !errors.Is(err, layout.ErrCorrupt) {
				t.Fatalf("stop %d: swept: %v", stop, err)
			}
		}
		w.repair()
	}
	if left := w.repair(); left > 0 {
		t.Errorf("stop %d: %d findings are left", stop, left)
	}
	ours, own := w.session()
	if got := w.values(ours, own, "key", "other"); got[0] != "1" && got[0] != long || got[1] != "1" {
		t.Errorf("stop %d: %.8q", stop, got)
	}
	must(t, ours.Close())
	w.sweep()
	w.check(fmt.Sprintf("stop %d", stop))
	return died
}
