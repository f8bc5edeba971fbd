package command_test

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"txnode/cluster"
	"txnode/txn"
)

// TestClusterBackup: a cluster on unix sockets is copied while two processes move money, and the
// backup is restored to another cluster and to a directory. The books balance, and each transfer
// that was acknowledged before is there.
func TestClusterBackup(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	run := func(want int, says string, args ...string) {
		t.Helper()
		code, out, stderr := b.run(args...)
		if all := strings.Join(strings.Fields(out+stderr), " "); code != want || !strings.Contains(all, says) ||
			code != 0 && strings.Count(stderr, "\n") != 1 {
			t.Fatalf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
	serve := func(name string) (catalog string) {
		t.Helper()
		catalog = "unix:" + filepath.Join(dir, name+"c")
		startServe(t, "--listen", catalog, "--catalog", filepath.Join(dir, name+"data"), "--memory", "0")
		args := []string{"cluster", "init", "--catalog", catalog, "--segment-size", "1MiB"}
		for _, blade := range []string{"a", "b"} {
			startServe(t, "--memory", "64MiB", "--listen", "unix:"+filepath.Join(dir, name+blade))
			args = append(args, "--blade", "unix:"+filepath.Join(dir, name+blade))
		}
		run(0, "has 2 blades of 2 servers", args...)
		return catalog
	}
	from, to := serve("x"), serve("y")
	file := filepath.Join(dir, "file")
	const accounts, each = 800, 100
	open := func(address string) (*txn.DB, *txn.Table[uint64, int64], *txn.Table[uint64, uint64]) {
		t.Helper()
		db, err := cluster.Open(ctx, address, txn.Options{IndexGroups: 64, Retries: 1 << 20}, cluster.Options{Post: -1})
		if err != nil {
			t.Fatal(err)
		}
		money, err := txn.CreateTable(db, "money", txn.Uint64, txn.Plain[int64]())
		if err != nil {
			t.Fatal(err)
		}
		count, err := txn.CreateTable(db, "count", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		return db, money, count
	}
	quit, begun := make(chan struct{}), [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	var mu sync.Mutex
	var made [2]uint64
	var busy sync.WaitGroup
	var dbs []*txn.DB
	for p := range made {
		db, money, count := open(from)
		dbs = append(dbs, db)
		for k := uint64(0); p == 0 && k < accounts; k += 100 {
			if err := db.Update(ctx, func(tx *txn.Tx) (err error) {
				for i := range uint64(100) {
					err = errors.Join(err, money.Put(tx, k+i, each))
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		busy.Go(func() {
			for n := uint64(1); ; n++ {
				select {
				case <-quit:
					return
				default:
				}
				x, y := n*7919%accounts, n*104729%accounts
				if err := db.Update(ctx, func(tx *txn.Tx) error {
					a, _, err := money.Lookup(tx, x)
					b, _, e := money.Lookup(tx, y)
					if err = errors.Join(err, e); err != nil || x == y {
						return err
					}
					return errors.Join(money.Put(tx, x, a-1), money.Put(tx, y, b+1), count.Put(tx, uint64(p), n))
				}); err != nil {
					t.Errorf("process %d: %v", p, err)
					return
				}
				mu.Lock()
				if x != y {
					made[p] = n
				}
				mu.Unlock()
				if n == 10 {
					close(begun[p])
				}
			}
		})
	}
	for p := range begun {
		<-begun[p]
	}
	mu.Lock()
	least := made
	mu.Unlock()
	run(0, "records", "backup", from, file)
	run(1, "exists", "backup", from, file)
	run(0, "records", "backup", from, file, "--force")
	close(quit)
	busy.Wait()
	run(1, "close it there", "restore", file, from)
	run(2, "are for a directory", "restore", file, to, "--blades", "2")
	run(0, "restored", "restore", file, to)
	run(0, "no findings", "check", to)
	run(0, "restored", "restore", file, filepath.Join(dir, "again"))
	run(1, "", "backup", "unix:"+filepath.Join(dir, "none"), file)
	db, money, count := open(to)
	if err := db.View(ctx, func(tx *txn.Tx) error {
		sum, n := int64(0), 0
		for _, v := range money.All(tx) {
			sum += v
			n++
		}
		if sum != accounts*each || n != accounts {
			t.Errorf("%d accounts have %d", n, sum)
		}
		for p := range least {
			if v, err := count.Get(tx, uint64(p)); err != nil || v < least[p] {
				t.Errorf("process %d: %d transfers, %v; %d were acknowledged before", p, v, err, least[p])
			}
		}
		return tx.Err()
	}); err != nil {
		t.Error(err)
	}
	for _, db := range append(dbs, db) {
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
