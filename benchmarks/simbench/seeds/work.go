package seeds

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/check"
	"txnode/history"
	"txnode/txn"
)

// work is a workload that checks itself.
type work struct {
	name string
	run  func(b *bench) error
}

var works = []work{
	{"bank", bank},
	{"write-skew", skew},
	{"long-fork", fork},
	{"list-append", lists},
	{"counter", counter},
	{"insert-race", insertRace},
	{"churn", churn},
}

// Workloads are the names of the workloads.
func Workloads() []string {
	var out []string
	for i := range works {
		out = append(out, works[i].name)
	}
	return out
}

func lookup(name string) (*work, error) {
	for i := range works {
		if works[i].name == name {
			return &works[i], nil
		}
	}
	return nil, fmt.Errorf("%w: %q; there are %v", ErrUnknown, name, Workloads())
}

// bench is a workload in progress. The simulator runs everything on one goroutine,
// so its variables need no locks.
type bench struct {
	*kase
	db  *txn.DB
	rng rng
}

type rows = txn.Table[uint64, []byte]

func num(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }

func val(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func (b *bench) table() (*rows, error) {
	return txn.CreateTable(b.db, b.work.name, txn.Uint64, txn.Bytes())
}

// fill makes a table with keys 0 to n-1.
func (b *bench) fill(n uint64, value []byte) (*rows, error) {
	t, err := b.table()
	if err != nil {
		return nil, err
	}
	return t, b.db.Update(context.Background(), func(tx *txn.Tx) error {
		for k := range n {
			if err := t.Insert(tx, k, value); err != nil {
				return err
			}
		}
		return nil
	})
}

// workers runs the threads and coroutines.
func (b *bench) workers(fn func(w *txn.Worker, id int, r *rng) error) error {
	return b.db.Run(context.Background(), b.threads, b.coroutines, func(_ context.Context, id int, w *txn.Worker) error {
		r := rng(b.seed ^ uint64(id+1)<<48)
		return fn(w, id, &r)
	})
}

// update runs a transaction that must come to an end.
func update(w *txn.Worker, fn func(tx *txn.Tx) error) error {
	return w.Update(context.Background(), func(tx *txn.Tx) error {
		if w.Now() > limitNs {
			return errStuck
		}
		return fn(tx)
	})
}

func view(w *txn.Worker, fn func(tx *txn.Tx) error) error {
	return w.View(context.Background(), func(tx *txn.Tx) error {
		if w.Now() > limitNs {
			return errStuck
		}
		return fn(tx)
	})
}

// bank moves money between few accounts: every reader sees the same sum.
func bank(b *bench) error {
	const start = 1000
	accounts := 4 + b.rng.n(10)
	t, err := b.fill(accounts, val(start))
	if err != nil {
		return err
	}
	sum := func(tx *txn.Tx) error {
		for k := range accounts {
			if err := t.Stage(tx, k, txn.ForRead); err != nil {
				return err
			}
		}
		var total uint64
		for k := range accounts {
			p, err := t.Get(tx, k)
			if err != nil {
				return err
			}
			total += num(p)
		}
		if total != accounts*start {
			return fmt.Errorf("the accounts hold %d, not %d", total, accounts*start)
		}
		return nil
	}
	err = b.workers(func(w *txn.Worker, _ int, r *rng) error {
		for range b.txns {
			x, y := r.n(accounts), r.n(accounts)
			if x == y || r.n(4) == 0 {
				if err := view(w, sum); err != nil {
					return err
				}
				continue
			}
			staged, most := r.n(2) == 0, r.n(50)
			err := update(w, func(tx *txn.Tx) error {
				if staged {
					_ = t.Stage(tx, x, txn.ForUpdate)
					_ = t.Stage(tx, y, txn.ForUpdate)
				}
				p, err := t.Get(tx, x)
				if err != nil {
					return err
				}
				from := num(p)
				if p, err = t.Get(tx, y); err != nil {
					return err
				}
				to, amount := num(p), min(from, most)
				if err := t.Put(tx, x, val(from-amount)); err != nil {
					return err
				}
				return t.Put(tx, y, val(to+amount))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.db.View(context.Background(), sum)
}

// skew has pairs of rows of which at most one may be zero; each transaction reads
// both and clears one.
func skew(b *bench) error {
	pairs := 1 + b.rng.n(4)
	t, err := b.fill(2*pairs, val(1))
	if err != nil {
		return err
	}
	return b.workers(func(w *txn.Worker, _ int, r *rng) error {
		for range b.txns {
			p, side, staged := 2*r.n(pairs), r.n(2), r.n(3) > 0
			err := update(w, func(tx *txn.Tx) error {
				if staged {
					_ = t.Stage(tx, p, txn.ForRead)
					_ = t.Stage(tx, p+1, txn.ForRead)
				}
				v, err := t.Get(tx, p)
				if err != nil {
					return err
				}
				x := num(v)
				if v, err = t.Get(tx, p+1); err != nil {
					return err
				}
				y := num(v)
				switch {
				case x+y == 0:
					return fmt.Errorf("both rows of pair %d are zero", p/2)
				case x+y == 2:
					return t.Put(tx, p+side, val(0))
				case x == 0:
					return t.Put(tx, p, val(1))
				}
				return t.Put(tx, p+1, val(1))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// fork has writers of single rows and readers of all: no two readers may see two
// writes in different order, which the history tells.
func fork(b *bench) error {
	n := 2 + b.rng.n(6)
	t, err := b.fill(n, val(0))
	if err != nil {
		return err
	}
	return b.workers(func(w *txn.Worker, id int, r *rng) error {
		for i := range b.txns {
			if r.n(2) == 0 {
				k := r.n(n)
				if err := update(w, func(tx *txn.Tx) error { return t.Put(tx, k, val(uint64(id)<<32|uint64(i))) }); err != nil {
					return err
				}
				continue
			}
			step := 1 + r.n(3)
			err := view(w, func(tx *txn.Tx) error {
				for k := range n {
					if k%step == 0 { // the others one after another
						_ = t.Stage(tx, k, txn.ForRead)
					}
				}
				for k := range n {
					if _, err := t.Get(tx, k); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// lists appends unique numbers to lists that grow out of their blocks, and checks
// what was read by value, independently of what the engine reports.
func lists(b *bench) error {
	n := 2 + b.rng.n(5)
	t, err := b.table()
	if err != nil {
		return err
	}
	var log []check.ListTxn
	err = b.workers(func(w *txn.Worker, id int, r *rng) error {
		for i := range b.txns {
			var ops []check.ListOp
			start, many := w.Now(), 1+r.n(3)
			var keys, kinds [4]uint64
			for j := range many {
				keys[j], kinds[j] = r.n(n), r.n(2)
			}
			err := update(w, func(tx *txn.Tx) error {
				ops = ops[:0]
				for j := range many {
					k := keys[j]
					p, err := t.Get(tx, k)
					if err != nil && !errors.Is(err, txn.ErrNotFound) {
						return err
					}
					if kinds[j] == 0 {
						ops = append(ops, check.ListOp{Key: history.Key(k), List: numbers(p)})
						continue
					}
					v := uint64(id+1)<<32 | uint64(i)<<4 | j
					ops = append(ops, check.ListOp{Key: history.Key(k), Append: v})
					if err := t.Put(tx, k, append(append([]byte(nil), p...), val(v)...)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			log = append(log, check.ListTxn{ID: uint64(id)<<32 | uint64(i), Start: start, End: w.Now(), Outcome: history.Committed, Ops: ops})
		}
		return nil
	})
	return errors.Join(check.CheckLists(log, check.Options{}).Err(), err)
}

func numbers(p []byte) []uint64 {
	out := make([]uint64, 0, len(p)/8)
	for ; len(p) >= 8; p = p[8:] {
		out = append(out, num(p))
	}
	return out
}

// counter increments; the final values are the numbers of increments that were
// acknowledged.
func counter(b *bench) error {
	n := 1 + b.rng.n(3)
	t, err := b.fill(n, val(0))
	if err != nil {
		return err
	}
	done := make([]uint64, n)
	err = b.workers(func(w *txn.Worker, _ int, r *rng) error {
		for range b.txns {
			k, late := r.n(n), r.n(2) == 0
			err := update(w, func(tx *txn.Tx) error {
				get := t.GetForUpdate
				if late {
					get = t.Get // and lock at commit
				}
				p, err := get(tx, k)
				if err != nil {
					return err
				}
				return t.Put(tx, k, val(num(p)+1))
			})
			if err != nil {
				return err
			}
			done[k]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.db.View(context.Background(), func(tx *txn.Tx) error {
		for k := range n {
			p, err := t.Get(tx, k)
			if err != nil {
				return err
			}
			if num(p) != done[k] {
				return fmt.Errorf("counter %d is %d after %d increments", k, num(p), done[k])
			}
		}
		return nil
	})
}

// insertRace has all workers insert the same keys: of each exactly one succeeds,
// while the table grows from its smallest size.
func insertRace(b *bench) error {
	t, err := b.table()
	if err != nil {
		return err
	}
	keys := 20 + b.rng.n(60)
	won := make([]int, keys)
	err = b.workers(func(w *txn.Worker, id int, _ *rng) error {
		for i := range keys {
			k := (i + uint64(id%3)) % keys
			switch err := update(w, func(tx *txn.Tx) error { return t.Insert(tx, k, val(uint64(id))) }); {
			case err == nil:
				won[k]++
			case !errors.Is(err, txn.ErrExists):
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for k, n := range won {
		if n != 1 {
			return fmt.Errorf("key %d was inserted %d times", k, n)
		}
	}
	return nil
}

// churn inserts, deletes and reads few keys of a table that also grows, with values
// whose size changes.
func churn(b *bench) error {
	t, err := b.table()
	if err != nil {
		return err
	}
	keys := 4 + b.rng.n(24)
	fresh := uint64(1000)
	return b.workers(func(w *txn.Worker, _ int, r *rng) error {
		for range b.txns {
			x, y, what, size := r.n(keys), r.n(keys), r.n(6), r.n(300)
			err := update(w, func(tx *txn.Tx) error {
				switch what {
				case 0:
					return t.Delete(tx, x)
				case 1:
					fresh++
					return t.Insert(tx, fresh, make([]byte, size))
				case 2:
					if _, err := t.Get(tx, x); err != nil && !errors.Is(err, txn.ErrNotFound) {
						return err
					}
					return t.Put(tx, y, make([]byte, size))
				case 3:
					if has, err := t.Has(tx, x); err != nil || has {
						return err
					}
					return t.Insert(tx, y, make([]byte, size))
				}
				if _, err := t.Get(tx, x); err != nil && !errors.Is(err, txn.ErrNotFound) {
					return err
				}
				_, err := t.Get(tx, y)
				return err
			})
			if err != nil && !errors.Is(err, txn.ErrNotFound) && !errors.Is(err, txn.ErrExists) {
				return err
			}
		}
		return nil
	})
}
