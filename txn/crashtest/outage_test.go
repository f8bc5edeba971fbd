package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestPowerAfterOutages is TestPower with blades that are lost before, one after the other,
// and come back, with their memory or without: the power goes while copies are missing or
// built. It does not while transactions are being decided that were under way when a
// blade was lost, which is not promised.
func TestPowerAfterOutages(t *testing.T) {
	sum := &totals{}
	outages := 0
	eachPower(t, 12, 3, 25, func(seed uint64) error { return outageRun(seed, sum, &outages) })
	if outages == 0 {
		t.Error("no blade was lost")
	}
	t.Logf("%d losses of power, %d of blades before; %d transactions acknowledged, %d under way, %d of which had "+
		"taken effect",
		sum.kills, outages, sum.committed, sum.unknown, sum.effective)
}

func outageRun(seed uint64, sum *totals, outages *int) error {
	p := newSupply(seed, 11, 1, sum)
	var db *txn.DB
	p.hold = func() bool { return db != nil && db.Space() != nil && db.Space().FailoverPending() }
	for life := range 3 {
		var frames []*frame
		p.down, p.left = false, 2000+p.r.IntN(12000)
		err := outageLife(p.f, p.cat, p.l, p.r, &db, outages, func(x *frame) error {
			frames = append(frames, x)
			return nil
		})
		if !p.down {
			return fmt.Errorf("life %d: the power has not gone, but %w", life, err)
		}
		db = nil
		if _, err := p.back(frames); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		p.l.Seed += 1000
	}
	return nil
}

// outageLife runs clients until the power goes, while blades are lost, as long as
// everything has all of its copies, and come back.
func outageLife(f *rdmatest.Fabric, cat layout.Catalog, l *life, r *rand.Rand, open **txn.DB, outages *int,
	say func(*frame) error) error {
	ctx := context.Background()
	db, err := txn.Open(ctx, l.onFabric(f, cat))
	if err != nil {
		return err
	}
	*open = db
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Bytes())
	if err != nil {
		return err
	}
	sorted, err := openSorted(db, l)
	if err != nil {
		return err
	}
	return db.Run(ctx, l.Workers, 1+int(l.Seed%3), func(ctx context.Context, id int, w *txn.Worker) error {
		c := &client{
			l: l, id: int64(id), w: w, table: table, sorted: sorted,
			rand: rand.New(rand.NewPCG(l.Seed, uint64(id))), say: say, now: f.Now,
		}
		lost, next := rdma.BladeID(0), 5+r.IntN(60)
		for away := false; ; {
			if err := c.step(ctx); err != nil {
				return err
			}
			if c.done%4 == 0 {
				if err := w.Maintain(); err != nil && !errors.Is(err, txn.ErrConflict) {
					return err
				}
			}
			if id != 0 || c.done < next {
				continue
			}
			switch rd := db.Redundancy(); {
			case away && r.IntN(2) == 0:
				// One that was not missed yet has its memory: the loss of a blade and of the
				// power at once is not promised either.
				kept := r.IntN(2) == 0 || !slices.Contains(rd.Down, lost)
				if err := f.RestartBlade(lost, kept); err != nil {
					return err
				}
				away, next = false, c.done+1+r.IntN(40)
			case !away && rd.Missing == 0 && len(rd.Down) == 0:
				lost = rdma.BladeID(r.IntN(3))
				if err := f.StopBlade(lost); err != nil {
					return err
				}
				*outages++
				away, next = true, c.done+1+r.IntN(40)
			}
		}
	})
}
