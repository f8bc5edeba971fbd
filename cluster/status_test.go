package cluster_test

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// TestStatusCutOff: a process that says that it hears nothing of a blade is told of as cut off, if
// the blade answers; so is the witness. What was said in an earlier round of questions is not told.
func TestStatusCutOff(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "x")
	stop := b.blades([]uint64{size}, "y")
	if err := cluster.Init(ctx, c, b.list("x", "y"), cluster.Geometry{}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := cluster.Open(ctx, b.address("c"), txn.Options{IndexGroups: 64}, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	member := db.Space().Process()
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	say := func(all ...layout.Sight) {
		t.Helper()
		l, rev, err := layout.Load(c)
		if err != nil {
			t.Fatal(err)
		}
		old := l.Entries()
		if l.Process(member) == nil { // it is there, though it has closed the database
			l.Processes = []layout.ProcessEntry{{ID: member, Until: 1 << 60, Term: 1 << 33}}
		}
		l.Processes[0].Until = 1 << 60
		l.Sights, l.Witnessed = nil, true
		for _, s := range all {
			l.See(s)
		}
		if _, err := c.Apply(rev, layout.Difference(old, l.Entries())); err != nil {
			t.Fatal(err)
		}
	}
	ask := func() *cluster.Status {
		t.Helper()
		st, err := cluster.Ask(ctx, b.address("c"), cluster.Options{})
		if err != nil || len(st.Processes) != 1 || st.Processes[0].ID != member || !st.Processes[0].Registered ||
			st.Processes[0].Term != 1<<33 || !st.Witnessed {
			t.Fatalf("%+v, %v", st, err)
		}
		return st
	}
	say(layout.Sight{Member: member, Blade: 1, Says: layout.Silent, Round: 2},
		layout.Sight{Member: layout.Witness, Blade: 1, Says: layout.Hears, Round: 2},
		layout.Sight{Member: layout.Witness, Blade: 0, Says: layout.Silent, Round: 1})
	st := ask()
	kinds := func() (all []cluster.TroubleKind) {
		for _, x := range st.Troubles() {
			all = append(all, x.Kind)
		}
		return all
	}
	if !slices.Equal(st.Processes[0].CutOff, []int{1}) || !slices.Equal(st.Deaf, []int{0}) ||
		!slices.Equal(kinds(), []cluster.TroubleKind{cluster.TroubleCutOff, cluster.TroubleCutOff}) {
		t.Errorf("%+v: %+v", st, st.Troubles())
	}
	say(layout.Sight{Member: member, Blade: 1, Says: layout.Silent, Round: 2},
		layout.Sight{Member: layout.Witness, Blade: 1, Says: layout.Silent, Round: 3})
	if st = ask(); len(st.Processes[0].CutOff) > 0 || !slices.Equal(st.Deaf, []int{1}) {
		t.Errorf("an earlier round: %+v: %+v", st, st.Troubles())
	}
	stop()
	say(layout.Sight{Member: member, Blade: 1, Says: layout.Silent, Round: 4})
	if st = ask(); len(st.Processes[0].CutOff) > 0 || st.Blades[1].State != cluster.BladeSilent ||
		!slices.Equal(kinds(), []cluster.TroubleKind{cluster.TroubleServer}) {
		t.Errorf("nobody hears the blade: %+v: %+v", st, st.Troubles())
	}
}

// TestStatusBesideSilence: a server that takes a connection and says nothing is silent; all else is
// told.
func TestStatusBesideSilence(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "x")
	stop := b.blades([]uint64{size}, "y")
	if err := cluster.Init(ctx, c, b.list("x", "y"), cluster.Geometry{}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	stop()
	mute, err := net.Listen("unix", filepath.Join(b.dir, "y"))
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	st, err := cluster.Ask(ctx, b.address("c"), cluster.Options{TCP: tcp.Options{Connect: 50 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	if st.Blades[0].State != cluster.BladeUp || st.Blades[1].State != cluster.BladeSilent || st.Blades[1].Why == "" ||
		st.Layout == nil || st.Copies.Down != nil {
		t.Errorf("%+v", st)
	}
}

// TestStatusUnswept: copies wait until what dead workers have left is swept, which is told while it
// is so, and not when all that is left is damage.
func TestStatusUnswept(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "x")
	b.blades([]uint64{size}, "y")
	if err := cluster.Init(ctx, c, b.list("x", "y"), cluster.Geometry{}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := cluster.Open(ctx, b.address("c"), txn.Options{IndexGroups: 64}, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := txn.CreateTable(db, "words", txn.Uint64, txn.Text()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := layout.DeclareDead(c, 1); err != nil {
		t.Fatal(err)
	}
	for _, spared := range []bool{false, true} {
		l, rev, err := layout.Load(c)
		if err != nil {
			t.Fatal(err)
		}
		old := l.Entries()
		l.Unswept, l.OnlyDamage = true, spared
		if _, err := c.Apply(rev, layout.Difference(old, l.Entries())); err != nil {
			t.Fatal(err)
		}
		st, err := cluster.Ask(ctx, b.address("c"), cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all := st.Troubles()
		if last := all[len(all)-1]; last.Kind != cluster.TroubleMissing ||
			strings.Contains(last.Text, "is swept beside that") == spared || st.Copies.Unswept == spared {
			t.Errorf("%+v: %+v", last, st.Copies)
		}
	}
}
