package verify_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"txnode/log"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/verify"
)

// TestHeaders damages the headers of regions, which have no address.
func TestHeaders(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 50)
	m := dissect(t, dir)
	for _, c := range []struct {
		copies []int
		remedy bool
	}{{[]int{0}, true}, {[]int{1}, true}, {[]int{0, 1}, false}} {
		for _, k := range c.copies {
			m.spoil(1, layout.HeaderOffset(k)+16)
		}
		_, found := check(t, dir, false)
		if len(found) != len(c.copies) {
			t.Errorf("copies %v:\n%s", c.copies, show(found))
		}
		for i, f := range found {
			if f.Kind != verify.KindHeader || f.Blade != 1 || f.Off != layout.HeaderOffset(c.copies[i]) ||
				f.Copy != c.copies[i] || f.Remedy != "" != c.remedy {
				t.Errorf("%v: %+v", c, f)
			}
		}
		if c.remedy {
			if sum, _ := check(t, dir, true); sum.Repaired != 1 || !m.whole() {
				t.Errorf("repair: %+v", sum)
			}
		}
		m.heal()
	}
	m.poke(0, 0, m.raw(1, 0, 64)) // another blade's
	if _, found := check(t, dir, false); len(found) != 1 || found[0].Kind != verify.KindHeader {
		t.Errorf("another blade's header:\n%s", show(found))
	}
	m.heal()
}

// TestStrangeBlade: a region that is blank, or somebody else's, is neither damage, of
// which there would be a line for every word, nor proof of anything: a repair that
// believed it would write it over the last good copy. What the other blades have is
// checked, and not repaired.
func TestStrangeBlade(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 50)
	m := dissect(t, dir)
	sound, _ := check(t, dir, false)
	own := m.l.HeaderOf(1)
	encode := func(change func(h *layout.RegionHeader)) func(k int) []byte {
		h := own
		change(&h)
		return h.Encode
	}
	others := map[string]func(k int) []byte{
		"blank":           func(int) []byte { return make([]byte, layout.RegionHeaderSize) },
		"text":            func(int) []byte { return bytes.Repeat([]byte("text"), layout.RegionHeaderSize/4) },
		"another's":       encode(func(h *layout.RegionHeader) { h.UUID[3] ^= 1 }),
		"another blade's": encode(func(h *layout.RegionHeader) { h.Blade = 0 }),
		"an old copy":     encode(func(h *layout.RegionHeader) { h.Epoch = m.l.Opened - 1 }),
	}
	for name, header := range others {
		for k := range layout.HeaderCopies {
			m.poke(1, layout.HeaderOffset(k), header(k))
		}
		a := m.blocks[m.live(-1)].Addr // and damage elsewhere, which is found, and not repaired now
		for k := range m.v.Copies(a) {
			at := m.v.At(a, k)
			m.spoil(at.Blade, at.Off+record.ChecksumOff+7)
		}
		for _, repair := range []bool{false, true} {
			sum, found := check(t, dir, repair)
			if len(found) != layout.HeaderCopies+1 || sum.ByKind[verify.KindRecord] != 1 || sum.Live != sound.Live-1 ||
				!slices.Equal(sum.Strange, []rdma.BladeID{1}) || sum.Repaired != 0 || sum.Clean() {
				t.Errorf("%s, repair %v: %+v\n%s", name, repair, sum, show(found))
			}
		}
		m.heal()
	}
	// One copy that proves the blade is enough.
	m.poke(1, layout.HeaderOffset(0), others["blank"](0))
	if sum, found := check(t, dir, true); len(found) != 1 || len(sum.Strange) != 0 || sum.Repaired != 1 {
		t.Errorf("one blank copy: %+v\n%s", sum, show(found))
	}
}

// TestOldCatalog: what a catalog says that is older than the regions is no model to repair by.
func TestOldCatalog(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 50)
	m := dissect(t, dir)
	for name, change := range map[string]func(h *layout.RegionHeader){
		"a later epoch": func(h *layout.RegionHeader) { h.Epoch++ },
		"grown":         func(h *layout.RegionHeader) { h.Size += 1 << 20 },
	} {
		h := m.l.HeaderOf(1)
		change(&h)
		for k := range layout.HeaderCopies {
			m.poke(1, layout.HeaderOffset(k), h.Encode(k))
		}
		at := m.v.At(m.blocks[m.live(-1)].Addr, 1)
		m.spoil(at.Blade, at.Off+record.ChecksumOff+7) // which could be repaired
		sum, found := check(t, dir, true)
		if len(found) != layout.HeaderCopies+1 || !sum.CatalogOld || sum.Repaired != 0 || sum.Clean() {
			t.Errorf("%s: %+v\n%s", name, sum, show(found))
		}
		m.heal()
	}
}

// TestPending leaves a coordinator behind with a transaction that is decided and one
// whose record is of no consequence any more.
func TestPending(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 100)
	m := dissect(t, dir)
	db, err := embedded.Open(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	coord, err := db.Space().NewCoordinator()
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	i := m.live(-1)
	j := m.live(i)
	tx, old, lost := record.MakeTxID(coord.ID, 7), record.MakeTxID(coord.ID, 3), record.MakeTxID(coord.ID, 9)
	put := func(off uint64, kind log.Kind, tx record.TxID, a layout.Addr, prev record.TxID) {
		buf := make([]byte, 1024)
		var b log.Builder
		b.Reset()
		meta := record.Image(m.get(a, 0, 64)).Meta()
		size := record.Size(meta.KeyLen(), meta.ValueLen())
		w := b.Add(buf, size)
		copy(buf[w:], m.get(a, 0, size))
		record.Image(buf[w:]).SetGuard(record.FreeAt(tx))
		b.Set(buf, w, log.Update, a, prev, 0, size)
		n := b.Finish(buf, kind, tx, 0, 0)
		for _, area := range coord.Logs {
			m.poke(area.Addr.Blade, area.Addr.Off+off, buf[:n])
		}
	}
	a, b := m.blocks[i].Addr, m.blocks[j].Addr
	put(0, log.Undo, old, a, 1)
	if sum, found := check(t, dir, false); len(found) > 0 || sum.LogRecords != 1 || sum.Coordinators != 1 {
		t.Errorf("an old record: %+v\n%s", sum, show(found))
	}
	put(512, log.Redo, tx, a, record.Image(m.get(a, 0, 64)).Version())
	put(1024, log.Redo, lost, b, record.Image(m.get(b, 0, 64)).Version())
	m.putWord(a+record.GuardOff, 0, uint64(record.HeldBy(tx)))
	logs := layout.Addr(0)
	for id := range m.l.Segments {
		if s := &m.l.Segments[id]; s.Kind == layout.KindLog && s.Placement.Replicas[0].Blade == 0 && logs == 0 {
			logs = layout.MakeAddr(layout.SegmentID(id), uint32(coord.Logs[0].Addr.Off-s.Placement.Replicas[0].Base))
		}
	}
	for _, repair := range []bool{false, true} {
		sum, found := check(t, dir, repair)
		compare(t, []want{
			{verify.KindPending, logs + 512, 0}, {verify.KindPending, logs + 1024, 0}, {verify.KindLock, a, 0},
		}, found)
		for _, f := range found { // the next opening settles what is locked; a commit that is not there is damage
			if f.Unfinished != (f.Addr != logs+1024) {
				t.Errorf("unfinished: %v; %v", f.Unfinished, f)
			}
		}
		if sum.Unfinished != 2 || sum.Clean() {
			t.Errorf("%+v", sum)
		}
	}
	for name, c := range map[string]struct {
		run  func(d *verify.Dump, _ *verify.Database) error
		want []string
	}{
		"log": {func(d *verify.Dump, _ *verify.Database) error { return d.Log(coord.ID, 1) },
			[]string{
				"transaction " + old.String(), "undo, 1 entries", "update of the block at " + a.String(),
				"transaction " + lost.String(), "  guard: free at version " + tx.String(),
			}},
		"tx": {func(d *verify.Dump, _ *verify.Database) error { return d.Tx(tx) },
			[]string{
				"was not closed", "its record in the log on blade 0", "its record in the log on blade 1",
				", locked by " + tx.String(), "1 blocks have",
			}},
	} {
		out, err := dump(t, dir, 0, c.run)
		for _, w := range c.want {
			if err != nil || !strings.Contains(out, w) {
				t.Errorf("%s: %v, %q is not in\n%s", name, err, w, out)
			}
		}
	}
	put(2048, log.Redo, record.MakeTxID(coord.ID+1, 1), a, 1)
	if _, found := check(t, dir, false); len(found) != 5 || found[2].Kind != verify.KindLog {
		t.Errorf("a foreign record:\n%s", show(found))
	}
}
