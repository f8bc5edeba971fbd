package txn

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"txnode/index"
	"txnode/index/race"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/txn/supervisor"
)

// Splits is how often the index of an open table was split.
func (db *DB) Splits(table string) uint64 {
	return db.tables[table].Index.(*race.Index).Events().Splits
}

// Lose stops a blade, declares it dead, and leaves it to others, after a millisecond, to
// decide what was under way.
func (db *DB) Lose(b rdma.BladeID) error {
	cs, err := db.space.Coordinators()
	if err != nil {
		return err
	}
	ids := make([]uint32, len(cs))
	for i := range cs {
		ids[i] = cs[i].ID
	}
	if err := db.fabric.(rdma.Stopper).StopBlade(b); err != nil {
		return err
	}
	_, err = db.space.Claim(memory.ClaimOptions{
		Now: db.fabric.Now(), Until: db.fabric.Now() + 1_000_000, Steal: true, Change: db.space.DeclareDead(b),
	}, ids...)
	return err
}

// Hungry is where the record is that somebody waits for in vain; 0: nobody does.
func (db *DB) Hungry() layout.Addr { return layout.Addr(db.hungry.Load()) }

// Patient is how many transactions have had so many conflicts that they spread their attempts by
// the number of such transactions.
func (db *DB) Patient() int32 { return db.patient.Load() }

// AddPatient has the database count more such transactions, until the function that it
// returns is called.
func (db *DB) AddPatient(n int32) (end func()) {
	db.patient.Add(n)
	return func() { db.patient.Add(-n) }
}

// Unjoined is what a worker is told whose session is broken, and could not rejoin.
func Unjoined(broken, rejoining error) error { return &unjoinedError{broken, rejoining} }

// Leave counts something of the database's own that a call has left to a goroutine, until the
// function that it returns is called.
func (db *DB) Leave() (end func()) {
	db.adopt(1, nil)
	return func() { db.adopt(-1, nil) }
}

// SpendIDs leaves the worker's coordinator so many transaction ids: it takes days of
// commits to use them up.
func (w *Worker) SpendIDs(left uint64) {
	seq := reflect.ValueOf(w.session).Elem().FieldByName("seq")
	*(*uint64)(unsafe.Pointer(seq.UnsafeAddr())) = record.MaxSequence - 1 - left
}

// LeastBladeSize is how large the blades of a new database have to be.
func LeastBladeSize(o Options) uint64 {
	size, _, _ := o.leastBladeSize()
	return size
}

// Record adds a duration to a histogram, in nanoseconds.
func (h *Histogram) Record(ns int64) { h.record(ns) }

// OnlyDatabase has the process count as one with one database, whatever other tests have left open,
// until the function that it returns is called.
func OnlyDatabase() (restore func()) {
	n := openDatabases.Swap(1)
	return func() { openDatabases.Store(n) }
}

// Spoil flips a bit of the byte at an offset of a copy of a block, as others may write
// it at the same time.
func (w *Worker) Spoil(a layout.Addr, k, off int) error {
	buf, err := w.thread.Alloc(8)
	if err != nil {
		return err
	}
	defer w.thread.Free(buf, 8)
	at := w.db.space.View().At(a, k)
	at.Off += uint64(off &^ 7)
	var b rdma.Batch
	b.Read(at, buf, 8)
	if err := w.coro.Do(&b); err != nil {
		return err
	}
	was := w.thread.Word(buf)
	b.Reset()
	b.CAS(at, was, was^1<<(8*(off&7)+4))
	return w.coro.Do(&b)
}

// SpoilIndex changes bits of a word of the primary of a table's index: of the root, at an offset,
// or of the sub-table that is looked into for a hash.
func (w *Worker) SpoilIndex(table string, root bool, hash uint64, off uint32, bits uint64) error {
	ix := w.db.tables[table].Index.(*race.Index)
	a := ix.Root()
	if !root {
		a = ix.Near(hash)
	}
	buf, err := w.thread.Alloc(8)
	if err != nil {
		return err
	}
	defer w.thread.Free(buf, 8)
	at := w.db.space.View().At(a+layout.Addr(off), 0)
	var b rdma.Batch
	b.Read(at, buf, 8)
	if err := w.coro.Do(&b); err != nil {
		return err
	}
	was := w.thread.Word(buf)
	b.Reset()
	b.CAS(at, was, was^bits)
	return w.coro.Do(&b)
}

// TablesAt is what a backup has of the tables at its cut.
func (db *DB) TablesAt(draw func() uint64) (cut uint64, tables []layout.Table, err error) {
	return tablesAt(draw, db.space.Tables)
}

// RestGiveBack has the process look for segments that can go back from a time of the
// fabric's clock on.
func (db *DB) RestGiveBack(until int64) {
	lookAt := reflect.ValueOf(db.sup).Elem().FieldByName("giving").FieldByName("lookAt")
	(*atomic.Int64)(unsafe.Pointer(lookAt.UnsafeAddr())).Store(until)
}

// InterruptOnce has all transactions decided in a new epoch, as it is done when copies have moved.
func (db *DB) InterruptOnce() error {
	return db.decideAll(context.Background(), func(*layout.Layout) error { return nil })
}

// Interrupt does that again and again, with pauses of at most so many nanoseconds, or of 4
// times what it takes, 30 ms at most, until the function is called that it returns. That
// returns how often it was.
func (db *DB) Interrupt(most *atomic.Int64) (end func() (int, error)) {
	var err error
	stop, n := make(chan struct{}), 0
	var done sync.WaitGroup
	done.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		for took := time.Duration(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(r.Int64N(max(most.Load(), int64(min(4*took, 30*time.Millisecond)), 1)))):
			}
			from := time.Now()
			if e := (host{db}).BesideBackups(db.InterruptOnce); e == nil {
				n++
			} else if !supervisor.Again(e) && !errors.Is(e, rdma.ErrStaleKey) {
				err = errors.Join(err, e)
			}
			took = time.Since(from)
		}
	})
	return func() (int, error) {
		close(stop)
		done.Wait()
		return n, err
	}
}

// Owe notes a separator that the index of an open ordered table owes, and adds what it owes.
func (w *Worker) Owe(table string, p index.Post) {
	t := w.db.tables[table]
	t.Ordered.Owe(p)
	w.post(t)
}

// Leaf reads the leaf of an open ordered table that is responsible for a key, outside of
// transactions.
func (w *Worker) Leaf(table string, key []byte) error {
	return w.session.WithSpare(func() error {
		_, err := w.db.tables[table].Ordered.(*tree.Tree).Leaf(w.coro, index.PlaceOf(key))
		return err
	})
}

// Leads is the block to which cached nodes of an open ordered table lead for a key.
func (db *DB) Leads(table string, key []byte) layout.Addr {
	return db.tables[table].Ordered.Find(index.PlaceOf(key)).Addr
}

// Owes reports whether the index of an open ordered table owes something.
func (db *DB) Owes(table string) bool { return db.tables[table].Ordered.Owes() }

// Force writes a record, or deletes it if value is nil, of a table whose writes are reserved for
// handles that keep its indexes.
func (r *RawTable) Force(tx *Tx, key, value []byte) error {
	tx.o.AllowReserved(true)
	defer tx.o.AllowReserved(false)
	if value == nil {
		return tx.delete(r.t, key)
	}
	return tx.put(r.t, key, value)
}

// RowsAtOnce is how many records a loop over Index.Rows fetches at once.
const RowsAtOnce = rowsAtOnce

// KeeperThread is the index of the thread of the goroutine that looks after blades and copies.
const KeeperThread = controlThread + 1

// Convert gives tables with slots indexes of leaves, as an opening with Options.LeafIndex does.
// What has opened a table before does not know.
func (db *DB) Convert(ctx context.Context) {
	db.opts.LeafIndex = true
	db.convert(ctx)
}
