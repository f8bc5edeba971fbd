package crashtest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"txnode/rdma"
	"txnode/txn"
)

// victim opens the database and writes to it until it is killed. It says on
// standard output what it does.
func victim(spec string) int {
	var l life
	if err := json.Unmarshal([]byte(spec), &l); err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		return 2
	}
	if err := write(&l); err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		return 1
	}
	return 0
}

func write(l *life) error {
	ctx := context.Background()
	db, err := txn.Open(ctx, l.options())
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
	if l.Loss {
		go lose(db, l)
	}
	var wg sync.WaitGroup
	errs := make([]error, l.Workers)
	for id := range l.Workers {
		wg.Go(func() {
			w, err := db.NewWorker()
			if err != nil {
				errs[id] = err
				return
			}
			c := &client{
				l: l, id: int64(id), w: w, table: table, sorted: sorted,
				rand: rand.New(rand.NewPCG(l.Seed, uint64(id))),
				say:  func(x *frame) error { return send(os.Stdout, x) }, now: func() int64 {
					return time.Now().UnixNano()
				},
			}
			for errs[id] == nil && c.done < 20_000 { // whoever is not killed by then ends well
				errs[id] = c.step(ctx)
			}
			errs[id] = errors.Join(errs[id], w.Close())
		})
	}
	dropping, stop := make(chan error, 2), make(chan struct{})
	again := func(stream uint64, change func(r *rand.Rand) error) {
		r := rand.New(rand.NewPCG(l.Seed, stream))
		for {
			select {
			case <-stop:
				dropping <- nil
				return
			default:
			}
			// when a blade may be lost it makes no difference what becomes of that
			if err := change(r); err != nil && !l.Loss {
				dropping <- err
				return
			} else if err != nil {
				time.Sleep(time.Millisecond)
			}
		}
	}
	go again(2000, func(r *rand.Rand) error { return comeAndGo(ctx, db, r) })
	go again(3000, func(r *rand.Rand) error { return sorted.indexed.change(ctx, db, r) })
	wg.Wait()
	close(stop)
	return errors.Join(errors.Join(errs...), <-dropping, <-dropping, db.Close(ctx))
}

// comeAndGo makes a table with an index, fills it, and drops both.
func comeAndGo(ctx context.Context, db *txn.DB, r *rand.Rand) error {
	index := txn.NewUniqueIndex("by_number", txn.Uint64, func(_ string, p []byte) []uint64 {
		return []uint64{binary.LittleEndian.Uint64(p)}
	})
	table, err := txn.CreateTable(db, scratch, txn.String, txn.Bytes(), index)
	if err != nil {
		return err
	}
	n := r.Uint64N(400)
	if _, err = table.Load(ctx, func(yield func(string, []byte) bool) {
		for i := range n {
			if !yield(fmt.Sprint("key ", i), append(binary.LittleEndian.AppendUint64(nil, i),
				make([]byte, r.IntN(200))...)) {
				return
			}
		}
	}, txn.LoadOptions{Batch: 1 + r.IntN(50)}); err != nil {
		return err
	}
	return db.DropTable(ctx, scratch)
}

// scratch is the name of a table that comes and goes.
const scratch = "scratch"

// lose stops a blade, and in half of the cases brings it back, with its memory, or
// without when it was declared dead. The process is killed at some moment of that.
func lose(db *txn.DB, l *life) {
	r := rand.New(rand.NewPCG(l.Seed, 1000))
	f, ok := db.Space().Fabric().(rdma.Stopper)
	if !ok {
		panic("the blades of this fabric cannot be stopped")
	}
	pause := func(most int) { time.Sleep(time.Duration(r.IntN(most)) * time.Microsecond) }
	b := rdma.BladeID(r.IntN(l.Blades))
	pause(60_000)
	if err := f.StopBlade(b); err != nil {
		panic(err)
	}
	if r.IntN(2) == 0 {
		return
	}
	memory := r.IntN(2) == 0
	for !memory && len(db.Redundancy().Down) == 0 {
		time.Sleep(time.Millisecond) // a directory whose file has become blank behind its back is refused
	}
	pause(80_000)
	if err := f.RestartBlade(b, memory); err != nil {
		panic(err)
	}
}

// client runs one transaction after another.
type client struct {
	l      *life
	id     int64
	w      *txn.Worker
	table  *txn.Table[uint64, []byte]
	sorted *sorted
	rand   *rand.Rand
	say    func(*frame) error
	now    func() int64
	done   int
}

// step runs a transaction: it reads some keys, writes some of them, says so, and
// commits.
func (c *client) step(ctx context.Context) error {
	c.done++
	r := c.rand
	if other := r.IntN(6); other < 2 {
		turn := c.sorted.turn
		if other == 0 {
			turn = c.sorted.indexed.turn
		}
		if err := c.forgive(turn(ctx, c.w, r)); err != nil || c.done == math.MaxInt {
			return err
		}
	}
	kind := r.IntN(10)
	n := c.l.Accounts
	var keys []uint64
	for len(keys) < 1+r.IntN(3) {
		k := r.Uint64N(n)
		if kind >= 6 { // keys that come and go
			k += n
		}
		twice := false
		for _, o := range keys {
			twice = twice || o == k
		}
		if !twice {
			keys = append(keys, k)
		}
	}
	x := frame{Worker: c.id}
	run := c.w.Update
	if kind == 0 {
		run = c.w.View
	}
	amount, pad, gone := r.Int64N(100), r.IntN(8)*r.IntN(60), r.IntN(2) == 0
	err := run(ctx, func(tx *txn.Tx) error {
		x.ID, x.Time, x.Deposit, x.Ops = tx.ID(), c.now(), 0, nil
		mode := txn.ForUpdate
		if kind == 0 {
			mode = txn.ForRead
		}
		for _, k := range keys {
			if err := c.table.Stage(tx, k, mode); err != nil {
				return err
			}
		}
		for i, k := range keys {
			o := op{Key: k, Kind: 'r'}
			var balance int64
			p, err := c.table.Get(tx, k)
			switch {
			case err == nil:
				if o.Seen, balance, _, err = parse(p); err != nil {
					return err
				}
			case !errors.Is(err, txn.ErrNotFound):
				return err
			}
			switch {
			case kind == 0: // reads only
			case kind >= 6 && gone && o.Seen != 0:
				o.Kind = 'd'
				if err := c.table.Delete(tx, k); err != nil {
					return err
				}
				if err := c.sorted.put(tx, k, nil); err != nil {
					return err
				}
			case kind >= 6 && gone:
			default:
				o.Kind, o.Balance, o.Pad = 'w', balance, int64(pad)
				switch {
				case kind >= 6:
					o.Balance = 0
				case len(keys) == 1: // a deposit
					o.Balance += amount
					x.Deposit = amount
				case i == 0: // from the first to the second; the third is written as it is
					o.Balance -= amount
				case i == 1:
					o.Balance += amount
				}
				v := value(x.ID, o.Balance, pad)
				if err := errors.Join(c.table.Put(tx, k, v), c.sorted.put(tx, k, v)); err != nil {
					return err
				}
			}
			x.Ops = append(x.Ops, o)
		}
		if kind == 0 {
			if err := c.sorted.agrees(tx, c.table, c.l, keys[0]); err != nil {
				return err
			}
		}
		said := x
		return c.say(&said)
	})
	if err != nil {
		return c.forgive(err)
	}
	return c.say(&frame{Worker: c.id, Commit: true, ID: x.ID, Time: c.now()})
}

// forgive returns what a transaction has failed with, unless it is what may happen.
func (c *client) forgive(err error) error {
	if errors.Is(err, txn.ErrConflict) {
		return nil
	}
	if c.l.Loss && errors.Is(err, txn.ErrOutcomeUnknown) {
		c.done = math.MaxInt // it is the last that is said of it
		return nil
	}
	return err
}
