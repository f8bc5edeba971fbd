package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestPowerAfterDeaths is TestPower with threads that are unwound before, wherever they are, and
// verbs that fail: the others recover the dead in the middle of their own commits, sessions rejoin,
// and log space runs short beside all of that.
func TestPowerAfterDeaths(t *testing.T) {
	sum := &totals{}
	var deaths, failures int
	eachPower(t, 12, 1, 25, func(seed uint64) error { return deathRun(seed, sum, &deaths, &failures) })
	if deaths == 0 || failures == 0 {
		t.Errorf("%d threads were unwound, %d verbs have failed", deaths, failures)
	}
	t.Logf("%d losses of power, %d deaths and %d failed verbs before; %d transactions acknowledged, %d under way, %d "+
		"of which had taken effect",
		sum.kills, deaths, failures, sum.committed, sum.unknown, sum.effective)
}

func deathRun(seed uint64, sum *totals, deaths, failures *int) error {
	p := newSupply(seed, 13, 0, sum)
	for life := range 3 {
		var frames []*frame
		p.down, p.left = false, 2000+p.r.IntN(12000)
		every, next, open := 200+p.r.IntN(4000), 0, false
		p.f.Fail(func(w *rdma.WR) rdma.Status {
			status := p.fail(w)
			if next--; open && next < 0 && status == rdma.StatusOK {
				next = p.r.IntN(every)
				*failures++
				return rdma.StatusTimeout
			}
			return status
		})
		err := deathLife(p.f, p.cat, p.l, p.r, deaths, &p.down, &open, func(x *frame) error {
			frames = append(frames, x)
			return nil
		})
		if !p.down {
			return fmt.Errorf("life %d: the power has not gone, but %w", life, err)
		}
		if _, err := p.back(frames); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		p.l.Seed += 1000
	}
	return nil
}

// deathLife runs clients until the power goes. Now and then one of several threads is unwound.
func deathLife(f *rdmatest.Fabric, cat layout.Catalog, l *life, r *rand.Rand, deaths *int, down, running *bool,
	say func(*frame) error) error {
	ctx := context.Background()
	db, err := txn.Open(ctx, l.onFabric(f, cat))
	if err != nil {
		return err
	}
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Bytes())
	if err != nil {
		return err
	}
	sorted, err := openSorted(db, l)
	if err != nil {
		return err
	}
	threads, coroutines := 1+l.Workers, 1+int(l.Seed%4)
	for round := int64(0); !*down; round++ {
		victim, after, steps := r.IntN(threads), int64(r.IntN(400_000)), 5+r.IntN(60)
		if r.IntN(4) == 0 {
			victim = -1
		}
		*running = true
		err = db.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w *txn.Worker) error {
			c := &client{
				l: l, id: round<<16 | int64(id), w: w, table: table, sorted: sorted,
				rand: rand.New(rand.NewPCG(l.Seed+uint64(round)<<32, uint64(id))), say: say, now: f.Now,
			}
			if id/coroutines == victim && id%coroutines == 0 {
				*deaths++
				w.Sleep(after)
				runtime.Goexit()
			}
			for range steps {
				err := c.step(context.WithoutCancel(ctx))
				switch {
				case *down:
					return err
				case errors.Is(err, txn.ErrOutcomeUnknown): // it stays open
					return nil
				case err != nil:
					return err
				}
			}
			return nil
		})
		if err != nil && !*down && victim < 0 && !errors.Is(err, txn.ErrBroken) {
			return err
		}
	}
	return err
}
