package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"txnode/cluster"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// chaosTables are what writers use.
type chaosTables struct {
	db       *txn.DB
	accounts *txn.Table[uint64, account]
	done     *txn.OrderedTable[string, uint64] // transactions, by writer and number
}

// account is what an account has, and which attempt of a transaction has written it: see attempt.
type account struct {
	Money   int64
	Version uint64
}

// openChaos opens the database as a writer does. tlsDir has files of TLS; "-": there is none.
func openChaos(ctx context.Context, address, tlsDir string, lease time.Duration) (x chaosTables, err error) {
	o := cluster.Options{TCP: tcp.Options{Verb: 5 * time.Second}}
	if tlsDir != "-" {
		files := filesOf(tlsDir)
		if err := files.Load(); err != nil {
			return x, err
		}
		o.TCP.Credentials = files.Client
		o.TCP.Connect, o.TCP.Control, o.TCP.Verb = time.Second, 2*time.Second, 2*time.Second
	}
	x.db, err = cluster.Open(ctx, address, txn.Options{LeaseTerm: lease, Workers: 4, IndexGroups: 16}, o)
	if err != nil {
		return x, err
	}
	if x.accounts, err = txn.CreateTable(x.db, "accounts", txn.Uint64, txn.Plain[account]("account")); err == nil {
		x.done, err = txn.CreateOrderedTable(x.db, "done", txn.String, txn.Plain[uint64]())
	}
	if err != nil {
		err = errors.Join(err, x.db.Close(ctx))
	}
	return x, err
}

// runWriter moves money between accounts until it is killed, and notes in its journal what it
// attempts and what it was told is committed.
func runWriter(args string) error {
	f := strings.Fields(args)
	seed, err := strconv.ParseUint(f[2], 10, 64)
	lease, err2 := time.ParseDuration(f[4])
	spin, err3 := strconv.Atoi(f[5])
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	for range spin {
		go func() {
			for n := 0; ; n++ { // it keeps a processor busy
			}
		}()
	}
	journal, err := os.OpenFile(f[1], os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	ctx := context.Background()
	var x chaosTables
	for { // a blade may be down, or the catalog away
		if x, err = openChaos(ctx, f[0], f[3], lease); err == nil {
			break
		}
		fmt.Fprintf(os.Stderr, "opening: %v\n", err)
		time.Sleep(100 * time.Millisecond)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for n := uint64(1); ; n++ {
		from, to, amount := r.Uint64N(chaosAccounts), r.Uint64N(chaosAccounts), r.Int64N(10)
		a := attempt{writer: seed, n: n, from: from, to: to, start: clock()}
		err := x.db.Update(ctx, func(tx *txn.Tx) error {
			a.try++
			was, err := x.accounts.Get(tx, from)
			if err != nil {
				return err
			}
			a.was = was.Version
			if err := x.accounts.Put(tx, from, account{was.Money - amount, a.version()}); err != nil {
				return err
			}
			if was, err = x.accounts.Get(tx, to); err != nil {
				return err
			}
			a.toWas = was.Version
			if err := errors.Join(x.accounts.Put(tx, to, account{was.Money + amount, a.version()}),
				x.done.Insert(tx, a.key(), uint64(amount))); err != nil {
				return err
			}
			_, err = fmt.Fprintln(journal, a.line())
			return err
		})
		if err == nil {
			_, err = fmt.Fprintln(journal, committedLine(n, clock()))
		}
		if err != nil { // an outcome that is unknown, or no worker yet: it was promised nothing
			fmt.Fprintf(os.Stderr, "transaction %s: %v\n", a.key(), err)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Millisecond) // hundreds of rounds are not to fill the blades
	}
}
