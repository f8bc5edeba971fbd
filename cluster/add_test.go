package cluster_test

import (
	"errors"
	"slices"
	"testing"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/txn"
)

// TestAddBladeRefused: a server that cannot take a place is refused at once, and the catalog is as
// before; one that was drained takes its own place again, whichever is vacant first.
func TestAddBladeRefused(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c, m := b.catalog(&catalog.Mem{}, "c"), b.catalog(&catalog.Mem{}, "m")
	stops := map[string]func(){}
	for _, names := range [][]string{{"a", "a by a link"}, {"b"}, {"d"}, {"e", "e by a link"}, {"f"}, {"x"}} {
		stops[names[0]] = b.blades([]uint64{size}, names...)
	}
	b.blades([]uint64{1 << 20}, "small")
	b.blades([]uint64{size, size}, "two")
	g := cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10, Places: 4}
	if err := cluster.Init(ctx, c, b.list("a", "b"), g, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Init(ctx, m, b.list("x"), cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10},
		cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	add := func(name string) ([]int, error) {
		return cluster.AddBlade(ctx, b.address("c"), cluster.BladeAddress(b.address(name)), cluster.Options{})
	}
	added := func(name string, id int) {
		t.Helper()
		if ids, err := add(name); err != nil || !slices.Equal(ids, []int{id}) {
			t.Fatalf("adding %s: %v, %v; want %d", name, ids, err, id)
		}
	}
	not := func(name string, kind error, say string) {
		t.Helper()
		before, _, err := c.Load()
		if err != nil {
			t.Fatal(err)
		}
		_, err = add(name)
		refused(t, name, err, kind, say)
		after, _, err := c.Load()
		if err != nil || !slices.EqualFunc(before, after, func(x, y layout.Entry) bool {
			return x.Key == y.Key && string(x.Value) == string(y.Value)
		}) {
			t.Errorf("%s: the catalog has changed, %v", name, err)
		}
	}
	drain := func(id int) {
		t.Helper()
		if err := cluster.DrainBlade(ctx, b.address("c"), id, nil, cluster.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	not("a by a link", cluster.ErrOptions, b.address("a by a link")+" is another name of "+b.address("a")+
		", which the cluster has already, with blade 0")
	not("x", cluster.ErrOtherBlades, "belongs to database")
	not("small", cluster.ErrOptions, "needs")
	not("two", cluster.ErrOptions, "no vacant place for a server of 2 blades")
	added("d", 2)
	added("e", 3)
	not("f", cluster.ErrOptions, "no vacant place")
	drain(2)
	drain(3)
	added("e by a link", 3) // it is the name of no server any more, and the memory is that of place 3
	not("e", cluster.ErrOptions, "is another name of "+b.address("e by a link"))
	added("f", 2)
	not("d", cluster.ErrOtherBlades, "is that of blade 2 of this database, which is at "+b.address("f"))

	drain(2)
	stops["a"]() // and begins anew: nobody has taken it in yet
	b.blades([]uint64{size}, "a", "a by another link")
	not("a by another link", cluster.ErrOptions, "is another name of "+b.address("a"))
	added("a", 0)
	if err := cluster.DrainBlade(ctx, b.address("c"), 4, nil, cluster.Options{}); !errors.Is(err, txn.ErrOptions) {
		t.Errorf("there is no blade 4: %v", err)
	}
}

// TestRelativeAddresses: Init and AddBlade write the absolute paths of servers into the catalog,
// since other programs begin in other directories.
func TestRelativeAddresses(t *testing.T) {
	b := newBed(t)
	c := b.catalog(&catalog.Mem{}, "c")
	for _, name := range []string{"a", "d"} {
		b.blades([]uint64{size}, name)
	}
	t.Chdir(b.dir)
	if err := cluster.Init(t.Context(), c, []cluster.BladeAddress{"unix:a"},
		cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10, Places: 2}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.AddBlade(t.Context(), b.address("c"), "unix:d", cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	servers, err := cluster.Servers(c)
	if want := b.list("a", "d"); err != nil || len(servers) != 2 || servers[0].Address != want[0] ||
		servers[1].Address != want[1] {
		t.Errorf("%+v, %v; want %v", servers, err, want)
	}
}
