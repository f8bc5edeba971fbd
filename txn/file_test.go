package txn_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/rdma"
	"txnode/txn"
)

// TestFileFails: the same with files that cannot be read or written any more, where the disk has
// failed: here they are cut short. They come back blank.
func TestFileFails(t *testing.T) {
	raced.Skip(t)
	for _, c := range []struct{ blades, backups int }{{3, 1}, {2, 1}, {4, 2}} {
		if testing.Short() && (c.blades == 4 || raced.Enabled && c.blades == 2) {
			continue
		}
		t.Run(fmt.Sprintf("%d blades, f=%d", c.blades, c.backups), func(t *testing.T) {
			bladeDies(t, 60*time.Millisecond, txn.Options{
				Dir: t.TempDir(), Retries: 1 << 20, Blades: c.blades,
				Backups: txn.F(c.backups), BladeSize: 256 << 20, SegmentSize: 1 << 20, LogArea: 64 << 10,
				IndexGroups: 16, LeaseTerm: 3 * time.Second,
			})
		})
	}
}

// fileCutter stops blades by what happens to their files.
type fileCutter struct {
	rdma.Stopper
	o txn.Options
}

func (f fileCutter) path(b rdma.BladeID) string {
	return filepath.Join(f.o.Dir, fmt.Sprintf("blade-%03d.region", b))
}

func (f fileCutter) StopBlade(b rdma.BladeID) error { return os.Truncate(f.path(b), 0) }

func (f fileCutter) RestartBlade(b rdma.BladeID, _ bool) error {
	if err := os.Truncate(f.path(b), int64(f.o.BladeSize)); err != nil {
		return err
	}
	return f.Stopper.RestartBlade(b, true)
}

// TestReadWithoutFile: a blade is lost with its file, and not back. Who reads the directory later
// does without it, whatever is there in its place; who writes takes it in again.
func TestReadWithoutFile(t *testing.T) {
	ctx := context.Background()
	o := txn.Options{Dir: t.TempDir(), BladeSize: 64 << 20, SegmentSize: 1 << 20, LogArea: 64 << 10}
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	cut := fileCutter{o: o}
	put := func(v string) {
		t.Helper()
		if err := db.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, 1, []byte(v)) }); err != nil {
			t.Fatal(err)
		}
	}
	put("before")
	if err := cut.StopBlade(1); err != nil {
		t.Fatal(err)
	}
	put("after")
	if r := db.Redundancy(); !slices.Equal(r.Down, []rdma.BladeID{1}) {
		t.Fatalf("%+v", r)
	}
	swept(t, db) // who only reads cannot do it
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for what, damage := range map[string]func() error{
		"empty":    func() error { return nil },
		"short":    func() error { return os.Truncate(cut.path(1), 3<<20) },
		"no file":  func() error { return errors.Join(os.Remove(cut.path(1)), os.Mkdir(cut.path(1), 0o755)) },
		"not here": func() error { return os.RemoveAll(cut.path(1)) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		db, err := txn.Open(ctx, txn.Options{Dir: o.Dir, ReadOnly: true})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		tab, err := txn.OpenTable(db, "t", txn.Uint64, txn.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := db.View(ctx, func(tx *txn.Tx) error {
			v, err := tab.Get(tx, 1)
			if string(v) != "after" {
				t.Errorf("%s: %q", what, v)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := db.Close(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := os.RemoveAll(cut.path(1)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cut.path(1), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	db = mustOpen(t, o)
	whole(t, db, 0)
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
