package main

import (
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"txnode/check"
	"txnode/cluster"
	"txnode/history"
	"txnode/txn"
)

// Deadlines of a member of TestHistories: what cuts it off lasts for about as long.
const (
	memberLease   = time.Second
	memberConnect = 500 * time.Millisecond
	memberControl = 800 * time.Millisecond
	memberVerb    = 700 * time.Millisecond
)

const (
	// address, prefix of its files, seed, directory of TLS files or "-", with spaces between them
	asMember      = "TXNODE_TEST_AS_MEMBER"
	memberWorkers = 3
	memberKeys    = 8  // of registers and lists, and accounts
	memberRows    = 24 // of the ordered table, at most
	listFor       = 60 // transactions of a worker go to a list, then others begin
)

// memberTables are what members use.
type memberTables struct {
	db        *txn.DB
	registers *txn.Table[uint64, uint64]
	lists     *txn.Table[uint64, []byte]
	bank      *txn.Table[uint64, int64]
	rows      *txn.OrderedTable[uint64, uint64]
	groups    *txn.Index[uint64, uint64, uint64] // of rows, by value
}

// openMember opens the database as a member does.
func openMember(ctx context.Context, address, tlsDir string, r *history.Recorder) (x memberTables, err error) {
	var o cluster.Options
	if tlsDir != "-" {
		if o.TCP.TLS, err = chaosTLS(tlsDir); err != nil {
			return x, err
		}
	}
	o.TCP.Connect, o.TCP.Control, o.TCP.Verb = memberConnect, memberControl, memberVerb
	x.db, err = cluster.Open(ctx, address, txn.Options{
		LeaseTerm: memberLease, Workers: memberWorkers, IndexGroups: 16, History: r,
	}, o)
	if err != nil {
		return x, err
	}
	if x.registers, err = txn.CreateTable(x.db, "registers", txn.Uint64, txn.Plain[uint64]()); err == nil {
		x.lists, err = txn.CreateTable(x.db, "lists", txn.Uint64, txn.Bytes())
	}
	if err == nil {
		x.bank, err = txn.CreateTable(x.db, "bank", txn.Uint64, txn.Plain[int64]())
	}
	if err == nil {
		x.groups = txn.NewIndex("group", txn.Uint64, func(_, v uint64) []uint64 { return []uint64{v % 5} })
		x.rows, err = txn.CreateOrderedTable(x.db, "rows", txn.Uint64, txn.Plain[uint64](), x.groups)
	}
	if err != nil {
		err = errors.Join(err, x.db.Close(ctx))
	}
	return x, err
}

// told is what a member has recorded, by a clock that all processes of the host share.
type told struct {
	Txns, Failed []history.Txn
	Lists        []check.ListTxn
	Wrong        []string // what it has seen that must not be
	Errors       int      // transactions that have ended with one
	Unknown      int      // outcomes that it was not told, and has asked for
}

// member is a process that has the database open, and records what it does.
type member struct {
	memberTables
	seed  uint64
	n     atomic.Uint64 // transactions that are committed
	mu    sync.Mutex
	told  told
	until chan struct{}
}

// runMember runs transactions until it is asked to end, and writes what it has recorded.
func runMember(args string) error {
	f := strings.Fields(args)
	seed, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		return err
	}
	ctx := context.Background()
	var r history.Recorder
	m := &member{seed: seed, until: make(chan struct{})}
	for { // the catalog may be away
		if m.memberTables, err = openMember(ctx, f[0], f[3], &r); err == nil {
			break
		}
		fmt.Fprintf(os.Stderr, "opening: %v\n", err)
		time.Sleep(20 * time.Millisecond)
	}
	var done sync.WaitGroup
	for i := range memberWorkers {
		done.Go(func() { m.work(ctx, i) })
	}
	for ended := false; !ended; time.Sleep(10 * time.Millisecond) {
		if err := os.WriteFile(f[1]+".count", []byte(fmt.Sprintf("%020d", m.n.Load())), 0o600); err != nil {
			return err
		}
		_, err := os.Stat(f[1] + ".end")
		ended = err == nil
	}
	close(m.until)
	done.Wait()
	m.told.Txns, m.told.Failed = m.shared(r.Txns()), m.shared(r.Failed())
	m.resolve(ctx)
	out, err := os.Create(f[1] + ".history")
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(out).Encode(&m.told), out.Close(), m.db.Close(ctx))
}

// shared is a history by the clock that all processes share. The clock of the database is read
// between two readings of it.
func (m *member) shared(txns []history.Txn) []history.Txn {
	lo := clock()
	now := m.db.Now()
	hi := clock()
	for i := range txns {
		txns[i].Start += lo - now
		txns[i].End += hi - now
	}
	return txns
}

// resolve asks for the outcomes that the member was not told.
func (m *member) resolve(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, chaosPatience)
	defer cancel()
	ask := func(id uint64, o history.Outcome) (history.Outcome, bool) {
		if o != history.Unknown {
			return o, true
		}
		m.told.Unknown++
		switch is, err := m.db.Outcome(ctx, id); {
		case err != nil:
			return history.Unknown, true // it stays so
		case is == txn.Committed:
			return history.Committed, true
		}
		return history.Failed, false
	}
	var txns []history.Txn
	for _, t := range m.told.Txns {
		was := t.Outcome
		var there bool
		if t.Outcome, there = ask(t.ID, was); !there {
			m.told.Failed = append(m.told.Failed, t)
			continue
		}
		if was != t.Outcome {
			t.End = clock()
		}
		txns = append(txns, t)
	}
	m.told.Txns = txns
	m.told.Lists = slices.DeleteFunc(m.told.Lists, func(t check.ListTxn) bool { return t.Outcome == history.Failed })
	var lists []check.ListTxn
	for _, t := range m.told.Lists {
		was := t.Outcome
		var there bool
		if t.Outcome, there = ask(t.ID, was); !there {
			continue
		}
		if was != t.Outcome {
			t.End = clock()
		}
		lists = append(lists, t)
	}
	m.told.Lists = lists
}

// work is what a worker does until the member is to end.
func (m *member) work(ctx context.Context, i int) {
	r := rand.New(rand.NewPCG(m.seed, uint64(i))) // small
	steps := []func(ctx context.Context, r *rand.Rand, unique uint64) error{
		m.register, m.list, m.transfer, m.count, m.change, m.agree,
	}
	for n := uint64(0); ; n++ {
		select {
		case <-m.until:
			return
		default:
		}
		err := steps[r.IntN(len(steps))](ctx, r, m.seed<<40|uint64(i)<<32|n) // small
		if err == nil {
			m.n.Add(1)
		} else {
			fmt.Fprintf(os.Stderr, "member %d: %v\n", m.seed, err)
			m.mu.Lock()
			m.told.Errors++
			m.mu.Unlock()
		}
		time.Sleep(2 * time.Millisecond) // a round is not to have more than can be checked
	}
}

func (m *member) wrong(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told.Wrong = append(m.told.Wrong, fmt.Sprintf("member %d: ", m.seed)+fmt.Sprintf(format, args...))
}

// register reads some registers and writes others.
func (m *member) register(ctx context.Context, r *rand.Rand, unique uint64) error {
	a, b, c := r.Uint64N(memberKeys), r.Uint64N(memberKeys), r.Uint64N(memberKeys)
	return m.db.Update(ctx, func(tx *txn.Tx) error {
		_, _, err := m.registers.Lookup(tx, a)
		if _, _, e := m.registers.Lookup(tx, b); e != nil {
			err = e
		}
		if err != nil {
			return err
		}
		return m.registers.Put(tx, c, unique)
	})
}

// list reads a list, and appends to another one.
func (m *member) list(ctx context.Context, r *rand.Rand, unique uint64) error {
	round := memberKeys * (unique & 0xffff / listFor)
	read, write := round+r.Uint64N(memberKeys), round+r.Uint64N(memberKeys)
	t := check.ListTxn{Start: clock()}
	err := m.db.Update(ctx, func(tx *txn.Tx) error {
		t.ID, t.Ops = tx.ID(), nil
		had, _, err := m.lists.Lookup(tx, read)
		if err != nil {
			return err
		}
		op := check.ListOp{Key: history.Key(read), List: []uint64{}}
		for p := had; len(p) >= 8; p = p[8:] {
			op.List = append(op.List, binary.LittleEndian.Uint64(p))
		}
		t.Ops = append(t.Ops, op, check.ListOp{Key: history.Key(write), Append: unique + 1})
		if had, _, err = m.lists.Lookup(tx, write); err != nil {
			return err
		}
		return m.lists.Put(tx, write, binary.LittleEndian.AppendUint64(slices.Clone(had), unique+1))
	})
	t.End = clock()
	switch {
	case err == nil:
		t.Outcome = history.Committed
	case errors.Is(err, txn.ErrOutcomeUnknown):
		t.Outcome = history.Unknown
	default:
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told.Lists = append(m.told.Lists, t)
	return err
}

// transfer moves money.
func (m *member) transfer(ctx context.Context, r *rand.Rand, _ uint64) error {
	from, to, amount := r.Uint64N(memberKeys), r.Uint64N(memberKeys), r.Int64N(10)
	return m.db.Update(ctx, func(tx *txn.Tx) error {
		was, err := m.bank.Get(tx, from)
		if err == nil {
			err = m.bank.Put(tx, from, was-amount)
		}
		if err != nil {
			return err
		}
		if was, err = m.bank.Get(tx, to); err != nil {
			return err
		}
		return m.bank.Put(tx, to, was+amount)
	})
}

// count demands that the money is the same.
func (m *member) count(ctx context.Context, _ *rand.Rand, _ uint64) error {
	sum := int64(0)
	err := m.db.View(ctx, func(tx *txn.Tx) error {
		sum = 0
		for a := range uint64(memberKeys) {
			v, err := m.bank.Get(tx, a)
			if err != nil {
				return err
			}
			sum += v
		}
		return nil
	})
	if err == nil && sum != memberKeys*chaosMoney {
		m.wrong("the accounts have %d together, of %d", sum, memberKeys*chaosMoney)
	}
	return err
}

// change inserts, changes or deletes a row.
func (m *member) change(ctx context.Context, r *rand.Rand, unique uint64) error {
	k, remove := r.Uint64N(memberRows), r.IntN(3) == 0
	return m.db.Update(ctx, func(tx *txn.Tx) error {
		if !remove {
			return m.rows.Put(tx, k, unique)
		}
		if err := m.rows.Delete(tx, k); !errors.Is(err, txn.ErrNotFound) {
			return err
		}
		return nil
	})
}

// agree demands that an index and the rows that it leads to are the same.
func (m *member) agree(ctx context.Context, _ *rand.Rand, _ uint64) error {
	var rows, entries [][2]uint64
	err := m.db.View(ctx, func(tx *txn.Tx) error {
		rows, entries = nil, nil
		for k, v := range m.rows.All(tx) {
			rows = append(rows, [2]uint64{v % 5, k})
		}
		for g, k := range m.groups.Range(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}) {
			entries = append(entries, [2]uint64{g, k})
		}
		return tx.Err()
	})
	slices.SortFunc(rows, func(x, y [2]uint64) int { return slices.Compare(x[:], y[:]) })
	if err == nil && !slices.Equal(rows, entries) {
		m.wrong("an index has %v, and its table %v", entries, rows)
	}
	return err
}
