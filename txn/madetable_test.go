package txn_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"txnode/memory/layout"
	"txnode/txn"
)

// doubted is a catalog that makes the n-th change of a table and says that it has failed; and
// before it tells what has become of that, it calls a function.
type doubted struct {
	layout.Catalog
	mu   sync.Mutex
	n    int
	told bool
	fn   func()
}

func (d *doubted) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rev, err := d.Catalog.Apply(rev, changes)
	if slices.ContainsFunc(changes, func(e layout.Entry) bool { return strings.HasPrefix(e.Key, "table/") }) {
		if d.n--; d.n == 0 {
			return 0, errors.Join(errDeaf, err)
		}
	}
	return rev, err
}

func (d *doubted) Revision() (layout.Revision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n == 0 {
		return 0, errDeaf
	}
	return d.Catalog.Revision()
}

func (d *doubted) Load() ([]layout.Entry, layout.Revision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n == 0 {
		d.n = -1
		return nil, 0, errDeaf
	}
	if d.n < 0 && !d.told {
		d.told = true
		d.fn()
	}
	return d.Catalog.Load()
}

// TestMadeInDoubt: a process makes a table, and is told that the last step of it has failed, which
// was made. Another one has found the table by then, and has a record in it. The table stays.
func TestMadeInDoubt(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		o := sharedOn(t, 2)
		d := &doubted{Catalog: o.Catalog, n: 2}
		o.Catalog = d
		a := mustOpen(t, o)
		o.Catalog = d.Catalog
		b := mustOpen(t, o)
		table := func(db *txn.DB) (*txn.Table[string, uint64], error) {
			if !ordered {
				return txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]())
			}
			x, err := txn.CreateOrderedTable(db, "words", txn.String, txn.Plain[uint64]())
			if err != nil {
				return nil, err
			}
			return x.Table, nil
		}
		d.fn = func() {
			theirs, err := table(b)
			if err == nil {
				err = b.Update(t.Context(), func(tx *txn.Tx) error { return theirs.Put(tx, "one", 1) })
			}
			if err != nil {
				t.Errorf("ordered %v: the other process: %v", ordered, err)
			}
		}
		if _, err := table(a); !errors.Is(err, errDeaf) {
			t.Errorf("ordered %v: a change that has failed: %v", ordered, err)
		}
		if !d.told {
			t.Fatalf("ordered %v: it was not asked what has become of the change", ordered)
		}
		ours, err := table(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.View(t.Context(), func(tx *txn.Tx) error {
			if v, err := ours.Get(tx, "one"); err != nil || v != 1 {
				t.Errorf("ordered %v: a record of another process is %d, %v", ordered, v, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}
