package txn_test

import (
	"context"
	"flag"
	"io"
	"strings"
	"testing"

	"txnode/rdma"
	"txnode/txn"
)

// TestDurabilityNames: a durability is a flag, prints what it was set to, and takes
// nothing else. Nothing set is the process.
func TestDurabilityNames(t *testing.T) {
	var d txn.Durability
	fs := flag.NewFlagSet("t", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var(&d, "durability", "what a commit survives")
	if d != txn.DurabilityProcess || (txn.Options{}).Durability != d {
		t.Errorf("the zero value is %v", d)
	}
	for _, want := range []txn.Durability{txn.DurabilityPower, txn.DurabilityProcess} {
		if err := fs.Parse([]string{"-durability", want.String()}); err != nil || d != want {
			t.Errorf("%v was set as %v, %v", want, d, err)
		}
	}
	for _, wrong := range []string{"", "Power", "disk", "process,power"} {
		if err := fs.Parse([]string{"-durability=" + wrong}); err == nil ||
			!strings.Contains(err.Error(), "must be one of process, power") {
			t.Errorf("%q was taken: %v", wrong, err)
		}
	}
	if d != txn.DurabilityProcess {
		t.Errorf("a name that was refused has set %v", d)
	}
	if s := txn.Durability(9).String(); s != "Durability(9)" {
		t.Errorf("an unknown one is called %q", s)
	}
}

// TestFlushesOfOneCommit: a commit flushes its own log record on f+1 blades, however many
// workers have logs.
func TestFlushesOfOneCommit(t *testing.T) {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{
		Dir: t.TempDir(), BladeSize: 64 << 20, SegmentSize: 256 << 10,
		LogArea: 64 << 10, Durability: txn.DurabilityPower,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(ctx)
	table, err := txn.CreateTable(db, "t", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	for range 9 {
		w := newWorker(t, db)
		defer w.Close()
	}
	put := func() {
		t.Helper()
		if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, 1, 1) }); err != nil {
			t.Fatal(err)
		}
	}
	put()
	flushes := func() uint64 {
		m := db.Metrics()
		return m.Verbs.Verbs[rdma.OpFlush]
	}
	before := flushes()
	for range 10 {
		put()
	}
	if n := flushes() - before; n != 10*2 {
		t.Errorf("%d flushes for 10 commits one after another on 2 blades", n)
	}
}
