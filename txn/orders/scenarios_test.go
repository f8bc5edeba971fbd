package orders

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma"
	"txnode/txn"
)

// scenario is what two processes do at once.
type scenario struct {
	name    string
	kind    kind
	before  func(w *world) error // when the processes have opened the database, alone
	do      [2][]func(p *process) error
	watches int
	may     []error // that steps may end with
	judge   func(w *world) error
	small   bool // its schedules can be counted
}

// The key that a database has in its beginning, and its value.
const loaded, initial = 1, 100

// withTable makes the table t.
func withTable(_ *world, db *txn.DB) error {
	t, err := txn.CreateTable(db, "t", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		return err
	}
	return db.Update(context.Background(), func(tx *txn.Tx) error { return t.Put(tx, loaded, initial) })
}

var two = kind{blades: 2, open: true, make: withTable}

// busy: the other process has a record for longer than it is tried.
var busy = []error{txn.ErrConflict}

func scenarios() []scenario {
	closed := two
	closed.open = false
	blank := kind{blades: 2, blank: true}
	three := two
	three.blades, three.acknowledges = 3, true
	cut := two
	cut.remote = true
	both := func(steps ...func(p *process) error) [2][]func(p *process) error {
		return [2][]func(p *process) error{steps, steps}
	}
	return []scenario{
		{name: "create", kind: blank, do: both(opens), judge: joined},
		{name: "join", kind: closed, do: both(opens), judge: joined},
		{name: "join-one", kind: closed, do: [2][]func(p *process) error{{opens, closes}, {opens}}},
		{name: "add", small: true, kind: two, do: both(allocates(4)), judge: owners},
		{name: "adopt", small: true, kind: two, before: leaves, do: both(allocates(4)), judge: owners},
		{name: "close-adopt", kind: two, before: owns, do: [2][]func(p *process) error{
			{closes}, {follows, takesOver, allocates(5), follows, takesOver, allocates(5)},
		}, judge: owners},
		{
			name: "table", kind: two, do: [2][]func(p *process) error{{creates("u", 7)}, {creates("u", 8)}},
			judge: tables,
		},
		{name: "table-watch", kind: two, watches: 2, do: [2][]func(p *process) error{
			{creates("u", 7)}, {creates("u", 8)},
		}, judge: tables},
		{
			name: "adopt-watch", kind: two, watches: 1, before: leaves, do: both(allocates(4), follows, allocates(4)),
			judge: owners,
		},
		{name: "take-over", kind: two, do: [2][]func(p *process) error{
			{declares}, {puts(loaded, 101), puts(loaded, 102)},
		}},
		{name: "take-over-watch", kind: two, watches: 2, do: [2][]func(p *process) error{
			{declares}, {puts(loaded, 101), puts(2, 102)},
		}},
		{name: "take-over-alloc", kind: two, before: owns, do: [2][]func(p *process) error{
			{declares, allocates(5)}, {allocates(5), allocates(5)},
		}, judge: owners},
		{name: "commit-dead-blade", kind: three, do: [2][]func(p *process) error{
			{cutOff(1), puts(2, 201)}, {puts(loaded, 101)},
		}},
		{name: "count-dead-blade", kind: three, do: [2][]func(p *process) error{{cutOff(0), adds}, {adds}}, may: busy},
		{
			name: "count-declared", kind: two, watches: 1,
			do:  [2][]func(p *process) error{{declares, adds}, {adds, adds}},
			may: busy,
		},
		{name: "both-dead-blade", kind: three, before: stops(1), do: [2][]func(p *process) error{
			{puts(2, 201)}, {puts(loaded, 101)},
		}},
		{name: "cut-off-heard", kind: cut, before: watched, do: [2][]func(p *process) error{
			{cutOff(1), puts(2, 201)}, {puts(loaded, 101)},
		},
			may: []error{txn.ErrCutOff, txn.ErrConflict, txn.ErrBroken}, judge: allUp},
		{name: "drain", kind: three, do: [2][]func(p *process) error{{drains(1)}, {allocates(4), puts(2, 201)}}},
	}
}

// joined: both have it open, under numbers of their own.
func joined(w *world) error {
	l, err := w.layout()
	if err != nil {
		return err
	}
	if a, b := w.procs[0].db.Space().Process(), w.procs[1].db.Space().Process(); len(l.Processes) != 2 || a == b {
		return fmt.Errorf("processes %v, of which the two are %d and %d", l.Processes, a, b)
	}
	return nil
}

// owners: a block is of the process that it was handed out to.
func owners(w *world) error {
	l, err := w.layout()
	if err != nil {
		return err
	}
	for _, p := range w.procs {
		for _, h := range p.got {
			a := h.addr
			if g := l.Segments[a.Segment()]; h.epoch >= p.since && p.db != nil && g.Owner != p.db.Space().Process() {
				return fmt.Errorf("process %d was handed out %v, of a segment whose owner is %d",
					p.db.Space().Process(), a, g.Owner)
			}
		}
	}
	return nil
}

func allocates(class layout.Class) func(p *process) error {
	return func(p *process) error {
		a, err := p.allocator()
		if err != nil {
			return err
		}
		x, err := a.Alloc(p.ctl.Plain(), class)
		if err == nil {
			p.got = append(p.got, handed{x, p.db.Space().View().Epoch})
		}
		return err
	}
}

func (p *process) allocator() (a *memory.Allocator, err error) {
	if p.alloc != nil {
		return p.alloc, nil
	}
	if p.ctl, err = rdma.NewThread(p.fab, rdma.ThreadOptions{Index: 50, Arena: arena}); err == nil {
		p.alloc, err = p.db.Space().NewAllocator(p.ctl)
	}
	return p.alloc, err
}

// lay gives up the allocator.
func (p *process) lay() error {
	if p.alloc == nil {
		return nil
	}
	err := errors.Join(p.alloc.Close(p.ctl.Plain()), p.ctl.Close())
	p.alloc, p.ctl = nil, nil
	return err
}

// leaves has a third process add a segment of blocks, and close the database; the first of the two
// ends its registration.
func leaves(w *world) error {
	p := w.process(3)
	err := p.open()
	if err == nil {
		err = errors.Join(allocates(4)(p), p.lay(), closes(p), takesOver(w.procs[0]))
	}
	if err == nil {
		err = w.procs[1].db.Space().Follow()
	}
	return err
}

// owns has the first process own a segment of blocks, all free.
func owns(w *world) error {
	p := w.procs[0]
	err := errors.Join(allocates(5)(p), p.lay())
	p.got = nil
	return err
}

// handed is a block that was handed out, in an epoch.
type handed struct {
	addr  layout.Addr
	epoch layout.Epoch
}

// follows takes over what the other one has changed.
func follows(p *process) error { return p.db.Space().Follow() }

// takesOver ends the registrations of processes that have closed the database.
func takesOver(p *process) error {
	s := p.db.Space()
	if !s.Deserted(p.w.f.Now()) {
		return nil
	}
	_, err := s.TakeOver(p.w.f.Now())
	return err
}

// declares takes the other process for dead, and decides its transactions.
func declares(p *process) error {
	s := p.db.Space()
	err := s.Follow()
	own := map[uint32]bool{}
	for _, c := range s.Layout().Coordinators {
		own[c.ID] = c.Process == s.Process()
	}
	if err == nil {
		_, err = s.TakeOver(far)
	}
	if err != nil {
		return err
	}
	p.w.fenced(p.db)
	other := p.w.procs[2-p.n]
	other.since = s.View().Epoch
	var ids []uint32
	for _, c := range s.Layout().Coordinators {
		if !own[c.ID] {
			ids = append(ids, c.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err = p.db.Recover(context.Background(), ids...)
	return err
}

// creates makes a table, and puts a key.
func creates(name string, key uint64) func(p *process) error {
	return func(p *process) error {
		t, err := txn.CreateTable(p.db, name, txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			return err
		}
		return p.db.Update(context.Background(), func(tx *txn.Tx) error { return t.Put(tx, key, key) })
	}
}

// tables: there is one table of the name, with what both have put.
func tables(w *world) error {
	l, err := w.layout()
	if err != nil {
		return err
	}
	n := 0
	for _, t := range l.Tables {
		if t.Name == "u" && t.State == layout.TableLive {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("there are %d tables of the name: %+v", n, l.Tables)
	}
	for _, p := range w.procs {
		t, err := txn.OpenTable(p.db, "u", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			return err
		}
		if err := p.db.View(context.Background(), func(tx *txn.Tx) error {
			for _, key := range []uint64{7, 8} {
				if v, err := t.Get(tx, key); err != nil || v != key {
					return fmt.Errorf("process %d reads %d of key %d: %w", p.n, v, key, err)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// cutOff has the process reach a blade no more, which the other one still does.
func cutOff(b rdma.BladeID) func(p *process) error {
	return func(p *process) error {
		p.w.f.Cut(p.n, b)
		return nil
	}
}

// stops has a blade stop.
func stops(b rdma.BladeID) func(w *world) error {
	return func(w *world) error {
		w.f.StopBlade(b)
		return nil
	}
}

// drains moves everything that a blade has to others.
func drains(b int) func(p *process) error {
	return func(p *process) error { return p.db.Drain(context.Background(), b, nil) }
}

// watched has the witness be there.
func watched(w *world) error {
	l, rev, err := layout.Load(w.cat)
	if err == nil {
		_, err = w.cat.Apply(rev, members.Testify(l, nil, true))
	}
	for _, p := range w.procs {
		err = errors.Join(err, p.db.Space().Follow())
	}
	return err
}

// allUp: no blade counts as dead that the witness hears.
func allUp(w *world) error {
	l, err := w.layout()
	if err != nil {
		return err
	}
	for b := range l.Blades {
		if l.Blades[b].State != layout.BladeUp {
			return fmt.Errorf("blade %d was declared dead, and it is heard", b)
		}
	}
	return nil
}

// TestOrders runs all scenarios.
func TestOrders(t *testing.T) {
	for _, x := range scenarios() {
		t.Run(x.name, func(t *testing.T) { x.try(t) })
	}
}
