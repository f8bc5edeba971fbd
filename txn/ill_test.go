package txn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/txn"
	"txnode/verify"
)

// ill is a catalog that fails, whether it makes a change or not, or hangs, as it is told.
type ill struct {
	catalog.Mem
	mood atomic.Int32
	mu   sync.Mutex
	r    *rand.Rand
	late []func() // changes
}

// Moods of a catalog.
const (
	well = iota
	failing
	hanging
	moods
)

// draw draws a number below n; now and then a change that is late is made.
func (m *ill) draw(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.late) > 0 && m.r.IntN(4) == 0 {
		m.late[0]()
		m.late = m.late[1:]
	}
	return m.r.IntN(n)
}

func (m *ill) hang() {
	if m.mood.Load() == hanging && m.draw(3) == 0 {
		time.Sleep(time.Duration(m.draw(60)) * time.Millisecond)
	}
}

func (m *ill) Load() ([]layout.Entry, layout.Revision, error) {
	m.hang()
	if m.mood.Load() == failing && m.draw(3) > 0 {
		return nil, 0, errDeaf
	}
	return m.Mem.Load()
}

func (m *ill) Revision() (layout.Revision, error) {
	_, rev, err := m.Load()
	return rev, err
}

func (m *ill) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	m.hang()
	if m.mood.Load() != failing {
		return m.Mem.Apply(rev, changes)
	}
	changes = slices.Clone(changes)
	apply := func() { _, _ = m.Mem.Apply(rev, changes) }
	switch m.draw(3) {
	case 0:
		apply()
	case 1:
		m.mu.Lock()
		m.late = append(m.late, apply)
		m.mu.Unlock()
	}
	return 0, errDeaf
}

const illAccounts, illBalance = 40, 100

var illSeeds = flag.Uint64("ill", 6, "how many seeds TestIllCatalog runs")

// illTransfer moves money between two accounts, which may grow by that, and makes or
// removes another key.
func illTransfer(r *rand.Rand, tab *txn.Table[uint64, []byte], tx *txn.Tx) error {
	from, to := r.Uint64N(illAccounts), r.Uint64N(illAccounts)
	if from == to {
		return nil
	}
	other := 1000 + r.Uint64N(600)
	switch has, err := tab.Has(tx, other); {
	case err != nil:
		return err
	case !has:
		err = tab.Insert(tx, other, make([]byte, r.IntN(400)))
		if err != nil {
			return err
		}
	case r.IntN(2) == 0:
		if err := tab.Delete(tx, other); err != nil {
			return err
		}
	}
	for k, add := range map[uint64]uint64{from: ^uint64(0), to: 1} {
		v, err := tab.GetForUpdate(tx, k)
		if err != nil {
			return err
		}
		v = binary.LittleEndian.AppendUint64(nil, binary.LittleEndian.Uint64(v)+add)
		if err := tab.Put(tx, k, append(v, make([]byte, 40*r.IntN(3))...)); err != nil {
			return err
		}
	}
	return nil
}

// TestIllCatalog: goroutines use a database whose catalog fails and hangs, and whose blades stop
// and come back meanwhile. When the catalog is well all of them go on; nothing is lost, and in the
// end all copies are there and equal.
func TestIllCatalog(t *testing.T) {
	raced.Skip(t)
	n := *illSeeds
	if testing.Short() {
		n = min(n, 2)
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { illCatalog(t, seed) })
	}
}

func illCatalog(t *testing.T, seed uint64) {
	f, err := inproc.New(inproc.Options{Seed: seed, Blades: slices.Repeat([]inproc.BladeOptions{{Size: 64 << 20}}, 3)})
	if err != nil {
		t.Fatal(err)
	}
	p := txn.PolicyDefault
	if seed%2 == 1 {
		p = txn.PolicyFORD
	}
	o := onFabric(f, p)
	cat := &ill{r: rand.New(rand.NewPCG(seed, 5))}
	o.Catalog, o.Workers, o.Retries, o.ReclaimAfter = cat, 3, 1000, 10
	o.ReadBackups = seed%4 == 0
	if seed%3 > 0 {
		o.LeaseTerm = 300 * time.Millisecond
	}
	if seed%5 > 2 {
		o.Backups = txn.F(2)
	}
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, illAccounts, binary.LittleEndian.AppendUint64(nil, illBalance))

	var stop atomic.Bool
	var wg sync.WaitGroup
	var good [4]atomic.Int64 // by goroutine: transactions that were committed
	for g := range good {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g))) // small
			var w *txn.Worker
			defer func() {
				if w != nil {
					_ = w.Close()
				}
			}()
			for !stop.Load() {
				fn := func(tx *txn.Tx) error { return illTransfer(r, tab, tx) }
				var err error
				switch g {
				case 0: // workers of its own
					if w == nil {
						w, err = db.NewWorker()
					}
					if err == nil {
						err = w.Update(t.Context(), fn)
					}
					if w != nil && r.IntN(100) == 0 {
						_ = w.Close()
						w = nil
					}
				case 1:
					var tx *txn.Tx
					if tx, err = db.Begin(t.Context(), false); err != nil {
						break
					}
					if err = fn(tx); err == nil {
						err = tx.Commit()
					} else {
						_ = tx.Rollback()
					}
				default:
					err = db.Update(t.Context(), fn)
				}
				switch {
				case err == nil:
					good[g].Add(1)
				case errors.Is(err, txn.ErrCorrupt), errors.Is(err, txn.ErrLost), errors.Is(err, txn.ErrNotFound),
					errors.Is(err, memory.ErrRevision):
					t.Error(err)
					return
				default:
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}

	r := rand.New(rand.NewPCG(seed, 99))
	down := -1
	restart := func(memory bool) {
		if err := f.RestartBlade(rdma.BladeID(down), memory); err != nil {
			t.Error(err)
		}
		down = -1
	}
	for range 60 {
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		cat.mood.Store(r.Int32N(moods))
		switch now := db.Redundancy(); {
		case r.IntN(3) > 0:
		case down < 0 && now.Missing == 0 && len(now.Down) == 0:
			down = r.IntN(3)
			if err := f.StopBlade(rdma.BladeID(down)); err != nil {
				t.Error(err)
			}
		case down >= 0 && slices.Contains(now.Down, rdma.BladeID(down)):
			restart(r.IntN(2) == 0)
		}
	}
	cat.mood.Store(well)
	for g := range good {
		was, patience := good[g].Load(), time.Now().Add(20*time.Second)
		for good[g].Load() == was && time.Now().Before(patience) && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		if good[g].Load() == was {
			t.Errorf("goroutine %d stands still after %d transactions", g, was)
		}
	}
	stop.Store(true)
	wg.Wait()
	if down >= 0 {
		restart(false)
	}
	illEnd(t, db, tab)
}

// illEnd looks at what is left.
func illEnd(t *testing.T, db *txn.DB, tab *txn.Table[uint64, []byte]) {
	sum := uint64(0)
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		sum = 0
		for k := range uint64(illAccounts) {
			v, err := tab.Get(tx, k)
			if err != nil {
				return err
			}
			sum += binary.LittleEndian.Uint64(v)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if sum != illAccounts*illBalance {
		t.Errorf("there is %d, and was %d", sum, illAccounts*illBalance)
	}
	w, err := db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	// Who was recovering somebody when the catalog failed may be gone, and then his
	// claim has to expire.
	settled := func() bool {
		r, space := db.Redundancy(), db.Space()
		_, unswept := space.Unswept()
		dead := func(e layout.CoordinatorEntry) bool {
			return e.Recovering || space.Lease(e.ID, w.Now()) != memory.LeaseLive
		}
		return r.Missing == 0 && len(r.Down) == 0 && !unswept && !space.Leaked() &&
			!slices.ContainsFunc(space.Layout().Coordinators, dead)
	}
	for patience := time.Now().Add(time.Minute); !settled(); {
		if err := w.Maintain(); time.Now().After(patience) {
			t.Fatalf("%+v, %v, %+v", db.Redundancy(), err, db.Space().Layout().Coordinators)
		}
		w.Sleep(10_000)
	}
	if err := errors.Join(w.Close(), db.Close(context.Background())); err != nil {
		t.Error(err)
	}
	d, err := verify.Attach(db.Space().Fabric(), db.Space().Layout())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Check(t.Context(),
		verify.Options{Report: func(f verify.Finding) error { t.Errorf("%v", f); return nil }}); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
