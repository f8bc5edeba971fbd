package txn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"txnode/check"
	"txnode/history"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/txn"
	"txnode/txn/snapshot"
)

func openMemory(t *testing.T, o txn.Options) *txn.DB {
	t.Helper()
	if o.BladeSize == 0 {
		o.BladeSize, o.SegmentSize, o.LogArea, o.CacheBytes = 256<<20, 1<<20, 1<<17, 1<<20
	}
	db, err := txn.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return db
}

// A backup that is taken while transactions run is the state at one moment of a
// serial order that agrees with what they have read: it takes part in the history
// as a transaction that read everything. Values are the ids of their writers.
func TestBackupIsOneMoment(t *testing.T) {
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for _, policy := range policies(t) {
		for round := range rounds {
			for _, k := range kinds {
				t.Run(fmt.Sprintf("%v/%s/%d", policy, k.name, round), func(t *testing.T) {
					backupRound(t, k.table, policy, uint64(round))
				})
			}
		}
	}
}

func backupRound(t *testing.T, create func(t testing.TB, db *txn.DB, name string) *txn.Table[uint64, []byte],
	policy occ.Policy, seed uint64) {
	const keys, writers = 3000, 4
	ctx := context.Background()
	var rec history.Recorder
	db := openMemory(t, txn.Options{Policy: policy, IndexGroups: 16, History: &rec})
	table := create(t, db, "t")
	write := func(tx *txn.Tx, k uint64, pad int) error {
		v := make([]byte, 8+pad)
		binary.LittleEndian.PutUint64(v, tx.ID())
		return table.Put(tx, k, v)
	}
	for k := range uint64(keys) {
		if err := db.Update(ctx, func(tx *txn.Tx) error { return write(tx, k, 0) }); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	var committed atomic.Uint64
	stop := make(chan struct{})
	for id := range writers {
		wg.Go(func() {
			w, err := db.NewWorker()
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
					// Neighbours of a hot spot: what one reads others replace.
					hot := r.Uint64N(64)
					for range 2 {
						if _, err := table.Get(tx, (hot+r.Uint64N(4))%keys); err != nil &&
							!errors.Is(err, txn.ErrNotFound) {
							return err
						}
					}
					if err := write(tx, (hot+r.Uint64N(4))%keys, 0); err != nil {
						return err
					}
					switch k := r.Uint64N(2 * keys); r.IntN(4) {
					case 0:
						return write(tx, k, r.IntN(300)) // new, or it moves
					case 1:
						if err := table.Delete(tx, k); err != nil && !errors.Is(err, txn.ErrNotFound) {
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
	start := db.Now()
	info, err := db.Backup(ctx, &file, txn.BackupOptions{Progress: func(uint64) {
		for n := committed.Load() + 100; committed.Load() < n && !t.Failed(); { // the others get on meanwhile
			runtime.Gosched()
		}
	}})
	end := db.Now()
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if info.Bytes != uint64(file.Len()) {
		t.Fatalf("a file of %d bytes: %+v", file.Len(), info)
	}

	copied := openMemory(t, txn.Options{})
	if _, err := copied.Restore(ctx, bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
		t.Fatal(err)
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
	if info.Records != uint64(len(ops)) {
		t.Errorf("it is said to have %d records, and has %d", info.Records, len(ops))
	}
	txns := append(slices.Clone(rec.Txns()), history.Txn{
		ID: 1, Start: start, End: end, Outcome: history.Committed, Ops: ops,
	})
	t.Logf("%d transactions, %d of them while the backup ran, %d keys in it", len(txns)-1, info.Changes, len(ops))
	if err := check.Check(txns, check.Options{FromEmpty: true}).Err(); err != nil {
		t.Fatal(err)
	}
	if info.Changes == 0 {
		t.Error("nothing was written while the backup ran")
	}
}

func TestBackupOfDirectory(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	db, err := txn.Open(ctx, txn.Options{
		Dir: from, BladeSize: 64 << 20, SegmentSize: 1 << 20, LogArea: 1 << 18, Blades: 3, Backups: txn.F(2),
	})
	if err != nil {
		t.Fatal(err)
	}
	names, err := txn.CreateTable(db, "names", txn.String, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := txn.CreateRawTable(db, "empty"); err != nil {
		t.Fatal(err)
	}
	long := string(bytes.Repeat([]byte("long"), 4000))
	for i := range 500 {
		err := db.Update(ctx, func(tx *txn.Tx) error {
			if i%50 == 0 {
				return names.Put(tx, fmt.Sprint(i), long)
			}
			return names.Put(tx, fmt.Sprint(i), fmt.Sprint("value of ", i))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "backup")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := db.Backup(ctx, f, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.RestoreDir(ctx, f, to, txn.Options{}, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.RestoreDir(ctx, f, to, txn.Options{}, txn.BackupOptions{}); err == nil {
		t.Error("restored over a database")
	}
	back, err := txn.Open(ctx, txn.Options{Dir: to})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close(ctx)
	if l := back.Space().Layout(); len(l.Blades) != 3 || l.Backups != 2 || l.SegmentSize != 1<<20 {
		t.Errorf("the geometry has changed: %d blades, %d backups, segments of %d",
			len(l.Blades), l.Backups, l.SegmentSize)
	}
	if tables, err := back.Tables(); err != nil || !slices.Equal(tables, []string{"names", "empty"}) {
		t.Errorf("tables %q, %v", tables, err)
	}
	again, err := txn.OpenTable(back, "names", txn.String, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		err := back.View(ctx, func(tx *txn.Tx) error {
			want := fmt.Sprint("value of ", i)
			if i%50 == 0 {
				want = long
			}
			if v, err := again.Get(tx, fmt.Sprint(i)); err != nil || v != want {
				t.Errorf("key %d: %.20q, %v", i, v, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hookedContext calls hook when it is asked whether it has ended.
type hookedContext struct {
	context.Context
	hook func()
}

func (c hookedContext) Err() error {
	c.hook()
	return c.Context.Err()
}

// TestBackupWhileUndecided: a blade is lost when the backup has collected the last records,
// and reads them only then. Transactions that were under way are not decided yet, and what
// they had locked may look unlocked on the copies that are left.
func TestBackupWhileUndecided(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t, txn.Options{Blades: 2})
	table, err := txn.CreateTable(db, "t", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	put := func(v string) {
		t.Helper()
		for k := range uint64(20) {
			if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, k, []byte(v)) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("1")
	lost := false
	var file bytes.Buffer
	_, err = db.Backup(hookedContext{ctx, func() {
		if !lost && file.Len() > 0 { // it has begun, and goes to blocks
			lost = true
			if err := db.Lose(0); err != nil {
				t.Fatal(err)
			}
		}
	}}, &file, txn.BackupOptions{})
	if err == nil || !lost {
		t.Fatalf("a backup that has read what is not decided: %v, %v", err, lost)
	}
	put("2")
	file.Reset()
	if _, err := db.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestBackupInSmallArena: a record that is larger than the arena of who makes the backup has
// room, as when the database was written with a larger one, is in it.
func TestBackupInSmallArena(t *testing.T) {
	ctx := context.Background()
	o := txn.Options{
		Dir: t.TempDir(), BladeSize: 64 << 20, SegmentSize: 4 << 20, LogArea: 2 << 20, CacheBytes: 1 << 20, Workers: 2,
	}
	db, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	values := map[uint64][]byte{}
	r := rand.New(rand.NewPCG(1, 2))
	tab := table(t, db, "t")
	for k, size := range []int{record.MaxValue, 700 << 10, 600<<10 + 1, 300 << 10, 100} {
		v := make([]byte, size)
		for i := range v {
			v[i] = byte(r.Uint32())
		}
		values[uint64(k)] = v
		if err := db.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, uint64(k), v) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}

	o.Arena = 1 << 20
	if db, err = txn.Open(ctx, o); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := db.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
		t.Error(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	o.Dir, o.Arena = "", 0
	db = openMemory(t, o)
	if _, err := db.Restore(ctx, bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	tab = table(t, db, "t")
	for k, v := range values {
		err := db.View(ctx, func(tx *txn.Tx) error {
			got, err := tab.Get(tx, k)
			if err == nil && !bytes.Equal(got, v) {
				err = fmt.Errorf("%d bytes, which are not those that were put", len(got))
			}
			return err
		})
		if err != nil {
			t.Errorf("key %d, %d bytes: %v", k, len(v), err)
		}
	}
}

// blockedWriter blocks from its so manieth write on, until it is let go.
type blockedWriter struct {
	writes  int
	after   int
	blocked chan struct{} // closed when it blocks
	letGo   chan struct{}
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes == w.after {
		close(w.blocked)
		<-w.letGo
	}
	return len(p), nil
}

// TestBackupBlocks: a writer that blocks holds up no commit, however long; the backup ends as one
// that was too slow when the changes that wait for it have no room, and else is whole.
func TestBackupBlocks(t *testing.T) {
	for _, c := range []struct {
		commits, size int
		want          error
	}{{100, 100, nil}, {200, 512 << 10, snapshot.ErrBehind}} {
		db := mustOpen(t, txn.Options{})
		tab := table(t, db, "t")
		put := func(k uint64, size int) error {
			return db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, make([]byte, size)) })
		}
		for k := range uint64(20) {
			if err := put(k, 60_000); err != nil {
				t.Fatal(err)
			}
		}
		w := &blockedWriter{after: 4, blocked: make(chan struct{}), letGo: make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := db.Backup(context.Background(), w, txn.BackupOptions{})
			done <- err
		}()
		<-w.blocked
		for i := range c.commits {
			if err := put(uint64(i%20), c.size); err != nil {
				t.Fatal(err)
			}
		}
		close(w.letGo)
		if err := <-done; !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%d commits of %d bytes while it was blocked: %v", c.commits, c.size, err)
		}
		close1(t, db)
	}
}
