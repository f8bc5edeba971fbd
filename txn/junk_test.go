package txn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/record"
	"txnode/rdma/rdmatest"
	"txnode/txn"
	"txnode/verify"
)

// TestCopyBesideJunk: junk in the place of a record on the copy that is left after a blade was lost
// looks locked: by nobody who ever was, or by who has closed, or by somebody who is alive, and in
// states that do not exist.
func TestCopyBesideJunk(t *testing.T) {
	raced.Skip(t)
	ctx := context.Background()
	for _, who := range []string{"nobody", "never", "closed", "alive"} {
		for _, state := range []uint64{0, 1, 2, 7, 15} {
			t.Run(fmt.Sprintf("%s, state %d", who, state), func(t *testing.T) {
				f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 4 << 20, Seed: 1, Caps: atOnce})
				db, err := txn.Open(ctx, txn.Options{
					Fabric: f, Catalog: &catalog.Mem{}, Backups: txn.F(1),
					SegmentSize: 256 << 10, LogArea: 64 << 10, IndexGroups: 16, LeaseTerm: -1,
				})
				if err != nil {
					t.Fatal(err)
				}
				table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Bytes())
				if err != nil {
					t.Fatal(err)
				}
				gone := newWorker(t, db)
				w := newWorker(t, db)
				put := func(w *txn.Worker, k uint64, v string) {
					t.Helper()
					if err := w.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, k, []byte(v)) }); err != nil {
						t.Fatal(err)
					}
				}
				put(gone, 5, "before")
				put(w, 7, "a needle")
				if err := gone.Close(); err != nil {
					t.Fatal(err)
				}
				if err := f.StopBlade(0); err != nil {
					t.Fatal(err)
				}
				put(w, 9, "while it is away")
				for tries := 0; ; tries++ {
					if _, unswept := db.Space().Unswept(); !unswept && !db.Space().FailoverPending() {
						break
					}
					if err := w.Maintain(); err != nil || tries == 10_000 {
						t.Fatalf("%d: %v", tries, err)
					}
				}
				line := lineOf(t, db, f, []byte("a needle"))
				all, err := db.Space().Coordinators()
				if err != nil {
					t.Fatal(err)
				}
				owner := map[string]uint32{"nobody": 0, "never": 1<<24 - 1, "closed": 1, "alive": all[0].ID}[who]
				word := func(off int) []byte { return line[off:][:8] }
				binary.LittleEndian.PutUint64(word(record.GuardOff), uint64(record.HeldBy(record.MakeTxID(owner, 3))))
				meta := binary.LittleEndian.Uint64(word(record.MetaOff))
				binary.LittleEndian.PutUint64(word(record.MetaOff), meta&^(15<<36)|state<<36)
				if err := f.RestartBlade(0, false); err != nil {
					t.Fatal(err)
				}
				var r txn.Redundancy
				for tries := 0; ; tries++ {
					if r = db.Redundancy(); r.Missing == 0 || r.Building == 1 && r.Failure != nil || tries == 10_000 {
						break
					}
					if err := w.Maintain(); err != nil {
						t.Fatal(err)
					}
					w.Sleep(1_000_000)
				}
				switch {
				case who == "alive" && (r.Missing != 1 || !errors.Is(r.Failure, memory.ErrStuck) || r.Suspects != 0):
					t.Errorf("%+v", r)
				case who != "alive" && (r.Missing != 0 || r.Failure != nil || (r.Suspects == 0) != (state == 2)):
					t.Errorf("%+v", r)
				}
				m := db.Metrics().Copies
				if m.Total != r.BuildTotal || m.Done != r.BuildDone || m.Rate != r.BuildRate ||
					(who == "alive") != (m.Total > 0 && m.Rate > 0) {
					t.Errorf("%+v beside %+v", m, r)
				}
				if who == "alive" { // it is over when he has closed
					binary.LittleEndian.PutUint64(word(record.GuardOff),
						binary.LittleEndian.Uint64(word(record.VersionOff)))
					binary.LittleEndian.PutUint64(word(record.MetaOff), meta)
					for tries := 0; r.Missing > 0 || r.Failure != nil; tries++ {
						if err := w.Maintain(); err != nil || tries == 10_000 {
							t.Fatalf("%+v, %v", r, err)
						}
						w.Sleep(1_000_000)
						r = db.Redundancy()
					}
				}
				if m := db.Metrics().Copies; m != (txn.CopyMetrics{}) {
					t.Errorf("nothing is built any more: %+v", m)
				}
				findings := 0 // but for the block, everything is sound, and its copies are alike
				d, err := verify.Attach(f, db.Space().Layout())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := d.Check(ctx,
					verify.Options{Alive: func(uint32) bool { return true }, Report: func(f verify.Finding) error {
						if findings++; who == "alive" || findings > 1 {
							t.Errorf("%v", f)
						}
						return nil
					}}); err != nil {
					t.Error(err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				if err := errors.Join(w.Close(), db.Close(ctx)); err != nil && !errors.Is(err, memory.ErrClosed) {
					t.Error(err)
				}
			})
		}
	}
}
