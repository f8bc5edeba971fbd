package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
	"txnode/verify"
)

// sharedBank is a database that several processes have open, in which money moves between accounts.
// At each moment the sum is the same.
type sharedBank struct {
	t         *testing.T
	o         txn.Options
	dbs       []*txn.DB
	tables    []*txn.Table[uint64, int64]
	committed atomic.Uint64
	quit      chan struct{}
	writers   sync.WaitGroup
}

const bankAccounts, bankEach = 2000, 100

// openBank opens it in so many processes.
func openBank(t *testing.T, o txn.Options, processes int) *sharedBank {
	t.Helper()
	b := &sharedBank{t: t, o: o, quit: make(chan struct{})}
	for p := range processes {
		db := mustOpen(t, o)
		accounts, err := txn.CreateTable(db, "accounts", txn.Uint64, txn.Plain[int64]())
		if err != nil {
			t.Fatal(err)
		}
		b.dbs, b.tables = append(b.dbs, db), append(b.tables, accounts)
		for k := uint64(0); p == 0 && k < bankAccounts; k += 50 {
			if err := db.Update(t.Context(), func(tx *txn.Tx) (err error) {
				for i := range uint64(50) {
					err = errors.Join(err, accounts.Put(tx, k+i, bankEach))
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

// begin begins to move money, in each process by so many workers.
func (b *sharedBank) begin(workers int) {
	for id := range workers * len(b.dbs) {
		p := id % len(b.dbs)
		b.writers.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(id)))
			for {
				select {
				case <-b.quit:
					return
				default:
				}
				if err := b.transfer(p, r.Uint64N(bankAccounts), r.Uint64N(bankAccounts)); err != nil {
					b.t.Errorf("process %d: %v", p, err)
					return
				}
				b.committed.Add(1)
			}
		})
	}
}

func (b *sharedBank) transfer(p int, from, to uint64) error {
	accounts := b.tables[p]
	return b.dbs[p].Update(context.Background(), func(tx *txn.Tx) error {
		x, err := accounts.Get(tx, from)
		if err != nil || from == to {
			return err
		}
		y, err := accounts.Get(tx, to)
		if err != nil {
			return err
		}
		return errors.Join(accounts.Put(tx, from, x-1), accounts.Put(tx, to, y+1))
	})
}

// await returns when so many transactions have committed since.
func (b *sharedBank) await(n uint64) {
	for n += b.committed.Load(); b.committed.Load() < n && !b.t.Failed(); {
		runtime.Gosched()
	}
}

func (b *sharedBank) end() {
	close(b.quit)
	b.writers.Wait()
}

// balance demands that a backup has all accounts, and all the money.
func (b *sharedBank) balance(file []byte) {
	b.t.Helper()
	db := openMemory(b.t, txn.Options{})
	if _, err := db.Restore(b.t.Context(), bytes.NewReader(file), txn.BackupOptions{}); err != nil {
		b.t.Fatal(err)
	}
	accounts, err := txn.OpenTable(db, "accounts", txn.Uint64, txn.Plain[int64]())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := db.View(b.t.Context(), func(tx *txn.Tx) error {
		n, sum := 0, int64(0)
		for _, v := range accounts.All(tx) {
			n, sum = n+1, sum+v
		}
		if n != bankAccounts || sum != bankAccounts*bankEach {
			b.t.Errorf("the backup has %d accounts with %d; want %d with %d",
				n, sum, bankAccounts, bankAccounts*bankEach)
		}
		return tx.Err()
	}); err != nil {
		b.t.Fatal(err)
	}
}

// closed closes all processes, perhaps before what the loss of a blade has left is swept. A check
// finds no damage, and nothing at all when the database was opened once more.
func (b *sharedBank) closed() {
	b.t.Helper()
	for p, db := range b.dbs {
		if err := db.Close(context.Background()); err != nil {
			b.t.Errorf("process %d: %v", p, err)
		}
	}
	if sum := b.check(); !sum.Clean() {
		b.t.Errorf("closed: %+v", sum)
	}
	if err := reopen(b.t, b.o).Close(context.Background()); err != nil {
		b.t.Error(err)
	}
	if sum := b.check(); sum.Findings > 0 {
		b.t.Errorf("opened and closed: %+v", sum)
	}
}

// check checks the database as the catalog says that it is.
func (b *sharedBank) check() verify.Summary {
	b.t.Helper()
	l, err := layout.LoadLayout(b.o.Catalog)
	if err != nil {
		b.t.Fatal(err)
	}
	d, err := verify.Attach(b.o.Fabric, l)
	if err != nil {
		b.t.Fatal(err)
	}
	defer d.Close()
	sum, err := d.Check(b.t.Context(), verify.Options{Report: func(f verify.Finding) error {
		b.t.Logf("%v", f)
		return nil
	}})
	if err != nil || sum.Live < bankAccounts {
		b.t.Errorf("%+v, %v", sum, err)
	}
	return sum
}

// TestSharedBackupLosesABlade: a blade is lost while a backup is made. The processes go on, and
// so does the backup.
func TestSharedBackupLosesABlade(t *testing.T) {
	for _, policy := range policies(t) {
		for _, at := range []int{1, 2, 3, 4, 5, 6} {
			t.Run(fmt.Sprintf("%v/%d", policy, at), func(t *testing.T) {
				o := sharedOn(t, 2)
				o.Policy, o.Retries = policy, 1<<20
				b := openBank(t, o, 3)
				b.begin(2)
				b.await(100)
				var file bytes.Buffer
				calls := 0
				_, err := b.dbs[1].Backup(t.Context(), &file, txn.BackupOptions{Progress: func(uint64) {
					b.await(50)
					if calls++; calls == at {
						if err := o.Fabric.(rdma.Stopper).StopBlade(1); err != nil {
							t.Error(err)
						}
					}
				}})
				b.await(50)
				b.end()
				if err != nil || calls < at {
					t.Fatalf("%d calls: %v", calls, err)
				}
				b.balance(file.Bytes())
				b.closed()
			})
		}
	}
}

// mute is a catalog that never says by itself that it was changed.
type mute struct{ layout.Catalog }

func (c mute) Await(ctx context.Context, after layout.Revision) (layout.Revision, error) {
	if ctx.Err() == nil {
		<-ctx.Done()
	}
	return c.Catalog.Await(ctx, after)
}

// TestSharedBackupMeetsNewSegment: what another process keeps lies in a segment that it has added,
// of which the process that makes the backup has not heard yet.
func TestSharedBackupMeetsNewSegment(t *testing.T) {
	o := sharedOn(t, 2)
	value := bytes.Repeat([]byte("v"), 5000)
	b := besides(t, o, mute{o.Catalog}, value)
	var file bytes.Buffer
	calls := 0
	_, err := b.dbs[0].Backup(t.Context(), &file, txn.BackupOptions{Progress: func(uint64) {
		if calls++; calls > 1 {
			return
		}
		b.put(t, 1, "x", []byte("after"))
		if have, are := len(b.dbs[0].Space().Layout().Segments), len(b.dbs[1].Space().Layout().Segments); have == are {
			t.Errorf("both processes know of %d segments", have)
		}
	}})
	if err != nil || calls == 0 {
		t.Fatalf("%d calls: %v", calls, err)
	}
	b.has(t, file.Bytes(), value)
}
