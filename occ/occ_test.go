package occ_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/occ"
	"txnode/rdma"
)

var policies = []occ.Policy{occ.PolicyDefault, occ.PolicyFORD}

// eachPolicy runs a test with both policies and all numbers of backups.
func eachPolicy(t *testing.T, fn func(t *testing.T, b *bed)) {
	for _, p := range policies {
		for f := range 3 {
			t.Run(fmt.Sprintf("%v/f=%d", p, f), func(t *testing.T) { fn(t, newBed(t, 3, f, occ.Options{Policy: p})) })
		}
	}
}

func TestReadYourWrites(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, tx := b.session()
		must(t, b.do(tx, put("a", "1"), put("b", "2")))
		must(t, tx.Begin())
		i, err := tx.Stage(b.table, []byte("a"), true)
		must(t, err)
		must(t, tx.Execute())
		must(t, tx.Put(i, []byte("longer than before")))
		if v, ok := tx.Read(i); !ok || string(v) != "longer than before" {
			t.Fatalf("own write reads %q, %v", v, ok)
		}
		must(t, tx.Delete(i))
		if _, ok := tx.Read(i); ok {
			t.Fatal("own delete is not seen")
		}
		must(t, tx.Put(i, []byte("x")))
		must(t, tx.Commit())
		if v, _ := b.value(tx, "a"); v != "x" {
			t.Fatalf("a is %q", v)
		}
	})
}

func TestInsertDeleteMove(t *testing.T) {
	eachPolicy(t, func(t *testing.T, small *bed) {
		m := memory.Options{Backups: small.space.Backups(), SegmentSize: 4 << 20, LogArea: 2 << 20}
		b := newBedSized(t, 3, m, small.opts)
		_, tx := b.session()
		_, other := b.session()
		sizes := []int{0, 8, 24, 25, 64, 100, 1000, 5000, 70000, 3, 1 << 20}
		for round, n := range sizes {
			want := strings.Repeat(string(rune('a'+round)), n)
			must(t, b.do(tx, put("k", want), put("k2", "stays")))
			if v, ok := b.value(other, "k"); !ok || v != want {
				t.Fatalf("after a put of %d bytes: %d bytes, %v", n, len(v), ok)
			}
			if round%3 == 2 {
				must(t, b.do(tx, del("k")))
				if _, ok := b.value(other, "k"); ok {
					t.Fatal("deleted key has a value")
				}
			}
		}
		if v, ok := b.value(other, "k2"); !ok || v != "stays" {
			t.Fatalf("k2 is %q, %v", v, ok)
		}
	})
}

func TestTooLarge(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{})
	_, tx := b.session()
	err := b.do(tx, put("k", string(make([]byte, 1<<20+1))))
	var e *occ.TooLargeError
	if !errors.Is(err, occ.ErrTooLarge) || !errors.As(err, &e) || e.Got != 1<<20+1 || e.Limit != 1<<20 {
		t.Fatalf("a value beyond the limit: %v", err)
	}
	if err := b.do(tx, put(strings.Repeat("k", 1025), "v")); !errors.Is(err, occ.ErrTooLarge) {
		t.Fatalf("a key beyond the limit: %v", err)
	}
	// More than the log holds (64 KiB here), though each value is allowed.
	if err := b.do(tx, put("a", string(make([]byte, 40<<10))), put("b", string(make([]byte, 40<<10)))); !errors.Is(err,
		occ.ErrTooLarge) {
		t.Fatalf("a transaction beyond the log: %v", err)
	}
	must(t, b.do(tx, put("k", "still usable")))
}

// TestConflictReleasesOnlyOwnLocks is FORD's first mistake: an abort must not free the
// lock that it ran into.
func TestConflictReleasesOnlyOwnLocks(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("a", "1"), put("b", "2")))
		must(t, one.Begin())
		must(t, b.apply(one, put("a", "10")))
		for range 3 {
			err := b.do(two, put("b", "20"), put("a", "99"))
			var c *occ.ConflictError
			if !errors.As(err, &c) || c.Reason != occ.AbortLocked {
				t.Fatalf("writing a locked record: %v", err)
			}
		}
		if err := b.do(two, get("a")); !errors.Is(err, occ.ErrConflict) {
			t.Fatalf("reading a locked record: %v", err)
		}
		must(t, one.Commit())
		if v, _ := b.value(two, "a"); v != "10" {
			t.Fatalf("a is %q: an update was lost", v)
		}
		if v, _ := b.value(two, "b"); v != "2" {
			t.Fatalf("b is %q: an aborted write shows", v)
		}
		must(t, b.do(two, put("b", "20"), put("a", "99")))
	})
}

// TestValidationSeesLocks is FORD's second mistake: two writers that each read what the
// other writes must not both commit.
func TestValidationSeesLocks(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("x", "1"), put("y", "1")))
		must(t, one.Begin())
		must(t, two.Begin())
		// Both read both, before either locks.
		for _, tx := range []*occ.Tx{one, two} {
			must(t, b.apply(tx, get("x"), get("y")))
		}
		must(t, b.apply(one, lazyPut("x", "0")))
		must(t, b.apply(two, lazyPut("y", "0")))
		err1, err2 := one.Commit(), two.Commit()
		if err1 == nil && err2 == nil {
			t.Fatal("write skew: both committed")
		}
	})
}

// TestPhantom: a transaction that acted on an absence fails when the key has come.
func TestPhantom(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("flag", "0")))
		must(t, one.Begin())
		must(t, b.apply(one, get("ghost")))
		must(t, b.do(two, put("ghost", "1")))
		err := b.apply(one, put("flag", "1"))
		if err == nil {
			err = one.Commit()
		} else {
			must(t, one.Rollback())
		}
		var c *occ.ConflictError
		if !errors.As(err, &c) || c.Reason != occ.AbortPhantom && c.Reason != occ.AbortValidation {
			t.Fatalf("acting on a stale absence: %v", err)
		}
	})
}

// TestTwoInserts of one key: the second meets the first.
func TestTwoInserts(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, one := b.session()
		_, two := b.session()
		must(t, one.Begin())
		must(t, two.Begin())
		must(t, b.apply(one, put("k", "1")))
		must(t, b.apply(two, put("k", "2")))
		must(t, one.Commit())
		if err := two.Commit(); !errors.Is(err, occ.ErrConflict) {
			t.Fatalf("second insert of the same key: %v", err)
		}
		if v, _ := b.value(two, "k"); v != "1" {
			t.Fatalf("k is %q", v)
		}
	})
}

// TestStaleAddress: another session's cached address leads to a block that has been
// freed and reused by another key.
func TestStaleAddress(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		s1, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("old", "1")))
		if v, _ := b.value(two, "old"); v != "1" {
			t.Fatal(v)
		}
		must(t, b.do(one, put("old", strings.Repeat("moved to another block", 10))))
		must(t, b.do(one, put("new", "in the old block")))
		_ = s1
		must(t, b.do(two, put("old", "updated where it is now")))
		if v, _ := b.value(one, "new"); v != "in the old block" {
			t.Fatalf("new is %q: written through a stale address", v)
		}
		if v, _ := b.value(one, "old"); v != "updated where it is now" {
			t.Fatalf("old is %q", v)
		}
	})
}

// TestRollback leaves nothing: no lock, no value, no block.
func TestRollback(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("a", "1")))
		must(t, one.Begin())
		must(t, b.apply(one, put("a", "2"), put("fresh", "3")))
		must(t, one.Rollback())
		if v, _ := b.value(two, "a"); v != "1" {
			t.Fatalf("a is %q", v)
		}
		if _, ok := b.value(two, "fresh"); ok {
			t.Fatal("a rolled back insert shows")
		}
		must(t, b.do(two, put("a", "4"), put("fresh", "5")))
	})
}

// TestManyKeys crosses the sizes at which buffers grow and the item index starts.
func TestManyKeys(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, tx := b.session()
		for _, n := range []int{15, 16, 17, 40, 200} {
			var puts, gets []op
			for i := range n {
				puts = append(puts, put(fmt.Sprintf("key %d of %d", i, n), strings.Repeat("v", i)))
				gets = append(gets, get(fmt.Sprintf("key %d of %d", i, n)))
			}
			must(t, b.do(tx, puts...))
			must(t, tx.Begin())
			must(t, b.apply(tx, gets...))
			for i := range n {
				j, err := tx.Stage(b.table, []byte(gets[i].key), false)
				must(t, err)
				if v, ok := tx.Read(j); j != i || !ok || len(v) != i {
					t.Fatalf("item %d is number %d with %d bytes, %v", i, j, len(v), ok)
				}
			}
			must(t, tx.Commit())
		}
	})
}

// TestReclaim: blocks of deleted keys come back.
func TestReclaim(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{ReclaimAfter: 4})
	s, tx := b.session()
	for i := range 300 {
		k := fmt.Sprintf("k%d", i)
		must(t, b.do(tx, put(k, "v")))
		must(t, b.do(tx, del(k)))
		must(t, s.Maintain(tx.Coro()))
	}
	if n := len(b.table.Index.(*mapIndex).slots); n > 8 {
		t.Fatalf("%d deleted keys are still linked", n)
	}
	must(t, b.do(tx, put("k1", "again")))
}

// TestReclaimKeepsPace: however many keys are deleted between two rounds of maintenance, what
// waits to be reclaimed does not grow for ever; nor does it when the keys come back.
func TestReclaimKeepsPace(t *testing.T) {
	const each, rounds = 100, 150
	for _, again := range []bool{false, true} {
		b := newBed(t, 2, 1, occ.Options{ReclaimAfter: 4})
		s, tx := b.session()
		for i := range rounds {
			for j := range each {
				k := fmt.Sprintf("k%d", j)
				if !again {
					k = fmt.Sprintf("k%d-%d", i, j)
				}
				must(t, b.do(tx, put(k, "v")))
				must(t, b.do(tx, del(k)))
			}
			must(t, s.Maintain(tx.Coro()))
		}
		if n := s.Tombstones(); n > 12*each {
			t.Errorf("keys come back %v: %d deleted records wait, of %d", again, n, each*rounds)
		}
		if again {
			continue
		}
		for i := range 15000 { // and nobody waits for thousands of them
			k := fmt.Sprintf("k%d", i)
			must(t, b.do(tx, put(k, "v")))
			must(t, b.do(tx, del(k)))
		}
		must(t, s.Maintain(tx.Coro()))
		before := s.Tombstones()
		must(t, s.Maintain(tx.Coro()))
		if n := before - s.Tombstones(); before < 10000 || n < 500 || n > 1100 {
			t.Errorf("%d deleted records of %d are reclaimed at once", n, before)
		}
	}
}

// TestReclaimBesideLocks: when none of the deleted records is to be had that are the next, the
// rest is not asked for.
func TestReclaimBesideLocks(t *testing.T) {
	const keys = 800
	b := newBed(t, 2, 1, occ.Options{ReclaimAfter: 4})
	s, tx := b.session()
	_, other := b.session()
	for i := range keys {
		must(t, b.do(tx, put(fmt.Sprint("k", i), "v")))
		must(t, b.do(tx, del(fmt.Sprint("k", i))))
	}
	must(t, other.Begin())
	for i := range keys {
		_, err := other.Stage(b.table, fmt.Append(nil, "k", i), true)
		must(t, err)
	}
	must(t, other.Execute())
	var verbs rdma.Counters
	tx.Coro().Count = &verbs
	must(t, s.Maintain(tx.Coro()))
	if n := verbs.Total(); n == 0 || n > 40 || s.Tombstones() != keys {
		t.Errorf("%d verbs, and %d deleted records wait", n, s.Tombstones())
	}
	must(t, other.Rollback())
	must(t, s.Maintain(tx.Coro()))
	if s.Tombstones() == keys {
		t.Error("they are not reclaimed when they are unlocked")
	}
}

// verbs of one transaction of the given operations, warm.
func (b *bed) count(tx *occ.Tx, ops ...op) (verbs, trips uint64) {
	b.t.Helper()
	must(b.t, b.do(tx, ops...)) // warm
	before := *tx.Phases()
	must(b.t, b.do(tx, ops...))
	var d rdma.Counters
	for p, c := range tx.Phases() {
		x := c.Sub(&before[p])
		d.Add(&x)
	}
	return d.Total(), d.RoundTrips
}

// TestVerbs asserts what each SmallBank transaction costs, on two blades with one backup:
// FORD's numbers for policy ford (SMART-DTX's setting), ours for policy default.
func TestVerbs(t *testing.T) {
	a, c, s := "account", "checking", "savings"
	v := func(k string) op { return put(k, "8 bytes.") }
	for _, x := range []struct {
		name          string
		ops           []op
		ford, fordRTT uint64
		ours, oursRTT uint64
	}{
		{"Amalgamate", []op{v(a), v(c), v(s)}, 27, 3, 14, 2},
		{"Balance", []op{get(a), get(c)}, 4, 2, 4, 2},
		{"DepositChecking", []op{v(c)}, 11, 3, 6, 2},
		{"SendPayment", []op{v(a), v(c)}, 19, 3, 10, 2},
		{"WriteCheck", []op{get(s), v(c)}, 13, 3, 8, 3},
		{"GetSubscriberData", []op{get(a)}, 1, 1, 1, 1},
		{"locked, not written", []op{lock(a)}, 3, 1, 3, 1},
	} {
		for _, p := range policies {
			t.Run(x.name+"/"+p.String(), func(t *testing.T) {
				b := newBed(t, 2, 1, occ.Options{Policy: p})
				_, tx := b.session()
				must(t, b.do(tx, v(a), v(c), v(s)))
				verbs, trips := b.count(tx, x.ops...)
				wantV, wantT := x.ours, x.oursRTT
				if p == occ.PolicyFORD {
					wantV, wantT = x.ford, x.fordRTT
				}
				if verbs != wantV || trips != wantT {
					t.Errorf("%d verbs in %d round trips, want %d in %d", verbs, trips, wantV, wantT)
				}
			})
		}
	}
}

// TestNoAllocations: a warm transaction allocates nothing.
func TestNoAllocations(t *testing.T) {
	for _, p := range policies {
		b := newBed(t, 2, 1, occ.Options{Policy: p})
		_, tx := b.session()
		key, value := []byte("key"), []byte("8 bytes.")
		work := func() {
			must(t, tx.Begin())
			i, err := tx.Stage(b.table, key, true)
			must(t, err)
			must(t, tx.Execute())
			must(t, tx.Put(i, value))
			must(t, tx.Commit())
		}
		for range 10 {
			work()
		}
		if n := testing.AllocsPerRun(100, work); n != 0 {
			t.Errorf("policy %v: %v allocations per transaction", p, n)
		}
	}
}
