package cluster_test

import (
	"flag"
	"runtime"
	"slices"
	"testing"
	"time"

	"txnode/channel"
	"txnode/cluster"
	"txnode/memory/channelhost"
	"txnode/rdma"
	"txnode/txn"
)

var hintRounds = flag.Int("hints.rounds", 10, "how often TestHints does each thing")

// TestHints: two processes, and the catalog in a file, on unix sockets. It measures what the engine
// asks the catalog for, beside what an object on a blade would do: an epoch that another process
// has begun, and the right to recover an index. What both say is the same.
func TestHints(t *testing.T) {
	b := newBed(t)
	stop := b.catalogFile("c")()
	t.Cleanup(stop)
	b.blades([]uint64{size}, "a")
	b.blades([]uint64{size}, "b")
	if err := cluster.Init(t.Context(), b.client("c"), b.list("a", "b"),
		cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	type process struct {
		db    *txn.DB
		c     *rdma.Coro
		word  *channel.Owned[uint64]
		mutex *channel.Mutex
	}
	open := func() (p process) {
		db, err := cluster.Open(t.Context(), b.address("c"), txn.Options{}, cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		th, err := rdma.NewThread(db.Space().Fabric(), rdma.ThreadOptions{Arena: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := th.Close(); err != nil {
				t.Error(err)
			}
			if err := db.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		p.db, p.c = db, th.Plain()
		m, err := channel.Join(t.Context(), p.c, channelhost.New(db.Space()), channel.Identity{Term: int64(time.Hour)})
		if err == nil {
			p.word, err = channel.OpenOwned(t.Context(), p.c, m.Scope("s"), "epoch", channel.Plain[uint64]("epoch"))
		}
		if err == nil {
			p.mutex, err = channel.OpenMutex(t.Context(), p.c, m.Scope("s"), "mend")
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one, two := open(), open()
	if err := one.word.Own(t.Context(), one.c); err != nil {
		t.Fatal(err)
	}
	figures := map[string][]time.Duration{}
	note := func(what string, since time.Time) { figures[what] = append(figures[what], time.Since(since)) }
	for range *hintRounds {
		began := time.Now()
		if err := one.db.Space().AdvanceEpoch(nil); err != nil {
			t.Fatal(err)
		}
		epoch := one.db.Space().View().Epoch
		note("an epoch is begun", began)
		for two.db.Space().View().Epoch < epoch {
			runtime.Gosched()
		}
		note("another process has begun it, by its watch", began)

		began = time.Now()
		if err := one.word.Store(one.c, uint64(epoch)); err != nil {
			t.Fatal(err)
		}
		note("it is stored in a word", began)
		began = time.Now()
		v, _, err := two.word.Load(two.c)
		if err != nil || v != uint64(epoch) {
			t.Fatalf("the word is %d, the epoch %d: %v", v, epoch, err)
		}
		note("the word is read", began)

		began = time.Now()
		if err := two.db.Space().Follow(); err != nil {
			t.Fatal(err)
		}
		note("the catalog is asked, and nothing is new", began)

		began = time.Now()
		if !one.db.Space().AcquireRight(3) {
			t.Fatal("a right that no process has is refused")
		}
		note("the right to recover an index, by the catalog", began)
		began = time.Now()
		if two.db.Space().AcquireRight(3) {
			t.Fatal("two processes have a right")
		}
		note("it is refused", began)
		began = time.Now()
		one.db.Space().ReleaseRight(3)
		note("it is given back", began)

		began = time.Now()
		if _, err := one.mutex.Lock(t.Context(), one.c); err != nil {
			t.Fatal(err)
		}
		note("a mutex is locked", began)
		began = time.Now()
		if err := one.mutex.Unlock(one.c); err != nil {
			t.Fatal(err)
		}
		note("a mutex is unlocked", began)
	}
	for _, what := range slices.Sorted(func(yield func(string) bool) {
		for k := range figures {
			if !yield(k) {
				return
			}
		}
	}) {
		all := figures[what]
		slices.Sort(all)
		t.Logf("%-50s %v median, %v at most", what, all[len(all)/2], all[len(all)-1])
	}
}
