package verify_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/txn"
	"txnode/verify"
)

const (
	testSegment = 256 << 10
	testLog     = 64 << 10
)

// variant is a kind of database.
type variant struct {
	blades, backups int
	policy          occ.Policy
}

// populate makes a database with tables of short and long keys, records of many
// sizes, and everything that leaves traces: records that grow and shrink, deletes,
// inserts over deletes, rollbacks, conflicts, splits.
func populate(t testing.TB, dir string, v variant, rounds int) { populateOf(t, dir, v, rounds, 8) }

// populateOf is populate with so many groups in a sub-table.
func populateOf(t testing.TB, dir string, v variant, rounds int, groups uint32) {
	t.Helper()
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{
		Dir: dir, Blades: v.blades, Backups: txn.F(v.backups), Policy: v.policy, BladeSize: 32 << 20,
		SegmentSize: testSegment, LogArea: testLog, IndexGroups: groups, CacheBytes: 1 << 20, Arena: 4 << 20, Seed: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := txn.CreateTable(db, "numbers", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	names, err := txn.CreateTable(db, "names", txn.String, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	errBack := errors.New("roll back")
	err = db.Run(ctx, 2, 4, func(ctx context.Context, id int, w *txn.Worker) error {
		r := rand.New(rand.NewPCG(11, uint64(id)))
		for range rounds {
			err := w.Update(ctx, func(tx *txn.Tx) error {
				for range 1 + r.IntN(3) {
					k := r.Uint64N(600)
					name := strings.Repeat("n", r.IntN(3)*30) + fmt.Sprint(k)
					switch r.IntN(4) {
					case 0:
						if err := numbers.Delete(tx, k); err != nil && !errors.Is(err, txn.ErrNotFound) {
							return err
						}
					case 1:
						if err := names.Put(tx, name, strings.Repeat("v", r.IntN(900))); err != nil {
							return err
						}
					case 2:
						if _, err := numbers.Get(tx, k); err != nil && !errors.Is(err, txn.ErrNotFound) {
							return err
						}
						if err := names.Delete(tx, name); err != nil && !errors.Is(err, txn.ErrNotFound) {
							return err
						}
					default:
						if err := numbers.Put(tx, k, make([]byte, r.IntN(300))); err != nil {
							return err
						}
					}
				}
				if r.IntN(8) == 0 {
					return errBack
				}
				return nil
			})
			if err != nil && !errors.Is(err, errBack) {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, db.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

// attach attaches to a database that is not in use; the function closes everything.
func attach(t testing.TB, dir string, write bool) (*verify.Database, *embedded.Host, func()) {
	t.Helper()
	h, err := embedded.Connect(embedded.Options{Dir: dir, ReadOnly: !write, KeepFaulty: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := layout.LoadLayout(h.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	d, err := verify.Attach(h.Fabric, l)
	if err != nil {
		t.Fatal(err)
	}
	return d, h, func() {
		t.Helper()
		if err := errors.Join(d.Close(), h.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// check returns the findings.
func check(t testing.TB, dir string, repair bool) (verify.Summary, []verify.Finding) {
	t.Helper()
	d, _, done := attach(t, dir, repair)
	defer done()
	var out []verify.Finding
	sum, err := d.Check(context.Background(), verify.Options{
		Repair: repair,
		Report: func(f verify.Finding) error {
			out = append(out, f)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if int(sum.Findings) != len(out) {
		t.Errorf("%d findings counted, %d reported", sum.Findings, len(out))
	}
	return sum, out
}

// copyOf copies a closed database.
func copyOf(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "db")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		p, err := os.ReadFile(filepath.Join(from, n.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, n.Name()), p, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func show(fs []verify.Finding) string {
	var b strings.Builder
	for i, f := range fs {
		if i == 12 {
			fmt.Fprintf(&b, "  and %d more\n", len(fs)-i)
			break
		}
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}
