package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/tcp"
	"txnode/txn"
	"txnode/verify"
)

// parted is a database of four blades or more that two processes have open. far reaches the
// blades through relays.
type parted struct {
	*bed
	ctx       context.Context
	relays    []*relay
	names     []string
	relayed   []string
	near, far *txn.DB
	nearTable *txn.Table[uint64, uint64]
	farTable  *txn.Table[uint64, uint64]
	farOpts   txn.Options
	cut       *relay
	blade     rdma.BladeID
}

// manyGroups are so many that the index of a table has one sub-table.
const manyGroups = 256

// patience is how long far waits for an answer of a blade.
const patience = 100 * time.Millisecond

// newParted opens it, with f backups on f+3 blades, and puts keys into a table so that its records
// are on all blades. groups is the size of the sub-tables of its index.
func newParted(t *testing.T, keys uint64, groups uint32, f int) *parted {
	p := &parted{bed: newBed(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	p.ctx = ctx
	p.catalogFile("c")()
	var sizes [][]uint64
	for i := range f + 3 {
		name := fmt.Sprintf("b%d", i)
		p.names, sizes = append(p.names, name), append(sizes, []uint64{size})
		p.blades([]uint64{size}, name)
		p.relays = append(p.relays, p.relay("r"+name, name))
		p.relayed = append(p.relayed, p.address("r"+name))
	}
	if err := cluster.Init(ctx, p.client("c"), p.list(p.names...), cluster.Geometry{
		Backups: &f, SegmentSize: 256 << 10, LogArea: 64 << 10,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	o := txn.Options{LeaseTerm: 2 * time.Second, Workers: 1, IndexGroups: groups}
	var err error
	if p.near, err = cluster.Open(ctx, p.address("c"), o, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	if p.nearTable, err = txn.CreateTable(p.near, "numbers", txn.Uint64, txn.Plain[uint64]()); err != nil {
		t.Fatal(err)
	}
	for k := range keys {
		if err := p.near.Update(ctx, func(tx *txn.Tx) error { return p.nearTable.Put(tx, k, 0) }); err != nil {
			t.Fatal(err)
		}
	}
	p.farOpts = o
	p.farOpts.Workers, p.farOpts.Catalog, p.farOpts.Shared = 2, p.client("c"), true
	if p.farOpts.Fabric, err = tcp.Dial(ctx, p.relayed, tcp.Options{
		Connect: patience, Control: patience, Verb: patience, Absent: sizes,
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// open opens far.
func (p *parted) open() {
	p.t.Helper()
	var err error
	if p.far, err = txn.Open(p.ctx, p.farOpts); err != nil {
		p.t.Fatal(err)
	}
	if p.farTable, err = txn.OpenTable(p.far, "numbers", txn.Uint64, txn.Plain[uint64]()); err != nil {
		p.t.Fatal(err)
	}
}

// part cuts far off a blade. heal undoes that.
func (p *parted) part(blade int) (heal func()) {
	p.cut, p.blade = p.relays[blade], rdma.BladeID(blade) // one of a few
	p.cut.mu.Lock()
	heal = sync.OnceFunc(p.cut.mu.Unlock)
	p.t.Cleanup(heal)
	return heal
}

// add adds one to a number in far.
func (p *parted) add(key uint64) error {
	return p.far.Update(p.ctx, func(tx *txn.Tx) error {
		v, err := p.farTable.Get(tx, key)
		if err != nil {
			return err
		}
		return p.farTable.Put(tx, key, v+1)
	})
}

// needs says what an error is because of the blade that far is cut off.
func (p *parted) needs(err error) bool {
	p.t.Helper()
	if err == nil {
		return false
	}
	var x *memory.CutOffError
	if !errors.Is(err, txn.ErrCutOff) || !errors.As(err, &x) || !slices.Equal(x.Blades, []rdma.BladeID{p.blade}) {
		p.t.Fatalf("cut off blade %d: %v", p.blade, err)
	}
	return true
}

// leave closes far.
func (p *parted) leave() {
	p.t.Helper()
	if err := errors.Join(p.far.Close(p.ctx), p.farOpts.Catalog.Close(), p.farOpts.Fabric.Close()); err != nil {
		p.t.Error(err)
	}
}

// close closes near, and checks what is on the blades.
func (p *parted) close() {
	p.t.Helper()
	if err := p.near.Close(p.ctx); err != nil {
		p.t.Error(err)
	}
	var direct []string
	for _, name := range p.names {
		direct = append(direct, p.address(name))
	}
	f, err := tcp.Dial(p.ctx, direct, tcp.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	cat := p.client("c")
	defer cat.Close()
	l, err := layout.LoadLayout(cat)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(l.Coordinators) > 0 {
		p.t.Errorf("coordinators are left: %+v", l.Coordinators)
	}
	d, err := verify.Attach(f, l)
	if err != nil {
		p.t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Check(p.ctx, verify.Options{Indexes: txn.CatalogIndexes, Report: func(x verify.Finding) error {
		p.t.Errorf("%+v", x)
		return nil
	}}); err != nil {
		p.t.Error(err)
	}
}

// TestGoesOn: a process is cut off one blade that another one hears. Its transactions that do not
// need the blade go on, and the other process sees what they commit; those that need it fail and
// name it. New workers join meanwhile. When the process reaches the blade again all go on, and
// nothing is left behind: no lock, no coordinator, no damage, and no blade was declared dead.
func TestGoesOn(t *testing.T) {
	for _, x := range []struct{ blade, f int }{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {0, 2}, {3, 2}} {
		t.Run(fmt.Sprintf("blade %d, f=%d", x.blade, x.f), func(t *testing.T) { goesOn(t, x.blade, x.f) })
	}
}

func goesOn(t *testing.T, blade, f int) {
	const keys = 400
	p := newParted(t, keys, manyGroups, f)
	p.open()
	added := make([]uint64, keys)
	for k := range uint64(keys) { // it knows where all of them are
		if err := p.add(k); err != nil {
			t.Fatal(err)
		}
		added[k]++
	}
	heal := p.part(blade)
	commits, refused := 0, 0
	round := func() {
		for k := range uint64(keys) {
			switch err := p.add(k); {
			case p.needs(err):
				refused++
			default:
				added[k]++
				commits++
			}
		}
	}
	round()
	round()
	if commits == 0 || refused == 0 {
		t.Errorf("cut off blade %d: %d transactions have gone on, %d were refused", blade, commits, refused)
	}
	w, err := p.far.NewWorker() // besides those of the pool
	if err != nil {
		t.Fatalf("a new worker of a process that is cut off: %v", err)
	}
	for k := range uint64(keys) {
		if err := w.Update(p.ctx, func(tx *txn.Tx) error { return p.farTable.Put(tx, k, added[k]) }); !p.needs(err) {
			commits++
		}
	}
	look := func(what string) {
		t.Helper()
		for k := range uint64(keys) {
			var v uint64
			if err := p.near.View(p.ctx, func(tx *txn.Tx) (err error) {
				v, err = p.nearTable.Get(tx, k)
				return err
			}); err != nil || v != added[k] {
				t.Fatalf("%s: key %d is %d, and not %d: %v", what, k, v, added[k], err)
			}
		}
	}
	look("while the other process is cut off")
	for k := range uint64(keys) { // nor is anything of it in the way
		if err := p.near.Update(p.ctx, func(tx *txn.Tx) error { return p.nearTable.Put(tx, k, added[k]) }); err != nil {
			t.Fatal(err)
		}
	}
	heal()
	for k := range uint64(keys) {
		for {
			err := p.add(k)
			if !p.needs(err) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		added[k]++
	}
	look("afterwards")
	for _, db := range []*txn.DB{p.near, p.far} {
		if r := db.Redundancy(); r.Lost > 0 || len(r.Down) > 0 || r.Missing > 0 || len(r.Outages) > 0 {
			t.Errorf("a blade was declared dead: %+v", r)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	p.leave()
	p.close()
}

// aside is a blade that no lookup in an index needs, or, with changes, no change either, and where
// records are, but not all.
func (p *parted) aside(changes bool) int {
	p.t.Helper()
	l := p.near.Space().Layout()
	for b := range rdma.BladeID(len(p.names)) { // four
		some, others, leads := false, false, false
		for i := 1; i < len(l.Segments); i++ {
			switch g := &l.Segments[i]; {
			case g.Placement.N == 0:
			case g.Kind == layout.KindIndex:
				leads = leads || g.Placement.Replicas[0].Blade == b || changes && g.Placement.On(b)
			case g.Kind == layout.KindBlocks:
				some, others = some || g.Placement.On(b), others || !g.Placement.On(b)
			}
		}
		if some && others && !leads {
			return int(b)
		}
	}
	p.t.Fatalf("no blade is aside: %+v", l.Segments)
	return 0
}

// TestOpensCutOff: a process is cut off one blade that others hear, and opens the database beside
// another process, works, and closes it. Nothing of it is left.
func TestOpensCutOff(t *testing.T) {
	const keys = 400
	p := newParted(t, keys, manyGroups, 1)
	heal := p.part(p.aside(false))
	p.open()
	began := p.near.Space().Layout().NextCoordinator
	commits, refused := 0, 0
	for k := range uint64(keys) {
		if p.needs(p.add(k)) {
			refused++
		} else {
			commits++
		}
	}
	if commits == 0 || refused == 0 {
		t.Errorf("%d transactions have gone on, %d were refused", commits, refused)
	}
	if n := p.near.Space().Layout().NextCoordinator - began; n > 4 {
		t.Errorf("%d coordinators were made for %d transactions that were refused", n, refused)
	}
	p.leave()
	sum := 0
	for k := range uint64(keys) {
		if err := p.near.Update(p.ctx, func(tx *txn.Tx) error {
			v, err := p.nearTable.Get(tx, k)
			if err != nil {
				return err
			}
			sum += int(v) // 1 at most
			return p.nearTable.Put(tx, k, v)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if sum != commits {
		t.Errorf("%d transactions were acknowledged, and %d have taken effect", commits, sum)
	}
	heal()
	p.close()
}

// TestInsertsCutOff: a process that is cut off one blade inserts records where it reaches their
// blades, and deletes them. What it cannot insert is not there. It begins no split of a sub-table:
// see TestNoSplitCutOff of index/race.
func TestInsertsCutOff(t *testing.T) {
	t.Run("one sub-table", func(t *testing.T) { insertsCutOff(t, manyGroups) })
	t.Run("splits", func(t *testing.T) { insertsCutOff(t, 16) })
}

func insertsCutOff(t *testing.T, groups uint32) {
	const keys = 400
	p := newParted(t, keys, groups, 1)
	p.open()
	blade := 0
	if groups == manyGroups {
		blade = p.aside(true)
	}
	heal := p.part(blade)
	there := map[uint64]bool{}
	inserted := 0
	for k := uint64(keys); k < 2*keys; k++ {
		err := p.far.Update(p.ctx, func(tx *txn.Tx) error { return p.farTable.Put(tx, k, k) })
		if there[k] = !p.needs(err); there[k] {
			inserted++
		}
	}
	if inserted == 0 && groups == manyGroups {
		t.Error("nothing was inserted")
	}
	for k := uint64(keys); k < 2*keys; k += 2 {
		if !there[k] {
			continue
		}
		if err := p.far.Update(p.ctx, func(tx *txn.Tx) error { return p.farTable.Delete(tx, k) }); !p.needs(err) {
			there[k] = false
		}
	}
	for k := uint64(keys); k < 2*keys; k++ {
		err := p.near.View(p.ctx, func(tx *txn.Tx) error {
			_, err := p.nearTable.Get(tx, k)
			return err
		})
		if there[k] != (err == nil) || err != nil && !errors.Is(err, txn.ErrNotFound) {
			t.Fatalf("key %d is there: %v; %v", k, there[k], err)
		}
	}
	heal()
	p.leave()
	p.close()
}

// TestOrderedCutOff: TestInsertsCutOff of an ordered table, whose nodes are changed by the
// transactions: none is half changed.
func TestOrderedCutOff(t *testing.T) {
	const keys = 600
	p := newParted(t, 1, manyGroups, 1)
	p.open()
	nearTable, err := txn.CreateOrderedTable(p.near, "ordered", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	there := map[uint64]bool{}
	for k := uint64(0); k < keys; k += 2 {
		if err := p.near.Update(p.ctx, func(tx *txn.Tx) error { return nearTable.Put(tx, k, k) }); err != nil {
			t.Fatal(err)
		}
		there[k] = true
	}
	farTable, err := txn.OpenOrderedTable(p.far, "ordered", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	for blade := range p.names {
		heal := p.part(blade)
		for k := range uint64(keys) {
			is := k%3 > 0
			err := p.far.Update(p.ctx, func(tx *txn.Tx) error {
				if is {
					return farTable.Put(tx, k, k)
				}
				if err := farTable.Delete(tx, k); !errors.Is(err, txn.ErrNotFound) {
					return err
				}
				return nil
			})
			if !p.needs(err) {
				there[k] = is
			}
		}
		seen := map[uint64]bool{}
		if err := p.near.View(p.ctx, func(tx *txn.Tx) error {
			clear(seen)
			for k := range nearTable.All(tx) {
				seen[k] = true
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for k := range uint64(keys) {
			if seen[k] != there[k] {
				t.Fatalf("cut off blade %d: key %d is there: %v, and not %v", blade, k, seen[k], there[k])
			}
		}
		heal()
		for p.far.Space().IsCutOff() {
			time.Sleep(time.Millisecond)
		}
	}
	p.leave()
	p.close()
}
