package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
	"txnode/verify"
)

// TestPower takes the power from databases that are open with DurabilityPower: whatever was
// not flushed is lost, or not, line by line, on every blade. Sometimes the power goes
// again while the database is recovered.
func TestPower(t *testing.T) {
	sum := &totals{}
	var again int
	eachPower(t, 25, 5, 100, func(seed uint64) error { return powerRun(seed, sum, &again) })
	t.Logf("%d losses of power, %d of them during recovery; %d transactions acknowledged, %d under way, %d of which "+
		"had taken effect",
		sum.kills, again, sum.committed, sum.unknown, sum.effective)
}

// eachPower runs seeds: so many, or fewer if the tests are to be short, or as many as the flags
// say. It says how far it has come after every so many.
func eachPower(t *testing.T, seeds, short, every uint64, run func(seed uint64) error) {
	t.Helper()
	raced.Skip(t)
	if testing.Short() {
		seeds = short
	}
	if *powerFlag > 0 {
		seeds = *powerFlag
	}
	for seed := *seedFlag; seed < *seedFlag+seeds; seed++ {
		if err := run(seed); err != nil {
			t.Fatalf("seed %d: %v; repeat with -powers 1 -seed %d", seed, err, seed)
		}
		if n := seed - *seedFlag + 1; n%every == 0 {
			t.Logf("%d of %d seeds", n, seeds) // shown at once with -v
		}
	}
}

// powered is a catalog that fails when there is no power: who has lost it must not go
// on to declare the blades dead.
type powered struct {
	catalog.Mem
	down *bool
}

var errNoPower = errors.New("no power")

func (p *powered) Load() ([]layout.Entry, layout.Revision, error) {
	if *p.down {
		return nil, 0, errNoPower
	}
	return p.Mem.Load()
}

func (p *powered) Revision() (layout.Revision, error) {
	_, rev, err := p.Load()
	return rev, err
}

func (p *powered) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if *p.down {
		return 0, errNoPower
	}
	return p.Mem.Apply(rev, changes)
}

// supply is a database on a fabric whose power goes.
type supply struct {
	l    *life
	r    *rand.Rand
	f    *rdmatest.Fabric
	cat  *powered
	left int         // requests until then
	down bool        // nothing is executed any more
	hold func() bool // the power does not go now
	base map[uint64]state
	sum  *totals
}

// newSupply makes one, drawn from the seed, with f from a number on up to 2.
func newSupply(seed, stream uint64, least int, sum *totals) *supply {
	r := rand.New(rand.NewPCG(seed, stream))
	caps := rdma.Caps{
		Placed: r.IntN(3) > 0, OrderedLine: r.IntN(3) > 0, MaskedCAS: r.IntN(2) == 0, Synchronous: r.IntN(2) == 0,
	}
	p := &supply{r: r, base: map[uint64]state{}, sum: sum, hold: func() bool { return false }}
	p.l = &life{
		Blades: 3, Backups: least + r.IntN(3-least), Workers: 1 + r.IntN(3), Accounts: 10 + r.Uint64N(100), Seed: seed,
	}
	p.cat = &powered{down: &p.down}
	p.f = rdmatest.New(rdmatest.Options{
		Blades: 3, Size: 16 << 20, Caps: caps, Seed: seed, Volatile: true, Fail: p.fail,
	})
	return p
}

func (p *supply) fail(*rdma.WR) rdma.Status {
	if p.left--; p.left < 0 && !p.hold() {
		p.down = true
	}
	if p.down {
		return rdma.StatusNoBlade
	}
	return rdma.StatusOK
}

// back takes the power and gives it back, again and again while it goes once more, in half of
// the cases, before the database is open and read. What is there is held against what the
// clients were told. again is how often it has gone once more.
func (p *supply) back(frames []*frame) (again int, err error) {
	for ; ; again++ {
		p.f = p.f.LosePower(p.r.Uint64())
		p.f.Fail(p.fail)
		p.sum.kills++
		p.down, p.left = false, 1<<30
		if p.r.IntN(2) == 0 {
			p.left = p.r.IntN(8000)
		}
		found, err := powerLook(p.f, p.cat, p.l)
		if err != nil && p.down {
			continue
		}
		if err != nil {
			return again, fmt.Errorf("power has come back: %w", err)
		}
		if err := judge(p.base, frames, found, p.sum); err != nil {
			return again, err
		}
		p.left, p.base = 1<<30, found
		return again, walkFabric(p.f, p.cat)
	}
}

func powerRun(seed uint64, sum *totals, again *int) error {
	p := newSupply(seed, 9, 0, sum)
	for life := range 3 {
		var frames []*frame
		p.down, p.left = false, 500+p.r.IntN(8000)
		clean := p.r.IntN(6) == 0
		if clean {
			p.left = 1 << 30
		}
		err := powerLife(p.f, p.cat, p.l, func(x *frame) error { frames = append(frames, x); return nil }, clean)
		if clean != (err == nil) {
			return fmt.Errorf("life %d: clean %v, but %w", life, clean, err)
		}
		n, err := p.back(frames)
		if *again += n; err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		p.l.Seed += 1000
	}
	return nil
}

func (l *life) onFabric(f rdma.Fabric, cat layout.Catalog) txn.Options {
	o := l.options()
	o.Dir, o.Blades, o.BladeSize = "", 0, 0
	o.Fabric, o.Catalog, o.Durability, o.SegmentSize = f, cat, txn.DurabilityPower, 256<<10
	return o
}

// powerLife runs clients until nothing works any more, or, if clean, until they have
// done enough and the database is closed.
func powerLife(f *rdmatest.Fabric, cat layout.Catalog, l *life, say func(*frame) error, clean bool) error {
	ctx := context.Background()
	db, err := txn.Open(ctx, l.onFabric(f, cat))
	if err != nil {
		return err
	}
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Bytes())
	if err != nil {
		return err
	}
	sorted, err := openSorted(db, l)
	if err != nil {
		return err
	}
	if l.Seed%2 == 0 {
		if err := sorted.indexed.change(ctx, db, rand.New(rand.NewPCG(l.Seed, 3000))); err != nil {
			return err
		}
	}
	err = db.Run(ctx, l.Workers, 1+int(l.Seed%3), func(ctx context.Context, id int, w *txn.Worker) error {
		c := &client{
			l: l, id: int64(id), w: w, table: table, sorted: sorted,
			rand: rand.New(rand.NewPCG(l.Seed, uint64(id))), say: say, now: f.Now,
		}
		for !clean || c.done < 50 {
			if err := c.step(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return db.Close(ctx)
}

// powerLook opens the database and reads all of it.
func powerLook(f *rdmatest.Fabric, cat layout.Catalog, l *life) (map[uint64]state, error) {
	ctx := context.Background()
	db, err := txn.Open(ctx, l.onFabric(f, cat))
	if err != nil {
		return nil, err
	}
	found, err := readAll(ctx, db, l)
	if err != nil {
		return nil, err
	}
	return found, db.Close(ctx)
}

func walkFabric(f rdma.Fabric, cat layout.Catalog) error {
	l, err := layout.LoadLayout(cat)
	if err != nil {
		return err
	}
	db, err := verify.Attach(f, l)
	if err != nil {
		return err
	}
	return errors.Join(noFindings(db), db.Close())
}
