package txn

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// An ordered table is copied by transactions that read some of its records each, in order. What
// such a page has is what was there at one moment after the tap was connected, and the tap has what
// was committed since. So locks, damaged copies and what dead coordinators have left are met as by
// other transactions.

// Sizes of a page. After a conflict it is halved, since writers are at its records, or
// insert beside them.
const (
	pageRecords = 256
	pageBytes   = 1 << 20
)

// page is records of an ordered table.
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

func (s *copier) ordered(ix *tree.Tree) error {
	var p page
	limit := pageRecords
	failed, begun := 0, s.w.Now()
	for from := (index.Bound{}); ; {
		err := s.stands()
		if err == nil {
			err = s.readPage(&p, from, &limit)
		}
		switch {
		case errors.Is(err, ErrConflict) && s.ctx.Err() == nil:
			s.w.coro.Sleep(patience * 1000)
			continue
		case s.skipDamaged != nil && errors.Is(err, ErrCorrupt) && !errors.Is(err, rdma.ErrVerb):
			if p.more, err = s.beside(ix, &from, err); s.goesOn(err) &&
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

// readPage reads the page behind a bound by a transaction, of at most so many records. It changes
// the limit to what the next page should have.
func (s *copier) readPage(p *page, from index.Bound, limit *int) error {
	most := *limit
	attempts := 0
	err := s.w.View(s.ctx, func(tx *Tx) error {
		n := max(most>>attempts, 1)
		want := n
		if s.t.Hashed {
			want++ // a page ends where the hash does
		}
		attempts++
		*limit = min(2*n, pageRecords)
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
	return err
}

// beside copies what a leaf leads to record by record, since a page that begins with it has met
// damage, and leaves out the damaged ones; or all of the leaf, if that is damaged itself. It sets
// the bound behind the leaf. more is false if there is no leaf behind it, or none that is known.
func (s *copier) beside(ix *tree.Tree, from *index.Bound, damage error) (more bool, err error) {
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
		} else {
			err = s.single(k.Key)
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
			s.w.coro.Sleep(patience * 1000)
		case err != nil:
			return err
		default:
			return s.base(key, value, block)
		}
	}
}
