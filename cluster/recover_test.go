package cluster_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// TestRecoverTrust: both blades of a cluster come with old copies. An operator takes one of them
// for the newest, and is told what that gives up. Nothing changes before.
func TestRecoverTrust(t *testing.T) {
	b := newFiledBed(t, "a", "b")
	b.session(1)
	old := map[string][]byte{}
	b.stopped(func() { old["a"] = b.read("a") })
	b.session(2)
	b.stopped(func() { old["b"] = b.read("b") }) // which is newer
	b.session(3)
	call := func(agree func(*cluster.GivenUp) error, trust ...int) error {
		return cluster.Recover(t.Context(), b.address("c"), trust, agree, cluster.Options{})
	}
	never := func(*cluster.GivenUp) error {
		t.Error("there is nothing to agree to")
		return nil
	}
	if err := call(never); !errors.Is(err, cluster.ErrNotNeeded) {
		t.Errorf("all is there: %v", err)
	}
	b.stopped(func() {
		b.write("a", old["a"])
		b.write("b", old["b"])
	})
	refused := errors.New("no")
	if err := call(func(x *cluster.GivenUp) error {
		if len(x.Blades) != 1 || x.Blades[0].ID != 0 || len(x.Trusted) != 1 || x.Trusted[0].ID != 1 ||
			x.Segments == 0 || x.Segments != x.Of || x.Bytes == 0 ||
			!slices.Equal(x.Tables, []string{"numbers"}) || !slices.Equal(x.Indexes, x.Tables) {
			t.Errorf("given up: %+v", x)
		}
		return refused
	}, 1); !errors.Is(err, refused) {
		t.Errorf("refused: %v", err)
	}
	if _, _, err := b.open(); !errors.Is(err, layout.ErrStale) {
		t.Errorf("after a refusal: %v", err)
	}
	if err := call(never, 5); !errors.Is(err, cluster.ErrOptions) {
		t.Errorf("a blade that is not there: %v", err)
	}
	if err := call(func(*cluster.GivenUp) error { return nil }, 0, 1); err != nil { // of which the newer one stays
		t.Fatal(err)
	}
	if got := b.values(); got[2] != filedKeys {
		t.Errorf("what b had: %v", got)
	}
}

// TestRecoverLost: the last copies of segments were on blades that come back blank. An operator
// gives them up. The rest works.
func TestRecoverLost(t *testing.T) {
	b := newFiledBed(t, "a", "b", "x")
	b.session(1)
	b.stopped(func() {
		b.write("a", make([]byte, size))
		b.write("b", make([]byte, size))
	})
	if _, _, err := b.open(); !errors.Is(err, layout.ErrForeign) {
		t.Fatalf("opened: %v", err)
	}
	if err := cluster.Recover(t.Context(), b.address("c"), nil, func(x *cluster.GivenUp) error {
		if len(x.Blades) != 2 || len(x.Trusted) != 0 || x.Segments == 0 {
			t.Errorf("given up: %+v", x)
		}
		return nil
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := cluster.Open(t.Context(), b.address("c"), txn.Options{Workers: 1, IndexGroups: 16},
		cluster.Options{Post: -1})
	if err != nil {
		t.Fatal(err)
	}
	if r := db.Redundancy(); r.Lost == 0 {
		t.Errorf("%+v", r)
	}
	more, err := txn.CreateTable(db, "more", txn.Uint64, txn.Plain[uint64]())
	if err == nil {
		err = db.Update(t.Context(), func(tx *txn.Tx) error { return more.Put(tx, 1, 1) })
	}
	if err = errors.Join(err, db.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestEvictAndForget: an operator declares a blade dead, unless it has last copies, and makes
// its place vacant, which another server takes. A process whose registration is ended goes on
// under another number.
func TestEvictAndForget(t *testing.T) {
	b := newFiledBed(t, "a", "b", "x")
	address, o, ctx := b.address("c"), cluster.Options{}, t.Context()
	db, table, err := b.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	put := func(v uint64) error { return db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, 1, v) }) }
	if err := put(1); err != nil {
		t.Fatal(err)
	}
	if err := cluster.ForgetBlade(ctx, address, 0, o); !errors.Is(err, cluster.ErrOptions) {
		t.Errorf("forget a blade that is up: %v", err)
	}
	was := db.Space().Process()
	if err := cluster.EvictProcess(ctx, address, was, o); err != nil {
		t.Fatal(err)
	}
	if err := cluster.EvictProcess(ctx, address, was, o); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("a process that is gone: %v", err)
	}
	for db.Space().Process() == was {
		time.Sleep(time.Millisecond)
	}
	for err = put(2); errors.Is(err, rdma.ErrStaleKey) || errors.Is(err, txn.ErrConflict); err = put(2) {
	}
	if err != nil {
		t.Errorf("a process that was evicted: %v", err)
	}
	if err := cluster.EvictBlade(ctx, address, 0, o); err != nil {
		t.Fatal(err)
	}
	b.stops["a"]()
	err = cluster.EvictBlade(ctx, address, 0, o)
	for err == nil { // it was taken in again before its server was stopped
		err = cluster.EvictBlade(ctx, address, 0, o)
	}
	if !errors.Is(err, layout.ErrDown) {
		t.Errorf("a blade that is down: %v", err)
	}
	if err := cluster.ForgetBlade(ctx, address, 0, o); err != nil {
		t.Fatal(err)
	}
	b.stops["new"] = b.filed("new")
	ids, err := cluster.AddBlade(ctx, address, b.list("new")[0], o)
	if err != nil || !slices.Equal(ids, []int{0}) {
		t.Fatalf("a server in its place: %v, %v", ids, err)
	}
	for r := db.Redundancy(); r.Missing+r.Building > 0; r = db.Redundancy() {
		time.Sleep(time.Millisecond)
	}
	if err := put(3); err != nil {
		t.Error(err)
	}
}

// TestEvictLastCopies: a blade with the last copies of segments is not declared dead.
func TestEvictLastCopies(t *testing.T) {
	b := newFiledBedOf(t, 0, "a", "b")
	b.session(1)
	for blade := range 2 {
		if err := cluster.EvictBlade(t.Context(), b.address("c"), blade, cluster.Options{}); !errors.Is(err,
			layout.ErrLayout) || !strings.Contains(err.Error(), "no other copy") {
			t.Errorf("blade %d: %v", blade, err)
		}
	}
	if got := b.values(); got[1] != filedKeys {
		t.Errorf("%v", got)
	}
}
