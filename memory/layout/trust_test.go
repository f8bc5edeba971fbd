package layout

import (
	"context"
	"errors"
	"slices"
	"testing"

	"txnode/rdma"
)

// entriesOf is a catalog that has a layout.
type entriesOf struct {
	entries []Entry
	rev     Revision
}

func (c *entriesOf) Name() string                                      { return "test" }
func (c *entriesOf) Identity() (Identity, error)                       { return Identity{}, nil }
func (c *entriesOf) Load() ([]Entry, Revision, error)                  { return slices.Clone(c.entries), c.rev, nil }
func (c *entriesOf) Revision() (Revision, error)                       { return c.rev, nil }
func (c *entriesOf) Await(context.Context, Revision) (Revision, error) { return c.rev, nil }
func (c *entriesOf) KeepAlive(Beat) ([]Beat, error)                    { return nil, nil }
func (c *entriesOf) Close() error                                      { return nil }
func (c *entriesOf) Apply(_ Revision, changes []Entry) (Revision, error) {
	for _, e := range changes {
		i, found := slices.BinarySearchFunc(c.entries, e.Key, func(x Entry, key string) int {
			switch {
			case x.Key < key:
				return -1
			case x.Key > key:
				return 1
			}
			return 0
		})
		switch {
		case found && e.Value == nil:
			c.entries = slices.Delete(c.entries, i, i+1)
		case found:
			c.entries[i] = e
		case e.Value != nil:
			c.entries = slices.Insert(c.entries, i, e)
		}
	}
	c.rev++
	return c.rev, nil
}

// trusting is a layout of four blades, with a segment on each pair that is given, the primary
// first.
func trusting(pairs ...[2]rdma.BladeID) *Layout {
	l := &Layout{
		Geometry:  Geometry{Backups: 1, SegmentSize: MinSegmentSize, LogArea: MinLogArea, Shared: true},
		Formatted: true, Epoch: 5, NextCoordinator: 9, Segments: make([]Segment, 1),
	}
	for range 4 {
		l.Blades = append(l.Blades, Blade{Size: HeaderArea + 8*MinSegmentSize, Told: 7, Key: 1})
	}
	for _, p := range pairs {
		s := Segment{Kind: KindBlocks, Owner: 1}
		for _, b := range p {
			s.Placement.Replicas[s.Placement.N] = Replica{b, l.Base(l.Blades[b].Used)}
			s.Placement.N++
			l.Blades[b].Used++
		}
		l.Segments = append(l.Segments, s)
	}
	return l
}

// TestTrust: of a segment that has a copy which is neither trusted nor away the trusted ones go;
// else the first of the trusted ones stays alone, so that all copies that there are say the same.
// Nothing is changed in vain, nor if a process has had the database open since it was looked at.
func TestTrust(t *testing.T) {
	blades := func(p *Placement) (all []rdma.BladeID) {
		for _, r := range p.Replicas[:p.N] {
			all = append(all, r.Blade)
		}
		return all
	}
	l := trusting([2]rdma.BladeID{0, 1}, [2]rdma.BladeID{1, 2}, [2]rdma.BladeID{3, 1}, [2]rdma.BladeID{2, 3},
		[2]rdma.BladeID{0, 3})
	cat := &entriesOf{l.Entries(), 1}
	for _, x := range []struct {
		is   error
		was  *Layout
		away []rdma.BladeID
		all  []rdma.BladeID
	}{
		{ErrLayout, l, nil, []rdma.BladeID{1}}, // all that it has is on others, too
		{rdma.ErrBladeDown, l, nil, []rdma.BladeID{9}},
		{ErrLayout, &Layout{Epoch: 4, NextCoordinator: 9}, []rdma.BladeID{3}, []rdma.BladeID{0, 1}},
	} {
		if err := Trust(cat, x.was, x.away, x.all...); !errors.Is(err, x.is) || cat.rev != 1 {
			t.Errorf("%v: %v, at revision %d", x.all, err, cat.rev)
		}
	}
	if err := Trust(cat, l, []rdma.BladeID{3}, 1, 0); err != nil {
		t.Fatal(err)
	}
	now, err := LoadLayout(cat)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]rdma.BladeID{{1}, {2}, {3, 1}, {2, 3}, {0, 3}} {
		if got := blades(&now.Segments[i+1].Placement); !slices.Equal(got, want) {
			t.Errorf("segment %d is on blades %v, not %v", i+1, got, want)
		}
	}
	for b, want := range []Revision{0, 0, 7, 7} {
		if now.Blades[b].Told != want {
			t.Errorf("blade %d was told of revision %d, as the catalog knows; not of %d", b, now.Blades[b].Told, want)
		}
	}
	if now.Epoch != 6 || !now.Unswept || !now.Dangling || !now.Leaked {
		t.Errorf("epoch %d, unswept %v, dangling %v, leaked %v", now.Epoch, now.Unswept, now.Dangling, now.Leaked)
	}
	if x := l.Losses(0, 1); x.Segments != 1 || x.Of != 5 || x.Bytes != MinSegmentSize {
		t.Errorf("%+v", x)
	}
}
