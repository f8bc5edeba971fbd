package verify_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/verify"
)

// TestUnswept: what coordinators have left that are forgotten is unfinished as long as the catalog
// says that it is still to be swept. When it was, or when the sweep has left what is damaged, it is
// damage; and so is a record that is damaged, in every case. An extent without an index is
// unfinished, too, as long as a coordinator may have left it.
func TestUnswept(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 100)
	db, err := embedded.Open(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	th, err := rdma.NewThread(db.Space().Fabric(), rdma.ThreadOptions{Arena: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Space().NewExtent(th.Plain(), 256) // which no index uses
	if err := errors.Join(err, th.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	m := dissect(t, dir)
	i := m.live(-1)
	j := m.live(i)
	k := m.live(j)
	n := m.live(k)
	m.putWord(m.blocks[i].Addr+record.GuardOff, 0, uint64(record.HeldBy(record.MakeTxID(1, 5))))
	m.everywhere(m.slots[j], m.word(m.slots[j], 0)|1<<55) // a split was not finished
	m.seal(m.blocks[k].Addr, m.blocks[k].Class, record.Free, nil, nil)
	for copies := range m.v.Copies(m.blocks[n].Addr) {
		m.flip(m.blocks[n].Addr+record.KeyOff, copies)
	}
	for _, x := range []struct {
		name       string
		change     func(l *layout.Layout)
		unfinished []verify.Kind
	}{
		{"swept", func(*layout.Layout) {}, nil},
		{"loose", func(l *layout.Layout) { l.Leaked = true }, []verify.Kind{verify.KindOrphan}},
		{
			"unswept", func(l *layout.Layout) { l.Unswept = true },
			[]verify.Kind{verify.KindOrphan, verify.KindLock, verify.KindSplit},
		},
		{
			"unswept after a loss", func(l *layout.Layout) { l.Unswept, l.Dangling = true, true },
			[]verify.Kind{verify.KindOrphan, verify.KindLock, verify.KindSplit, verify.KindDangling},
		},
		{"swept but for damage", func(l *layout.Layout) { l.Unswept, l.Dangling, l.OnlyDamage = true, true, true },
			nil},
	} {
		h, err := embedded.Connect(embedded.Options{Dir: dir, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		l, err := layout.LoadLayout(h.Catalog)
		if err != nil {
			t.Fatal(err)
		}
		x.change(l)
		d, err := verify.Attach(h.Fabric, l)
		if err != nil {
			t.Fatal(err)
		}
		got := map[verify.Kind]int{}
		sum, err := d.Check(context.Background(), verify.Options{Report: func(f verify.Finding) error {
			if got[f.Kind]++; f.Unfinished != slices.Contains(x.unfinished, f.Kind) {
				t.Errorf("%s: unfinished: %v; %v", x.name, f.Unfinished, f)
			}
			return nil
		}})
		if err != nil || sum.Clean() || int(sum.Unfinished) != len(x.unfinished) {
			t.Errorf("%s: %+v, %v", x.name, sum, err)
		}
		for _, kind := range []verify.Kind{
			verify.KindOrphan, verify.KindLock, verify.KindSplit, verify.KindDangling, verify.KindRecord,
		} {
			if got[kind] != 1 || len(got) != 5 {
				t.Errorf("%s: %v", x.name, got)
			}
		}
		if err := errors.Join(d.Close(), h.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
