package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/index"
	"txnode/internal/raced"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma/inproc"
	"txnode/txn"
)

// all reads the keys below a number, of which n are there.
func (x ledger) all(t *testing.T, db *txn.DB, keys uint64, n int) {
	t.Helper()
	found := 0
	for k := uint64(0); k < keys; k += 16 {
		there := 0
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			there = 0
			for i := range uint64(16) {
				_, ok, err := x.get(tx, k+i)
				if err != nil {
					return err
				}
				if ok {
					there++
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		found += there
	}
	if found != n {
		t.Errorf("%d keys are there; want %d", found, n)
	}
}

// blockSegments is how many segments of records there are.
func blockSegments(db *txn.DB) (n int) {
	l := db.Space().Layout()
	for i := range l.Segments {
		if g := &l.Segments[i]; g.Kind == layout.KindBlocks && g.Placement.N > 0 {
			n++
		}
	}
	return n
}

// nodeSegments is how many of them have nodes.
func nodeSegments(db *txn.DB) (n int) {
	l := db.Space().Layout()
	for i := range l.Segments {
		if g := &l.Segments[i]; g.Kind == layout.KindBlocks && g.Placement.N > 0 && g.Class == l.Tables[0].Nodes {
			n++
		}
	}
	return n
}

// vacantNode is an address in a segment of nodes that has gone back.
func vacantNode(t *testing.T, db *txn.DB) layout.Addr {
	t.Helper()
	if err := db.Space().Follow(); err != nil {
		t.Fatal(err)
	}
	l := db.Space().Layout()
	for i := range l.Segments {
		if g := &l.Segments[i]; g.Vacant && g.Class == l.Tables[0].Nodes {
			return layout.MakeAddr(layout.SegmentID(i), 0)
		}
	}
	t.Fatal("no segment of nodes has gone back")
	return 0
}

// backAt waits until no more than n segments of records are left, and all that can be
// used again is clean.
func backAt(t *testing.T, n int, dbs ...*txn.DB) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r, left := dbs[0].Redundancy(), blockSegments(dbs[0])
		if left <= n && r.Dirty == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d segments are left, of which %d are needed; %+v", left, n, r)
		}
		for _, db := range dbs {
			useAll(t, db)
		}
	}
}

// useAll has several workers of the pool run a transaction: each frees the blocks that it has
// deleted.
func useAll(t *testing.T, db *txn.DB) {
	t.Helper()
	const n = 3
	var within atomic.Int32
	all, done := make(chan struct{}), make(chan error)
	for range n {
		go func() {
			done <- db.Update(t.Context(), func(*txn.Tx) error {
				if within.Add(1) == n {
					close(all)
				}
				select {
				case <-all:
				case <-time.After(20 * time.Millisecond): // the pool may have fewer
				}
				return nil
			})
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// givingBack are options of a database whose segments go back soon.
func givingBack(o txn.Options) txn.Options {
	o.GiveBack, o.ReclaimAfter, o.Retries = 4*time.Millisecond, 1, 1<<20
	return o
}

// TestSegmentsGoBack: a table is filled until the blades are full, and emptied or dropped. Then
// they have room for about as much of records of another size, again and again.
func TestSegmentsGoBack(t *testing.T) {
	for i, c := range []struct {
		blades, backups int
		ordered, drop   bool
		shared          bool
	}{
		{3, 1, false, true, false}, {2, 0, false, false, true}, {3, 2, false, false, false}, {3, 1, true, true, false},
		{3, 1, true, false, false},
	} {
		t.Run(fmt.Sprintf("blades=%d,f=%d,ordered=%v,drop=%v,shared=%v", c.blades, c.backups, c.ordered, c.drop,
			c.shared), func(t *testing.T) {
			if i > 1 && (raced.Enabled || testing.Short()) {
				t.Skip("twice is enough")
			}
			room, rounds := uint64(8<<20), []int{200, 3000, 700, 200}
			if raced.Enabled {
				room, rounds = room/2, rounds[1:3]
			}
			o := givingBack(sharedOf(t, c.blades, room))
			o.Backups, o.Shared = txn.F(c.backups), c.shared
			db := mustOpen(t, o)
			keep := makeLedger(t, db, "keep", false)
			keep.fill(t, db, 0, 50, 300, 7)
			first := 0
			for round, size := range rounds {
				name := fmt.Sprintf("t%d", round)
				x := makeLedger(t, db, name, c.ordered)
				n := x.fill(t, db, 0, 1<<20, size, byte(round))
				stored, segments := int(n)*size, blockSegments(db)
				if first == 0 {
					first = stored
				}
				t.Logf("round %d: %d records of %d bytes, %d KiB in %d segments", round, n, size, stored>>10, segments)
				if stored < first/2 {
					t.Errorf("round %d: %d KiB of records have room, and in the first one %d",
						round, stored>>10, first>>10)
				}
				if c.drop {
					if err := db.DropTable(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				} else {
					x.clear(t, db, 0, n)
				}
				backAt(t, 16, db)
			}
			for k := range uint64(50) {
				if err := db.View(t.Context(), func(tx *txn.Tx) error {
					v, ok, err := keep.get(tx, k)
					if err == nil && (!ok || len(v) != 300 || v[0] != 7 || v[299] != byte(k)) {
						err = fmt.Errorf("key %d has %d bytes, %v", k, len(v), ok)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			}
			auditAtRest(t, db, o)
		})
	}
}

// TestFullBladesWait: the blades are full, and a table is emptied or dropped whose segments are
// not to go back for a long time. The next records, of another size, are put at once, and have
// room all the same.
func TestFullBladesWait(t *testing.T) {
	for _, how := range []string{"cleared", "dropped", "opened again"} {
		drop, again := how != "cleared", how == "opened again" // then what is free is known only when it was looked for
		t.Run(how, func(t *testing.T) {
			o := sharedOf(t, 3, 4<<20)
			o.Backups, o.GiveBack, o.Shared = txn.F(1), time.Hour, false
			db := mustOpen(t, o)
			makeLedger(t, db, "keep", false).fill(t, db, 0, 50, 300, 7)
			stored := [3]int{}
			for round, size := range []int{700, 3000, 700} {
				name := fmt.Sprintf("t%d", round)
				x := makeLedger(t, db, name, true)
				n := x.fill(t, db, 0, 1<<20, size, byte(round))
				stored[round] = int(n) * size
				if drop {
					if err := db.DropTable(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				} else {
					x.clear(t, db, 0, n)
				}
				if again {
					if err := db.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					db = mustOpen(t, o)
				}
			}
			if stored[1] < stored[0]/2 || stored[2] < stored[0]*3/4 {
				t.Errorf("%d bytes of records had room", stored)
			}
			auditAtRest(t, db, o)
		})
	}
}

// TestGoBackBesideReaders: one process fills a table, empties it and has its segments go back,
// again and again. Others read and change records of it meanwhile, whose addresses they know, and
// of a table of their own. They read what was committed, at any moment.
func TestGoBackBesideReaders(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) {
			o := givingBack(sharedOf(t, 3, 16<<20))
			o.CacheBytes, o.Workers = 4<<20, 2
			owner, other := mustOpen(t, o), mustOpen(t, o)
			const keys = 3000
			makeLedger(t, owner, "keep", false).fill(t, owner, 0, 50, 300, 7)
			mine, theirs := makeLedger(t, owner, "t", ordered), makeLedger(t, other, "t", ordered)
			var busy sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			reads, found := [3]int{}, [3]int{}
			for g := range 3 {
				busy.Go(func() {
					db, x := other, theirs
					if g == 2 {
						db, x = owner, mine
					}
					last := [keys]byte{}
					for i := uint64(0); ctx.Err() == nil; i++ {
						k := (i*7919 + uint64(g)) % keys
						var v []byte
						var ok bool
						if err := db.View(ctx, func(tx *txn.Tx) (err error) {
							v, ok, err = x.get(tx, k)
							v = bytes.Clone(v)
							return err
						}); err != nil && ctx.Err() == nil {
							t.Errorf("key %d: %v", k, err)
							return
						} else if err != nil {
							return
						}
						if reads[g]++; ok {
							found[g]++
							if len(v) < 2 || v[len(v)-1] != byte(k) || v[0] < last[k] {
								t.Errorf("key %d has %d bytes of round %d, after %d", k, len(v), v[0], last[k])
								return
							}
							last[k] = v[0]
						}
					}
				})
			}
			rounds, gone := 4, 0
			if testing.Short() {
				rounds = 2
			}
			for round := 1; round <= rounds; round++ {
				size := []int{400, 1500}[round%2]
				if mine.fill(t, owner, 0, keys, size, byte(2*round)); t.Failed() {
					break
				}
				theirs.fill(t, other, 0, keys/4, size, byte(2*round+1)) // in place, by the other process
				n := blockSegments(owner)
				mine.clear(t, owner, 0, keys)
				backAt(t, n-1, owner, other)
				gone += n - blockSegments(owner)
			}
			stop()
			busy.Wait()
			t.Logf("%d segments have gone back; %d reads, %d of a record", gone, reads, found)
			if gone == 0 || found[0] == 0 || found[2] == 0 {
				t.Error("nothing was tested")
			}
			auditAtRest(t, owner, o, other)
		})
	}
}

// TestGoBackWithPower: with DurabilityPower logs count until two checkpoints have been made since,
// which are made for segments that go back.
func TestGoBackWithPower(t *testing.T) {
	o := givingBack(txn.Options{
		Dir: t.TempDir(), Blades: 2, BladeSize: 16 << 20, SegmentSize: 256 << 10,
		LogArea: 64 << 10, Durability: txn.DurabilityPower,
	})
	db := mustOpen(t, o)
	makeLedger(t, db, "keep", false).fill(t, db, 0, 50, 300, 7)
	x := makeLedger(t, db, "t", false)
	x.fill(t, db, 0, 1000, 1000, 1)
	before := db.Space().Checkpoint()
	x.clear(t, db, 0, 1000)
	segments := blockSegments(db)
	backAt(t, segments-2, db)
	if n := db.Space().Checkpoint(); n < before+2 {
		t.Errorf("segments have gone back after checkpoint %d, and the last one before was %d", n, before)
	}
	auditAtRest(t, db, o)
}

// TestGoBackBesideIdleWorker: a worker of the program's own is idle for long. It is waited for as
// long as for one that has stopped, and goes on as another coordinator. So it is where others have
// the database open, too.
func TestGoBackBesideIdleWorker(t *testing.T) {
	for _, shared := range []bool{false, true} {
		o := givingBack(sharedOf(t, 2, 16<<20))
		o.LeaseTerm, o.Shared = 100*time.Millisecond, shared
		db := mustOpen(t, o)
		makeLedger(t, db, "keep", false).fill(t, db, 0, 50, 300, 7)
		x := makeLedger(t, db, "t", false)
		x.fill(t, db, 0, 1000, 1000, 1)
		w, err := db.NewWorker()
		if err != nil {
			t.Fatal(err)
		}
		touch := func() error {
			return w.Update(t.Context(), func(tx *txn.Tx) error { return x.put(tx, 2000, []byte("1")) })
		}
		if err := touch(); err != nil {
			t.Fatal(err)
		}
		x.clear(t, db, 0, 1000)
		backAt(t, blockSegments(db)-2, db)
		if err := errors.Join(touch(), w.Close()); err != nil {
			t.Error(err)
		}
		auditAtRest(t, db, o)
	}
}

// TestGoBackInterruptsNobody: segments are about to go back while another process is in a
// transaction. They do not before it has ended; no epoch begins, the transaction commits at once,
// and all workers go on as the coordinators that they were.
func TestGoBackInterruptsNobody(t *testing.T) {
	o := givingBack(sharedOf(t, 3, 16<<20))
	o.LeaseTerm = time.Minute // else a worker that stays in a transaction is recovered
	owner, other := mustOpen(t, o), mustOpen(t, o)
	makeLedger(t, owner, "keep", false).fill(t, owner, 0, 50, 300, 7)
	mine, theirs := makeLedger(t, owner, "t", false), makeLedger(t, other, "keep", false)
	mine.fill(t, owner, 0, 3000, 1000, 1)
	within, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	goOn := sync.OnceFunc(func() { close(end) })
	defer goOn() // a test that fails closes the database, which waits for the transaction
	tries := 0
	go func() {
		done <- other.Update(t.Context(), func(tx *txn.Tx) error {
			if tries++; tries == 1 {
				close(within)
				defer func() { <-end }()
			}
			if _, ok, err := theirs.get(tx, 3); err != nil || !ok {
				return fmt.Errorf("there: %v, %w", ok, err)
			}
			return theirs.put(tx, 4, []byte("new"))
		})
	}()
	<-within
	epoch, coordinators := owner.Space().View().Epoch, owner.Space().Layout().Coordinators
	mine.clear(t, owner, 0, 3000)
	state := func() (leaving, vacant int) {
		l := owner.Space().Layout()
		for i := range l.Segments {
			if g := &l.Segments[i]; g.Leaving {
				leaving++
			} else if g.Vacant {
				vacant++
			}
		}
		return leaving, vacant
	}
	for stop := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		// what was deleted is freed
		if err := owner.Update(t.Context(), func(*txn.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		leaving, vacant := state()
		if vacant > 0 {
			t.Fatalf("%d segments have gone back, and a transaction of before is under way", vacant)
		}
		if n, err := owner.Space().Notice(); err != nil {
			t.Fatal(err)
		} else if left, err := owner.Space().Unrested(n); err == nil && leaving > 0 &&
			slices.Equal(left.Processes, []uint32{other.Space().Process()}) {
			break // all but the other one rest
		}
		if time.Now().After(stop) {
			t.Fatalf("%d segments leave", leaving)
		}
	}
	for range 40 { // nor do they later
		time.Sleep(5 * time.Millisecond)
		if _, vacant := state(); vacant > 0 {
			t.Fatalf("%d segments have gone back, and a transaction of before is still under way", vacant)
		}
	}
	goOn()
	if err := <-done; err != nil || tries != 1 {
		t.Errorf("the transaction was tried %d times: %v", tries, err)
	}
	backAt(t, 16, owner, other)
	now := owner.Space().Layout()
	if _, vacant := state(); vacant == 0 || owner.Space().View().Epoch != epoch ||
		slices.ContainsFunc(coordinators, func(c layout.CoordinatorEntry) bool {
			return now.Coordinator(c.ID) == nil
		}) {
		t.Errorf("%d segments have gone back; the epoch is %d after %d, and the coordinators are %+v after %+v",
			vacant, owner.Space().View().Epoch, epoch, now.Coordinators, coordinators)
	}
	auditAtRest(t, owner, o, other)
}

// TestGoBackAndLose: a blade is lost while segments go back, and comes back.
func TestGoBackAndLose(t *testing.T) {
	raced.Skip(t)
	o := givingBack(sharedOf(t, 4, 16<<20))
	o.Backups = txn.F(1)
	f := o.Fabric.(*inproc.Fabric)
	db := mustOpen(t, o)
	keep := makeLedger(t, db, "keep", false)
	keep.fill(t, db, 0, 50, 300, 7)
	for round := range 4 {
		x := makeLedger(t, db, fmt.Sprintf("t%d", round), false)
		x.fill(t, db, 0, 3000, 1000, 1)
		n := blockSegments(db)
		if err := db.DropTable(t.Context(), fmt.Sprintf("t%d", round)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(round*15) * time.Millisecond)
		if err := f.StopBlade(3); err != nil {
			t.Fatal(err)
		}
		backAt4 := func() bool { return blockSegments(db) < n-4 }
		for end := time.Now().Add(time.Minute); !backAt4(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d of %d segments are left", blockSegments(db), n)
			}
			keep.fill(t, db, 0, 50, 300, 7)
		}
		if err := f.RestartBlade(3, true); err != nil {
			t.Fatal(err)
		}
		backAt(t, 24, db)
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if r := db.Redundancy(); len(r.Down)+r.Missing+r.Building+r.Dirty == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%+v", db.Redundancy())
			}
		}
	}
	auditAtRest(t, db, o)
}

// auditAtRest checks the whole database when it is closed: segments could go back meanwhile.
func auditAtRest(t *testing.T, db *txn.DB, o txn.Options, others ...*txn.DB) {
	t.Helper()
	for _, x := range append(others, db) {
		if err := x.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	o.GiveBack = -1
	db = mustOpen(t, o)
	swept(t, db)
	backAt(t, 1<<20, db) // the epoch moves when places are cleared
	audit(t, db)
}

// TestGoBackCachedNodes: a process has cached the inner nodes of a table that another one has
// emptied since, and the segments of whose leaves have gone back. It does all that begins with what
// cached nodes lead to.
func TestGoBackCachedNodes(t *testing.T) {
	raced.Skip(t)
	o := givingBack(sharedOf(t, 2, 32<<20))
	o.NodeEntries, o.Workers, o.CacheBytes = 0, 1, 4<<20 // no worker is at rest that has deleted something
	// Keys that might be long have large nodes: few of them stay, so segments are whole.
	key := txn.KeyAs("padded", txn.String, func(k uint64) string { return fmt.Sprintf("%012d", k) },
		func(s string) uint64 {
			k, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				t.Error(err)
			}
			return k
		})
	key.MaxBytes = 1024
	const keys = 40_000 // of which the first one stays
	for _, what := range []string{"read", "count", "insert", "delete", "leaf", "post"} {
		t.Run(what, func(t *testing.T) {
			if testing.Short() && (what == "count" || what == "delete" || what == "leaf") {
				t.Skip("half of them are enough")
			}
			t.Parallel() // they wait most of the time
			o := o
			o.Catalog = &catalog.Mem{}
			o.Fabric = sharedOf(t, 2, 32<<20).Fabric
			owner := mustOpen(t, o)
			// until all is deleted: leaves stay that a session has emptied which is declared dead
			owner.RestGiveBack(math.MaxInt64)
			asked := &askedCatalog{Catalog: o.Catalog}
			o.Catalog = asked
			other := mustOpen(t, o)
			mine, theirs := orderedLedger(t, owner, "t", key), orderedLedger(t, other, "t", key)
			mine.fill(t, owner, 0, keys, 8, 1)
			theirs.all(t, other, keys, keys)
			nodes := nodeSegments(owner)
			mine.clear(t, owner, 1, keys)
			owner.RestGiveBack(0)
			for end := time.Now().Add(time.Minute); nodeSegments(owner) >= nodes; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d segments of nodes are left of %d", nodeSegments(owner), nodes)
				}
				// what was deleted is freed
				if err := owner.Update(t.Context(), func(*txn.Tx) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			gone := vacantNode(t, other)
			all, k := 1, uint64(16)
			for ; !other.Space().View().Gone(other.Leads("t", key.Append(nil, k))); k += 16 {
				if k > keys {
					t.Fatal("no cached node leads to a segment that has gone back")
				}
			}
			switch what {
			case "read":
				before := asked.n.Load()
				theirs.all(t, other, k, 1)
				if n := asked.n.Load() - before; n > k/16 {
					t.Errorf("the catalog was asked %d times, for %d keys", n, k)
				}
				if err := other.View(t.Context(), func(tx *txn.Tx) error {
					_, ok, err := theirs.get(tx, k)
					if ok {
						t.Errorf("key %d is there", k)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			case "count":
				if err := other.View(t.Context(), func(tx *txn.Tx) error {
					n, err := theirs.from(tx, k)
					if err == nil && n != 0 {
						t.Errorf("%d rows from key %d on; want 0", n, k)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			case "insert":
				all++
				theirs.fill(t, other, k, k+1, 8, 2)
			// its address is known by a range that begins elsewhere, so that only taking it out of
			// its node goes by the nodes
			case "delete":
				mine.fill(t, owner, k, k+1, 8, 2)
				if err := other.View(t.Context(), func(tx *txn.Tx) error {
					n, err := theirs.from(tx, 0)
					if err == nil && n != 2 {
						t.Errorf("%d rows; want 2", n)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
				if !other.Space().View().Gone(other.Leads("t", key.Append(nil, k))) {
					t.Error("it goes by other nodes")
				}
				w, err := other.NewWorker()
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(w.Update(t.Context(), func(tx *txn.Tx) error { return theirs.remove(tx, k) }),
					w.Close()); err != nil {
					t.Error(err)
				}
			case "leaf": // as a backup reads it beside damage
				w, err := other.NewWorker()
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(w.Leaf("t", key.Append(nil, k)), w.Close()); err != nil {
					t.Error(err)
				}
			case "post": // a separator is owed for a node that was merged away since
				w, err := other.NewWorker()
				if err != nil {
					t.Fatal(err)
				}
				w.Owe("t", index.Post{Level: 1, Key: []byte("1"), Child: gone})
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if other.Owes("t") {
					t.Error("it is owed still")
				}
			}
			for range 3 { // what was deleted is freed
				if err := other.Update(t.Context(), func(*txn.Tx) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if err := owner.Close(t.Context()); err != nil { // it frees what it has deleted last
				t.Fatal(err)
			}
			raw, err := txn.OpenAnyTable(other, "t")
			if err != nil {
				t.Fatal(err)
			}
			st, err := raw.Stats(t.Context())
			if err != nil || int(st.Rows) != all || int(st.Blocks) != all {
				t.Errorf("%d rows, %d blocks, %v; want %d", st.Rows, st.Blocks, err, all)
			}
			if c := other.Metrics(); c.Damage+c.Mended > 0 {
				t.Errorf("damage: %d transactions, %d blocks", c.Damage, c.Mended)
			}
			if c := other.Metrics(); c.Retries > 0 {
				t.Logf("%d retries", c.Retries)
			}
		})
	}
}

// askedCatalog counts how often it is asked.
type askedCatalog struct {
	layout.Catalog
	n atomic.Uint64
}

func (c *askedCatalog) Load() ([]layout.Entry, layout.Revision, error) {
	c.n.Add(1)
	return c.Catalog.Load()
}

func (c *askedCatalog) Revision() (layout.Revision, error) {
	c.n.Add(1)
	return c.Catalog.Revision()
}

func (c *askedCatalog) Await(ctx context.Context, after layout.Revision) (layout.Revision, error) {
	c.n.Add(1)
	return c.Catalog.Await(ctx, after)
}
