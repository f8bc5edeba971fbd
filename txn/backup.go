package txn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"txnode/index"
	"txnode/index/race"
	"txnode/internal/mutant"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn/snapshot"
)

// BackupOptions are options of DB.Backup and DB.Restore. The zero value is the
// default.
type BackupOptions struct {
	// Progress, if not nil, is called now and then with the number of records done
	// so far, from the goroutine of the caller.
	Progress func(records uint64)
}

// Backup writes a copy of the whole database to w, in the format of package
// txn/snapshot, while transactions run: the state after a set of transactions that
// a serial order has before all others, every one that committed before the call
// included, and none that began after it returned. It blocks nobody; while it runs,
// transactions that write also validate what they have only read a second time and
// write what they changed to w, so w should be a file rather than a network.
// It takes one worker, and memory that does not depend on the size of the database.
//
// One backup runs at a time. After an error what was written is not a backup, and
// Restore refuses it. The loss of a blade is one.
func (db *DB) Backup(ctx context.Context, w io.Writer, o BackupOptions) (snapshot.Info, error) {
	info, err := db.backup(ctx, w, o)
	if err != nil {
		return info, fmt.Errorf("txn: backup: %w", err)
	}
	return info, nil
}

func (db *DB) backup(ctx context.Context, w io.Writer, o BackupOptions) (info snapshot.Info, err error) {
	worker, err := db.NewWorker()
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	l := db.space.Layout()
	h := snapshot.Header{
		Created: time.Now().UTC(), Blades: len(l.Blades),
		SegmentSize: l.SegmentSize, LogArea: l.LogArea, Backups: l.Backups,
	}
	for i := range l.Blades {
		h.BladeSize = max(h.BladeSize, l.Blades[i].Size)
	}
	out, err := snapshot.NewWriter(w, h)
	if err != nil {
		return info, err
	}
	var changes []snapshot.Change
	tap := occ.NewTap(func(number uint64, writes []occ.TapWrite) error {
		changes = changes[:0]
		for i := range writes {
			c := &writes[i]
			changes = append(changes, snapshot.Change{Table: c.Table.ID, Key: c.Key, Value: c.Value, Deleted: c.Deleted})
		}
		return out.Commit(number, changes)
	})
	if err := db.engine.Attach(tap); err != nil {
		return info, err
	}
	defer db.engine.Detach(tap)

	// Tables that are made from now on have changes only.
	tables, err := db.space.Tables()
	if err != nil {
		return info, err
	}
	s := copier{ctx: ctx, w: worker, out: out, progress: o.Progress}
	for _, t := range tables {
		if t.Root == 0 {
			continue // nobody has used it yet
		}
		if err := s.table(t); err != nil {
			return info, fmt.Errorf("table %q: %w", t.Name, err)
		}
	}

	cut := tap.Cut()
	for {
		done, err := tap.Settled(cut)
		if err != nil {
			return info, err
		}
		if done {
			break
		}
		if ctx.Err() != nil {
			return info, context.Cause(ctx)
		}
		worker.Sleep(settleNs)
	}
	db.engine.Detach(tap)
	if tables, err = db.space.Tables(); err != nil {
		return info, err
	}
	list := make([]snapshot.Table, len(tables))
	for i, t := range tables {
		list[i] = snapshot.Table{ID: t.ID, Name: t.Name, Options: json.RawMessage(t.Options)}
	}
	return out.Finish(cut, list)
}

const (
	settleNs   = 10_000
	copyBatch  = 32      // blocks that are read in one round trip
	copyProbe  = 1 << 10 // bytes of each that are read at first
	patience   = 64      // rereads of a locked block before a transaction is sent to it
	maxStrange = 64      // looks at a slot and what it leads to that do not go together
	maxStill   = 1 << 10 // looks at an image that nobody has locked, and that stays torn,
	maxStillNs = 2e9     // for so long at least
	reportStep = 1 << 8
)

// copier copies the records of tables.
type copier struct {
	ctx      context.Context
	w        *Worker
	out      *snapshot.Writer
	progress func(uint64)
	records  uint64

	t     *occ.Table
	batch rdma.Batch
	buf   uint32       // copyBatch * copyProbe
	img   record.Image // what was read last of a block
	todo  []slotBlock
	// foreign: the image that was looked at last is a sound one of another table.
	foreign bool
	// torn is the image that was looked at last, if its checksum does not match, and nobody has
	// locked it; still is for how many looks in a row it has been the same, and since when.
	torn  []byte
	still int
	since int64
}

// slotBlock is a block and the slot that leads to it.
type slotBlock struct {
	at memory.Addr
	c  index.Candidate
}

func (s *copier) table(t memory.Table) error {
	o, err := decodeTableOptions(t.Options)
	if err != nil {
		return err
	}
	if s.t, err = s.w.db.table(t.Name, o, false); err != nil {
		return err
	}
	ix, ok := s.t.Index.(*race.Index)
	if !ok {
		return fmt.Errorf("its index, a %T, can not be walked", s.t.Index)
	}
	th := s.w.thread
	if s.buf, err = th.Alloc(copyBatch * copyProbe); err != nil {
		return err
	}
	defer th.Free(s.buf, copyBatch*copyProbe)
	s.todo = s.todo[:0]
	err = ix.Walk(s.w.coro, func(at memory.Addr, c index.Candidate) error {
		s.todo = append(s.todo, slotBlock{at, c})
		if len(s.todo) < copyBatch {
			return nil
		}
		return s.flush()
	})
	if err != nil {
		return err
	}
	return s.flush()
}

// view is the map to read by. When a blade is lost all sessions are declared dead, the
// worker's too, and its reads fail from then on: until everything is decided that was under
// way, records are unlocked on the copies that are left that are not what they seem.
func (s *copier) view() *memory.View {
	if mutant.BackupReadsUndecided {
		return s.w.db.space.View()
	}
	return s.w.db.space.ViewOn(s.w.thread)
}

// flush reads the collected blocks, and writes the records that are in them.
func (s *copier) flush() error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	th, b, v := s.w.thread, &s.batch, s.view()
	b.Reset()
	for i, e := range s.todo {
		if !v.Valid(e.c.Addr) {
			continue // a segment that is younger than the view; copied one by one below
		}
		b.Read(v.At(e.c.Addr, 0), s.buf+uint32(i*copyProbe), min(e.c.Class.Size(), copyProbe))
	}
	if b.Len() > 0 {
		if err := s.w.coro.Do(b); err != nil {
			return err
		}
	}
	for i, e := range s.todo {
		if v.Valid(e.c.Addr) {
			img := record.Image(th.Bytes(s.buf+uint32(i*copyProbe), min(e.c.Class.Size(), copyProbe)))
			if done, _, err := s.take(img, e.c.Addr); err != nil {
				return err
			} else if done {
				continue
			}
		}
		if err := s.one(e); err != nil {
			return err
		}
	}
	s.todo = s.todo[:0]
	return nil
}

// take writes the record in an image if it is the state of an unlocked record,
// and reports whether that is so; need is how many bytes it takes to know, 0: unknown.
func (s *copier) take(img record.Image, a memory.Addr) (done bool, need int, err error) {
	need, err = img.Check(a)
	s.foreign = err == nil && need <= len(img) && img.Stable() && img.Meta().State() != record.Free && img.Meta().Table() != s.t.ID
	if err != nil || !img.Stable() || s.foreign {
		return false, need, nil //nolint:nilerr // not readable yet: it is read again, or found to be damaged there
	}
	switch img.Meta().State() {
	case record.Absent:
		return true, need, nil
	case record.Live:
		if err := s.out.Base(s.t.ID, img.Key(), img.Value()); err != nil {
			return false, need, err
		}
		s.records++
		if s.progress != nil && s.records%reportStep == 0 {
			s.progress(s.records)
		}
		return true, need, nil
	}
	return false, need, nil // freed: the slot leads elsewhere by now, or nowhere
}

// one copies what a slot leads to, and waits until it is not locked.
func (s *copier) one(e slotBlock) error {
	th, c, b := s.w.thread, s.w.coro, &s.batch
	word, err := th.Alloc(8)
	if err != nil {
		return err
	}
	defer th.Free(word, 8)
	size := copyProbe
	var was, doubted race.Slot
	s.torn, s.still = s.torn[:0], 0
	strange := 0 // looks in a row at a slot whose block is another one's
	for tries := 1; ; tries++ {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		v := s.view()
		b.Reset()
		b.Read(v.At(e.at, 0), word, 8)
		if err := c.Do(b); err != nil {
			return err
		}
		slot := race.Slot(th.Word(word))
		if slot.Empty() {
			return nil // deleted; or moved to a sub-table that Walk comes to
		}
		if err := slot.Check(); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if strange++; slot != was {
			was, strange = slot, 0
		}
		e.c = index.Candidate{Addr: slot.Addr(), Class: slot.Class()}
		known := v.Valid(e.c.Addr)
		var key []byte
		if known {
			room := int(e.c.Class.Size())
			size = min(size, room)
			var need int
			var done bool
			if done, need, key, err = s.read(v, e.c, size); err != nil || done {
				return err
			}
			if need > size && size < room {
				size = need
				continue
			}
			if need <= room && !s.foreign { // else it is no record that the slot leads to
				strange = 0
			}
		}
		if strange > maxStrange {
			what := "holds something else"
			if !known {
				what = "lies in no segment"
			}
			return fmt.Errorf("%w: the slot at %v leads to block %v of class %d, which %s; the database, closed, can be checked", ErrCorrupt, e.at, e.c.Addr, e.c.Class, what)
		}
		if s.still > maxStill && th.Now()-s.since > maxStillNs { // whoever was writing it would have come to an end
			return fmt.Errorf("%w: block %v, to which the slot at %v leads, does not match its checksum, and nobody is writing it; the database, closed, can be checked, and repaired from another copy", ErrCorrupt, e.c.Addr, e.at)
		}
		if tries%patience == 0 && len(key) > 0 {
			// Its owner may be dead: a transaction that meets the lock knows what to do.
			if err := s.visit(key); err != nil {
				return err
			}
		} else if tries%patience == 0 && known {
			free, err := s.w.o.Examine(e.c.Addr)
			if s.w.o.Asks() {
				s.w.db.askIdle()
			}
			if err != nil {
				return err
			}
			damaged := false
			if tidy := s.w.db.space.Tidy(); free {
				if damaged, err = s.w.o.Contradicted(e.c.Addr); err != nil {
					return err
				}
				if !damaged && tidy && s.w.db.space.Tidy() {
					return nil // what a dead one has left of an insert that never was
				}
				if !damaged {
					s.w.maintain() // it cannot be told from damage before that was swept
				}
			}
			if damaged && doubted == slot { // which has led there all the time
				return fmt.Errorf("%w: the slot at %v leads to block %v, which is free, and was not freed; the database, closed, can be checked, and repaired from another copy", ErrCorrupt, e.at, e.c.Addr)
			}
			if doubted = 0; damaged {
				doubted = slot
			}
		}
		c.Sleep(int64(min(tries, patience)) * 1000)
	}
}

// read reads size bytes of a block. If they are a record that is locked, it
// returns its key.
func (s *copier) read(v *memory.View, cand index.Candidate, size int) (done bool, need int, key []byte, err error) {
	if s.img, err = s.fetch(s.img[:0], v.At(cand.Addr, 0), size); err != nil {
		return false, 0, nil, err
	}
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
