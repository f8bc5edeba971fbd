package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestPowerAndGiveBack takes the power while records are deleted, their segments go back, and the
// places are used for records of another size. No record is lost that was acknowledged, and none
// comes back that was deleted.
func TestPowerAndGiveBack(t *testing.T) {
	sum := &gaveBack{}
	eachPower(t, 20, 6, 100, func(seed uint64) error { return powerGiveBack(seed, sum) })
	t.Logf("%d losses of power; in %d of them segments had gone back, and in %d their numbers were in use again",
		sum.losses, sum.back, sum.again)
	if sum.back == 0 || sum.again == 0 {
		t.Error("nothing was tested")
	}
}

// gaveBack counts over all seeds.
type gaveBack struct{ losses, back, again int }

// backRow is what is known of a record: the byte that its value is made of, 0: it is not there.
// maybe: or that of the transaction that was under way.
type backRow struct {
	mark  byte
	maybe bool
	now   byte
}

func powerGiveBack(seed uint64, sum *gaveBack) error {
	r := rand.New(rand.NewPCG(seed, 31))
	p := &supply{r: r, hold: func() bool { return false }, left: 1 << 30}
	p.l = &life{Blades: 3, Backups: r.IntN(3), Workers: 1, Seed: seed}
	p.cat = &powered{down: &p.down}
	p.f = rdmatest.New(rdmatest.Options{Blades: 3, Size: 12 << 20, Seed: seed, Volatile: true, Fail: p.fail,
		Caps: rdma.Caps{Synchronous: true, Placed: r.IntN(2) == 0, OrderedLine: r.IntN(2) == 0, MaskedCAS: true}})
	rows := map[uint64]*backRow{}
	for range 3 {
		p.left = 2000 + r.IntN(40_000)
		back, again, err := backLife(p, rows)
		if err == nil || !p.down {
			return fmt.Errorf("it has ended with power: %w", err)
		}
		sum.losses++
		if back {
			sum.back++
		}
		if again {
			sum.again++
		}
		for tries := 0; ; tries++ {
			p.f = p.f.LosePower(r.Uint64())
			p.f.Fail(p.fail)
			p.down, p.left = false, 1<<30
			if r.IntN(2) == 0 && tries < 3 {
				p.left = r.IntN(5000)
			}
			err := backLook(p, rows)
			if err == nil && !p.down { // it may go while the blades are told of the end
				break
			}
			if !p.down {
				return fmt.Errorf("power has come back: %w", err)
			}
		}
		p.left = 1 << 30
		if err := walkFabric(p.f, p.cat); err != nil {
			return err
		}
	}
	return nil
}

// backOptions are those of a database whose segments go back at once.
func backOptions(p *supply) txn.Options {
	o := p.l.onFabric(p.f, p.cat)
	o.GiveBack, o.ReclaimAfter = 1, 1
	return o
}

// backLife fills and empties the table until the power goes.
func backLife(p *supply, rows map[uint64]*backRow) (back, again bool, err error) {
	ctx := context.Background()
	db, err := txn.Open(ctx, backOptions(p))
	if err != nil {
		return false, false, err
	}
	table, err := txn.CreateTable(db, "rows", txn.Uint64, txn.Bytes())
	if err != nil {
		return false, false, err
	}
	w, err := db.NewWorker()
	if err != nil {
		return false, false, err
	}
	vacant := map[layout.SegmentID]bool{}
	change := func(from, to uint64, size int, mark byte) error {
		for k := from; k < to; k += 8 {
			err := w.Update(ctx, func(tx *txn.Tx) error {
				for n := k; n < min(k+8, to); n++ {
					if mark == 0 {
						if err := table.Delete(tx, n); err != nil && !errors.Is(err, txn.ErrNotFound) {
							return err
						}
						continue
					}
					v := make([]byte, size)
					for i := range v {
						v[i] = mark
					}
					if err := table.Put(tx, n, v); err != nil {
						return err
					}
				}
				return nil
			})
			for n := k; n < min(k+8, to); n++ {
				x := rows[n]
				if x == nil {
					x = &backRow{}
					rows[n] = x
				}
				if x.maybe = err != nil; x.maybe {
					x.now = mark
				} else {
					x.mark = mark
				}
			}
			if err != nil {
				return err
			}
			l := db.Space().Layout()
			for id := range l.Segments {
				switch x := layout.SegmentID(id); {
				case l.Segments[id].Vacant:
					vacant[x], back = true, true
				case vacant[x]:
					again = true
				}
			}
		}
		return nil
	}
	if err := change(1<<20, 1<<20+20, 300, byte(1+p.r.IntN(200))); err != nil { // which stay
		return back, again, err
	}
	for round := 0; ; round++ {
		size := []int{200, 3000, 900}[round%3]
		n := uint64(1+p.r.IntN(600_000)) / uint64(size)
		if err := change(0, n, size, byte(1+p.r.IntN(200))); err != nil {
			return back, again, err
		}
		if err := change(0, n, size, 0); err != nil {
			return back, again, err
		}
		for range 20 {
			if err := w.Maintain(); err != nil {
				return back, again, err
			}
			w.Sleep(1_000_000)
		}
	}
}

// backLook opens the database, and holds what is there against what is known.
func backLook(p *supply, rows map[uint64]*backRow) error {
	ctx := context.Background()
	db, err := txn.Open(ctx, backOptions(p))
	if err != nil {
		return err
	}
	table, err := txn.CreateTable(db, "rows", txn.Uint64, txn.Bytes())
	if err != nil {
		return err
	}
	for k, x := range rows {
		var v []byte
		var ok bool
		if err := db.View(ctx, func(tx *txn.Tx) (err error) {
			v, ok, err = table.Lookup(tx, k)
			return err
		}); err != nil {
			return err
		}
		got := byte(0)
		if ok {
			got = v[0]
			for _, b := range v {
				if b != got {
					return fmt.Errorf("key %d has a value of two transactions", k)
				}
			}
		}
		if got != x.mark && (!x.maybe || got != x.now) {
			return fmt.Errorf("key %d has %d, and not %d, or %d: %v", k, got, x.mark, x.now, x.maybe)
		}
		x.mark, x.maybe = got, false
	}
	return db.Close(ctx)
}
