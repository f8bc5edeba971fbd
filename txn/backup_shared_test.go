package txn_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/check"
	"txnode/history"
	"txnode/memory"
	"txnode/memory/catalog/catalogtest"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/txn"
)

// TestSharedBackupIsOneMoment is TestBackupIsOneMoment with writers in several processes, of which
// one makes the backup. The epoch moves meanwhile, as when a process dies.
func TestSharedBackupIsOneMoment(t *testing.T) {
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for _, policy := range policies(t) {
		for round := range rounds {
			for _, k := range kinds {
				t.Run(fmt.Sprintf("%v/%s/%d", policy, k.name, round), func(t *testing.T) {
					sharedBackupRound(t, k.table, policy, uint64(round))
				})
			}
		}
	}
}

func sharedBackupRound(t *testing.T, create func(t testing.TB, db *txn.DB, name string) *txn.Table[uint64, []byte],
	policy txn.Policy, seed uint64) {
	const keys, processes, writers = 3000, 3, 2
	ctx := t.Context()
	var rec history.Recorder
	o := sharedOn(t, 3)
	o.Policy, o.IndexGroups, o.History, o.Retries = policy, 16, &rec, 1<<20
	var dbs []*txn.DB
	var tables []*txn.Table[uint64, []byte]
	for range processes {
		db := mustOpen(t, o)
		dbs, tables = append(dbs, db), append(tables, create(t, db, "t"))
	}
	write := func(p int, tx *txn.Tx, k uint64, pad int) error {
		v := make([]byte, 8+pad)
		binary.LittleEndian.PutUint64(v, tx.ID())
		return tables[p].Put(tx, k, v)
	}
	for k := range uint64(keys) {
		if err := dbs[0].Update(ctx, func(tx *txn.Tx) error { return write(0, tx, k, 0) }); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	var committed atomic.Uint64
	stop := make(chan struct{})
	for id := range processes * writers {
		p := id % processes
		wg.Go(func() {
			w, err := dbs[p].NewWorker()
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Close()
			r := rand.New(rand.NewPCG(seed, uint64(id)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := w.Update(ctx, func(tx *txn.Tx) error {
					hot := r.Uint64N(64)
					for range 2 {
						if _, err := tables[p].Get(tx, (hot+r.Uint64N(4))%keys); err != nil &&
							!errors.Is(err, txn.ErrNotFound) {
							return err
						}
					}
					if err := write(p, tx, (hot+r.Uint64N(4))%keys, 0); err != nil {
						return err
					}
					switch k := r.Uint64N(2 * keys); r.IntN(4) {
					case 0:
						return write(p, tx, k, r.IntN(300)) // new, or it moves
					case 1:
						if err := tables[p].Delete(tx, k); err != nil && !errors.Is(err, txn.ErrNotFound) {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				committed.Add(1)
			}
		})
	}
	var file bytes.Buffer
	start := dbs[0].Now()
	calls := 0
	info, err := dbs[1].Backup(ctx, &file, txn.BackupOptions{Progress: func(uint64) {
		for n := committed.Load() + 200; committed.Load() < n && !t.Failed(); { // the others get on meanwhile
			runtime.Gosched()
		}
		if calls++; calls == 3 {
			if err := dbs[2].Space().AdvanceEpoch(nil); err != nil {
				t.Error(err)
			}
		}
	}})
	end := dbs[0].Now()
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if info.Bytes != uint64(file.Len()) || calls < 3 {
		t.Fatalf("a file of %d bytes: %+v, after %d calls", file.Len(), info, calls)
	}
	copied := openMemory(t, txn.Options{})
	if _, err := copied.Restore(ctx, bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if names, err := copied.Tables(); err != nil || !slices.Equal(names, []string{"t"}) {
		t.Errorf("tables %q, %v", names, err)
	}
	restored := create(t, copied, "t")
	var ops []history.Op
	for k := range uint64(2 * keys) {
		err := copied.View(ctx, func(tx *txn.Tx) error {
			v, err := restored.Get(tx, k)
			if err != nil {
				return err
			}
			var key [8]byte
			binary.BigEndian.PutUint64(key[:], k)
			ops = append(ops, history.Op{
				Key:     history.Key(record.Hash(1, key[:])),
				Version: history.Version(binary.LittleEndian.Uint64(v)), Kind: history.Read,
			})
			return nil
		})
		if err != nil && !errors.Is(err, txn.ErrNotFound) {
			t.Fatal(err)
		}
	}
	txns := append(slices.Clone(rec.Txns()), history.Txn{
		ID: 1, Start: start, End: end, Outcome: history.Committed, Ops: ops,
	})
	t.Logf("%d transactions, %d keys in the backup", len(txns)-1, len(ops))
	if info.Records != uint64(len(ops)) {
		t.Errorf("it is said to have %d records, and has %d", info.Records, len(ops))
	}
	if err := check.Check(txns, check.Options{FromEmpty: true}).Err(); err != nil {
		t.Fatal(err)
	}
	// What a process has kept before it knew that the backup had ended the next one deletes.
	if _, err := dbs[2].Backup(ctx, io.Discard, txn.BackupOptions{}); err != nil {
		t.Error(err)
	}
	if n := kept(t, dbs[0]); n != 0 {
		t.Errorf("%d records are kept", n)
	}
	if names, err := dbs[0].Tables(); err != nil || !slices.Equal(names, []string{"t"}) {
		t.Errorf("tables of the copied one: %q, %v", names, err)
	}
}

// kept is how many records transactions have kept for backups.
func kept(t *testing.T, db *txn.DB) (n int) {
	t.Helper()
	table, err := txn.OpenAnyTable(db, "(backup)")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		n = 0
		for range table.All(tx) {
			n++
		}
		return tx.Err()
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// beside are two processes with tables: of many records, which a backup reads first, and another
// one.
type beside struct {
	dbs         [2]*txn.DB
	many, other [2]*txn.RawTable
}

// besides makes them, of which the first has a catalog of its own.
func besides(t *testing.T, o txn.Options, first layout.Catalog, value []byte) (b beside) {
	t.Helper()
	for p := range b.dbs {
		x := o
		if p == 0 && first != nil {
			x.Catalog = first
		}
		b.dbs[p] = mustOpen(t, x)
		for name, to := range map[string]*[2]*txn.RawTable{"many": &b.many, "other": &b.other} {
			table, err := txn.CreateRawTable(b.dbs[p], name)
			if err != nil {
				t.Fatal(err)
			}
			to[p] = table
		}
	}
	for k := range 600 {
		if err := b.dbs[0].Update(t.Context(), func(tx *txn.Tx) error {
			return b.many[0].Put(tx, fmt.Append(nil, "key ", k), []byte("before"))
		}); err != nil {
			t.Fatal(err)
		}
	}
	b.put(t, 0, "x", value)
	return b
}

func (b *beside) put(t *testing.T, p int, key string, value []byte) {
	t.Helper()
	if err := b.dbs[p].Update(t.Context(),
		func(tx *txn.Tx) error { return b.other[p].Put(tx, []byte(key), value) }); err != nil {
		t.Errorf("process %d: %v", p, err)
	}
}

// has restores a backup, and compares what it has under "x" of the other table.
func (b *beside) has(t *testing.T, file []byte, want []byte) {
	t.Helper()
	db := openMemory(t, txn.Options{BladeSize: 512 << 20, SegmentSize: 4 << 20, LogArea: 4 << 20})
	if _, err := db.Restore(t.Context(), bytes.NewReader(file), txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"many": 600, "other": 1} {
		table, err := txn.OpenRawTable(db, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			found := 0
			for k, v := range table.All(tx) {
				if found++; name == "many" && string(v) != "before" || name == "other" && !bytes.Equal(v, want) {
					t.Errorf("table %q, key %q: %d bytes, %.20q", name, k, len(v), v)
				}
			}
			if found != n {
				t.Errorf("table %q has %d records, want %d", name, found, n)
			}
			return tx.Err()
		}); err != nil {
			t.Error(err)
		}
	}
}

// TestSharedBackupKeeps: a record is replaced, deleted and inserted anew by another process before
// the backup comes to it. The backup has it as it was, however large it is.
func TestSharedBackupKeeps(t *testing.T) {
	for _, size := range []int{6, 5000, 1 << 20} {
		o := sharedOf(t, 2, 512<<20)
		o.SegmentSize, o.LogArea, o.Arena = 4<<20, 4<<20, 32<<20
		value := bytes.Repeat([]byte("v"), size)
		b := besides(t, o, nil, value)
		var file bytes.Buffer
		calls := 0
		_, err := b.dbs[0].Backup(t.Context(), &file, txn.BackupOptions{Progress: func(uint64) {
			if calls++; calls > 1 {
				return
			}
			b.put(t, 1, "x", []byte("after"))
			b.put(t, 1, "y", []byte("after"))
			if err := b.dbs[1].Update(t.Context(),
				func(tx *txn.Tx) error { return b.other[1].Delete(tx, []byte("x")) }); err != nil {
				t.Error(err)
			}
			b.put(t, 1, "x", []byte("once more"))
			_, err := b.dbs[1].Backup(t.Context(), io.Discard, txn.BackupOptions{})
			says(t, "a second backup", err, memory.ErrShared, "makes a backup: wait")
			_, err = b.dbs[0].Backup(t.Context(), io.Discard, txn.BackupOptions{})
			says(t, "a second backup here", err, memory.ErrShared, "already")
		}})
		if err != nil || calls == 0 {
			t.Fatalf("%d calls: %v", calls, err)
		}
		b.has(t, file.Bytes(), value)
		if n := kept(t, b.dbs[1]); n != 0 {
			t.Errorf("%d records are kept", n)
		}
	}
}

// TestSharedBackupCannotKeep: a transaction whose log has no room for what it replaces goes on, and
// the backup fails and says why.
func TestSharedBackupCannotKeep(t *testing.T) {
	o := sharedOn(t, 2)
	large := bytes.Repeat([]byte("l"), 40<<10) // of the log of 64 KiB
	b := besides(t, o, nil, large)
	var file bytes.Buffer
	_, err := b.dbs[0].Backup(t.Context(), &file, txn.BackupOptions{Progress: func(uint64) {
		b.put(t, 1, "x", bytes.ToUpper(large))
	}})
	says(t, "a large transaction", err, memory.ErrCut, "log area")
	if _, err := openMemory(t, txn.Options{}).Restore(t.Context(), bytes.NewReader(file.Bytes()),
		txn.BackupOptions{}); err == nil {
		t.Error("it can be restored")
	}
	file.Reset()
	if _, err := b.dbs[1].Backup(t.Context(), &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	b.has(t, file.Bytes(), bytes.ToUpper(large))
}

// TestSharedBackupTakenForDead: the process that makes a backup is stopped until others have taken
// it for dead. They go on, keep nothing any more, and one of them makes a backup. The first finds
// out that its own has failed.
func TestSharedBackupTakenForDead(t *testing.T) {
	o := sharedOn(t, 2)
	o.LeaseTerm = 300 * time.Millisecond
	c := &catalogtest.Unheard{Catalog: o.Catalog}
	b := besides(t, o, c, []byte("before"))
	var file bytes.Buffer
	calls := 0
	_, err := b.dbs[0].Backup(t.Context(), io.Discard, txn.BackupOptions{Progress: func(uint64) {
		if calls++; calls > 1 {
			return
		}
		c.Away.Store(true)
		for dead := b.dbs[0].Space().Process(); b.dbs[1].Space().IsProcess(dead) && !t.Failed(); {
			b.put(t, 1, "x", []byte("beside"))
			time.Sleep(10 * time.Millisecond)
		}
		b.put(t, 1, "x", []byte("between"))
		if _, err := b.dbs[1].Backup(t.Context(), &file, txn.BackupOptions{}); err != nil {
			t.Error(err)
		}
		c.Away.Store(false)
	}})
	says(t, "late", err, memory.ErrCut)
	if calls == 0 {
		t.Fatal("it was not stopped")
	}
	b.has(t, file.Bytes(), []byte("between"))
	file.Reset()
	if _, err := b.dbs[0].Backup(t.Context(), &file, txn.BackupOptions{}); err != nil { // as another process
		t.Fatal(err)
	}
	b.has(t, file.Bytes(), []byte("between"))
}

// TestSharedBackupReadOnly: it is refused.
func TestSharedBackupReadOnly(t *testing.T) {
	o := sharedOn(t, 2)
	mustOpen(t, o)
	o.ReadOnly = true
	_, err := mustOpen(t, o).Backup(t.Context(), io.Discard, txn.BackupOptions{})
	says(t, "read-only", err, txn.ErrReadOnly, "open it for writing")
}
