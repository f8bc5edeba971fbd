package crashtest

import (
	"context"
	"fmt"
	"testing"

	"txnode/internal/raced"
	"txnode/rdma"
	"txnode/txn"
)

// TestPowerWhileIndexing takes the power while an index of a table with records is defined, built
// and dropped, and an ordered table with an index is made and dropped: in each of these after so
// many requests, for ever more of them. When the database is open again, an index that is not
// built goes on to be built, every index fits its table, and no block is left of what was dropped
// or not made to its end.
func TestPowerWhileIndexing(t *testing.T) {
	raced.Skip(t)
	seeds, step := uint64(2), 5
	if testing.Short() {
		seeds, step = 1, 1
	}
	for n, stage := range indexingStages {
		cuts := 0
		for seed := range seeds {
			for left := 0; ; left += 1 + left/step {
				done, err := whileIndexing(n, left, seed)
				if err != nil {
					t.Fatalf("the power goes after %d requests, seed %d, while it %s: %v", left, seed, stage.name, err)
				}
				if done {
					break
				}
				cuts++
			}
		}
		if cuts == 0 {
			t.Errorf("the power has never gone while it %s", stage.name)
		}
		t.Logf("the power has gone %d times while it %s", cuts, stage.name)
	}
}

// indexingStages are what is done until the power goes.
var indexingStages = []struct {
	name string
	do   func(ctx context.Context, v *volatile, x *indexed, unique bool) error
}{
	{"defines", func(_ context.Context, v *volatile, x *indexed, unique bool) error {
		return x.open(v.db, true, unique)
	}},
	{"builds", func(ctx context.Context, _ *volatile, x *indexed, _ bool) error {
		return x.now.Load().late.Build(ctx, nil)
	}},
	{"drops the index", func(ctx context.Context, v *volatile, _ *indexed, _ bool) error {
		return v.db.DropIndex(ctx, "members", lateIndex)
	}},
	{"makes a table", func(ctx context.Context, v *volatile, _ *indexed, unique bool) error {
		index := txn.NewIndex("by_rest", txn.Uint64, func(_, n uint64) []uint64 { return []uint64{n % 7} })
		t, err := txn.CreateOrderedTable(v.db, scratch, txn.Uint64, txn.Plain[uint64](), index)
		if err != nil {
			return err
		}
		return v.db.Update(ctx, func(tx *txn.Tx) error {
			for k := range uint64(20) {
				if err := t.Put(tx, k, k); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{"drops the table", func(ctx context.Context, v *volatile, _ *indexed, _ bool) error {
		return v.db.DropTable(ctx, scratch)
	}},
}

// whileIndexing takes the power in a stage, after so many requests. done: it has come to its end
// before.
func whileIndexing(stage, left int, seed uint64) (done bool, err error) {
	ctx := context.Background()
	l := &life{Blades: 2, Backups: int(seed % 2), Workers: 1, Accounts: seed / 2, Seed: 1}
	run, unique := 1<<30, seed%2 == 0
	v, err := newVolatile(l, 1+seed, func(v *volatile, _ *rdma.WR) rdma.Status {
		run--
		v.down = v.down || run < 0
		return rdma.StatusOK
	})
	if err != nil {
		return false, err
	}
	x, err := openIndexed(v.db, l.Accounts%2 == 0)
	if err != nil {
		return false, err
	}
	if err := v.db.Update(ctx, func(tx *txn.Tx) error {
		for k := range uint64(90) {
			if err := x.now.Load().table.Put(tx, k, member{k % 5, k % 80, k * k}); err != nil && k < 80 {
				return fmt.Errorf("member %d: %w", k, err) // the others have mails that are taken
			}
		}
		return nil
	}); err != nil {
		return false, err
	}
	for _, s := range indexingStages[:stage] {
		if err := s.do(ctx, v, x, unique); err != nil {
			return false, fmt.Errorf("before that, when it %s: %w", s.name, err)
		}
	}
	run = left
	err = indexingStages[stage].do(ctx, v, x, unique)
	if run = 1 << 30; err == nil && !v.down {
		return true, v.db.Close(ctx)
	}
	if !v.down {
		return false, err
	}
	v.losePower(seed + uint64(left))
	if err := v.open(); err != nil {
		return false, err
	}
	if x, err = openIndexed(v.db, x.ordered); err != nil {
		return false, err
	}
	for _, check := range []func() error{
		func() error { return x.holds(ctx, v.db) },
		func() error { return noDrops(v.db) },
		func() error { return v.db.Close(ctx) },
		func() error { return walkFabric(v.f, v.cat) },
	} {
		if err := check(); err != nil {
			return false, err
		}
	}
	return false, nil
}
