package command_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/report"
	"txnode/benchmarks/workload"
	"txnode/cmd/txnode/command"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// TestReplaceLostBesideDamage: what is left in place of a region that is gone has junk in
// the place of a record, which looks locked for ever. Copies are made of all the rest, and
// the command says so.
func TestReplaceLostBesideDamage(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	dir := filepath.Join(b.dir, "data")
	if err := os.Remove(filepath.Join(dir, "blade-001.region")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "blade-000.region")
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Index(p, []byte("balance 100"))
	if value < 0x20 {
		t.Fatal("there is no such record")
	}
	copy(p[value-0x20:], bytes.Repeat([]byte{0xff}, 64))
	if err := os.WriteFile(path, p, 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var said bytes.Buffer
		code, err := command.ReplaceLost(context.Background(), command.World{Stdout: io.Discard, Stderr: &said}, dir,
			200*time.Millisecond)
		if err != nil || !strings.Contains(said.String(), "looked locked by nobody") {
			t.Errorf("exit code %d: %v\n%s", code, err, &said)
		}
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("it does not end")
	}
	if code, _, stderr := b.run("check", dir); code != command.ExitVerification {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestPatienceWithClearing: a large blade is cleared for longer than the patience of who waits for
// its copies, who goes on waiting as long as something comes of it, and not when nothing does.
func TestPatienceWithClearing(t *testing.T) {
	down := func(dirty int, failure error) txn.Redundancy {
		return txn.Redundancy{Redundancy: layout.Redundancy{
			Segments: 9, Missing: 9, Down: []rdma.BladeID{1}, Dirty: dirty,
		}, Failure: failure}
	}
	var slow, failing, still []txn.Redundancy
	before := errors.New("what was wrong before")
	for i := range 20 {
		slow = append(slow, down(20-i, nil))
		failing = append(failing, down(20-i, before))
		still = append(still, down(7, nil))
	}
	const patience = 10 * time.Second
	if err := command.AwaitLooks(patience, 40*time.Second, slow...); err != nil {
		t.Errorf("though it goes on: %v", err)
	}
	if err := command.AwaitLooks(patience, 9*time.Second, failing...); err != nil {
		t.Errorf("though it goes on: %v", err)
	}
	if err := command.AwaitLooks(patience, 9*time.Second, still...); err == nil {
		t.Error("nothing comes of it")
	}
	if err := command.AwaitLooks(patience, 9*time.Second, append(failing, failing[19], failing[19])...); !errors.Is(err,
		before) {
		t.Errorf("it has failed, and nothing comes of it: %v", err)
	}
}

// TestFileFailsInBenchmark: a blade's file cannot be accessed any more while a benchmark runs. It
// runs on, says so, and so does a check of the directory; the next run takes the blade in again.
func TestFileFailsInBenchmark(t *testing.T) {
	b := newBed(t)
	dir := filepath.Join(b.dir, "data")
	cut := true
	b.open = func(ctx context.Context, o command.StoreOptions) (workload.Store, error) {
		s, err := command.System().Open(ctx, o)
		if err == nil && cut {
			err = os.Truncate(filepath.Join(dir, "blade-001.region"), 64<<10)
		}
		return s, err
	}
	bench := func() (code int, stdout, stderr string) {
		return b.run("bench", "smallbank", "--dir", dir, "--accounts", "1000", "--txns", "5000", "--warmup", "0s")
	}
	code, out, stderr := bench()
	if flat := strings.Join(strings.Fields(out), " "); code != 0 || !strings.Contains(flat, "the books balance") ||
		!strings.Contains(flat,
			"✗ blade 1 was lost meanwhile, and its backups took over: rdma: blade 1 is stopped: "+
				"$DIR/data/blade-001.region: byte 0x") ||
		!strings.Contains(flat, "the file was cut short") || !strings.Contains(flat, "it is not back ✗ ") ||
		!strings.Contains(flat, "of the segments' copies are missing at the end") {
		t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
	}
	code, out, stderr = b.run("check", dir)
	if code != 0 ||
		!strings.Contains(out, "(blade-001.region counts as lost); they are built while the database is open") {
		t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
	}
	cut = false
	if code, out, stderr = bench(); code != 0 || strings.Contains(out, "was lost") {
		t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
	}
}

// TestReportOfLostData: the report says that data is lost, although the blade is back and no copy
// of what is left is missing.
func TestReportOfLostData(t *testing.T) {
	ctx := t.Context()
	s, err := engine.Open(ctx, txn.Options{
		Blades: 2, Backups: txn.F(0), BladeSize: 64 << 20, SegmentSize: 1 << 20, LogArea: 64 << 10, IndexGroups: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	db := s.DB()
	table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	put := func(k uint64) error {
		return db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, k, k) })
	}
	for k := range uint64(200) {
		if err := put(k); err != nil {
			t.Fatal(err)
		}
	}
	f := db.Space().Fabric().(rdma.Stopper)
	blade := rdma.BladeID(0)
	if db.Space().Layout().Held(0) == 0 {
		blade = 1
	}
	if err := errors.Join(f.StopBlade(blade), f.RestartBlade(blade, false)); err != nil {
		t.Fatal(err)
	}
	back := func() bool {
		r := db.Redundancy()
		return len(r.Outages) > 0 && len(r.Down) == 0
	}
	for k := uint64(0); !back(); k = (k + 1) % 200 {
		_ = put(k) // of a lost segment it fails
	}
	var r report.Result
	command.LostBlades(&r, s)
	var out bytes.Buffer
	if err := r.WriteTable(&out, report.Theme{}); err != nil {
		t.Fatal(err)
	}
	if len(r.LostBlades) != 1 || !r.LostBlades[0].Back || r.SegmentsLost == 0 || r.CopiesMissing != 0 ||
		!strings.Contains(out.String(), "have no copy at the end: their data is lost") ||
		strings.Contains(out.String(), "all copies are there") {
		t.Errorf("%+v, %d segments lost, %d copies missing:\n%s", r.LostBlades, r.SegmentsLost, r.CopiesMissing, &out)
	}
}
