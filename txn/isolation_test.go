package txn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"txnode/check"
	"txnode/check/linear"
	"txnode/check/values"
	"txnode/history"
	"txnode/memory/catalog"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// setting is one way of running the isolation workloads.
type setting struct {
	policy              occ.Policy
	backups             int
	threads, coroutines int
	readBackups         bool
	// caps, if not nil, are those of a fabric that is as disorderly as they allow.
	caps *rdma.Caps
	seed uint64
}

func (s setting) String() string {
	name := fmt.Sprintf("%v/f=%d/%dx%d/backups=%v", s.policy, s.backups, s.threads, s.coroutines, s.readBackups)
	if s.caps != nil {
		name += fmt.Sprintf("/placed=%v,ordered=%v,masked=%v/seed=%d", s.caps.Placed, s.caps.OrderedLine,
			s.caps.MaskedCAS, s.seed)
	}
	return name
}

// settings cover both policies, every number of backups, and 1 to 4 threads of 1
// to 64 coroutines, pairwise.
func settings(short bool) []setting {
	all := []setting{
		{policy: occ.PolicyDefault, backups: 1, threads: 2, coroutines: 1, readBackups: false},
		{policy: occ.PolicyDefault, backups: 0, threads: 4, coroutines: 8, readBackups: false},
		{policy: occ.PolicyDefault, backups: 2, threads: 3, coroutines: 4, readBackups: true},
		{policy: occ.PolicyDefault, backups: 1, threads: 1, coroutines: 64, readBackups: false},
		{policy: occ.PolicyDefault, backups: 1, threads: 4, coroutines: 16, readBackups: true},
		{policy: occ.PolicyFORD, backups: 1, threads: 2, coroutines: 1, readBackups: false},
		{policy: occ.PolicyFORD, backups: 0, threads: 4, coroutines: 4, readBackups: false},
		{policy: occ.PolicyFORD, backups: 2, threads: 2, coroutines: 16, readBackups: true},
		{policy: occ.PolicyFORD, backups: 1, threads: 1, coroutines: 64, readBackups: false},
	}
	seed := uint64(0)
	for _, placed := range []bool{true, false} {
		for _, ordered := range []bool{true, false} {
			for _, masked := range []bool{true, false} {
				for _, p := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
					seed++
					all = append(all, setting{
						policy: p, backups: int(seed % 3), threads: 1 + int(seed%4), coroutines: 1 + int(seed*7%5),
						readBackups: seed%2 == 0,
						caps:        &rdma.Caps{Placed: placed, OrderedLine: ordered, MaskedCAS: masked},
						seed:        *firstSeed + seed,
					})
				}
			}
		}
	}
	if short {
		return []setting{all[0], all[4], all[7], all[9], all[len(all)-2]}
	}
	return all
}

var (
	firstSeed  = flag.Uint64("seed", 0, "added to the seeds of the disorderly fabrics")
	disorderly = flag.Bool("disorderly", false, "leave the in-process fabric out")
)

// open opens a database of small segments and sub-tables, so that tables resize
// and segments fill while the workload runs.
func open(t testing.TB, s setting, rec *history.Recorder) *txn.DB {
	t.Helper()
	o := txn.Options{
		Blades: 3, Backups: txn.F(s.backups), Policy: s.policy, ReadBackups: s.readBackups,
		SegmentSize: 1 << 20, LogArea: 64 << 10, BladeSize: 256 << 20, Arena: 8 << 20, IndexGroups: 4,
		CacheBytes: 1 << 20, History: rec, Seed: 7,
	}
	if s.caps != nil {
		o.Blades, o.BladeSize, o.SegmentSize, o.Arena = 0, 0, 256<<10, 2<<20
		o.Fabric = rdmatest.New(rdmatest.Options{
			Blades: 3, Size: 8 << 20, Caps: *s.caps, Seed: s.seed, SpreadNs: 20_000,
		})
		o.Catalog = &catalog.Mem{}
	}
	return mustOpen(t, o)
}

// forAll runs a workload in every setting, and holds its history against strict
// serializability: the whole by its graph, and each key by a search, too.
func forAll(t *testing.T, work func(t *testing.T, db *txn.DB, s setting)) {
	for _, s := range settings(testing.Short()) {
		if *disorderly && s.caps == nil {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			rec := &history.Recorder{}
			db := open(t, s, rec)
			work(t, db, s)
			if t.Failed() {
				return
			}
			txns := rec.Txns()
			if len(txns) == 0 {
				t.Fatal("nothing was recorded")
			}
			if err := check.Check(txns, check.Options{FromEmpty: true}).Err(); err != nil {
				t.Fatal(err)
			}
			if err := linear.Check(txns, linear.Options{Timeout: time.Second}).Err(); err != nil {
				t.Fatal(err)
			}
			if quiet(t, db) == 0 {
				t.Error("no block is in use")
			}
		})
	}
}

func run(t *testing.T, db *txn.DB, s setting, fn func(ctx context.Context, id int, w *txn.Worker) error) {
	t.Helper()
	if err := db.Run(t.Context(), s.threads, s.coroutines, fn); err != nil {
		t.Fatal(err)
	}
}

// perWorker splits about n transactions over the workers of a setting.
func perWorker(s setting, n int) int {
	if testing.Short() {
		n /= 4
	}
	if s.caps != nil {
		n /= 10
	}
	return max(n/(s.threads*s.coroutines), 4)
}

// rng is a small generator per worker.
type rng uint64

func (r *rng) n(n uint64) uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) % n
}

func num(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }

func val(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func table(t testing.TB, db *txn.DB, name string) *txn.Table[uint64, []byte] {
	t.Helper()
	tab, err := txn.CreateTable(db, name, txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// fill loads keys 0 to n-1.
func fill(t testing.TB, db *txn.DB, tab *txn.Table[uint64, []byte], n uint64, value []byte) {
	t.Helper()
	for k := uint64(0); k < n; {
		err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for i := k; i < min(k+16, n); i++ {
				if err := tab.Insert(tx, i, value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		k += 16
	}
}

// TestBank moves money between few accounts: the sum is always the same, for
// every reader and at the end.
func TestBank(t *testing.T) {
	const accounts, start = 12, 1000
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "bank")
		fill(t, db, tab, accounts, val(start))
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for range perWorker(s, 3000) {
				a, b := r.n(accounts), r.n(accounts)
				if a == b || r.n(4) == 0 {
					if err := w.View(ctx,
						func(tx *txn.Tx) error { return sum(tx, tab, accounts, start*accounts) }); err != nil {
						return err
					}
					continue
				}
				err := w.Update(ctx, func(tx *txn.Tx) error {
					if r.n(2) == 0 { // all in one round trip
						_ = tab.Stage(tx, a, txn.ForUpdate)
						_ = tab.Stage(tx, b, txn.ForUpdate)
					}
					x, err := tab.Get(tx, a)
					if err != nil {
						return err
					}
					from := num(x)
					y, err := tab.Get(tx, b)
					if err != nil {
						return err
					}
					to := num(y)
					amount := min(from, r.n(50))
					if err := tab.Put(tx, a, val(from-amount)); err != nil {
						return err
					}
					return tab.Put(tx, b, val(to+amount))
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err := db.View(t.Context(),
			func(tx *txn.Tx) error { return sum(tx, tab, accounts, start*accounts) }); err != nil {
			t.Fatal(err)
		}
	})
}

func sum(tx *txn.Tx, tab *txn.Table[uint64, []byte], n, want uint64) error {
	for k := range n {
		if err := tab.Stage(tx, k, txn.ForRead); err != nil {
			return err
		}
	}
	var total uint64
	for k := range n {
		p, err := tab.Get(tx, k)
		if err != nil {
			return err
		}
		total += num(p)
	}
	if total != want {
		return fmt.Errorf("the accounts hold %d, not %d", total, want)
	}
	return nil
}

// TestWriteSkew: two rows of which at most one may be zero; each transaction
// reads both and clears one.
func TestWriteSkew(t *testing.T) {
	const pairs = 4
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "skew")
		fill(t, db, tab, 2*pairs, val(1))
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for range perWorker(s, 3000) {
				p, side := r.n(pairs)*2, r.n(2)
				err := w.Update(ctx, func(tx *txn.Tx) error {
					_ = tab.Stage(tx, p, txn.ForRead)
					_ = tab.Stage(tx, p+1, txn.ForRead)
					x, err := tab.Get(tx, p)
					if err != nil {
						return err
					}
					y, err := tab.Get(tx, p+1)
					if err != nil {
						return err
					}
					a, b := num(x), num(y)
					if a+b == 0 {
						return fmt.Errorf("both rows of pair %d are zero", p/2)
					}
					if a+b == 2 {
						return tab.Put(tx, p+side, val(0))
					}
					if a == 0 {
						return tab.Put(tx, p, val(1))
					}
					return tab.Put(tx, p+1, val(1))
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// TestLongFork: writers write single rows, readers read all of them; no two
// readers may see two writes in different order.
func TestLongFork(t *testing.T) {
	const rows = 6
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "fork")
		fill(t, db, tab, rows, val(0))
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for i := range perWorker(s, 3000) {
				var err error
				if r.n(3) == 0 {
					k := r.n(rows)
					err = w.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, k, val(uint64(id)<<32|uint64(i))) })
				} else {
					err = w.View(ctx, func(tx *txn.Tx) error {
						for k := range uint64(rows) {
							if k%3 != 0 { // some of them one after another
								_ = tab.Stage(tx, k, txn.ForRead)
							}
						}
						for k := range uint64(rows) {
							if _, err := tab.Get(tx, k); err != nil {
								return err
							}
						}
						return nil
					})
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// TestListAppend appends unique numbers to lists that grow out of their blocks,
// and checks what was read by value, independently of what the engine reports.
func TestListAppend(t *testing.T) {
	const lists = 6
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "lists")
		logs := make([][]check.ListTxn, s.threads*s.coroutines)
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for i := range perWorker(s, 1500) {
				var ops []check.ListOp
				start := w.Now()
				n := 1 + r.n(3)
				var keys, kinds [4]uint64
				for j := range n {
					keys[j], kinds[j] = r.n(lists), r.n(2)
				}
				err := w.Update(ctx, func(tx *txn.Tx) error {
					ops = ops[:0]
					for j := range n {
						k := keys[j]
						p, err := tab.Get(tx, k)
						if err != nil && !errors.Is(err, txn.ErrNotFound) {
							return err
						}
						if kinds[j] == 0 {
							ops = append(ops, check.ListOp{Key: history.Key(k), List: decodeList(p)})
							continue
						}
						v := uint64(id+1)<<32 | uint64(i)<<4 | j
						ops = append(ops, check.ListOp{Key: history.Key(k), Append: v})
						if err := tab.Put(tx, k, append(append([]byte(nil), p...), val(v)...)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
				logs[id] = append(logs[id], check.ListTxn{
					ID: uint64(id)<<32 | uint64(i), Start: start, End: w.Now(),
					Outcome: history.Committed, Ops: append([]check.ListOp(nil), ops...),
				})
			}
			return nil
		})
		var all []check.ListTxn
		for _, l := range logs {
			all = append(all, l...)
		}
		if err := check.CheckLists(all, check.Options{}).Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func decodeList(p []byte) []uint64 {
	out := make([]uint64, 0, len(p)/8)
	for ; len(p) >= 8; p = p[8:] {
		out = append(out, num(p))
	}
	return out
}

// TestCounter: what increments have written, and the final values, are the numbers of
// those that were acknowledged before, and perhaps of some that were under way.
func TestCounter(t *testing.T) {
	const counters = 3
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "counters")
		fill(t, db, tab, counters, val(0))
		logs := make([][counters][]values.CounterOp, s.threads*s.coroutines)
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for i := range perWorker(s, 3000) {
				k := r.n(counters)
				late := r.n(2) == 0
				op := values.CounterOp{
					ID: uint64(id)<<32 | uint64(i), Start: w.Now(), Outcome: history.Committed, Add: 1, Seen: true,
				}
				err := w.Update(ctx, func(tx *txn.Tx) error {
					get := tab.GetForUpdate
					if late {
						get = tab.Get // and lock at commit
					}
					p, err := get(tx, k)
					if err != nil {
						return err
					}
					op.Value = int64(num(p)) + 1
					return tab.Put(tx, k, val(num(p)+1))
				})
				if err != nil {
					return err
				}
				op.End = w.Now()
				logs[id][k] = append(logs[id][k], op)
			}
			return nil
		})
		for k := range uint64(counters) {
			last := values.CounterOp{Start: math.MaxInt64, End: math.MaxInt64, Outcome: history.Committed, Seen: true}
			err := db.View(t.Context(), func(tx *txn.Tx) error {
				p, err := tab.Get(tx, k)
				if err == nil {
					last.Value = int64(num(p))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			all := []values.CounterOp{last}
			for id := range logs {
				all = append(all, logs[id][k]...)
			}
			if err := values.CheckCounter(0, all); err != nil {
				t.Errorf("counter %d: %v", k, err)
			}
		}
	})
}

// TestInsertRace: all workers insert the same keys; of each key exactly one
// succeeds, while the table grows from its smallest size.
func TestInsertRace(t *testing.T) {
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "race")
		keys := 400
		if testing.Short() {
			keys = 120
		}
		won := make([]atomic.Int32, keys)
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			for k := range keys {
				k := (k + id%3) % keys
				err := w.Update(ctx, func(tx *txn.Tx) error { return tab.Insert(tx, uint64(k), val(uint64(id))) })
				switch {
				case err == nil:
					won[k].Add(1)
				case !errors.Is(err, txn.ErrExists):
					return err
				}
			}
			return nil
		})
		for k := range won {
			if n := won[k].Load(); n != 1 {
				t.Errorf("key %d was inserted %d times", k, n)
			}
		}
	})
}

// TestChurn inserts, deletes and reads few keys of a table that also grows, with
// values whose size changes.
func TestChurn(t *testing.T) {
	const keys = 24
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "churn")
		var fresh atomic.Uint64
		fresh.Store(1000)
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for range perWorker(s, 2500) {
				a, b, what, size := r.n(keys), r.n(keys), r.n(6), r.n(300)
				err := w.Update(ctx, func(tx *txn.Tx) error {
					switch what {
					case 0:
						return tab.Delete(tx, a)
					case 1:
						return tab.Insert(tx, fresh.Add(1), make([]byte, size))
					case 2:
						_, err := tab.Get(tx, a)
						if err != nil && !errors.Is(err, txn.ErrNotFound) {
							return err
						}
						return tab.Put(tx, b, make([]byte, size))
					case 3:
						has, err := tab.Has(tx, a)
						if err != nil || has {
							return err
						}
						return tab.Insert(tx, b, make([]byte, size))
					default:
						if _, err := tab.Get(tx, a); err != nil && !errors.Is(err, txn.ErrNotFound) {
							return err
						}
						_, err := tab.Get(tx, b)
						return err
					}
				})
				if err != nil && !errors.Is(err, txn.ErrNotFound) && !errors.Is(err, txn.ErrExists) {
					return err
				}
			}
			return nil
		})
	})
}

// TestLargeValues writes, grows, deletes and reads values of up to several times what
// is read of a block at first. Each value is one byte repeated, so a reader sees
// whether it is whole.
func TestLargeValues(t *testing.T) {
	const keys = 16
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "large")
		whole := func(p []byte) error {
			for i := range p {
				if p[i] != p[0] {
					return fmt.Errorf("byte %d of %d is %d, the first is %d", i, len(p), p[i], p[0])
				}
			}
			return nil
		}
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for i := range perWorker(s, 2000) {
				a, b, what, size := r.n(keys), r.n(keys), r.n(8), int(r.n(12_000))
				if what > 5 {
					size = int(r.n(100))
				}
				err := w.Update(ctx, func(tx *txn.Tx) error {
					x, err := tab.Get(tx, a)
					if err == nil {
						err = whole(x)
					}
					if err != nil && !errors.Is(err, txn.ErrNotFound) {
						return err
					}
					switch what {
					case 0:
						return tab.Delete(tx, b)
					case 1, 2:
						y, err := tab.GetForUpdate(tx, b)
						if err != nil {
							return err
						}
						return whole(y)
					default:
						return tab.Put(tx, b, bytes.Repeat([]byte{byte(id*31 + i)}, size))
					}
				})
				if err != nil && !errors.Is(err, txn.ErrNotFound) {
					return err
				}
			}
			return nil
		})
	})
}
