package verify_test

import (
	"errors"
	"testing"

	"txnode/memory/layout"
	"txnode/occ"
	"txnode/verify"
)

// TestPlaces: a place that the catalog calls clean, and that is not all zero, is found, and
// a repair clears it.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 50)
	_, h, done := attach(t, dir, true)
	l, rev, err := layout.Load(h.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	x := &l.Blades[1]
	base := l.Base(x.Used)
	x.Clean = x.Clean.With(x.Used)
	x.Used++
	_, err = h.Catalog.Apply(rev, []layout.Entry{layout.EntryOfBlade(1, *x)})
	if err = errors.Join(err, l.Validate()); err != nil {
		t.Fatal(err)
	}
	done()
	m := dissect(t, dir)
	if _, found := check(t, dir, false); len(found) > 0 {
		t.Fatalf("a place that is clean:\n%s", show(found))
	}
	m.poke(1, base+100<<10, []byte{1})
	m.poke(1, base+200<<10, []byte{1})
	for _, repair := range []bool{false, true} {
		_, found := check(t, dir, repair)
		if len(found) == 0 || found[0].Kind != verify.KindRegion || found[0].Blade != 1 ||
			found[0].Off != base+64<<10 || found[0].Repaired != repair || len(found) > 1 != repair {
			t.Fatalf("repair %v:\n%s", repair, show(found))
		}
	}
	if _, found := check(t, dir, false); len(found) > 0 || !m.whole() {
		t.Fatalf("after a repair:\n%s", show(found))
	}
}
