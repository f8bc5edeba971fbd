package txn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/rdmatest"
	"txnode/txn"
	"txnode/verify"
)

// stopper is the switch of a database's blades.
func stopper(t *testing.T, db *txn.DB) rdma.Stopper {
	t.Helper()
	s, ok := db.Space().Fabric().(rdma.Stopper)
	if !ok {
		t.Fatal("blades cannot be stopped")
	}
	return s
}

// whole waits until every segment has all its copies, and, with all blades there, until
// the story of each loss says so: it is told a moment later.
func whole(t *testing.T, db *txn.DB, down int) {
	t.Helper()
	for range 3000 {
		r := db.Redundancy()
		untold := slices.ContainsFunc(r.Outages, func(x txn.Outage) bool { return x.Whole == 0 })
		begun := db.Space().View().Epoch == db.Space().Layout().Epoch // the keys of those before open nothing any more
		if r.Missing == 0 && len(r.Down) == down && (down > 0 || !untold) && begun {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("copies are still missing: %+v", db.Redundancy())
}

// swept waits until what the dead have left is swept up.
func swept(t *testing.T, db *txn.DB) {
	t.Helper()
	for range 3000 {
		if _, unswept := db.Space().Unswept(); !unswept && !db.Space().Leaked() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("there is still something to be swept up")
}

// TestBladeDies: while accounts are moved, made and closed, blades die and come back.
// Transactions go on, none is lost or halved, and in the end all copies are there
// and equal.
func TestBladeDies(t *testing.T) { eachRedundancy(t, 60*time.Millisecond) }

// TestBladeRestarts: the same with blades that are back before anybody can have noticed,
// with what they had, which may be too old, or with nothing.
func TestBladeRestarts(t *testing.T) { eachRedundancy(t, 0) }

func eachRedundancy(t *testing.T, down time.Duration) {
	for _, p := range policies(t) {
		for i, c := range []struct{ blades, backups int }{{3, 1}, {2, 1}, {4, 2}} {
			if testing.Short() && ((i == 0) != (p == occ.PolicyDefault) || i > 0 && raced.Enabled) {
				continue
			}
			t.Run(fmt.Sprintf("%v, %d blades, f=%d", p, c.blades, c.backups), func(t *testing.T) {
				bladeDies(t, down, txn.Options{
					Policy: p, Retries: 1 << 20, Blades: c.blades, Backups: txn.F(c.backups),
					BladeSize: 256 << 20, SegmentSize: 1 << 20, LogArea: 64 << 10, IndexGroups: 16,
					LeaseTerm: 3 * time.Second,
				})
			})
		}
	}
}

func bladeDies(t *testing.T, down time.Duration, o txn.Options) {
	ctx := context.Background()
	db, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := txn.CreateTable(db, "accounts", txn.Uint64, txn.Plain[int64]())
	if err != nil {
		t.Fatal(err)
	}
	const n, each = 200, 1000
	for i := range uint64(n) {
		if err := db.Update(ctx, func(tx *txn.Tx) error { return accounts.Put(tx, i, each) }); err != nil {
			t.Fatal(err)
		}
	}
	var stop sync.WaitGroup
	quit := make(chan struct{})
	working, giveUp := context.WithCancel(ctx)
	defer giveUp()
	counts := make([]int, 4)
	for g := range counts {
		stop.Go(func() {
			for i := uint64(g); ; i++ {
				select {
				case <-quit:
					return
				default:
				}
				a, b, fresh := i*7919%n, (i*104729+1)%n, uint64(g+1)<<40+i
				err := db.Update(working, func(tx *txn.Tx) error {
					if a == b {
						return nil
					}
					x, err := accounts.GetForUpdate(tx, a)
					if err != nil {
						return err
					}
					y, err := accounts.GetForUpdate(tx, b)
					if err != nil {
						return err
					}
					if err := errors.Join(accounts.Put(tx, a, x-1), accounts.Put(tx, b, y+1)); err != nil {
						return err
					}
					if i%3 == 0 { // a new account takes its money from the first
						return errors.Join(accounts.Put(tx, a, x-2), accounts.Insert(tx, fresh, 1))
					}
					return nil
				})
				if err != nil {
					t.Errorf("transaction %d of %d: %v", i, g, err)
					return
				}
				counts[g]++
			}
		})
	}
	sw := stopper(t, db)
	if o.Dir != "" {
		sw = fileCutter{sw, o}
	}
	for round, b := range []rdma.BladeID{0, 1, rdma.BladeID(o.Blades - 1)} {
		time.Sleep(30 * time.Millisecond)
		if err := sw.StopBlade(b); err != nil {
			t.Fatal(err)
		}
		time.Sleep(down)
		if o.Blades > *o.Backups+1 && down > 0 {
			whole(t, db, 1)
		}
		if err := sw.RestartBlade(b, round%2 == 0); err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			if len(db.Redundancy().Outages) > round {
				break
			}
			time.Sleep(time.Millisecond)
		}
		whole(t, db, 0)
	}
	close(quit)
	late := time.AfterFunc(time.Minute, giveUp) // then the transactions say what they wait for
	stop.Wait()
	late.Stop()
	if t.Failed() {
		t.FailNow()
	}
	sum := int64(0)
	if err := db.View(ctx, func(tx *txn.Tx) error {
		sum = 0
		for i := range uint64(n) {
			v, err := accounts.Get(tx, i)
			if err != nil {
				return err
			}
			sum += v
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	fresh := int64(0)
	for g := range counts {
		for i := uint64(g); i < uint64(g+counts[g]); i++ {
			a, b := i*7919%n, (i*104729+1)%n
			err := db.View(ctx, func(tx *txn.Tx) error {
				_, err := accounts.Get(tx, uint64(g+1)<<40+i)
				return err
			})
			if want := i%3 == 0 && a != b; (err == nil) != want {
				t.Errorf("account %d of %d: %v; want %v", i, g, err, want)
			}
			if err == nil {
				fresh++
			}
		}
	}
	if sum+fresh != n*each {
		t.Errorf("%d and %d are %d; want %d", sum, fresh, sum+fresh, n*each)
	}
	r := db.Redundancy()
	if len(r.Outages) != 3 {
		t.Errorf("outages %+v", r.Outages)
	}
	for _, x := range r.Outages {
		if x.Promoted < x.Noticed || x.Decided < x.Promoted || x.Back == 0 || x.Whole == 0 || x.Cause == "" {
			t.Errorf("%+v", x)
		}
		if x.Built == 0 || x.Built > r.Segments {
			t.Errorf("after the loss of blade %d copies of %d of %d segments were built", x.Blade, x.Built, r.Segments)
		}
		if o.Dir != "" && !strings.Contains(x.Cause, fmt.Sprintf("blade-%03d.region: byte 0x", x.Blade)) &&
			!strings.Contains(x.Cause, "restarted") {
			t.Errorf("blade %d was lost since %s", x.Blade, x.Cause)
		}
	}
	swept(t, db)
	audit(t, db)
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// audit checks the whole database, whose workers are idle.
func audit(t *testing.T, db *txn.DB) {
	t.Helper()
	d, err := verify.Attach(db.Space().Fabric(), db.Space().Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sum, err := d.Check(context.Background(), verify.Options{
		Alive:  func(uint32) bool { return true },
		Report: func(f verify.Finding) error { t.Errorf("%v", f); return nil },
	})
	if err != nil || sum.Live == 0 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// TestRestartIsNoticed: a blade that was away for a moment answers again, and is declared
// dead all the same: what it has, if anything, may be too old. Whoever asks it is not told
// that all is well, after which he would wait for it for ever.
func TestRestartIsNoticed(t *testing.T) {
	ctx := context.Background()
	for _, memory := range []bool{false, true} {
		db, err := txn.Open(ctx, txn.Options{
			Blades: 3, Backups: txn.F(1), BladeSize: 64 << 20, SegmentSize: 256 << 10,
			LogArea: 64 << 10, IndexGroups: 16, LeaseTerm: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[int64]())
		if err != nil {
			t.Fatal(err)
		}
		put := func(v int64) {
			t.Helper()
			if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, 7, v) }); err != nil {
				t.Fatal(err)
			}
		}
		put(1)
		for n, b := range []rdma.BladeID{0, 2} {
			sw := stopper(t, db)
			if err := errors.Join(sw.StopBlade(b), sw.RestartBlade(b, memory)); err != nil {
				t.Fatal(err)
			}
			if !db.Space().Restarted(b) {
				t.Fatalf("blade %d has restarted, with its memory: %v; that is not seen", b, memory)
			}
			put(int64(n))
			if r := db.Redundancy(); len(r.Outages) != n+1 || r.Outages[n].Blade != int(b) {
				t.Errorf("blade %d has restarted, with its memory: %v; outages: %+v", b, memory, r.Outages)
			}
			whole(t, db, 0)
			if db.Space().Restarted(b) {
				t.Errorf("blade %d was taken in, and would be declared dead again", b)
			}
		}
		if err := db.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDataLost: with every copy of some segments gone, what was there says so, in one
// error with the names of table and blades; the rest goes on.
func TestDataLost(t *testing.T) {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{
		Blades: 4, Backups: txn.F(1), BladeSize: 64 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10, IndexGroups: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	const n = 3000
	for i := range uint64(n) {
		if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, i, make([]byte, 200)) }); err != nil {
			t.Fatal(err)
		}
	}
	sw := stopper(t, db)
	for _, b := range []rdma.BladeID{0, 1} { // both before anything could be built
		if err := sw.StopBlade(b); err != nil {
			t.Fatal(err)
		}
	}
	lost, read, written := 0, 0, 0
	for i := range uint64(n) {
		err := db.View(ctx, func(tx *txn.Tx) error {
			_, err := table.Get(tx, i)
			return err
		})
		switch {
		case err == nil:
			read++
			if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, i, []byte("again")) }); err == nil {
				written++
			}
		case errors.Is(err, txn.ErrLost):
			lost++
			var e *memory.LostError
			if !errors.As(err, &e) || len(e.Blades) == 0 {
				t.Fatalf("key %d: %v", i, err)
			}
		default:
			t.Fatalf("key %d: %v", i, err)
		}
	}
	if lost == 0 || read == 0 || written != read {
		t.Errorf("%d lost, %d read, %d written", lost, read, written)
	}
	if r := db.Redundancy(); r.Lost == 0 || len(r.Down) != 2 {
		t.Errorf("%+v", r)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestFirstToMeetTheLoss: whoever makes a worker or a table is told nothing of a blade
// that nobody has missed so far.
func TestFirstToMeetTheLoss(t *testing.T) {
	ctx := context.Background()
	for b := range 3 {
		db, err := txn.Open(ctx, txn.Options{
			Blades: 4, Backups: txn.F(1), BladeSize: 64 << 20, SegmentSize: 256 << 10,
			LogArea: 256 << 10, IndexGroups: 16, LeaseTerm: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		put := func(w *txn.Worker, table *txn.Table[uint64, int64]) {
			t.Helper()
			if err := w.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, 7, 7) }); err != nil {
				t.Fatal(err)
			}
		}
		words, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[int64]())
		if err != nil {
			t.Fatal(err)
		}
		w := newWorker(t, db)
		put(w, words)
		sw := stopper(t, db)
		if err := sw.StopBlade(rdma.BladeID(b)); err != nil {
			t.Fatal(err)
		}
		other := newWorker(t, db) // its log area is a new segment on every blade
		put(other, words)
		if err := sw.RestartBlade(rdma.BladeID(b), true); err != nil {
			t.Fatal(err)
		}
		whole(t, db, 0)
		if err := sw.StopBlade(rdma.BladeID(b + 1)); err != nil {
			t.Fatal(err)
		}
		more := []*txn.Table[uint64, int64]{words}
		for i := range 3 {
			x, err := txn.CreateTable(db, fmt.Sprint("more ", i), txn.Uint64, txn.Plain[int64]())
			if err != nil {
				t.Fatal(err)
			}
			put(w, x)
			more = append(more, x)
		}
		if err := sw.RestartBlade(rdma.BladeID(b+1), false); err != nil {
			t.Fatal(err)
		}
		whole(t, db, 0)
		for _, x := range more {
			put(other, x)
		}
		if n := len(db.Redundancy().Outages); n != 2 {
			t.Errorf("%d outages", n)
		}
		if err := errors.Join(w.Close(), other.Close()); err != nil {
			t.Fatal(err)
		}
		swept(t, db)
		audit(t, db)
		if err := db.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForeignBladeComesBack: of two blades that were lost and answer again, one is
// another database's by now. The other one is taken in, and has the copies that are missing.
func TestForeignBladeComesBack(t *testing.T) {
	ctx := context.Background()
	f := rdmatest.New(rdmatest.Options{Blades: 4, Size: 4 << 20, Seed: 1, Caps: atOnce})
	db, err := txn.Open(ctx, txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, Backups: txn.F(2), SegmentSize: 256 << 10,
		LogArea: 64 << 10, IndexGroups: 16, LeaseTerm: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[int64]())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, db)
	for _, b := range []rdma.BladeID{1, 2} {
		if err := f.StopBlade(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, 7, int64(b)) }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range layout.HeaderCopies {
		h := db.Space().Layout().HeaderOf(1)
		h.UUID[3]++
		copy(f.Memory(1)[layout.HeaderOffset(i):], h.Encode(i))
	}
	if err := errors.Join(f.RestartBlade(1, true), f.RestartBlade(2, false)); err != nil {
		t.Fatal(err)
	}
	for tries := 0; db.Redundancy().Missing > 0; tries++ {
		if err := w.Maintain(); err != nil && !errors.Is(err, layout.ErrForeign) {
			t.Fatal(err)
		}
		if tries == 10_000 {
			t.Fatalf("%+v", db.Redundancy())
		}
		w.Sleep(1_000_000)
	}
	if r := db.Redundancy(); len(r.Down) != 1 || r.Down[0] != 1 {
		t.Errorf("%+v", r)
	}
	if err := errors.Join(w.Close(), db.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

// TestBladeDiesWithoutCatalog: a blade cannot be declared dead while the catalog does not answer,
// whether that makes the change all the same or not. It is said that it was when it was, once. What
// a worker has locked that could not rejoin meanwhile, and was given up, is in nobody's way then,
// though there are no leases.
func TestBladeDiesWithoutCatalog(t *testing.T) {
	for _, made := range []bool{false, true} {
		t.Run(fmt.Sprintf("made %v", made), func(t *testing.T) {
			f, err := inproc.New(inproc.Options{
				Seed: 1, Blades: []inproc.BladeOptions{{Size: 16 << 20}, {Size: 16 << 20}},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
			cat := &deaf{makes: made}
			o := onFabric(f, txn.PolicyDefault)
			o.Catalog = cat
			db := mustOpen(t, o)
			tab := table(t, db, "t")
			fill(t, db, tab, 100, val(1))
			update := func() error {
				return db.Update(t.Context(), func(tx *txn.Tx) error {
					for k := range uint64(100) {
						if err := tab.Put(tx, k, val(2)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			cat.down.Store(true)
			if err := f.StopBlade(1); err != nil {
				t.Fatal(err)
			}
			var u *txn.UnknownError
			if err := update(); !errors.As(err, &u) {
				t.Errorf("behind the first verb to the blade: %v", err)
			}
			for range 3 {
				if err := update(); !errors.Is(err, errDeaf) {
					t.Errorf("without catalog: %v", err)
				}
			}
			if n := len(db.Redundancy().Outages); n > 0 {
				t.Errorf("%d blades were declared dead without the catalog: %+v", n, db.Redundancy().Outages)
			}
			cat.down.Store(false)
			if err := update(); err != nil {
				t.Fatalf("when the catalog is back: %v", err)
			}
			r := db.Redundancy()
			if len(r.Outages) != 1 || r.Outages[0].Promoted == 0 || len(r.Down) != 1 {
				t.Errorf("outages %+v, down %v", r.Outages, r.Down)
			}
			if o, err := db.Outcome(t.Context(), uint64(u.Tx)); err != nil {
				t.Errorf("what has become of the first transaction: %v, %v", o, err)
			}
		})
	}
}
