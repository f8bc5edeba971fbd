package txn

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"txnode/memory/layout"
	"txnode/occ"
	"txnode/txn/snapshot"
)

// BackupOptions are options of DB.Backup, DB.Restore and RestoreDir. The zero value is the default.
type BackupOptions struct {
	// Progress, if not nil, is called now and then with the number of records done
	// so far, from the goroutine of the caller.
	Progress func(records uint64)
	// SkipDamaged, if not nil, has Backup go on where a record, a slot or an index is damaged on
	// every copy. Backup leaves that out and calls SkipDamaged, from the goroutine of the caller.
	// nil: Backup fails with ErrCorrupt. Damage to one of several copies is no reason to leave
	// anything out. Restore does not use it. It deletes the entries of indexes that lead to what
	// was left out, and marks an index of which entries were left out, or whose Key only the
	// program knows, as not built: see Index.Build.
	SkipDamaged func(Skipped)
}

// Skipped is what a backup has left out.
type Skipped struct {
	Table string
	// Key is the key of the record as a damaged copy shows it, encoded by the table's Key, and
	// possibly damaged too; nil: no copy shows one, or Rest is set.
	Key []byte
	// Block is the block of the record, by its logical address, or, without Key, that of a leaf of
	// an ordered table, whose records are left out: Err says which keys they have. 0: the slot is
	// damaged, or Rest is set.
	Block layout.Addr
	// Rest says that the index of the table is damaged: the records that the index did not lead to
	// before the damage was met are left out, and how many they are is not known.
	Rest bool
	Err  error // an ErrCorrupt that says where the damage is
}

// settleNs is how long is waited for those that have a number to commit, or not, between
// two looks.
const settleNs = 10_000

// Backup writes a copy of the whole database to w, in the format of package txn/snapshot, while
// transactions run. The copy is the state after a set of transactions that come first in a serial
// order. The set has every transaction that committed before the call, and none that began after
// Backup returned.
//
// Backup takes no locks. It takes one worker. While it runs, transactions that write validate again
// what they have only read, and keep what they changed until it is written. Only the caller's
// goroutine calls w. A w that blocks holds up no commit: changes are kept meanwhile, up to
// snapshot.MaxPending bytes. From half of that on each commit waits for w for a millisecond. When w
// has taken nothing for 10 s, or the memory is full, Backup fails with snapshot.ErrBehind.
//
// A record that is damaged on one copy is read from another one, and repaired. If every copy is
// damaged, Backup fails with ErrCorrupt; BackupOptions.SkipDamaged has it leave the record out.
//
// One backup runs at a time. After an error, such as the loss of a blade, what was written is not a
// backup, and Restore refuses it.
//
// A database that several processes can have open (Options.Shared) is copied beside all of them, in
// another way: see backupShared. The copy is then the state at one moment, soon after the call. All
// transactions that are under way at that moment are decided before others go on, which takes
// milliseconds. Until the backup ends, the first change of each record, by any process, keeps what
// it replaces on the blades. A slow w holds up no commit, but the longer the backup takes the more
// is kept. Blades that are lost, and other processes that die, do not end such a backup. If the
// blades have no room for what is kept, or a transaction has none in its log area, the transaction
// goes on, and the backup fails with memory.ErrCut. So it does when others have taken this process
// for dead. While another process makes a backup it is memory.ErrShared.
func (db *DB) Backup(ctx context.Context, w io.Writer, o BackupOptions) (snapshot.Info, error) {
	info, err := db.backup(ctx, w, o)
	if err != nil {
		return info, fmt.Errorf("txn: backup: %w", err)
	}
	return info, nil
}

func (db *DB) backup(ctx context.Context, w io.Writer, o BackupOptions) (info snapshot.Info, err error) {
	if db.isClosed() {
		return info, ErrClosed
	}
	worker, err := db.ownWorker(ctx)
	if err != nil {
		return info, err
	}
	defer func() { err = worker.dismiss(ctx, err) }()
	for !db.dropMu.TryRLock() {
		if ctx.Err() != nil {
			return info, canceled(ctx)
		}
		worker.Sleep(dropPauseNs)
	}
	defer db.dropMu.RUnlock()
	// An epoch may have begun before that, by which the worker was declared dead: it rejoins.
	if err := worker.View(ctx, func(*Tx) error { return nil }); err != nil {
		return info, err
	}
	out, err := snapshot.NewWriter(w, db.header())
	if err != nil {
		return info, err
	}
	if db.space.Shared() {
		return db.backupShared(ctx, worker, out, o)
	}
	var changes []snapshot.Change
	pace, tally := pace{out: out}, newTally(true)
	tap := occ.NewTap(func(number uint64, writes []occ.TapWrite) error {
		changes = changes[:0]
		for i := range writes {
			c := &writes[i]
			if c.Key == nil || c.Table.Dropped() {
				continue // a block; or by a transaction that has used the table before
			}
			changes = append(changes, snapshot.Change{
				Table: c.Table.ID, Key: c.Key, Value: c.Value, Deleted: c.Deleted,
			})
		}
		tally.changed(number, writes)
		return pace.commit(number, changes)
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
	s := copier{ctx: ctx, w: worker, out: out, progress: o.Progress, skipDamaged: o.SkipDamaged, tally: tally}
	defer func() { info.Skipped = total(s.skipped) }()
	if err := s.tables(tables); err != nil {
		return info, err
	}

	cut, tables, err := tablesAt(tap.Cut, db.space.Tables)
	if err != nil {
		return info, err
	}
	for {
		done, err := tap.Settled(cut)
		if err != nil {
			return info, err
		}
		if done {
			break
		}
		if err := out.Flush(); err != nil {
			return info, err
		}
		if ctx.Err() != nil {
			return info, canceled(ctx)
		}
		worker.Sleep(settleNs)
	}
	db.engine.Detach(tap)
	return out.Finish(cut, listed(tables, s.skipped, tally.at(cut)))
}

// header describes the database.
func (db *DB) header() snapshot.Header {
	l := db.space.Layout()
	h := snapshot.Header{
		Created: time.Now().UTC(), Blades: len(l.Blades),
		SegmentSize: l.SegmentSize, LogArea: l.LogArea, Backups: l.Backups,
	}
	for i := range l.Blades {
		h.BladeSize = max(h.BladeSize, l.Blades[i].Size)
	}
	return h
}

// inBackup reports whether a backup has a table: its creation has come to its end, it is not being
// dropped, and it is not that of backups themselves.
func inBackup(t *layout.Table) bool {
	if t.Root == 0 || t.State != layout.TableLive {
		return false
	}
	o, err := decodeTableOptions(t.Options)
	return err != nil || !o.Kept
}

// total is how much was left out of all tables.
func total(skipped map[string]uint64) (n uint64) {
	for _, of := range skipped {
		n += of
	}
	return n
}

// listed is the list of the tables of a backup, given what was left out of them, and how many
// records they have, by number.
func listed(tables []layout.Table, skipped map[string]uint64, records map[uint16]uint64) []snapshot.Table {
	list := make([]snapshot.Table, 0, len(tables))
	for i := range tables {
		t := &tables[i]
		if !inBackup(t) {
			continue
		}
		x := snapshot.Table{ID: t.ID, Name: t.Name, Options: json.RawMessage(t.Options), Skipped: skipped[t.Name]}
		if o, err := decodeTableOptions(t.Options); err == nil && o.Of != "" {
			x.Entries = records[t.ID]
		} else {
			x.Records = records[t.ID]
		}
		list = append(list, x)
	}
	return list
}

// tablesAt draws the number of a cut, and returns the tables as the catalog has them at
// the cut. What it says later is too much: an index may have been built since, by
// transactions behind the cut.
func tablesAt(draw func() uint64, read func() ([]layout.Table, error)) (cut uint64, tables []layout.Table, err error) {
	tables, err = read()
	for err == nil {
		before := tables
		cut = draw()
		if tables, err = read(); err == nil && slices.EqualFunc(before, tables, sameTable) {
			break
		}
	}
	return cut, tables, err
}

// sameTable reports whether the catalog says the same of two tables.
func sameTable(x, y layout.Table) bool { return reflect.DeepEqual(x, y) }

// pace has commits wait for a backup that is not written as fast as they come, within bounds. It is
// called by one transaction at a time.
type pace struct {
	out    *snapshot.Writer
	frames uint64    // that were written
	since  time.Time // when they were as many first
}

const (
	paceWait  = time.Millisecond
	paceLimit = 10 * time.Second
)

func (p *pace) commit(number uint64, changes []snapshot.Change) error {
	if err := p.out.Commit(number, changes); err != nil {
		return err
	}
	if p.out.Pending() < snapshot.MaxPending/2 {
		p.since = time.Time{}
		return nil
	}
	time.Sleep(paceWait)
	frames, now := p.out.Frames(), time.Now()
	if p.since.IsZero() || frames != p.frames {
		p.frames, p.since = frames, now
	}
	if now.Sub(p.since) > paceLimit {
		return snapshot.ErrBehind
	}
	return nil
}
