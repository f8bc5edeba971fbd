package txn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/txn"
	"txnode/verify"
)

// moody is a catalog that fails, and makes changes all the same, at once or later, or not.
type moody struct {
	catalog.Mem
	r    *rand.Rand
	down bool
	late []func()
}

func (m *moody) Load() ([]layout.Entry, layout.Revision, error) {
	m.arrive(4)
	if m.down && m.r.IntN(3) > 0 {
		return nil, 0, errDeaf
	}
	return m.Mem.Load()
}

func (m *moody) Revision() (layout.Revision, error) {
	_, rev, err := m.Load()
	return rev, err
}

func (m *moody) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	m.arrive(4)
	if !m.down {
		return m.Mem.Apply(rev, changes)
	}
	apply := func() { _, _ = m.Mem.Apply(rev, slices.Clone(changes)) }
	switch m.r.IntN(3) {
	case 0:
		apply()
	case 1:
		changes = slices.Clone(changes)
		m.late = append(m.late, apply)
	}
	return 0, errDeaf
}

// arrive makes one of a few of the changes that are late.
func (m *moody) arrive(oneIn int) {
	for len(m.late) > 0 && m.r.IntN(oneIn) == 0 {
		i := m.r.IntN(len(m.late))
		m.late[i]()
		m.late = slices.Delete(m.late, i, i+1)
	}
}

// byHand is a fabric on which a database does nothing by itself: one that a test leaves
// to itself is dead.
type byHand struct{ *inproc.Fabric }

func (f byHand) Caps() rdma.Caps {
	c := f.Fabric.Caps()
	c.RealTime = false
	return c
}

// doubtful is a database whose catalog fails now and then, and whose process dies, and what is
// known of what it holds.
type doubtful struct {
	t       *testing.T
	r       *rand.Rand
	cat     *moody
	f       *inproc.Fabric
	o       txn.Options
	db      *txn.DB
	tab     *txn.Table[uint64, []byte]
	workers []*txn.Worker
	open    *txn.Tx
	content map[uint64]string
	pending []*pendingTx
	stopped int // blade, -1: none
	n       uint64
	count   map[string]int
}

// pendingTx is a transaction of which nobody knows whether it is committed.
type pendingTx struct {
	id     uint64
	writes map[uint64]string // "": deleted
}

const doubtKeys = 16

func (d *doubtful) reopen() {
	d.t.Helper()
	d.db = reopen(d.t, d.o)
	tab, err := txn.CreateTable(d.db, "t", txn.Uint64, txn.Bytes())
	if err != nil {
		d.t.Fatal(err)
	}
	d.tab, d.workers, d.open = tab, nil, nil
}

// saw notes what a transaction that has committed has read.
func (d *doubtful) saw(read map[uint64]string) {
	d.t.Helper()
	d.pending = slices.DeleteFunc(d.pending, func(p *pendingTx) bool {
		yes, no := false, false
		for k, v := range p.writes {
			if have, ok := read[k]; ok {
				yes = yes || have == v
				no = no || have != v
			}
		}
		if yes && no {
			d.t.Fatalf("half of transaction %d: it wrote %v, and there is %v", p.id, p.writes, read)
		}
		if yes {
			for k, v := range p.writes {
				d.content[k] = v
			}
			d.count["found committed"]++
		}
		return yes || no
	})
	for k, v := range read {
		if d.content[k] != v {
			d.t.Fatalf("key %d has %.20q, not %.20q", k, v, d.content[k])
		}
	}
}

// transaction draws one, and returns what it has read and written.
func (d *doubtful) transaction(tx *txn.Tx) (read, wrote map[uint64]string, err error) {
	read, wrote = map[uint64]string{}, map[uint64]string{}
	for range 1 + d.r.IntN(3) {
		k := d.r.Uint64N(doubtKeys)
		if _, ok := read[k]; ok {
			continue
		}
		v, err := d.tab.Get(tx, k)
		if err != nil && !errors.Is(err, txn.ErrNotFound) {
			return nil, nil, err
		}
		read[k] = string(v)
		d.n++
		w := binary.LittleEndian.AppendUint64(nil, d.n)
		w = append(w, strings.Repeat("x", []int{0, 0, 8, 60, 200, 900, 9000}[d.r.IntN(7)])...)
		switch {
		case err == nil && d.r.IntN(4) == 0:
			err, w = d.tab.Delete(tx, k), nil
		case d.r.IntN(4) == 0:
			continue
		case err != nil && d.r.IntN(2) == 0:
			err = d.tab.Insert(tx, k, w)
		default:
			err = d.tab.Put(tx, k, w)
		}
		if err != nil {
			return nil, nil, err
		}
		wrote[k] = string(w)
	}
	return read, wrote, nil
}

// ended notes what has become of a transaction.
func (d *doubtful) ended(err error, id uint64, read, wrote map[uint64]string) {
	d.t.Helper()
	var u *occ.UnknownError
	switch {
	case err == nil:
		d.count["committed"]++
		d.saw(read)
		for k, v := range wrote {
			d.content[k] = v
		}
	case errors.As(err, &u):
		d.count["unknown"]++
		if uint64(u.Tx) != id {
			d.t.Fatalf("%v is about %d", err, id)
		}
		if len(wrote) > 0 {
			d.pending = append(d.pending, &pendingTx{id, wrote})
		}
	case errors.Is(err, txn.ErrCorrupt), errors.Is(err, txn.ErrLost):
		d.t.Fatal(err)
	default:
		d.count["failed"]++
		if !d.cat.down && !errors.Is(err, txn.ErrConflict) && d.stopped < 0 {
			d.t.Fatalf("the catalog answers, and so do all blades: %v", err)
		}
	}
}

func (d *doubtful) update(run func(context.Context, func(*txn.Tx) error) error) {
	d.t.Helper()
	var read, wrote map[uint64]string
	var id uint64
	err := run(d.t.Context(), func(tx *txn.Tx) (err error) {
		id = tx.ID()
		read, wrote, err = d.transaction(tx)
		return err
	})
	d.ended(err, id, read, wrote)
}

// step does something.
func (d *doubtful) step() {
	d.t.Helper()
	switch n := d.r.IntN(40); {
	case n < 14:
		d.update(d.db.Update)
	case n < 22 && len(d.workers) > 0:
		d.update(d.workers[d.r.IntN(len(d.workers))].Update)
	case n < 24 && len(d.workers) < 4:
		if w, err := d.db.NewWorker(); err == nil {
			d.workers = append(d.workers, w)
		}
	case n < 25 && len(d.workers) > 0:
		i := d.r.IntN(len(d.workers))
		_ = d.workers[i].Close()
		d.workers = slices.Delete(d.workers, i, i+1)
	case n < 29 && len(d.workers) > 0:
		_ = d.workers[d.r.IntN(len(d.workers))].Maintain()
	case n < 31 && d.open == nil:
		if tx, err := d.db.Begin(d.t.Context(), false); err == nil {
			d.open = tx
		}
	case n < 34 && d.open != nil:
		id := d.open.ID()
		read, wrote, err := d.transaction(d.open)
		if err == nil {
			err = d.open.Commit()
		} else {
			_ = d.open.Rollback()
		}
		d.ended(err, id, read, wrote)
		d.open = nil
	case n < 35:
		_, _ = txn.CreateTable(d.db, fmt.Sprint("t", d.r.IntN(6)), txn.Uint64, txn.Bytes())
	case n < 38:
		d.cat.down = !d.cat.down
	case n < 39 && d.stopped < 0:
		if r := d.db.Redundancy(); r.Missing == 0 && len(r.Down) == 0 {
			d.stopped = d.r.IntN(3)
			d.count["blade stopped"]++
			if err := d.f.StopBlade(rdma.BladeID(d.stopped)); err != nil {
				d.t.Fatal(err)
			}
		}
	case n < 40 && d.stopped >= 0:
		if slices.Contains(d.db.Redundancy().Down, rdma.BladeID(d.stopped)) && !d.cat.down {
			d.count["blade back"]++
			if err := d.f.RestartBlade(rdma.BladeID(d.stopped), d.r.IntN(2) == 0); err != nil {
				d.t.Fatal(err)
			}
			d.stopped = -1
		}
	}
}

// crash ends the process in the middle of what it does, and opens the database again.
func (d *doubtful) crash() {
	d.t.Helper()
	if d.stopped >= 0 {
		if err := d.f.RestartBlade(rdma.BladeID(d.stopped), true); err != nil {
			d.t.Fatal(err)
		}
		d.stopped = -1
	}
	if d.r.IntN(2) == 0 {
		d.cat.arrive(1)
	}
	d.cat.late, d.cat.down = nil, false
	d.count["crashes"]++
	d.reopen()
	asked := slices.Clone(d.pending)
	outcomes := map[uint64]txn.Outcome{}
	for _, p := range asked {
		o, err := d.db.Outcome(d.t.Context(), p.id)
		if err != nil && !errors.Is(err, txn.ErrNoOutcome) {
			d.t.Fatal(err)
		}
		outcomes[p.id] = o
	}
	read := map[uint64]string{}
	if err := d.db.View(d.t.Context(), func(tx *txn.Tx) error {
		for k := range uint64(doubtKeys) {
			v, err := d.tab.Get(tx, k)
			if err != nil && !errors.Is(err, txn.ErrNotFound) {
				return err
			}
			read[k] = string(v)
		}
		return nil
	}); err != nil {
		d.t.Fatal(err)
	}
	for _, p := range asked {
		for k, v := range p.writes {
			if o := outcomes[p.id]; slices.Contains(d.pending, p) &&
				(o == txn.Committed && read[k] != v && !d.later(p, k) || o == txn.Aborted && read[k] == v && v != "") {
				d.t.Fatalf("transaction %d: %v, and key %d has %.20q; it wrote %.20q", p.id, o, k, read[k], v)
			}
		}
	}
	d.saw(read)
}

// later reports whether another one that is pending has written a key, too.
func (d *doubtful) later(p *pendingTx, k uint64) bool {
	return slices.ContainsFunc(d.pending, func(x *pendingTx) bool { _, ok := x.writes[k]; return x != p && ok })
}

// whole demands that nothing is damaged.
func (d *doubtful) whole() {
	d.t.Helper()
	v, err := verify.Attach(d.f, d.db.Space().Layout())
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := v.Check(d.t.Context(),
		verify.Options{Report: func(f verify.Finding) error { d.t.Errorf("%v", f); return nil }}); err != nil {
		d.t.Fatal(err)
	}
	if err := v.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// TestCrashInDoubt: the catalog fails now and then, and says so of changes that it makes, at once
// or later; blades stop and come back; and the process dies, perhaps while nobody knows what the
// catalog says. What was acknowledged is there when the database is opened again, all of each
// transaction or nothing, and nothing is damaged.
func TestCrashInDoubt(t *testing.T) {
	raced.Skip(t)
	seeds := uint64(30)
	if testing.Short() {
		seeds = 10
	}
	count := map[string]int{}
	for seed := range seeds {
		p := txn.PolicyDefault
		if seed%2 == 1 {
			p = txn.PolicyFORD
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var blades []inproc.BladeOptions
			for range 3 {
				blades = append(blades, inproc.BladeOptions{Size: 32 << 20})
			}
			f, err := inproc.New(inproc.Options{Seed: seed, Blades: blades})
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(seed, 77))
			d := &doubtful{
				t: t, r: r, cat: &moody{r: r}, f: f, o: onFabric(byHand{f}, p), content: map[uint64]string{},
				stopped: -1, count: count,
			}
			d.o.Catalog, d.o.Workers, d.o.ReclaimAfter = d.cat, 2, 2
			d.reopen()
			for range 6 {
				for range 20 + r.IntN(150) {
					d.step()
				}
				d.crash()
			}
			if err := d.db.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			d.whole()
		})
	}
	t.Logf("%v", count)
}
