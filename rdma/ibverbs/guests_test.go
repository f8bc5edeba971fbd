package ibverbs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/rdma/ibverbs"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// Writers of a cluster whose blades are behind devices, for scripts/rdma/guests.sh. A writer moves
// money between few accounts, and says on its standard output which transactions it was told are
// committed, as "committed NAME-17." Its guest may lose power. The audit finds all of these.
const (
	writerEnv = "TXNODE_RDMA_WRITER" // CATALOG NAME UNTIL: UNTIL is a file, at which it ends
	auditEnv  = "TXNODE_RDMA_AUDIT"  // CATALOG JOURNAL...: outputs of writers
)

const (
	moneyAccounts = 12
	moneyEach     = 1000
	moneyLease    = 10 * time.Second // guests are slow
)

// bank is what writers use.
type bank struct {
	db       *txn.DB
	accounts *txn.Table[uint64, int64]
	done     *txn.OrderedTable[string, uint64]
}

// openBank opens the database, and puts money into the accounts if there are none.
func openBank(tb testing.TB, catalog string) (b bank) {
	tb.Helper()
	dev, err := ibverbs.ParseDevice(os.Getenv("TXNODE_RDMA"))
	if err != nil {
		tb.Fatal(err)
	}
	o := cluster.Options{RDMA: dev}
	if f := ibverbs.EnvFiles(tb); f != nil {
		o.TCP = tcp.Options{Credentials: f.Client}
	}
	for i := 0; ; i++ { // the guest of the catalog may begin later
		to := txn.Options{LeaseTerm: moneyLease, Workers: 4, IndexGroups: 16}
		b.db, err = cluster.Open(tb.Context(), catalog, to, o)
		if err == nil {
			break
		}
		if i == 600 {
			tb.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if b.accounts, err = txn.CreateTable(b.db, "accounts", txn.Uint64, txn.Plain[int64]("money")); err == nil {
		b.done, err = txn.CreateOrderedTable(b.db, "done", txn.String, txn.Plain[uint64]())
	}
	if err == nil {
		err = b.db.Update(tb.Context(), func(tx *txn.Tx) error {
			for a := range uint64(moneyAccounts) {
				if _, err := b.accounts.Get(tx, a); !errors.Is(err, txn.ErrNotFound) {
					return err
				}
				if err := b.accounts.Put(tx, a, moneyEach); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func (b *bank) close(tb testing.TB) {
	tb.Helper()
	if err := b.db.Close(context.WithoutCancel(tb.Context())); err != nil {
		tb.Error(err)
	}
}

// move moves money from one account to another, and notes that it has.
func (b *bank) move(ctx context.Context, key string, from, to uint64, amount int64) error {
	return b.db.Update(ctx, func(tx *txn.Tx) error {
		for _, x := range []struct {
			account uint64
			add     int64
		}{{from, -amount}, {to, amount}} {
			had, err := b.accounts.Get(tx, x.account)
			if err == nil {
				err = b.accounts.Put(tx, x.account, had+x.add)
			}
			if err != nil {
				return err
			}
		}
		return b.done.Insert(tx, key, uint64(amount))
	})
}

// TestGuestWriter writes until a file is there.
func TestGuestWriter(t *testing.T) {
	args := strings.Fields(os.Getenv(writerEnv))
	if len(args) != 3 {
		t.Skipf("%s is not set: make test-rdma sets it", writerEnv)
	}
	b := openBank(t, args[0])
	for n := 1; ; n++ {
		key := fmt.Sprintf("%s-%d", args[1], n)
		from := rand.Uint64N(moneyAccounts)
		to := (from + 1 + rand.Uint64N(moneyAccounts-1)) % moneyAccounts
		if err := b.move(t.Context(), key, from, to, rand.Int64N(10)); err != nil {
			fmt.Printf("transaction %s: %v\n", key, err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		fmt.Printf("committed %s.\n", key)
		if _, err := os.Stat(args[2]); err == nil {
			break
		}
	}
	b.close(t)
}

// TestGuestAudit counts the money, and looks for all that writers were told is committed.
func TestGuestAudit(t *testing.T) {
	args := strings.Fields(os.Getenv(auditEnv))
	if len(args) < 2 {
		t.Skipf("%s is not set: make test-rdma sets it", auditEnv)
	}
	committed := map[string]bool{}
	for _, name := range args[1:] {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		had := len(committed)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			key, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "committed ")
			if key, whole := strings.CutSuffix(key, "."); ok && whole {
				committed[key] = true
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if len(committed) == had {
			t.Errorf("%s has no committed transaction", name)
		}
	}
	b := openBank(t, args[0])
	var sum int64
	found := map[string]bool{}
	if err := b.db.View(t.Context(), func(tx *txn.Tx) error {
		sum = 0
		clear(found)
		for a := range uint64(moneyAccounts) {
			m, err := b.accounts.Get(tx, a)
			if err != nil {
				return err
			}
			sum += m
		}
		for k := range b.done.Keys(tx) {
			found[k] = true
		}
		return tx.Err()
	}); err != nil {
		t.Fatal(err)
	}
	if sum != moneyAccounts*moneyEach {
		t.Errorf("%d of %d are in the accounts", sum, moneyAccounts*moneyEach)
	}
	for k := range committed {
		if !found[k] {
			t.Errorf("transaction %s was committed, and is not there", k)
		}
	}
	t.Logf("%d transactions are there, of which writers were told of %d", len(found), len(committed))
	b.close(t)
}
