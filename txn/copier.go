package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn/snapshot"
)

// A table is copied by transactions that read some of its records each, in the order of its index.
// What such a page has is what was there at one moment after the tap was connected, and the tap has
// what was committed since. So locks, damaged copies and what dead coordinators have left are met as
// by other transactions.

const (
	pageRecords = 256     // of a page; after a conflict it is halved, since writers are at its records
	pageBytes   = 1 << 20 // of a page, if it has several records; what the arena has no room for is halved
	pagePauseNs = 64_000  // after a conflict
	fetchBytes  = 1 << 10 // that a READ has at least, where the arena has not room for all
	maxPieces   = 1 << 10 // looks at a block that is locked, or damaged
	maxWalks    = 16      // attempts at pages in whose time the epoch has moved,
	maxWalksNs  = 60e9    // for so long at least
	reportStep  = 1 << 8
)

// copier reads all records of tables beside transactions, and copies them, or gives them to each. A
// key that has a record from the beginning to the end of the walk is met, whatever replaces the
// record meanwhile; others may be met or not. A key may be met more than once.
type copier struct {
	ctx      context.Context
	w        *Worker
	out      *snapshot.Writer
	progress func(uint64)
	records  uint64
	tally    *tally
	// cut, of a backup beside several processes, is the number of its cut: records of versions that
	// are not below are left out. Verbs that have failed are repeated then.
	cut uint32
	// each, if not nil, gets the records instead of out. It may use the worker, and does
	// not keep the slices.
	each func(key, value []byte) error

	skipDamaged func(Skipped)     // nil: damage ends the copy
	skipped     map[string]uint64 // what was left out, by table

	t     *occ.Table
	batch rdma.Batch
}

// tables copies tables.
func (s *copier) tables(tables []layout.Table) error {
	for i := range tables {
		t := &tables[i]
		if !inBackup(t) {
			continue
		}
		if err := (&snapshot.Table{Name: t.Name}).Validate(); err != nil {
			return err
		}
		if err := s.table(*t); err != nil && !s.skip(Skipped{Table: t.Name, Rest: true, Err: err}) {
			return fmt.Errorf("table %q: %w", t.Name, err)
		}
	}
	return nil
}

func (s *copier) table(t layout.Table) error {
	o, err := decodeTableOptions(t.Options)
	if err != nil {
		return err
	}
	if err := s.w.db.ask(s.ctx, func() (err error) { s.t, err = s.w.db.table(t.Name, o, false); return err },
		nil); err != nil {
		return err
	}
	return s.walk()
}

// walk reads the records of the table s.t.
func (s *copier) walk() error {
	err := s.pages()
	if s.t.Dropped() { // its blocks may be those of others by now
		return fmt.Errorf("%w: table %q", ErrDropped, s.t.Name)
	}
	return err
}

// page is records of a table.
type page struct {
	data []byte
	rows []pageRow
	more bool // there may be others behind the last one
}

// pageRow is a record: page.data[at:key] is the key, page.data[key:end] the value. later: it was
// written after the cut.
type pageRow struct {
	at, key, end int
	block        layout.Addr
	later        bool
}

// last is the key of the last record.
func (p *page) last() []byte {
	r := p.rows[len(p.rows)-1]
	return p.data[r.at:r.key]
}

func (s *copier) pages() error {
	var p page
	limit, most := pageRecords, pageRecords
	failed, begun := 0, s.w.Now()
	for from := (index.Bound{}); ; {
		err := s.stands()
		n := min(limit, most)
		if err == nil {
			limit, err = s.readPage(&p, from, n)
		}
		switch {
		case errors.Is(err, ErrTooLarge) && n > 1: // for the arena
			limit, most = pageRecords, n/2
			continue
		case errors.Is(err, ErrTooLarge):
			if p.more, err = s.beside(&from, err); err != nil {
				return err
			}
		case errors.Is(err, ErrConflict) && s.ctx.Err() == nil:
			s.w.coro.Sleep(pagePauseNs)
			continue
		case s.skipDamaged != nil && errors.Is(err, ErrCorrupt) && !errors.Is(err, rdma.ErrVerb):
			if p.more, err = s.beside(&from, err); s.goesOn(err) &&
				(failed < maxWalks || s.w.Now()-begun < maxWalksNs) {
				failed++
				continue // the leaf comes once more
			}
			if err != nil {
				return err
			}
		case err != nil:
			return err
		}
		for _, r := range p.rows {
			if r.later {
				continue
			}
			if err := s.base(p.data[r.at:r.key], p.data[r.key:r.end], r.block); err != nil {
				return err
			}
		}
		if !p.more {
			return nil
		}
		if len(p.rows) > 0 {
			from = index.Bound{Key: s.t.IndexKey(p.last()), After: true}
		}
		p.rows = p.rows[:0]
	}
}

// goesOn reports whether the copy can go on after an error, from the beginning of the walk: the
// epoch has moved, since a process or a blade has died, or blades are changed. Records that come
// once more are the same then.
func (s *copier) goesOn(err error) bool {
	if s.cut == 0 || s.ctx.Err() != nil || !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrBladeDown) &&
		!errors.Is(err, ErrBroken) {
		return false
	}
	s.w.session.Break(err)
	return s.w.insist(s.ctx, func() error { return nil }) == nil
}

// stands is an error if the cut is known not to hold any more.
func (s *copier) stands() error {
	if s.cut == 0 {
		return nil
	}
	if s.w.db.space.CutNumber() != s.cut {
		return memory.ErrCut
	}
	if !s.w.db.heeds {
		_ = s.w.session.Renew() // nothing else does it where time is virtual; what fails comes up by itself
	}
	return nil
}

// skip reports whether what is damaged may be left out, and tells the caller of the backup.
func (s *copier) skip(x Skipped) bool {
	if s.skipDamaged == nil || !errors.Is(x.Err, ErrCorrupt) || errors.Is(x.Err, rdma.ErrVerb) {
		return false
	}
	if s.skipped == nil {
		s.skipped = map[string]uint64{}
	}
	s.skipped[x.Table]++
	s.skipDamaged(x)
	return true
}

// view is the map to read by. When a blade is lost all sessions are declared dead, the
// worker's too, and its reads fail from then on: until everything is decided that was under
// way, records are unlocked on the copies that are left that are not what they seem.
func (s *copier) view() *layout.View {
	return s.w.db.space.ViewOn(s.w.thread)
}

// later reports whether a record was written after the cut.
func (s *copier) later(v record.TxID) bool {
	return s.cut != 0 && s.each == nil && v.Coordinator() >= s.cut
}

// base writes a record, which is in a block.
func (s *copier) base(key, value []byte, block layout.Addr) error {
	if s.each != nil {
		return s.each(key, value)
	}
	return s.copied(s.t.ID, key, value, block)
}

// copied writes a record, counts it, and tells the caller of the backup now and then.
func (s *copier) copied(table uint16, key, value []byte, block layout.Addr) error {
	if err := s.out.Base(table, key, value); err != nil {
		return err
	}
	if !s.tally.met(table, key, block) {
		return nil
	}
	s.records++
	if s.progress != nil && s.records%reportStep == 0 {
		s.progress(s.records)
	}
	return nil
}

// readPage reads the page behind a bound by a transaction, of at most so many records. It returns how
// many the next page should have.
func (s *copier) readPage(p *page, from index.Bound, most int) (next int, err error) {
	attempts := 0
	err = s.w.View(s.ctx, func(tx *Tx) error {
		n := max(most>>attempts, 1)
		want := n
		if s.t.Hashed {
			want++ // a page ends where the hash does
		}
		attempts++
		next = min(2*n, pageRecords)
		p.data, p.rows, p.more = p.data[:0], p.rows[:0], false
		var scan *occ.Scan
		tx.walk(s.w.db, s.t, func() (_ *occ.Scan, err error) {
			scan, err = tx.o.Range(s.t, from, index.Bound{End: true}, false, want)
			return scan, err
		}, func(key, value []byte) (bool, error) {
			at := len(p.data)
			if p.more && !bytes.Equal(s.t.IndexKey(key), s.t.IndexKey(p.last())) {
				return false, nil
			}
			later := s.later(scan.Version())
			if p.data = append(p.data, key...); !later {
				p.data = append(p.data, value...)
			}
			p.rows = append(p.rows, pageRow{at, at + len(key), len(p.data), scan.Block(), later})
			p.more = len(p.rows) >= n || len(p.data) >= pageBytes
			return !p.more || s.t.Hashed, nil
		}, nil)
		return tx.Err()
	})
	if err != nil {
		p.rows = p.rows[:0]
	}
	return next, err
}

// beside copies what a leaf leads to record by record, since a page that begins with it has met
// damage, or records that the arena has room for one by one at most. It leaves out the damaged
// ones; or all of the leaf, if that is damaged itself. It sets the bound behind the leaf. more is
// false if there is no leaf behind it, or none that is known.
func (s *copier) beside(from *index.Bound, damage error) (more bool, err error) {
	ix, ok := s.t.Index.(*tree.Tree)
	if !ok {
		return false, damage
	}
	value, err := ix.Leaf(s.w.coro, index.Place{Bound: *from})
	if err != nil {
		if !errors.Is(err, index.ErrBusy) && !errors.Is(err, ErrCorrupt) {
			return false, err
		}
		at, next, ok, err := ix.Behind(s.w.coro, from.Key)
		if err != nil {
			return false, errors.Join(damage, err)
		}
		to := "on"
		if ok {
			to = fmt.Sprintf("to %.64x", next)
		}
		x := Skipped{Table: s.t.Name, Block: at, Rest: !ok, Err: fmt.Errorf("the keys from %.64x %s: %w",
			from.Key, to, damage)}
		if !s.skip(x) {
			return false, damage
		}
		*from = index.Bound{Key: next}
		return ok, nil
	}
	keys, rest, more, err := ix.Keys(value, *from)
	if err != nil {
		return false, errors.Join(damage, err)
	}
	for _, k := range keys {
		if k.Key == nil {
			if k.Key, err = s.keyAt(k.Candidate); err != nil {
				return false, err
			}
		}
		if k.Key == nil {
			err = fmt.Errorf("%w: no copy of block %v has a record", ErrCorrupt, k.Addr)
		} else if err = s.single(k.Key); errors.Is(err, ErrTooLarge) {
			var moved bool
			if moved, err = s.pieces(k.Candidate, k.Key, err); moved {
				return true, nil // the leaf is read again
			}
		}
		if err == nil || s.skip(Skipped{Table: s.t.Name, Key: k.Key, Block: k.Addr, Err: err}) {
			continue
		}
		return false, err
	}
	*from = rest
	return more, nil
}

// keyAt is the key of the record in a block, by the first copy that is intact, or, if none is, looks
// as if it were; nil: there is none.
func (s *copier) keyAt(x index.Candidate) (key []byte, err error) {
	v := s.view()
	if !v.Valid(x.Addr) || x.Class >= layout.NumClasses {
		return nil, nil
	}
	for k := range v.Copies(x.Addr) {
		img, err := s.fetch(nil, v.At(x.Addr, k), int(x.Class.Size()))
		if err != nil {
			return nil, err
		}
		_, bad := record.Image(img).Check(x.Addr)
		m := record.Image(img).Meta()
		at, n := record.KeyAt(m.KeyLen()), m.KeyLen()
		if m.Table() != s.t.ID || n == 0 || at+n > len(img) || bad != nil && key != nil {
			continue
		}
		if key = bytes.Clone(img[at : at+n]); bad == nil {
			break
		}
	}
	return key, nil
}

// single copies one record.
func (s *copier) single(key []byte) error {
	for {
		var value []byte
		var block layout.Addr
		later := false
		err := s.w.View(s.ctx, func(tx *Tx) error {
			i, err := tx.fetch(s.t, key, false)
			if err != nil {
				return err
			}
			v, ok := tx.o.Read(i)
			if !ok {
				return ErrNotFound
			}
			value, later, block = append(value[:0], v...), s.later(tx.o.Version(i)), tx.o.Block(i)
			return nil
		})
		switch {
		case errors.Is(err, ErrNotFound) || err == nil && later:
			return nil
		case errors.Is(err, ErrConflict) && s.ctx.Err() == nil:
			s.w.coro.Sleep(pagePauseNs)
		case err != nil:
			return err
		default:
			return s.base(key, value, block)
		}
	}
}

// pieces copies a record that the arena has no room for, which err says, from its block: by one READ
// after the other. moved: the block has not the record any more.
func (s *copier) pieces(x index.Candidate, key []byte, full error) (moved bool, err error) {
	for tries := 0; ; tries++ {
		v, guard := s.view(), record.Guard(0)
		if !v.Valid(x.Addr) || tries == maxPieces {
			return false, full
		}
		for k := range v.Copies(x.Addr) {
			p, err := s.fetch(nil, v.At(x.Addr, k), int(x.Class.Size()))
			if err != nil {
				return false, err
			}
			img := record.Image(p)
			if k == 0 {
				guard = img.Guard() // a copy may be behind
			}
			if _, err := img.Check(x.Addr); err != nil || guard != record.FreeAt(img.Version()) {
				continue
			}
			if m := img.Meta(); m.State() == record.Free || m.Table() != s.t.ID || !bytes.Equal(img.Key(), key) {
				return true, nil
			} else if m.State() != record.Live || s.later(img.Version()) {
				return false, nil
			}
			return false, s.base(img.Key(), img.Value(), x.Addr)
		}
		if s.ctx.Err() != nil {
			return false, canceled(s.ctx)
		}
		s.w.coro.Sleep(pagePauseNs)
	}
}

// fetch appends size bytes that lie at a place to p: by one READ, or by as many as it takes
// where the arena has less room than that. What they come to is one state if its checksum says so.
func (s *copier) fetch(p []byte, at rdma.RemoteAddr, size int) ([]byte, error) {
	th, b, room := s.w.thread, &s.batch, size
	buf, err := th.Alloc(room)
	for errors.Is(err, rdma.ErrArenaFull) && room > fetchBytes {
		room = (room/2 + record.LineSize - 1) &^ (record.LineSize - 1)
		buf, err = th.Alloc(room)
	}
	if err != nil {
		return p, err
	}
	defer th.Free(buf, room)
	for done := 0; done < size; done += room {
		n := uint32(min(room, size-done))
		b.Reset()
		b.Read(at, buf, n)
		if err := s.w.coro.Do(b); err != nil {
			return p, err
		}
		p = append(p, th.Bytes(buf, n)...)
		at.Off += uint64(n)
	}
	return p, nil
}
