package cluster_test

import (
	"errors"
	"path/filepath"
	"testing"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/region"
	"txnode/rdma/shm"
)

// TestShared: blades that are mapped are found by the names of their servers, in the
// order of the catalog.
func TestShared(t *testing.T) {
	b := newBed(t)
	c := b.catalog(&catalog.Mem{}, "c")
	dir := filepath.Join(b.dir, "d")
	stops := map[string]func() error{}
	for i, name := range []string{"a", "b"} {
		s, err := shm.NewServer(dir, shm.ServerOptions{Name: name, Blades: []region.Options{{Size: 1 << (20 + i)}}})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve() }()
		stops[name] = func() error { return errors.Join(s.Close(), <-served) }
	}
	list := []cluster.BladeAddress{cluster.BladeAddress("shm:" + dir + "/b"), cluster.BladeAddress("shm:" + dir + "/a")}
	if err := cluster.Init(t.Context(), c, list, cluster.Geometry{}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	h, err := cluster.Connect(t.Context(), b.address("c"), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if all := h.Fabric.Blades(); len(all) != 2 || all[0].Size != 2<<20 || all[1].Size != 1<<20 {
		t.Errorf("%+v", all)
	}
	if err := errors.Join(h.Close(), stops["b"]()); err != nil {
		t.Fatal(err)
	}
	_, err = cluster.Connect(t.Context(), b.address("c"), cluster.Options{})
	refused(t, "a server that is away", err, rdma.ErrBladeDown, dir)
	if err := stops["a"](); err != nil {
		t.Fatal(err)
	}
}
