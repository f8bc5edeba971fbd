package txn_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/occ"
	"txnode/rdma"
	"txnode/txn"
)

// cost is what a transaction posted.
type cost struct{ verbs, trips uint64 }

func (c cost) String() string { return fmt.Sprintf("%d verbs in %d round trips", c.verbs, c.trips) }

// costOf runs a transaction twice and returns what the second, warm one posted, by
// phase and together.
func costOf(t testing.TB, w *txn.Worker, fn func(tx *txn.Tx) error, undo func(tx *txn.Tx) error) (total cost,
	phases [occ.NumPhases]rdma.Counters) {
	t.Helper()
	run := func(fn func(tx *txn.Tx) error) {
		t.Helper()
		if fn == nil {
			return
		}
		if err := w.Update(t.Context(), fn); err != nil && !errors.Is(err, txn.ErrNotFound) &&
			!errors.Is(err, errRollback) {
			t.Fatal(err)
		}
	}
	run(fn)
	run(undo)
	before := w.Phases()
	run(fn)
	phases = w.Phases()
	for i := range phases {
		phases[i] = phases[i].Sub(&before[i])
		total.verbs += phases[i].Total()
		total.trips += phases[i].RoundTrips
	}
	run(undo)
	return total, phases
}

// TestVerbs asserts exactly what the transactions of SmallBank and TATP cost, two
// blades, one backup, warm: FORD's own numbers are those of its table in SMART-DTX's
// setting (2r + 2n + M + 3n(f+1) + f, and their round trips); the bounds of policy
// default are 2n + 2r + (f+1) + nf + n and 2 round trips, 3 if something is only read.
func TestVerbs(t *testing.T) {
	type tables struct{ a, b *txn.Table[uint64, []byte] }
	get := func(x *txn.Table[uint64, []byte], k uint64) func(*txn.Tx) error {
		return func(tx *txn.Tx) error { _, err := x.Get(tx, k); return err }
	}
	all := func(fns ...func(*txn.Tx) error) func(*txn.Tx) error {
		return func(tx *txn.Tx) error {
			for _, fn := range fns {
				if err := fn(tx); err != nil {
					return err
				}
			}
			return nil
		}
	}
	stage := func(x *txn.Table[uint64, []byte], m txn.Mode, keys ...uint64) func(*txn.Tx) error {
		return func(tx *txn.Tx) error {
			for _, k := range keys {
				if err := x.Stage(tx, k, m); err != nil {
					return err
				}
			}
			return nil
		}
	}
	update := func(x *txn.Table[uint64, []byte], k uint64) func(*txn.Tx) error {
		return func(tx *txn.Tx) error {
			if _, err := x.GetForUpdate(tx, k); err != nil {
				return err
			}
			return x.Put(tx, k, val(2))
		}
	}
	put := func(x *txn.Table[uint64, []byte], k uint64) func(*txn.Tx) error {
		return func(tx *txn.Tx) error { return x.Put(tx, k, val(2)) }
	}
	const absent = 1000
	for _, c := range []struct {
		name      string
		fn, undo  func(x tables) func(*txn.Tx) error
		ford, our cost
	}{
		{name: "GetSubscriberData: one read", ford: cost{1, 1}, our: cost{1, 1},
			fn: func(x tables) func(*txn.Tx) error { return get(x.a, 1) }},
		// The first choice of the key, which says that nothing has spilled from it.
		{name: "GetAccessData of an absent row", ford: cost{1, 1}, our: cost{1, 1},
			fn: func(x tables) func(*txn.Tx) error { return get(x.a, absent) }},
		{name: "GetNewDestination: one read, then 2 that depend on it", ford: cost{6, 3}, our: cost{6, 3},
			fn: func(x tables) func(*txn.Tx) error {
				return all(get(x.a, 1), stage(x.b, txn.ForRead, 1, 2), get(x.b, 1), get(x.b, 2))
			}},
		// The second READ is alone, so that only the first one is validated.
		{name: "GetNewDestination: one read, then 1", ford: cost{4, 3}, our: cost{3, 3},
			fn: func(x tables) func(*txn.Tx) error { return all(get(x.a, 1), get(x.b, 1)) }},
		{name: "UpdateSubscriberData: 2 written", ford: cost{19, 3}, our: cost{10, 2},
			fn: func(x tables) func(*txn.Tx) error {
				return all(stage(x.a, txn.ForUpdate, 1), stage(x.b, txn.ForUpdate, 1), update(x.a, 1), update(x.b, 1))
			}},
		{name: "UpdateLocation: one read, then one written", ford: cost{13, 4}, our: cost{8, 4},
			fn: func(x tables) func(*txn.Tx) error { return all(get(x.a, 1), update(x.b, 2)) }},
		{name: "DeleteCallForwarding: one read, then one deleted", ford: cost{13, 4}, our: cost{8, 4},
			fn: func(x tables) func(*txn.Tx) error {
				return all(get(x.a, 1), func(tx *txn.Tx) error { return x.b.Delete(tx, 3) })
			},
			undo: func(x tables) func(*txn.Tx) error { return put(x.b, 3) }},
		// One READ and one round trip beyond 2n + 2r + ...: that the second read is of
		// the same time as the first is known before the function goes on (opacity), and
		// again at the end.
		{name: "InsertCallForwarding over a tombstone: 2 reads in a row, then one inserted",
			ford: cost{15, 5}, our: cost{11, 6},
			fn: func(x tables) func(*txn.Tx) error {
				return all(get(x.a, 1), get(x.a, 2), func(tx *txn.Tx) error { return x.b.Insert(tx, absent+1, val(1)) })
			},
			undo: func(x tables) func(*txn.Tx) error {
				return func(tx *txn.Tx) error { return x.b.Delete(tx, absent+1) }
			}},
		// FORD writes into a slot of a bucket that it has read. RACE searches, writes
		// the block, sets the slot, then its backup beside a second search (section 3.3).
		{name: "InsertCallForwarding of a key that has no block", ford: cost{19, 8}, our: cost{15, 9},
			fn: func() func(x tables) func(*txn.Tx) error {
				k := uint64(2000)
				return func(x tables) func(*txn.Tx) error {
					return all(get(x.a, 1), get(x.a, 2), func(tx *txn.Tx) error {
						k++
						return x.b.Insert(tx, k, val(1))
					})
				}
			}()},
		{name: "SendPayment: 2 written", ford: cost{19, 3}, our: cost{10, 2},
			fn: func(x tables) func(*txn.Tx) error {
				return all(stage(x.a, txn.ForUpdate, 1, 2), update(x.a, 1), update(x.a, 2))
			}},
		{name: "Amalgamate: 3 written", ford: cost{27, 3}, our: cost{14, 2},
			fn: func(x tables) func(*txn.Tx) error {
				return all(stage(x.a, txn.ForUpdate, 1, 2, 3), update(x.a, 1), update(x.a, 2), update(x.a, 3))
			}},
		{name: "Balance: 2 read", ford: cost{4, 2}, our: cost{4, 2},
			fn: func(x tables) func(*txn.Tx) error { return all(stage(x.a, txn.ForRead, 1), get(x.b, 1)) }},
		{name: "DepositChecking: 1 written", ford: cost{11, 3}, our: cost{6, 2},
			fn: func(x tables) func(*txn.Tx) error { return update(x.a, 1) }},
		{name: "DepositChecking as a blind write", ford: cost{11, 3}, our: cost{6, 2},
			fn: func(x tables) func(*txn.Tx) error { return put(x.a, 1) }},
		{name: "WriteCheck: 1 read, 1 written", ford: cost{13, 3}, our: cost{8, 3},
			fn: func(x tables) func(*txn.Tx) error { return all(stage(x.a, txn.ForRead, 1), update(x.b, 1)) }},
		{name: "a written row that was got, not for update", ford: cost{11, 4}, our: cost{6, 3},
			fn: func(x tables) func(*txn.Tx) error { return all(get(x.a, 1), put(x.a, 1)) }},
		{name: "rolled back: 2 locked and released", ford: cost{6, 1}, our: cost{6, 1},
			fn: func(x tables) func(*txn.Tx) error {
				return all(stage(x.a, txn.ForUpdate, 1, 2), get(x.a, 1), func(*txn.Tx) error { return errRollback })
			}},
		{name: "nothing", fn: func(tables) func(*txn.Tx) error { return func(*txn.Tx) error { return nil } }},
	} {
		for _, p := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
			t.Run(fmt.Sprintf("%s/%v", c.name, p), func(t *testing.T) {
				o := tiny()
				o.Policy = p
				db := mustOpen(t, o)
				x := tables{table(t, db, "a"), table(t, db, "b")}
				fill(t, db, x.a, 10, val(1))
				fill(t, db, x.b, 10, val(1))
				w := newWorker(t, db)
				defer func() {
					if err := w.Close(); err != nil {
						t.Error(err)
					}
				}()
				var undo func(*txn.Tx) error
				if c.undo != nil {
					undo = c.undo(x)
				}
				got, phases := costOf(t, w, c.fn(x), undo)
				want := c.our
				if p == occ.PolicyFORD {
					want = c.ford
				}
				if got != want {
					t.Errorf("%v, want %v", got, want)
					for i := range phases {
						t.Logf("%v: %v in %d", occ.Phase(i), phases[i].Verbs, phases[i].RoundTrips)
					}
				}
				quiet(t, db)
			})
		}
	}
}
