package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/txn"
)

// damagedBeside opens a database in two processes that has a value at key 7 of table t, and returns
// the table in both, and the block.
func damagedBeside(t *testing.T, term time.Duration) (o txn.Options, dbs []*txn.DB, tabs []*txn.Table[uint64, []byte],
	p *poker, a layout.Addr, value []byte) {
	t.Helper()
	o = sharedOn(t, 2)
	o.LeaseTerm, o.Retries = term, 1<<20
	dbs = []*txn.DB{mustOpen(t, o), mustOpen(t, o)}
	for _, db := range dbs {
		tabs = append(tabs, table(t, db, "t"))
	}
	value = bytes.Repeat([]byte("needle! "), 2)
	if err := dbs[0].Update(ctx0, func(tx *txn.Tx) error { return tabs[0].Put(tx, 7, value) }); err != nil {
		t.Fatal(err)
	}
	p = newPoker(t, dbs[0])
	return o, dbs, tabs, p, p.find(value), value
}

// headers are the words of an index that say how deep a group of its buckets is.
func (p *poker) headers(name string) (all []layout.Addr) {
	_, tables := p.indexRoot(name)
	for _, at := range tables {
		for o := layout.Addr(64 + 56); o < 64+192*4; o += 64 {
			all = append(all, at+o)
		}
	}
	return all
}

// TestDamageBesideProcesses: the guard of a record, and words of the index, are damaged while
// another process has a worker open, which is idle, or at work. The process that meets the damage
// repairs it, and no transaction fails.
func TestDamageBesideProcesses(t *testing.T) {
	for _, works := range []bool{false, true} {
		t.Run(fmt.Sprintf("works %v", works), func(t *testing.T) {
			term := 2 * time.Second // after which an idle worker is recovered
			if works {
				term = time.Minute
			}
			o, dbs, tabs, p, a, value := damagedBeside(t, term)
			other := newWorker(t, dbs[1])
			work := func(n uint64) error {
				return other.Update(ctx0, func(tx *txn.Tx) error { return tabs[1].Put(tx, 100+n%50, val(n)) })
			}
			if err := work(0); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			var stop atomic.Bool
			if works {
				wg.Go(func() {
					for n := uint64(0); !stop.Load(); n++ {
						if err := work(n); err != nil {
							t.Errorf("the other process: %v", err)
							return
						}
					}
				})
			}
			epoch := dbs[0].Space().Layout().Epoch
			p.spoil(a, 0, record.GuardOff+3)
			if err := damageOps[0].do(dbs[0], tabs[0], value, nil); err != nil {
				t.Errorf("a record whose guard is damaged: %v", err)
			}
			p.v = dbs[0].Space().View() // what an idle worker has begun is over when it is recovered
			p.whole(a, record.Size(8, len(value)))
			was := map[layout.Addr]uint64{}
			for _, at := range p.headers("t") {
				was[at] = p.word(at)
				p.put(at, was[at]^1<<60)
			}
			for k := uint64(1000); k < 1100; k++ { // which no cache knows
				if err := dbs[0].View(ctx0,
					func(tx *txn.Tx) error { _, err := tabs[0].Has(tx, k); return err }); err != nil {
					t.Fatalf("key %d beside a damaged index: %v", k, err)
				}
			}
			for at, w := range was {
				if now := p.word(at); now != w {
					t.Errorf("%v is %#x instead of %#x", at, now, w)
				}
			}
			if now := dbs[0].Space().Layout().Epoch; works && now != epoch {
				t.Errorf("epochs %d to %d began", epoch+1, now)
			}
			stop.Store(true)
			wg.Wait()
			if err := errors.Join(work(1), other.Close(), p.th.Close()); err != nil {
				t.Error(err)
			}
			closedWell(t, o, dbs...)
		})
	}
}

// TestDamageOfOpenTransaction: the guard of a record is damaged so that it looks free, or a word of
// the index, while a transaction of another process is open that may have changed it. Nothing is
// repaired as long as that is open, and no update is lost.
func TestDamageOfOpenTransaction(t *testing.T) {
	for _, index := range []bool{false, true} {
		t.Run(fmt.Sprintf("index %v", index), func(t *testing.T) {
			o, dbs, tabs, p, a, _ := damagedBeside(t, time.Minute)
			add := func(i int) func(tx *txn.Tx) error {
				return func(tx *txn.Tx) error {
					v, err := tabs[i].GetForUpdate(tx, 7)
					if err != nil {
						return err
					}
					return tabs[i].Put(tx, 7, val(num(v)+1))
				}
			}
			if err := dbs[0].Update(ctx0, func(tx *txn.Tx) error { return tabs[0].Put(tx, 7, val(0)) }); err != nil {
				t.Fatal(err)
			}
			open := begun(t, dbs[1])
			if err := add(1)(open); err != nil {
				t.Fatal(err)
			}
			places, bits := []layout.Addr{a + record.GuardOff}, uint64(1)
			meet := func(ctx context.Context) error { return dbs[0].Update(ctx, add(0)) }
			if index {
				places, bits = p.headers("t"), 1<<60
				meet = func(ctx context.Context) error {
					return errors.Join(dbs[0].View(ctx,
						func(tx *txn.Tx) error { _, err := tabs[0].Has(tx, 1<<20); return err }),
						dbs[0].Update(ctx, add(0)))
				}
			}
			ill := map[layout.Addr]uint64{}
			for _, at := range places {
				ill[at] = p.word(at) ^ bits
				p.put(at, ill[at])
			}
			w := waitsFor(t, dbs[0], dbs[1], meet)
			for at, bad := range ill {
				if now := p.word(at); now != bad {
					t.Errorf("%v is %#x, and was %#x", at, now, bad)
				}
			}
			if err := errors.Join(open.Commit(), <-w.done); err != nil {
				t.Error(err)
			}
			if err := dbs[1].View(ctx0, func(tx *txn.Tx) error {
				v, err := tabs[1].Get(tx, 7)
				if err == nil && num(v) != 2 {
					t.Errorf("two transactions have added one each, and it is %d", num(v))
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			if err := p.th.Close(); err != nil {
				t.Error(err)
			}
			closedWell(t, o, dbs...)
		})
	}
}

// TestDamagedRootBesideProcesses: root and directory of a table are damaged on the primary when a
// process opens it, and a transaction of another process is open that may be changing them. They
// are repaired when that has ended.
func TestDamagedRootBesideProcesses(t *testing.T) {
	for _, off := range []layout.Addr{0, 57, 64, 256} {
		o, dbs, tabs, p, _, value := damagedBeside(t, time.Minute)
		late := mustOpen(t, o)
		root, _ := p.indexRoot("t")
		was := p.image(root, 0, 64*6)
		open := begun(t, dbs[1])
		if err := tabs[1].Put(open, 9, value); err != nil {
			t.Fatal(err)
		}
		p.spoil(root, 0, int(off))
		if off == 64 { // a depth that cannot be
			p.put(root+64, 77)
		}
		ill := p.image(root, 0, 64*6)
		var tab *txn.Table[uint64, []byte]
		w := waitsFor(t, late, dbs[1], func(context.Context) (err error) {
			tab, err = txn.OpenTable(late, "t", txn.Uint64, txn.Bytes())
			return err
		})
		if now := p.image(root, 0, 64*6); !bytes.Equal(now, ill) {
			t.Errorf("offset %d: the root was mended beside an open transaction", off)
		}
		if err := errors.Join(open.Commit(), <-w.done); err != nil {
			t.Fatalf("offset %d: %v", off, err)
		}
		if now := p.image(root, 0, 64*6); !bytes.Equal(now, was) {
			t.Errorf("offset %d: the root is not as before", off)
		}
		if err := errors.Join(damageOps[0].do(late, tab, value, nil), p.th.Close()); err != nil {
			t.Error(err)
		}
		closedWell(t, o, append(dbs, late)...)
	}
}

// asks is what number the last request to rest has had that a process has made.
func asks(db *txn.DB) uint64 { return db.Space().Layout().Process(db.Space().Process()).Asks }

// TestDamageOfAllCopiesAsksNoMore: what no copy has is an error every time, and other processes are
// not asked to rest for it again and again.
func TestDamageOfAllCopiesAsksNoMore(t *testing.T) {
	o, dbs, tabs, p, _, value := damagedBeside(t, time.Minute)
	was := map[layout.Addr]uint64{}
	for _, at := range p.headers("t") {
		was[at] = p.word(at)
		for k := range p.v.Copies(at) {
			p.spoil(at, k, 7)
		}
	}
	asked := uint64(0)
	for i := range 6 {
		err := dbs[0].View(ctx0, func(tx *txn.Tx) error { _, err := tabs[0].Has(tx, 1<<20); return err })
		says(t, "View", err, txn.ErrCorrupt, "index of table")
		switch now := asks(dbs[0]); {
		case i == 0:
			asked = now
		case now != asked:
			t.Errorf("attempt %d: others were asked to rest %d times more", i, now-asked)
		}
	}
	if asked == 0 {
		t.Error("others were not asked to rest")
	}
	for at, w := range was {
		for k := range p.v.Copies(at) {
			p.spoil(at, k, 7)
		}
		if now := p.word(at); now != w {
			t.Errorf("%v is %#x, and was %#x", at, now, w)
		}
	}
	if err := errors.Join(damageOps[0].do(dbs[0], tabs[0], value, nil), p.th.Close()); err != nil {
		t.Error(err)
	}
	closedWell(t, o, dbs...)
}

// TestDropBesideRequests: one process asks all to rest again and again while another one drops a
// table, which comes to its end all the same.
func TestDropBesideRequests(t *testing.T) {
	o := sharedOn(t, 2)
	dbs := []*txn.DB{mustOpen(t, o), mustOpen(t, o)}
	wordsOf(t, dbs...)
	done := make(chan error, 1)
	for n := 0; len(done) == 0; n++ {
		if _, err := dbs[1].Space().Ask(); err != nil {
			t.Fatal(err)
		}
		switch {
		case n == 10:
			go func() { done <- dbs[0].DropTable(ctx0, "words") }()
		case n > 10_000:
			t.Fatal("the table is not dropped as long as others ask to rest")
		}
		time.Sleep(time.Millisecond)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	closedWell(t, o, dbs...)
}
