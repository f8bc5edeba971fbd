package orders

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/txn"
	"txnode/verify"
)

// judge looks at what a schedule has left.
func (w *world) judge(x *scenario) error {
	for _, p := range w.procs {
		if !p.run.Ended() {
			return fmt.Errorf("process %d has not come to its end", p.n)
		}
		for i, err := range p.errs {
			if err != nil && !slices.ContainsFunc(x.may, func(e error) bool { return errors.Is(err, e) }) {
				return fmt.Errorf("process %d, step %d: %w", p.n, i, err)
			}
		}
	}
	if w.wrong != nil {
		return w.wrong
	}
	if err := w.distinct(); err != nil {
		return err
	}
	for _, p := range w.procs {
		if err := p.agrees(); err != nil {
			return fmt.Errorf("process %d: %w", p.n, err)
		}
	}
	if err := w.read(); err != nil {
		return err
	}
	if x.judge != nil {
		if err := x.judge(w); err != nil {
			return err
		}
	}
	return w.afterwards(x)
}

// layout is what the catalog says.
func (w *world) layout() (*layout.Layout, error) {
	l, err := layout.LoadLayout(w.cat)
	if err == nil {
		err = l.Validate()
	}
	return l, err
}

// agrees holds what a process knows against the catalog, when it has followed.
func (p *process) agrees() error {
	if p.db == nil {
		return nil
	}
	s := p.db.Space()
	if err := s.Follow(); err != nil {
		return fmt.Errorf("it does not follow: %w", err)
	}
	l, err := p.w.layout()
	if err != nil {
		return err
	}
	if own := s.Layout(); fmt.Sprintf("%+v", l) != fmt.Sprintf("%+v", own) {
		return fmt.Errorf("the catalog says\n%+v, and it\n%+v", l, own)
	}
	v := s.View()
	if v.Epoch != l.Epoch || v.Segments() != len(l.Segments) {
		return fmt.Errorf("its view is of epoch %d with %d segments, of %d with %d",
			v.Epoch, v.Segments(), l.Epoch, len(l.Segments))
	}
	for id := range l.Segments {
		a := layout.MakeAddr(layout.SegmentID(id), 0)
		if got := v.Copies(a); got != int(l.Segments[id].Placement.N) {
			return fmt.Errorf("in its view segment %d has %d copies, of %d", id, got, l.Segments[id].Placement.N)
		}
	}
	for b := range l.Blades {
		if id := rdma.BladeID(b); l.Blades[b].State == layout.BladeUp && v.Key(id) != l.Blades[b].Key {
			return fmt.Errorf("its key of blade %d is not that of the catalog", b)
		}
	}
	return nil
}

// distinct demands that no block was handed out twice.
func (w *world) distinct() error {
	seen := map[layout.Addr]int{}
	for _, p := range w.procs {
		for _, h := range p.got {
			a := h.addr
			if h.epoch < p.since {
				continue
			}
			if n, ok := seen[a]; ok {
				return fmt.Errorf("block %v was handed out to process %d and to process %d", a, n, p.n)
			}
			seen[a] = p.n
		}
	}
	return nil
}

// read has both processes read what was acknowledged. One may have to wait for what an idle session
// of the other has to finish, which that does when it has something to do.
func (w *world) read() (err error) {
	for range 3 {
		err = nil
		for _, p := range w.procs {
			if p.db == nil {
				continue
			}
			if e := w.readable(p.db); e != nil {
				err = errors.Join(err, fmt.Errorf("read by process %d: %w", p.n, e))
			}
		}
		if !errors.Is(err, txn.ErrConflict) {
			return err
		}
	}
	return err
}

// readable demands that what was acknowledged is there, and nothing that was refused.
func (w *world) readable(db *txn.DB) error {
	if len(w.unsure)+int(w.added+w.maybe) == 0 { // small
		return nil
	}
	t, err := txn.OpenTable(db, "t", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		return err
	}
	return db.View(context.Background(), func(tx *txn.Tx) error {
		if w.added+w.maybe > 0 {
			if got, err := t.Get(tx, loaded); err != nil || got < initial+w.added || got > initial+w.added+w.maybe {
				return fmt.Errorf("%d was added to %d for certain, and perhaps %d: it is %d: %w",
					w.added, initial, w.maybe, got, err)
			}
		}
		for key, values := range w.unsure {
			got, there, err := t.Lookup(tx, key)
			if err != nil {
				return err
			}
			last, acked := w.acked[key]
			if at := slices.Index(values, got); there && at < 0 && !(got == initial && key == loaded) || acked &&
				(!there || at < slices.Index(values, last)) {
				return fmt.Errorf("key %d is %d (%v), %d was acknowledged (%v), and these were tried: %d",
					key, got, there, last, acked, values)
			}
		}
		return nil
	})
}

// afterwards closes the database in all processes, opens it once more, and walks it.
func (w *world) afterwards(x *scenario) error {
	for _, p := range w.procs {
		if p.db == nil {
			continue
		}
		if err := errors.Join(p.lay(), closes(p)); err != nil {
			return fmt.Errorf("process %d, closing: %w", p.n, err)
		}
	}
	db, err := w.open(0)
	if err != nil {
		return fmt.Errorf("opening it once more: %w", err)
	}
	if !db.Space().First() {
		err = errors.New("all have closed it, and who opens it is not the first")
	}
	if e := w.readable(db); e != nil {
		err = errors.Join(err, fmt.Errorf("opened once more: %w", e))
	}
	if err == nil {
		if _, e := db.Recover(context.Background()); e != nil { // and sweeps
			err = fmt.Errorf("sweeping: %w", e)
		}
	}
	space := db.Space()
	if err = errors.Join(err, db.Close(context.Background())); err != nil {
		return err
	}
	return w.walk(space)
}

// walk looks at everything on the blades.
func (w *world) walk(space *memory.Space) error {
	l, err := w.layout()
	if err != nil {
		return err
	}
	d, err := verify.Attach(w.f, l)
	if err != nil {
		return err
	}
	var found []string
	var free []memory.FreeBlock
	note := func(a layout.Addr, version uint64) { free = append(free, memory.FreeBlock{Addr: a, Version: version}) }
	_, err = d.Check(context.Background(), verify.Options{Free: note, Report: func(f verify.Finding) error {
		found = append(found, f.String())
		return nil
	}})
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("the walk finds:\n%s", strings.Join(found, "\n"))
	}
	if len(l.Coordinators) > 0 || len(l.Processes) > 0 && !l.Processes[0].Resigned() {
		return fmt.Errorf("after all were closed there are coordinators %v and processes %v",
			l.Coordinators, l.Processes)
	}
	nobodys, twice := space.Unowned(free)
	switch {
	case len(twice) > 0:
		return fmt.Errorf("blocks are to be had twice: %v", twice)
	case len(nobodys) > 0:
		return fmt.Errorf("%d free blocks are nobody's, one of them %v, version %v", len(nobodys), nobodys[0].Addr,
			record.TxID(nobodys[0].Version))
	}
	return nil
}
