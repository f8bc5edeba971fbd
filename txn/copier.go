package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/index"
	"txnode/index/race"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn/snapshot"
)

const (
	copyBatch  = 32      // blocks that are read in one round trip
	copyProbe  = 1 << 10 // bytes of each that are read at first
	patience   = 64      // rereads of a locked block before a transaction is sent to it
	maxWalks   = 16      // walks over an index that was repaired meanwhile, or in whose time the epoch has moved,
	maxWalksNs = 60e9    // for so long at least, if it was the epoch
	maxStrange = 64      // looks at a slot and what it leads to that do not go together
	maxStill   = 1 << 10 // looks at an image that is not locked, and that stays torn,
	maxStillNs = 2e9     // for so long at least
	reportStep = 1 << 8
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
	buf   uint32       // copyBatch * copyProbe
	words uint32       // copyBatch words: slots, read behind the blocks that they lead to
	img   record.Image // what was read last of a block
	// foreign: the image that was looked at last is a sound one of another table.
	foreign bool
	// torn is the image that was looked at last, if its checksum does not match, and it is not
	// locked; still is for how many looks in a row it has been the same, and since when.
	torn  []byte
	still int
	since int64
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
	walk := s.slots
	if ix, ok := s.t.Ordered.(*tree.Tree); ok {
		walk = func() error { return s.ordered(ix) }
	}
	err := walk()
	if s.t.Dropped() { // its blocks may be those of others by now
		return fmt.Errorf("%w: table %q", ErrDropped, s.t.Name)
	}
	return err
}

// slots is walk of a table with an index of slots.
func (s *copier) slots() (err error) {
	ix, ok := s.t.Index.(index.Walker)
	if !ok {
		return fmt.Errorf("its index, a %T, can not be walked", s.t.Index)
	}
	th := s.w.thread
	if s.buf, err = th.Alloc(copyBatch * copyProbe); err != nil {
		return err
	}
	defer th.Free(s.buf, copyBatch*copyProbe)
	if s.words, err = th.Alloc(copyBatch * 8); err != nil {
		return err
	}
	defer th.Free(s.words, copyBatch*8)
	// Where the index was repaired from another copy the walk begins again. What was copied before
	// is copied once more, as it is if a split carries it meanwhile.
	from := th.Now()
	for again, failed := 0, 0; ; again++ {
		err = ix.Pieces(s.w.coro, func(links []index.Linked) error {
			for part := range slices.Chunk(links, copyBatch) {
				if err := s.copy(part); err != nil {
					return err
				}
			}
			return nil
		})
		if s.goesOn(err) && (failed < maxWalks || th.Now()-from < maxWalksNs) {
			failed++
			continue
		}
		if c := (*race.CorruptError)(nil); !errors.As(err, &c) || again-failed >= maxWalks ||
			!s.w.repairIndex(s.t, c.Addr) {
			break
		}
	}
	return err
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

// skipRecord is skip for the record that a slot leads to.
func (s *copier) skipRecord(e index.Linked, err error) bool {
	if s.skipDamaged == nil || !errors.Is(err, ErrCorrupt) {
		return false
	}
	x := Skipped{Table: s.t.Name, Block: e.Addr, Err: err}
	v := s.view()
	if !v.Valid(e.Addr) {
		x.Block = 0
		return s.skip(x)
	}
	for k := range v.Copies(e.Addr) {
		size := min(e.Class.Size(), record.LineSize+record.MaxKey)
		img, err := s.fetch(nil, v.At(e.Addr, k), int(size))
		if err != nil {
			return false
		}
		m := record.Image(img).Meta()
		at, n := record.KeyAt(m.KeyLen()), m.KeyLen()
		if m.Table() == s.t.ID && n > 0 && at+n <= len(img) {
			x.Key = img[at : at+n]
			break
		}
	}
	return s.skip(x)
}

// view is the map to read by. When a blade is lost all sessions are declared dead, the
// worker's too, and its reads fail from then on: until everything is decided that was under
// way, records are unlocked on the copies that are left that are not what they seem.
func (s *copier) view() *layout.View {
	return s.w.db.space.ViewOn(s.w.thread)
}

// copy copies what links of one piece of the index lead to.
//
// A slot may lead to another block by the time at which its block is read, and that may have the
// record of another key by then, which is sound. So the slot is read once more, behind the block.
// If it leads to the same block still, it did all the time: a slot never gets a word again that it
// has had (package race).
func (s *copier) copy(links []index.Linked) error {
	if s.ctx.Err() != nil {
		return canceled(s.ctx)
	}
	if err := s.stands(); err != nil {
		return err
	}
	th, b, v := s.w.thread, &s.batch, s.view()
	b.Reset()
	for i, e := range links {
		if !v.Valid(e.Addr) {
			continue // a segment that is younger than the view; copied one by one below
		}
		b.Read(v.At(e.Addr, 0), s.buf+uint32(i*copyProbe), min(e.Class.Size(), copyProbe))
	}
	if b.Len() > 0 {
		if err := s.w.coro.Do(b); err != nil {
			return err
		}
	}
	b.Reset()
	for i, e := range links {
		b.Read(v.At(e.At, 0), s.words+uint32(8*i), 8)
	}
	if err := s.w.coro.Do(b); err != nil {
		return err
	}
	for i, e := range links {
		slot := race.Slot(th.Word(s.words + uint32(8*i)))
		if v.Valid(e.Addr) && slot.Addr() == e.Addr {
			img := record.Image(th.Bytes(s.buf+uint32(i*copyProbe), min(e.Class.Size(), copyProbe)))
			if done, _, err := s.take(img, e.Addr); err != nil {
				return err
			} else if done {
				continue
			}
		}
		err := s.one(e)
		if errors.Is(err, ErrCorrupt) && s.w.repairIndex(s.t, e.At) {
			err = s.one(e)
		}
		if err != nil && !s.skipRecord(e, err) {
			return err
		}
	}
	return nil
}

// take writes the record in an image if it is the state of an unlocked record,
// and reports whether that is so; need is how many bytes it takes to know, 0: unknown.
func (s *copier) take(img record.Image, a layout.Addr) (done bool, need int, err error) {
	need, err = img.Check(a)
	s.foreign = err == nil && need <= len(img) && img.Stable() && img.Meta().State() != record.Free &&
		img.Meta().Table() != s.t.ID
	if err != nil || !img.Stable() || s.foreign {
		return false, need, nil //nolint:nilerr // not readable yet: it is read again, or found to be damaged there
	}
	switch img.Meta().State() {
	case record.Absent:
		return true, need, nil
	case record.Live:
		if s.later(img.Version()) {
			return true, need, nil
		}
		return true, need, s.base(img.Key(), img.Value(), a)
	}
	return false, need, nil // freed: the slot leads elsewhere by now, or nowhere
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

// one copies what a slot leads to, and waits until it is not locked.
func (s *copier) one(e index.Linked) error {
	word, err := s.w.thread.Alloc(8)
	if err != nil {
		return err
	}
	defer s.w.thread.Free(word, 8)
	p := pursuit{copier: s, at: e.At, c: e.Candidate, word: word, size: copyProbe}
	s.torn, s.still = s.torn[:0], 0
	for tries := 1; ; tries++ {
		if s.ctx.Err() != nil {
			return canceled(s.ctx)
		}
		seen, err := p.look()
		if err != nil || seen == copied {
			return err
		}
		if seen == larger {
			continue
		}
		if err := p.lasted(); err != nil {
			return err
		}
		if tries%patience == 0 {
			if gone, err := p.ask(); err != nil || gone {
				return err
			}
		}
		s.w.coro.Sleep(int64(min(tries, patience)) * 1000)
	}
}

// pursuit is what is known of a slot whose record could not be copied yet.
type pursuit struct {
	*copier
	at    layout.Addr     // the slot
	c     index.Candidate // to which it led at the last look
	known bool            // which lies in a segment that the view has
	key   []byte          // that it has, and which is locked, if so
	word  uint32          // of the arena: the slot is read to it
	size  int             // bytes of the block to be read
	// was is the slot at the last look, strange for how many looks in a row it has led to
	// another one's block.
	was     race.Slot
	strange int
	// dangling is the slot if it led to a block that is free, and was not freed, when
	// that was asked last.
	dangling race.Slot
}

// seen is what comes of a look at a slot.
type seen uint8

const (
	unclear seen = iota // the record or the slot is being changed, or one of them is damaged
	copied              // or there is nothing to be copied
	larger              // the record has more bytes than were read
)

// look reads the slot, and then the block that it leads to, and copies the record if it can.
func (p *pursuit) look() (seen, error) {
	v := p.view()
	slot, err := p.slot(v)
	if err != nil {
		return unclear, err
	}
	if slot.Empty() {
		return copied, nil // deleted; or moved to a sub-table that the walk comes to
	}
	if err := slot.Check(); err != nil {
		return unclear, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if p.strange++; slot != p.was {
		p.was, p.strange = slot, 0
	}
	p.c = index.Candidate{Addr: slot.Addr(), Class: slot.Class()}
	if p.key = nil; !v.Valid(p.c.Addr) {
		if err := p.newer(&v); err != nil {
			return unclear, err
		}
	}
	if p.known = v.Valid(p.c.Addr); !p.known {
		return unclear, nil
	}
	room := int(p.c.Class.Size())
	p.size = min(p.size, room)
	if p.img, err = p.fetch(p.img[:0], v.At(p.c.Addr, 0), p.size); err != nil {
		return unclear, err
	}
	if slot, err = p.slot(v); err != nil || slot.Addr() != p.c.Addr { // the block may be another key's by now: see copy
		return unclear, err
	}
	done, need, key, err := p.read(p.c, p.size)
	switch p.key = key; {
	case err != nil:
		return unclear, err
	case done:
		return copied, nil
	case need > p.size && p.size < room:
		p.size = need
		return larger, nil
	case need <= room && !p.foreign: // else it is no record that the slot leads to
		p.strange = 0
	}
	return unclear, nil
}

// slot reads the slot.
func (p *pursuit) slot(v *layout.View) (race.Slot, error) {
	p.batch.Reset()
	p.batch.Read(v.At(p.at, 0), p.word, 8)
	err := p.w.coro.Do(&p.batch)
	return race.Slot(p.w.thread.Word(p.word)), err
}

// newer replaces a map that does not have the block's segment by one that has it, since another
// process may have added that.
func (p *pursuit) newer(v **layout.View) error {
	err := p.w.db.space.Missing(*v, p.c.Addr)
	if err != nil && !errors.Is(err, rdma.ErrStaleKey) {
		return err
	}
	if now := p.view(); now.Valid(p.c.Addr) {
		*v = now
		return nil
	}
	return err // the thread was fenced
}

// lasted is an error if what was seen has lasted longer than anybody's change does: it is
// damage.
func (p *pursuit) lasted() error {
	if p.strange > maxStrange {
		what := "holds something else"
		if !p.known {
			what = "lies in no segment"
		}
		return fmt.Errorf("%w: the slot at %v leads to block %v of class %d, which %s; the database, closed, "+
			"can be checked", ErrCorrupt, p.at, p.c.Addr, p.c.Class, what)
	}
	if p.still > maxStill && p.w.thread.Now()-p.since > maxStillNs { // a writer would have come to an end
		return fmt.Errorf("%w: block %v, to which the slot at %v leads, does not match its checksum, and nobody is "+
			"writing it; the database, closed, can be checked, and repaired from another copy",
			ErrCorrupt, p.c.Addr, p.at)
	}
	return nil
}

// ask has the record examined: a transaction that meets its lock decides what a dead client has
// left there. It says whether there is no record after all.
func (p *pursuit) ask() (gone bool, err error) {
	if len(p.key) > 0 {
		// Its owner may be dead: a transaction that meets the lock knows what to do.
		return false, p.visit(p.key)
	}
	if !p.known {
		return false, nil
	}
	if done, err := p.fromCopy(); done || err != nil || p.w.repairTorn(p.c.Addr) {
		return done, err
	}
	free, err := p.w.o.Examine(p.c.Addr)
	if p.w.o.Asks() {
		p.w.db.askIdle()
	}
	if errors.Is(err, ErrCorrupt) && p.w.repairBlock(p.c.Addr) {
		return false, nil // from another copy: it can be read now
	}
	if err != nil {
		return false, err
	}
	damaged, space := false, p.w.db.space
	if tidy := space.Tidy(); free {
		if damaged, err = p.w.o.Contradicted(p.c.Addr); err != nil {
			return false, err
		}
		if !damaged && tidy && space.Tidy() {
			return true, nil // what a dead one has left of an insert that never was
		}
		if !damaged {
			p.w.maintain() // it cannot be told from damage before that was swept
		}
	}
	if damaged && p.dangling == p.was { // which has led there all the time
		if p.w.repairBlock(p.c.Addr) {
			return false, nil
		}
		return false, fmt.Errorf("%w: the slot at %v leads to block %v, which is free, and was not freed; the "+
			"database, closed, can be checked, and repaired from another copy", ErrCorrupt, p.at, p.c.Addr)
	}
	if p.dangling = 0; damaged {
		p.dangling = p.was
	}
	return false, nil
}

// fromCopy copies the record from another copy, if that is intact and has the version of the
// primary's guard. The block is repaired beside.
func (p *pursuit) fromCopy() (done bool, err error) {
	v := p.view()
	first, err := p.fetch(nil, v.At(p.c.Addr, 0), record.LineSize)
	if err != nil {
		return false, err
	}
	guard, room := record.Image(first).Guard(), int(p.c.Class.Size())
	for k := 1; k < v.Copies(p.c.Addr) && !guard.Held() && !done; k++ {
		for size, need := 0, record.LineSize; need > size && need <= room && !done; {
			size = need
			img, err := p.fetch(nil, v.At(p.c.Addr, k), size)
			if err != nil {
				return false, err
			}
			if record.Image(img).Version() != guard.Version() {
				break
			}
			if done, need, err = p.take(img, p.c.Addr); err != nil {
				return false, err
			}
		}
	}
	if done {
		p.w.repairTorn(p.c.Addr)
	}
	return done, nil
}

// read takes the first size bytes of a block, which were read. If they are a record that is locked,
// it returns its key.
func (s *copier) read(cand index.Candidate, size int) (done bool, need int, key []byte, err error) {
	th, img := s.w.thread, s.img
	if done, need, err = s.take(img, cand.Addr); done || err != nil || need == 0 || need > size {
		return done, need, nil, err
	}
	_, torn := img.Check(cand.Addr)
	switch {
	case torn == nil || img.Guard().Held():
		s.torn, s.still = s.torn[:0], 0
	case bytes.Equal(s.torn, img):
		s.still++
	default:
		s.torn, s.still, s.since = append(s.torn[:0], img...), 0, th.Now()
	}
	if torn == nil && img.Guard().Held() {
		key = append([]byte(nil), img.Key()...)
	}
	return false, need, key, nil
}

// fetch appends size bytes that lie at a place to p: by one READ, or by as many as it takes
// where the arena has less room than that. What they come to is one state if its checksum says so.
func (s *copier) fetch(p []byte, at rdma.RemoteAddr, size int) ([]byte, error) {
	th, b, room := s.w.thread, &s.batch, size
	buf, err := th.Alloc(room)
	for errors.Is(err, rdma.ErrArenaFull) && room > copyProbe {
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

// visit reads a key in a transaction.
func (s *copier) visit(key []byte) error {
	err := s.w.View(s.ctx, func(tx *Tx) error {
		_, err := tx.get(s.t, key, false)
		return err
	})
	if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}
