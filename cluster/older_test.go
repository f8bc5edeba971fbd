package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/txn"
)

// TestOlderCatalogFile: the file of a catalog is replaced by an older copy, of the same epoch,
// while its server is down. The process that has the database open refuses it, and so does one that
// opens it, which has seen nothing itself; the newest is used on.
func TestOlderCatalogFile(t *testing.T) {
	b := newBed(t)
	serve := b.catalogFile("c")
	stop := serve()
	defer func() { stop() }()
	names := []string{"b0", "b1"}
	for _, name := range names {
		b.blades([]uint64{size}, name)
	}
	if err := cluster.Init(t.Context(), b.client("c"), b.list(names...), cluster.Geometry{
		SegmentSize: 256 << 10, LogArea: 64 << 10,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	o := txn.Options{LeaseTerm: time.Minute, Workers: 1, IndexGroups: 16}
	open := func() (*txn.DB, error) { return cluster.Open(t.Context(), b.address("c"), o, cluster.Options{}) }
	near, err := open()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.dir, "catalog.db")
	read := func() []byte {
		t.Helper()
		p, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	older := read()
	epoch := near.Space().View().Epoch
	if _, err := txn.CreateTable(near, "docs", txn.Uint64, txn.Bytes()); err != nil {
		t.Fatal(err)
	}
	other, err := open()
	if err == nil {
		err = other.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	exchange := func(content []byte) {
		t.Helper()
		stop()
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		stop = serve()
	}
	stop()
	newest := read()
	stop = serve()
	if now := near.Space().Layout().Epoch; now != epoch {
		t.Fatalf("epoch %d, and it was %d: a copy of an earlier epoch shows nothing", now, epoch)
	}
	exchange(older)
	for err = near.Space().Follow(); errors.Is(err, remote.ErrAway); err = near.Space().Follow() {
		time.Sleep(time.Millisecond)
	}
	if behind, ok := errors.AsType[*layout.BehindError](err); !ok || behind.Have >= behind.Seen ||
		!errors.Is(err, layout.ErrForeign) {
		t.Errorf("a process that has it open: %v", err)
	}
	if _, err := txn.CreateTable(near, "late", txn.Uint64, txn.Bytes()); !errors.Is(err, layout.ErrForeign) {
		t.Errorf("it makes a table: %v", err)
	}
	if far, err := open(); !errors.Is(err, layout.ErrForeign) {
		if err == nil {
			err = far.Close(t.Context())
		}
		t.Errorf("another process opens it: %v", err)
	}
	st, err := cluster.Ask(t.Context(), b.address("c"), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if all := st.Troubles(); len(all) == 0 || all[0].Kind != cluster.TroubleCatalog ||
		!errors.Is(all[0].Err, layout.ErrForeign) {
		t.Errorf("the cluster: %+v", all)
	}
	exchange(newest)
	if st, err = cluster.Ask(t.Context(), b.address("c"), cluster.Options{}); err != nil || st.Behind != nil {
		t.Errorf("with the newest: %+v, %v", st, err)
	}
	far, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := txn.OpenTable(far, "docs", txn.Uint64, txn.Bytes()); err != nil {
		t.Error(err)
	}
	if err := far.Close(t.Context()); err != nil {
		t.Error(err)
	}
	_ = near.Close(t.Context()) // it was refused
}
