package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/txn"
)

// till is money that transactions move from account to account.
type till struct {
	db       *txn.DB
	accounts *txn.Table[uint64, int64]
	quit     chan struct{}
	busy     sync.WaitGroup
	counts   [4]int
}

const (
	tillAccounts = 200
	tillEach     = 1000
	tillFresh    = 4000 // accounts that a session makes
)

// openTill opens a database with accounts.
func openTill(t *testing.T, o txn.Options) *till {
	t.Helper()
	ctx := context.Background()
	db, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	x := &till{db: db}
	if x.accounts, err = txn.CreateTable(db, "accounts", txn.Uint64, txn.Plain[int64]()); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(tillAccounts) {
		if err := db.Update(ctx, func(tx *txn.Tx) error { return x.accounts.Put(tx, i, tillEach) }); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// work has sessions move money, and make accounts, until rest.
func (x *till) work(t *testing.T) {
	x.quit = make(chan struct{})
	for g := range x.counts {
		x.busy.Go(func() {
			for i := uint64(x.counts[g]); ; i++ {
				select {
				case <-x.quit:
					return
				default:
				}
				a, b := i*7919%tillAccounts, (i*104729+1)%tillAccounts
				if err := x.db.Update(context.Background(), func(tx *txn.Tx) error {
					if a == b {
						return nil
					}
					p, err := x.accounts.GetForUpdate(tx, a)
					if err != nil {
						return err
					}
					q, err := x.accounts.GetForUpdate(tx, b)
					if err != nil {
						return err
					}
					if i >= tillFresh {
						return errors.Join(x.accounts.Put(tx, a, p-1), x.accounts.Put(tx, b, q+1))
					}
					return errors.Join(x.accounts.Put(tx, a, p-2), x.accounts.Put(tx, b, q+1),
						x.accounts.Insert(tx, uint64(g+1)<<40+i, 1))
				}); err != nil {
					t.Errorf("transaction %d of %d: %v", i, g, err)
					return
				}
				x.counts[g]++
			}
		})
	}
}

// rest ends work, and checks that every transaction is there, and the whole database.
func (x *till) rest(t *testing.T) {
	t.Helper()
	close(x.quit)
	x.busy.Wait()
	if t.Failed() {
		t.FailNow()
	}
	sum := int64(0)
	if err := x.db.View(context.Background(), func(tx *txn.Tx) error {
		sum = 0
		for i := range uint64(tillAccounts) {
			v, err := x.accounts.Get(tx, i)
			if err != nil {
				return err
			}
			sum += v
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for g := range x.counts {
		for i := range min(uint64(x.counts[g]), tillFresh) {
			if i*7919%tillAccounts == (i*104729+1)%tillAccounts {
				continue
			}
			if err := x.db.View(context.Background(), func(tx *txn.Tx) error {
				v, err := x.accounts.Get(tx, uint64(g+1)<<40+i)
				sum += v
				return err
			}); err != nil {
				t.Errorf("account %d of %d: %v", i, g, err)
			}
		}
	}
	if sum != tillAccounts*tillEach {
		t.Errorf("there are %d; want %d", sum, tillAccounts*tillEach)
	}
	swept(t, x.db)
	audit(t, x.db)
}

// evenly fails unless every blade that stays has copies of about as many segments.
func evenly(t *testing.T, db *txn.DB) {
	t.Helper()
	l := db.Space().Layout()
	least, most := 1<<30, 0
	for b := range l.Blades {
		if l.Blades[b].State == layout.BladeUp {
			n := l.Held(rdma.BladeID(b))
			least, most = min(least, n), max(most, n)
		}
	}
	if most > least+2 {
		t.Errorf("a blade has copies of %d segments, and another of %d", least, most)
	}
}

// TestDrain: while accounts are moved and made, blades are drained one by one, and taken in again,
// and copies are spread over them. No transaction fails, none is lost or halved, and no copy was
// missing unless there are two backups.
func TestDrain(t *testing.T) {
	for i, c := range []struct{ blades, backups int }{{3, 1}, {2, 0}, {4, 2}} {
		t.Run(fmt.Sprintf("%d blades, f=%d", c.blades, c.backups), func(t *testing.T) {
			if i > 0 && raced.Enabled {
				t.Skip("once is enough")
			}
			x := openTill(t, txn.Options{Retries: 1 << 20, Blades: c.blades, Backups: txn.F(c.backups),
				BladeSize: 256 << 20, SegmentSize: 1 << 20,
				LogArea: 64 << 10, IndexGroups: 16, LeaseTerm: 3 * time.Second})
			db := x.db
			x.work(t)
			for b := range c.blades {
				time.Sleep(30 * time.Millisecond)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				looks := 0
				if err := db.Drain(ctx, b, func(txn.Moving) {
					looks++
					if r := db.Redundancy(); r.Lost > 0 || r.Missing > 0 && c.backups < 2 {
						t.Errorf("draining blade %d: %+v", b, r)
					}
				}); err != nil {
					t.Fatalf("draining blade %d: %v", b, err)
				}
				l := db.Space().Layout()
				if !l.Vacant(rdma.BladeID(b)) || l.Held(rdma.BladeID(b)) > 0 || looks == 0 {
					t.Errorf("blade %d is drained: %+v; %d looks", b, l.Blades[b], looks)
				}
				if r := db.Redundancy(); len(r.Outages) > 0 || len(r.Down) > 0 || r.Missing > 0 || r.Moving > 0 {
					t.Errorf("blade %d is drained: %+v", b, r)
				}
				if err := db.Undrain(b); err != nil {
					t.Fatal(err)
				}
				for up := false; !up; up = db.Space().View().Up(rdma.BladeID(b)) {
					time.Sleep(time.Millisecond)
				}
				if _, err := db.Rebalance(ctx, nil); err != nil {
					t.Fatal(err)
				}
				evenly(t, db)
				cancel()
			}
			x.rest(t)
			if err := db.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// slowRevoke is a fabric whose blades take a while to end keys: a change of the epoch is in the
// catalog long before it has begun.
type slowRevoke struct{ rdma.Fabric }

func (f slowRevoke) Revoke(b rdma.BladeID, before rdma.Key) error {
	time.Sleep(10 * time.Millisecond)
	return f.Fabric.Revoke(b, before)
}

// TestUndrainEarly: a blade is taken in again at once when the catalog has its place vacant, before
// the epoch in which it is so has begun in this process. That is no outage.
func TestUndrainEarly(t *testing.T) {
	const blades = 3
	o := inproc.Options{Seed: 1}
	for range blades {
		o.Blades = append(o.Blades, inproc.BladeOptions{Size: 16 << 20})
	}
	f, err := inproc.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	db := mustOpen(t, txn.Options{
		Fabric: slowRevoke{f}, Catalog: &catalog.Mem{}, Backups: txn.F(1),
		SegmentSize: 256 << 10, LogArea: 64 << 10, IndexGroups: 16, LeaseTerm: -1,
	})
	for range 3 {
		for b := range blades {
			if err := errors.Join(db.Drain(t.Context(), b, nil), db.Undrain(b)); err != nil {
				t.Fatal(err)
			}
			for !db.Space().Current().Up(rdma.BladeID(b)) {
				time.Sleep(time.Millisecond)
			}
			if r := db.Redundancy(); len(r.Outages) > 0 {
				t.Fatalf("blade %d was drained, and taken in again: %+v", b, r.Outages)
			}
		}
	}
	if err := db.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestIsolationWhileMoving: blades are drained and taken in again, and copies are spread, under
// transactions whose history is checked, on all fabrics.
func TestIsolationWhileMoving(t *testing.T) {
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		const keys = 12
		table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		// Workers that sleep for as long go in step, and what they did last may have deleted all
		// keys but this one.
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return table.Put(tx, keys, 1) }); err != nil {
			t.Fatal(err)
		}
		x := mover{space: db.Space(), rounds: 2}
		if s.backups == 2 {
			x.rounds = 0 // three blades have three copies
		}
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			for i := 0; i < 20 || !x.over.Load(); i++ {
				a, b := uint64(id*31+i*7)%keys, uint64(id*17+i*5+1)%keys
				err := w.Update(ctx, func(tx *txn.Tx) error {
					v, _, err := table.Lookup(tx, a)
					if err != nil || i%3 == 0 {
						return err
					}
					if i%11 == 0 {
						return table.Delete(tx, a)
					}
					return table.Put(tx, b, v+1)
				})
				if err != nil && !errors.Is(err, txn.ErrNotFound) && !errors.Is(err, txn.ErrConflict) {
					return fmt.Errorf("transaction %d of %d: %w", i, id, err)
				}
				if id == 0 {
					if err := x.step(); err != nil {
						return err
					}
				}
				w.Sleep(5_000_000)
				if err := w.Maintain(); err != nil {
					return err
				}
				if id == 0 && i > 4000 {
					return fmt.Errorf("blade %d is not there yet: phase %d, %+v", x.blade, x.phase, db.Redundancy())
				}
			}
			return nil
		})
		var left []uint64
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			left = left[:0]
			for k := range uint64(keys + 1) {
				_, ok, err := table.Lookup(tx, k)
				if err != nil {
					return err
				}
				if ok {
					left = append(left, k)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 || left[len(left)-1] != keys {
			t.Errorf("key %d is gone, which was never deleted; there are %v", keys, left)
		}
	})
}

// mover drains one blade after the other, and takes it in again.
type mover struct {
	space  *memory.Space
	rounds int
	blade  rdma.BladeID
	phase  int
	over   atomic.Bool // all of it is done, and swept
}

// step makes the next step, if it is time.
func (x *mover) step() error {
	if int(x.blade) == x.rounds {
		if _, unswept := x.space.Unswept(); !unswept && !x.space.Leaked() {
			x.over.Store(true)
		}
		return nil
	}
	err, next := error(nil), true
	switch l := x.space.Layout(); x.phase {
	case 0:
		err = x.space.Drain(x.blade)
	case 1:
		if next = l.Vacant(x.blade); next {
			err = x.space.Stay(x.blade)
		}
	case 2:
		if next = x.space.View().Up(x.blade); next {
			_, err = x.space.Spread()
		}
	case 3:
		r := l.Redundancy()
		next = r.Moving+r.Building+r.Missing == 0
	}
	if err != nil || !next {
		return err
	}
	if x.phase++; x.phase == 4 {
		x.blade, x.phase = x.blade+1, 0
	}
	return nil
}
