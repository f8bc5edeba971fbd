package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"txnode/check"
	"txnode/history"
	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn"
)

// close1 closes a database that the test goes on without.
func close1(t testing.TB, db *txn.DB) {
	t.Helper()
	if err := db.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// contents reads keys 0 to n-1 of a table that nobody writes to.
func contents(t testing.TB, db *txn.DB, tab *txn.Table[uint64, []byte], n uint64) map[uint64][]byte {
	t.Helper()
	const part = 30
	out := map[uint64][]byte{}
	for first := uint64(0); first < n; first += part {
		err := db.View(t.Context(), func(tx *txn.Tx) error {
			for k := first; k < min(first+part, n); k++ {
				v, err := tab.Get(tx, k)
				if errors.Is(err, txn.ErrNotFound) {
					continue
				}
				if err != nil {
					return err
				}
				out[k] = bytes.Clone(v)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func same(t testing.TB, what string, got, want map[uint64][]byte) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || !bytes.Equal(g, v) {
			t.Errorf("%s: key %d has %d bytes, %v; want %d", what, k, len(g), ok, len(v))
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: key %d is there", what, k)
		}
	}
}

// TestReopen opens, changes and closes a database many times: what was committed is
// there, what was deleted is not, and nothing piles up.
func TestReopen(t *testing.T) {
	cycles := 30
	if testing.Short() {
		cycles = 6
	}
	for _, p := range policies(t) {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			o := tiny()
			o.Dir, o.Policy = t.TempDir(), p
			want := map[uint64][]byte{}
			var all []history.Txn
			r := rng(p)
			var segments int
			for cycle := range cycles {
				o.History = &history.Recorder{}
				db := mustOpen(t, o)
				tab := table(t, db, "t")
				same(t, fmt.Sprintf("cycle %d", cycle), contents(t, db, tab, 60), want)
				for i := range 3 {
					table(t, db, fmt.Sprintf("table %d of cycle %d", i, cycle%5))
				}
				for range 40 {
					k, size := r.n(60), int(r.n(400))
					err := db.Update(t.Context(), func(tx *txn.Tx) error {
						if r.n(3) == 0 {
							return tab.Delete(tx, k)
						}
						return tab.Put(tx, k, bytes.Repeat([]byte{byte(cycle)}, size))
					})
					switch {
					case errors.Is(err, txn.ErrNotFound):
					case err != nil:
						t.Fatal(err)
					}
					delete(want, k)
					if err == nil {
						if v, ok := contents(t, db, tab, 60)[k]; ok {
							want[k] = v
						}
					}
				}
				quiet(t, db)
				if cycle == max(5, cycles/2) {
					segments = len(db.Space().Layout().Segments)
				}
				if left, err := db.Space().Coordinators(); err != nil || len(left) > o.Workers {
					t.Fatalf("cycle %d: %d coordinators, %v", cycle, len(left), err)
				}
				close1(t, db)
				all = appendLater(all, o.History.Txns())
				o = txn.Options{Dir: o.Dir, Policy: p, Workers: 4, Arena: 1 << 20} // the rest is in the directory
			}
			db := mustOpen(t, o)
			if n := len(db.Space().Layout().Segments); n > segments+2 {
				t.Errorf("%d segments after %d cycles, %d half-way", n, cycles, segments)
			}
			if names, err := db.Tables(); err != nil || len(names) != 1+3*min(cycles, 5) {
				t.Errorf("tables %v, %v", names, err)
			}
			quiet(t, db)
			if err := check.Check(all, check.Options{FromEmpty: true}).Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// appendLater appends transactions whose clock started anew after all that are there.
func appendLater(all, txns []history.Txn) []history.Txn {
	last := int64(0)
	for _, x := range all {
		last = max(last, x.End)
	}
	for _, x := range txns {
		x.Start += last + 1
		x.End += last + 1
		all = append(all, x)
	}
	return all
}

// TestReopenReadOnly: others may read a database that nobody writes to, several at
// once, and change nothing.
func TestReopenReadOnly(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.Dir = t.TempDir()
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 20, val(5))
	want := contents(t, db, tab, 30)
	close1(t, db)
	files := digest(t, o.Dir)

	rec := &history.Recorder{}
	one := mustOpen(t, txn.Options{Dir: o.Dir, ReadOnly: true, History: rec, Workers: 2})
	two := mustOpen(t, txn.Options{Dir: o.Dir, ReadOnly: true, Policy: occ.PolicyFORD, ReadBackups: true})
	for _, db := range []*txn.DB{one, two} {
		tab, err := txn.OpenTable(db, "t", txn.Uint64, txn.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for range 200 { // past maintenance
			same(t, "read-only", contents(t, db, tab, 30), want)
		}
		for what, op := range map[string]func(tx *txn.Tx) error{
			"Put":          func(tx *txn.Tx) error { return tab.Put(tx, 1, val(2)) },
			"Insert":       func(tx *txn.Tx) error { return tab.Insert(tx, 99, val(2)) },
			"Delete":       func(tx *txn.Tx) error { return tab.Delete(tx, 1) },
			"GetForUpdate": func(tx *txn.Tx) error { _, err := tab.GetForUpdate(tx, 1); return err },
		} {
			says(t, what, db.Update(t.Context(), op), txn.ErrReadOnly, "ReadOnly")
		}
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		says(t, "Put", tab.Put(tx, 1, val(2)), txn.ErrReadOnly)
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		_, err = txn.CreateTable(db, "new", txn.Uint64, txn.Bytes())
		says(t, "CreateTable", err, txn.ErrReadOnly, "new")
		index := txn.NewIndex("new", txn.BytesKey, func(_ uint64, v []byte) [][]byte { return [][]byte{v} })
		_, err = txn.CreateTable(db, "t", txn.Uint64, txn.Bytes(), index)
		says(t, "an index", err, txn.ErrReadOnly, "new")
		_, err = txn.OpenTable(db, "t", txn.Uint64, txn.Bytes(), index)
		says(t, "an index that is opened", err, txn.ErrNoTable)
		if err := db.Run(t.Context(), 2, 3, func(ctx context.Context, _ int, w *txn.Worker) error {
			return w.View(ctx, func(tx *txn.Tx) error { _, err := tab.Get(tx, 3); return err })
		}); err != nil {
			t.Error(err)
		}
		quiet(t, db)
	}
	_, err := txn.Open(t.Context(), o)
	says(t, "a writer beside readers", err, embedded.ErrLocked)
	close1(t, one)
	close1(t, two)
	if err := check.Check(rec.Txns(), check.Options{}).Err(); err != nil || len(rec.Txns()) < 200 {
		t.Error(err)
	}
	if after := digest(t, o.Dir); after != files {
		t.Errorf("files have changed:\n%s\n%s", files, after)
	}
	db = mustOpen(t, o)
	same(t, "after the readers", contents(t, db, table(t, db, "t"), 30), want)
}

// digest is sizes and sums of the files of a database.
func digest(t testing.TB, dir string) string {
	t.Helper()
	var out strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "LOCK" {
			continue
		}
		p, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, e.Name(), len(p), sum64(p))
	}
	return out.String()
}

func sum64(p []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, x := range p {
		h = (h ^ uint64(x)) * 1099511628211
	}
	return h
}

// TestSecondProcess: another process that opens the directory is told at once that
// it is in use, by whom, and leaves it alone.
func TestSecondProcess(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.Dir = t.TempDir()
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 5, val(5))
	open := func(readOnly string) string {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "TXN_TEST_OPEN="+o.Dir, "TXN_TEST_READONLY="+readOnly)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for _, readOnly := range []string{"", "yes"} {
		for _, text := range []string{"in use", o.Dir, fmt.Sprintf("process %d", os.Getpid())} {
			if out := open(readOnly); !strings.Contains(out, text) {
				t.Errorf("%q does not say %q", out, text)
			}
		}
	}
	if got := contents(t, db, tab, 5); len(got) != 5 {
		t.Errorf("%d keys are left", len(got))
	}
	close1(t, db)
	if out := open(""); out != "<nil>" {
		t.Errorf("once it was closed: %s", out)
	}
}

// TestGrownBlades: a database that is full has room again when it is opened with
// larger blades.
func TestGrownBlades(t *testing.T) {
	o := tiny()
	o.Dir, o.BladeSize = t.TempDir(), 2<<20
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	err := fillUp(t, db, tab, 50, 1000)
	says(t, "filling", err, txn.ErrNoSpace, "BladeSize")
	close1(t, db)
	o.BladeSize = 8 << 20
	db = mustOpen(t, o)
	tab = table(t, db, "t")
	for k := range uint64(200) {
		if err := db.Update(t.Context(),
			func(tx *txn.Tx) error { return tab.Put(tx, 1<<40+k, make([]byte, 1000)) }); err != nil {
			t.Fatal(err)
		}
	}
	quiet(t, db)
	close1(t, db)
	o.BladeSize = 4 << 20
	_, err = txn.Open(t.Context(), o)
	says(t, "smaller again", err, layout.ErrGeometry, "shrink")
}

// fillUp inserts values of a size, n per transaction, until that fails.
func fillUp(t testing.TB, db *txn.DB, tab *txn.Table[uint64, []byte], n, size int) error {
	t.Helper()
	for k := uint64(0); k < 1<<20; k += uint64(n) {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for i := range uint64(n) {
				if err := tab.Insert(tx, k+i, make([]byte, size)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	t.Fatal("there is no end")
	return nil
}

// TestDurabilityPower: every commit flushes its log on each blade that has it, and only then
// is acknowledged.
func TestDurabilityPower(t *testing.T) {
	for _, f := range []int{0, 1} {
		o := tiny()
		o.Dir, o.Durability, o.Backups = t.TempDir(), txn.DurabilityPower, txn.F(f)
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 3, val(1))
		w := newWorker(t, db)
		update := func() {
			if err := w.Update(t.Context(), func(tx *txn.Tx) error {
				if _, err := tab.GetForUpdate(tx, 1); err != nil {
					return err
				}
				return tab.Put(tx, 1, val(2))
			}); err != nil {
				t.Fatal(err)
			}
		}
		update()
		before := w.Phases()
		update()
		after := w.Phases()
		// of the logs on both blades, for whoever commits now
		if n := after[occ.PhaseCommit].Verbs[rdma.OpFlush] - before[occ.PhaseCommit].Verbs[rdma.OpFlush]; n < uint64(f+
			1) || n > 2 {
			t.Errorf("f=%d: a commit has posted %d flushes", f, n)
		}
		if n := after[occ.PhaseCommit].RoundTrips - before[occ.PhaseCommit].RoundTrips; n != 2 {
			t.Errorf("f=%d: a commit took %d round trips", f, n)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		close1(t, db)
	}
	_, err := txn.Open(t.Context(), txn.Options{Durability: txn.DurabilityPower})
	says(t, "without a directory", err, txn.ErrOptions)
}

// TestGroupCommit: whoever commits at the same time shares the flushes.
func TestGroupCommit(t *testing.T) {
	const workers, each = 8, 50
	o := tiny()
	o.Dir, o.Durability = t.TempDir(), txn.DurabilityPower
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, workers, val(1))
	before := db.Metrics()
	err := db.Run(t.Context(), 1, workers, func(ctx context.Context, id int, w *txn.Worker) error {
		for range each {
			if err := w.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, uint64(id), val(2)) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	after := db.Metrics()
	commits := after.Committed - before.Committed
	flushes := after.Verbs.Verbs[rdma.OpFlush] - before.Verbs.Verbs[rdma.OpFlush]
	if commits < workers*each || flushes > commits {
		t.Errorf("%d commits have posted %d flushes on two blades", commits, flushes)
	}
	close1(t, db)
}

// TestIndexGroups: the size of sub-tables is that of the table, whatever a later
// opener asks for.
func TestIndexGroups(t *testing.T) {
	o := tiny()
	o.Dir, o.IndexGroups = t.TempDir(), 2
	for i := range 3 {
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		n := uint64(300)
		if i == 0 {
			fill(t, db, tab, n, val(1))
		}
		if got := contents(t, db, tab, n); uint64(len(got)) != n {
			t.Errorf("%d of %d keys", len(got), n)
		}
		quiet(t, db)
		close1(t, db)
		o.IndexGroups = []uint32{0, 512, 0}[i]
	}
	o.Dir, o.IndexGroups = t.TempDir(), 2000
	db := mustOpen(t, o)
	for range 100 {
		_, err := txn.CreateTable(db, "t", txn.Uint64, txn.Bytes())
		says(t, "a sub-table beyond a segment", err, memory.ErrTooLarge, `table "t"`, "384", "segments of 262144")
	}
}

// TestReadUnswept: a database was closed before it was looked what a client has left that had died.
// Who would only read it is told that, and not that it was not closed.
func TestReadUnswept(t *testing.T) {
	o := tiny()
	o.Dir, o.LeaseTerm = t.TempDir(), -1
	db := mustOpen(t, o)
	fill(t, db, table(t, db, "t"), 3, val(1))
	all, err := db.Space().Coordinators()
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	c, err := db.Space().Claim(memory.ClaimOptions{Steal: true}, all[0].ID)
	if err == nil {
		err = c.Forget()
	}
	if err != nil {
		t.Fatal(err)
	}
	close1(t, db)
	o.ReadOnly = true
	_, err = txn.Open(t.Context(), o)
	says(t, "reading", err, txn.ErrUnrecovered, "not swept before it was closed", "open the database once for writing")
	o.ReadOnly = false
	close1(t, mustOpen(t, o))
	o.ReadOnly = true
	db = mustOpen(t, o)
	if got := contents(t, db, table(t, db, "t"), 3); len(got) != 3 {
		t.Errorf("%v", got)
	}
}
