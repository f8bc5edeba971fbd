package verify_test

import (
	"testing"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/verify"
)

// withRace hands package race's own view of the index of the first table to fn, and returns its
// verdict, or why that index cannot be opened. opens: the database could be.
func withRace(t *testing.T, dir string, fn func(ix *race.Index, c *rdma.Coro) error) (opens bool, verdict error) {
	t.Helper()
	db, err := embedded.Open(embedded.Options{Dir: dir, ReadOnly: true})
	if err != nil {
		return false, err
	}
	defer db.Close()
	th, err := rdma.NewThread(db.Fabric(), rdma.ThreadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	ix, err := race.Open(th.Plain(), db.Space(), db.Space().Layout().Tables[0].Root, 1)
	if err != nil {
		return true, err
	}
	return true, fn(ix, th.Plain())
}

// TestTwins holds the walk against package race's own: whatever damage is found in
// the segments of an index, race finds it, too; and what race finds, the walk does.
func TestTwins(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 300)
	m := dissect(t, dir)
	compared := 0
	for _, d := range damages {
		d.do(m)
		_, found := check(t, dir, false)
		opens, err := withRace(t, dir, (*race.Index).Verify)
		m.heal()
		if !opens {
			continue // memory has refused it: an extent is damaged on the copy that it reads
		}
		index := false
		for _, f := range found {
			inIndex := f.Addr != 0 && m.l.Segments[f.Addr.Segment()].Kind == layout.KindIndex &&
				f.Addr.Offset() >= memory.FirstExtent(testSegment)
			index = index || inIndex && f.Kind != verify.KindExtent
		}
		if index {
			compared++
		}
		if index && err == nil {
			t.Errorf("%s: race finds nothing, the walk\n%s", d.name, show(found))
		}
		if err != nil && len(found) == 0 {
			t.Errorf("%s: the walk finds nothing, race %v", d.name, err)
		}
	}
	if compared < 20 {
		t.Errorf("%d kinds of damage were of an index", compared)
	}
}

// TestSizesAreRaces pins the sizes of the structures to package race's.
func TestSizesAreRaces(t *testing.T) {
	dir := t.TempDir()
	populateOf(t, dir, variant{1, 0, occ.PolicyDefault}, 100, 2)
	_, err := withRace(t, dir, func(ix *race.Index, c *rdma.Coro) error {
		s, err := ix.Stats(c)
		if got := verify.IndexBytes(ix.Geometry(), s.SubTables, s.GlobalDepth); got != s.Bytes {
			t.Errorf("an index of %d sub-tables has %d bytes, race says %d", s.SubTables, got, s.Bytes)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
