package seeds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/txn"
)

// In some runs with several processes a table beside that of the workload comes and goes, and so
// does an index of it: each process has a body that makes and drops them, one after the other, while
// the clients of all processes write and read the table. Clients stay in a transaction for a while,
// so that a change meets some. Whatever happens:
//
//	a table that no call has begun to drop is there, with the rows that were acknowledged, and no
//	others
//	nothing that begins after a table was dropped, or an index built, commits without knowing
//	an index that is built has an entry for each row, and no others

// sideName is the name of that table, whichever it is at a time.
const sideName = "side"

// side is a process's handle of the table.
type side struct {
	t     *rows
	id    uint16
	group *byNumber // nil: it was opened without an index
	stale bool      // the table was dropped since, or has other indexes: it is to be opened anew
}

// sides is what is known of all tables of that name, by their numbers, whatever processes know.
type sides struct {
	next    uint64 // key of a row
	rows    map[uint16]map[uint64]uint64
	keys    map[uint16][]uint64 // those of rows, in the order in which their commits were told
	begun   map[uint16]bool     // a call has begun that may drop it
	calls   int                 // such calls under way
	dropped map[uint16]bool     // such a call has returned nil
	kept    map[uint16]bool     // its index is built, and no call has begun to drop that
	removal int                 // calls that drop an index
}

func newSides() sides {
	return sides{
		rows: map[uint16]map[uint64]uint64{}, keys: map[uint16][]uint64{},
		begun: map[uint16]bool{}, dropped: map[uint16]bool{}, kept: map[uint16]bool{},
	}
}

// drawChanges decides whether there are changes, by a stream of its own: seeds without any stay as
// they are.
func (p *plan) drawChanges() {
	r := rng(p.seed ^ 0xd209)
	p.changes = r.chance(35) && p.processes > 1 && p.work.order != ownTables
}

// sideGroups is how many groups its rows are in.
const sideGroups = 3

// sideIndex defines its index.
func sideIndex() *byNumber {
	return txn.NewIndex("group", txn.Uint64, func(_ uint64, p []byte) []uint64 {
		return []uint64{groupOf(p)}
	})
}

// outdated reports whether err says that a handle is to be opened anew.
func outdated(err error) bool {
	return errors.Is(err, txn.ErrDropped) || errors.Is(err, txn.ErrNoTable) || errors.Is(err, txn.ErrIndexes)
}

// aside has a client use the table, if its process has it open.
func (c *client) aside() error {
	s := c.side
	if s == nil || s.stale || !c.asides.chance(40) {
		return nil
	}
	use := c.writeSide
	if s.group != nil && len(c.sides.keys[s.id]) > 0 && c.asides.chance(40) {
		use = c.readSide
	}
	err := use(s)
	if outdated(err) {
		s.stale = true
		return nil
	}
	if errors.Is(err, txn.ErrBuilding) {
		return nil
	}
	return err
}

// writeSide inserts a row.
func (c *client) writeSide(s *side) error {
	k, group := c.sides.next, c.asides.n(sideGroups)
	pause := c.asides.n(200_000) // nanoseconds
	if c.asides.chance(15) {     // a change has several steps meanwhile
		pause *= 50
	}
	c.sides.next++
	late, bare := false, false
	err := c.update(func(tx *txn.Tx) error {
		late, bare = c.sides.dropped[s.id], c.sides.kept[s.id] && s.group == nil
		if _, _, err := s.t.Lookup(tx, k); err != nil {
			return err
		}
		c.w.Sleep(int64(pause)) // small
		return s.t.Insert(tx, k, secondaryRow(group, 0, 0))
	}, func() {
		if c.sides.rows[s.id] == nil {
			c.sides.rows[s.id] = map[uint64]uint64{}
		}
		c.sides.rows[s.id][k] = group
		c.sides.keys[s.id] = append(c.sides.keys[s.id], k)
	})
	switch {
	case err != nil:
		return err
	case late:
		return fmt.Errorf("process %d has committed row %d to table %d, which was dropped before that began",
			c.slot+1, k, s.id)
	case bare && c.sides.kept[s.id]:
		return fmt.Errorf("process %d has committed row %d to table %d without its index, which was built before",
			c.slot+1, k, s.id)
	}
	return nil
}

// readSide compares what the index has of a group with the rows, and looks for a row
// that was acknowledged.
func (c *client) readSide(s *side) error {
	list := c.sides.keys[s.id]
	k := list[c.asides.n(uint64(len(list)))]
	group := c.sides.rows[s.id][k]
	var wrong error
	err := c.view(func(tx *txn.Tx) error {
		wrong = nil
		all := step{from: txn.Including(group), to: txn.Excluding(group + 1), lo: group, hi: group + 1}
		got, err := entries(tx, s.group, all)
		if err != nil {
			return err
		}
		if !slices.Contains(got, [2]uint64{group, k}) {
			wrong = fmt.Errorf("the index of table %d has no entry for row %d of group %d, which was acknowledged",
				s.id, k, group)
		}
		for _, x := range got {
			p, found, err := s.t.Lookup(tx, x[1])
			if err != nil {
				return err
			}
			if !found || groupOf(p) != group {
				wrong = fmt.Errorf("the index of table %d leads to row %d in group %d: %v, %x",
					s.id, x[1], group, found, p)
			}
		}
		return nil
	})
	if err == nil {
		err = wrong
	}
	return err
}

// patience is a context that ends at a time of the virtual clock.
type patience struct {
	context.Context //nolint:containedctx // it is one
	now             func() int64
	end             int64
}

var errImpatient = errors.New("a change that all processes must know takes too long")

// Err says whether it has ended.
func (p patience) Err() error {
	if p.now() > p.end {
		return errImpatient
	}
	return nil
}

// changeNs is how long a change may take, where nothing is in the way.
const changeNs = 2_000_000_000

// patient is the context of a change.
func (b *bench) patient() patience {
	return patience{context.Background(), b.world.fabric.Now, b.world.fabric.Now() + changeNs}
}

// change is the body of a process that changes the table, from when the process has opened the
// database until it closes it. One that stays goes on seeing to what others wait for, as its
// workers would.
func (m *member) change(k int, keeper *member) {
	gate, err := m.open(k)
	if err != nil {
		m.err = errors.Join(m.err, err)
		return
	}
	m.tending++
	defer func() { m.tending-- }() // also when the process is killed
	over := func() bool {
		others := slices.ContainsFunc(m.b.members, func(o *member) bool { return o != m && !o.over })
		return m.over && !m.finished || m.settled && (m != keeper || !others)
	}
	m.wait(gate, func() bool { return m.ready || over() })
	r := rng(m.b.seed ^ 0xa17e5 ^ uint64(m.slot)<<32 ^ uint64(m.b.round)<<48)   // small
	soon := func() int64 { return gate.Now() + int64(r.n(uint64(m.b.span()))) } // small
	var idle *txn.Worker
	for left, next := 1+r.n(6), soon(); err == nil && !over(); {
		gate.Wait(gate.Now() + gateMaxNs)
		switch {
		case !m.settled && left > 0 && gate.Now() >= next:
			err = m.b.changed(m.process, &r)
			left, next = left-1, soon()
		case !m.settled: // workers do what others wait for
		case idle == nil:
			idle, err = m.db.NewWorker()
		default:
			err = idle.Maintain()
		}
		if m.b.forgiven(err) { // it is tried again
			err = nil
		}
	}
	if idle != nil {
		if e := idle.Close(); m.b.faults == nil { // else its coordinator may be others' to recover
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		m.err = errors.Join(m.err, fmt.Errorf("process %d, changing tables: %w", m.slot+1, err))
	}
	m.err = errors.Join(m.err, gate.Close())
}

// changed makes a change. What another process has changed meanwhile is no error, and with faults
// it is none that others have taken the process for dead, or that the change is not over yet.
func (b *bench) changed(q *process, r *rng) error {
	err := b.makeChange(q, r)
	switch {
	case err == nil, outdated(err), errors.Is(err, txn.ErrBuilding):
		return nil
	case errors.Is(err, txn.ErrNoWorker): // another body of the process has that of the pool
		return nil
	case b.faults != nil && (errors.Is(err, memory.ErrEnded) || errors.Is(err, errImpatient)):
		return nil
	}
	return err
}

func (b *bench) makeChange(q *process, r *rng) error {
	s, x := q.side, r.n(5)
	switch {
	case s == nil || s.stale:
		return b.openSide(q)
	case x <= 1:
		return b.dropSide(q)
	case s.group == nil:
		return b.indexSide(q)
	case x == 2:
		sum, err := s.t.CheckIndexes(b.patient(), txn.IndexCheckOptions{})
		if err == nil && sum.Faults > 0 {
			return fmt.Errorf("the index of table %d has %d faults", s.id, sum.Faults)
		}
		return err
	}
	clear(b.sides.kept)
	b.sides.removal++
	s.stale = true
	return q.db.DropIndex(b.patient(), sideName, "group")
}

// openSide opens the table with its index, or without if there is none, or makes it.
func (b *bench) openSide(q *process) error {
	x := sideIndex()
	t, err := txn.OpenTable(q.db, sideName, txn.Uint64, txn.Bytes(), x)
	if errors.Is(err, txn.ErrNoTable) {
		x = nil
		t, err = txn.CreateTable(q.db, sideName, txn.Uint64, txn.Bytes())
	}
	return b.opens(q, t, x, err)
}

// opens notes a handle that a process has opened.
func (b *bench) opens(q *process, t *rows, x *byNumber, err error) error {
	if err != nil {
		return err
	}
	q.side = &side{t: t, group: x, id: sideOf(q.db.Space().Layout())}
	q.side.stale = q.side.id == 0 // another process has dropped it meanwhile
	b.sides.begun[q.side.id] = b.sides.begun[q.side.id] || b.sides.calls > 0
	return nil
}

// sideOf is the number of the table, 0: there is none.
func sideOf(l *layout.Layout) uint16 {
	for i := range l.Tables {
		if t := &l.Tables[i]; t.Name == sideName && t.State == layout.TableLive {
			return t.ID
		}
	}
	return 0
}

// sideNow is the number of the table as the catalog has it.
func (b *bench) sideNow() (uint16, error) {
	l, _, err := layout.Load(&b.world.catalog)
	if err != nil {
		return 0, err
	}
	return sideOf(l), nil
}

// indexSide gives the table an index beside those who use it.
func (b *bench) indexSide(q *process) error {
	x, removal := sideIndex(), b.sides.removal
	t, err := txn.CreateTable(q.db, sideName, txn.Uint64, txn.Bytes(), x)
	if err := b.opens(q, t, x, err); err != nil {
		return err
	}
	s := q.side
	if err := x.Build(b.patient(), nil); err != nil {
		return err
	}
	if b.sides.removal == removal {
		b.sides.kept[s.id] = true
	}
	b.cov.Indexed++
	return nil
}

// dropSide drops the table beside those who use it.
func (b *bench) dropSide(q *process) error {
	was, err := b.sideNow()
	if err != nil {
		return err
	}
	b.sides.begun[was] = true
	q.side.stale = true
	b.sides.calls++
	err = func() error {
		defer func() { b.sides.calls-- }() // also when the process is killed
		return q.db.DropTable(b.patient(), sideName)
	}()
	now, e := b.sideNow()
	if e != nil {
		return e
	}
	if err == nil && was != 0 && was != now {
		b.sides.dropped[was] = true
		b.cov.Dropped++
	}
	return err
}

// wholeSide compares the table with what was acknowledged, when nothing else runs, and drops it.
func (b *bench) wholeSide() error {
	if !b.changes {
		return nil
	}
	id, err := b.sideNow()
	if err != nil {
		return err
	}
	for other := range b.sides.rows {
		if other != id && !b.sides.begun[other] {
			return fmt.Errorf("table %d is gone, which no process has begun to drop", other)
		}
	}
	if id != 0 {
		if err := b.openSide(b.process); err != nil {
			return fmt.Errorf("opening table %d at the end: %w", id, err)
		}
		if err := b.sameSide(b.side); err != nil {
			return err
		}
	}
	if err := b.db.DropTable(b.patient(), sideName); err != nil && !errors.Is(err, txn.ErrNoTable) {
		return fmt.Errorf("dropping table %d at the end: %w", id, err)
	}
	l, _, err := layout.Load(&b.world.catalog)
	if err != nil {
		return err
	}
	for i := range l.Tables {
		if t := &l.Tables[i]; t.State == layout.TableDropping {
			return fmt.Errorf("table %d, %q, is being dropped still when that was done", t.ID, t.Name)
		}
	}
	return nil
}

// sameSide compares the rows of the table, and its index, with what was acknowledged.
func (b *bench) sameSide(s *side) error {
	want := b.sides.rows[s.id]
	if s.group != nil {
		if err := s.group.Build(b.patient(), nil); err != nil {
			return fmt.Errorf("building the index of table %d at the end: %w", s.id, err)
		}
	}
	return b.quiet(func(tx *txn.Tx) error {
		var has [][2]uint64
		for k := range b.sides.next {
			p, found, err := s.t.Lookup(tx, k)
			if err != nil {
				return err
			}
			if group, told := want[k]; found != told || found && groupOf(p) != group {
				return fmt.Errorf("row %d of table %d is there: %v, %x; it was acknowledged: %v, in group %d",
					k, s.id, found, p, told, group)
			}
			if found {
				has = append(has, [2]uint64{groupOf(p), k})
			}
		}
		if s.group == nil {
			return nil
		}
		all := step{lo: 0, hi: sideGroups}
		got, err := entries(tx, s.group, all)
		if err != nil {
			return err
		}
		return equalEntries(got, has, all)
	})
}
