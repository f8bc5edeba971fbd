package txn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"go.uber.org/zap"

	"txnode/index"
	"txnode/index/race"
	"txnode/index/tree"
	"txnode/internal/validate"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// tableOptions is what the catalog keeps of a table for this layer.
type tableOptions struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Index string `json:"index"`
	// MaxKey, of an ordered table, is the length of the longest key in bytes.
	MaxKey int `json:"max_key,omitempty"`
	// Indexes are the table's secondary indexes. Of is the table that this one is an index of.
	Indexes []indexOptions `json:"indexes,omitempty"`
	Of      string         `json:"of,omitempty"`
	// Kept says that it is the table of backups beside several processes: see keptTable.
	Kept bool `json:"kept,omitempty"`
}

// Kinds of indexes, as TableInfo and the catalog name them.
const (
	indexHash    = "race"
	indexOrdered = "blink"
)

// is reports whether a table has the types and the index that are wanted.
func (o tableOptions) is(want tableOptions) bool {
	return o.Key == want.Key && o.Value == want.Value && o.Index == want.Index &&
		(want.MaxKey == 0 || o.MaxKey == want.MaxKey) && (want.Of == "" || o.Of == want.Of)
}

// decodeTableOptions reads what the catalog keeps of a table, whatever it is.
func decodeTableOptions(p []byte) (o tableOptions, err error) {
	if err := json.Unmarshal(p, &o); err != nil {
		return o, fmt.Errorf("%w: its options in the catalog: %w", ErrCorrupt, err)
	}
	return o, nil
}

// CreateTable creates a table. If the table exists it opens it; other types of key or value are
// ErrTableType. A failure, as on full blades, creates no table. Indexes of a table that has records
// are to be built: see [Index.Build].
func CreateTable[K, V any](db *DB, name string, key Key[K], value Codec[V], indexes ...TableIndex[K, V]) (
	*Table[K, V], error) {
	has, err := defineIndexes(name, key, indexes)
	if err != nil {
		return nil, err
	}
	t, err := typedTable(db, name, key, value, tableOptions{Index: indexHash, Indexes: has}, true)
	if err != nil {
		return nil, err
	}
	return withIndexes(&Table[K, V]{t: t, db: db, key: key, value: value}, indexes, true)
}

// OpenTable opens a table that exists, or returns ErrNoTable.
func OpenTable[K, V any](db *DB, name string, key Key[K], value Codec[V], indexes ...TableIndex[K, V]) (
	*Table[K, V], error) {
	t, err := typedTable(db, name, key, value, tableOptions{Index: indexHash}, false)
	if err != nil {
		return nil, err
	}
	return withIndexes(&Table[K, V]{t: t, db: db, key: key, value: value}, indexes, false)
}

// typedTable is table with the names of key and value. It refuses them without functions:
// what they are for would panic later.
func typedTable[K, V any](db *DB, name string, key Key[K], value Codec[V], want tableOptions, create bool) (
	*occ.Table, error) {
	var faults validate.Faults
	faults.Check(key.Append != nil, "table %q: its Key has no Append", name)
	faults.Check(value.Append != nil, "table %q: its Codec has no Append", name)
	faults.Check(value.Decode != nil, "table %q: its Codec has no Decode", name)
	if create {
		faults.Check(name != "", "a table needs a name")
		faults.Check(utf8.ValidString(name), "the name of table %.40q is not UTF-8", name)
		faults.Check(name != keptName, "the name %q is that of a table of backups", name)
		faults.Check(len(name) <= layout.MaxTableName, "table %.40q...: its name has %d bytes, and %d are possible",
			name, len(name), layout.MaxTableName)
	}
	if err := faults.Err(ErrOptions); err != nil {
		return nil, err
	}
	want.Key, want.Value = key.Name, value.Name
	return db.table(name, want, create)
}

// Tables returns the names of all tables, but for those that are indexes of others, and that of
// backups beside several processes.
func (db *DB) Tables() ([]string, error) {
	if db.isClosed() {
		return nil, ErrClosed
	}
	ts, err := db.space.Tables()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(ts))
	for i := range ts {
		if ts[i].Root == 0 || ts[i].State != layout.TableLive { // its creation was not finished, or it is dropped
			continue
		}
		if o, err := decodeTableOptions(ts[i].Options); err != nil || o.Of == "" && !o.Kept {
			names = append(names, ts[i].Name)
		}
	}
	return names, nil
}

// table returns a table.
func (db *DB) table(name string, want tableOptions, create bool) (t *occ.Table, err error) {
	var w *Worker // makes an index of nodes, which are committed
	if create && (want.Index == indexOrdered || db.opts.LeafIndex) && !db.readOnly() {
		if _, e := db.findTable(name, want, false); errors.Is(e, ErrNoTable) {
			if w, err = db.NewWorker(); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, w.Close()) }()
		}
	}
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	if db.isClosed() {
		return nil, ErrClosed
	}
	meta, made, err := db.makeTable(name, want, create && !db.readOnly())
	defer made()
	if create && db.readOnly() && errors.Is(err, ErrNoTable) {
		return nil, fmt.Errorf("%w: table %q can not be created", ErrReadOnly, name)
	}
	if err != nil {
		return nil, fmt.Errorf("txn: table %q: %w", name, err)
	}
	has, err := decodeTableOptions(meta.Options)
	if err != nil {
		return nil, fmt.Errorf("txn: table %q: %w", name, err)
	}
	if !has.is(want) {
		return nil, fmt.Errorf("%w: table %q has keys %s, values %s, index %s; asked for %s, %s, %s",
			ErrTableType, name, has.Key, has.Value, has.Index, want.Key, want.Value, want.Index)
	}
	if t := db.tables[name]; t != nil && t.ID == meta.ID {
		return t, nil
	}
	if meta.InBlocks() {
		if t, err = db.nodesTable(w, meta); err != nil {
			return nil, fmt.Errorf("txn: index of table %q: %w", name, err)
		}
		db.opened(t)
		return t, nil
	}
	var ix *race.Index
	err = db.withBlades(func(c *rdma.Coro) (err error) {
		if meta.Root != 0 {
			if ix, err = db.openIndex(c, meta, func() error { return db.othersRest(c) }); err == nil {
				db.equip(ix)
			}
			return err
		}
		// Created now, or by a process that stopped here: the index is made first, then
		// recorded.
		var root layout.Addr
		if root, ix, err = race.Create(c, db.space, meta.ID, race.Options{Groups: db.opts.IndexGroups}); err == nil {
			db.equip(ix)
			err = db.setRoot(meta.ID, root)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("txn: index of table %q: %w", name, err)
	}
	t = &occ.Table{ID: meta.ID, Name: name, Index: ix}
	db.opened(t)
	return t, nil
}

// setRoot has a table that is made be there for all.
func (db *DB) setRoot(table uint16, root layout.Addr) error {
	err := db.space.SetTableRoot(table, root)
	switch {
	case errors.Is(err, memory.ErrNoTable): // another process has dropped it meanwhile
		err = fmt.Errorf("%w: %w", ErrNoTable, err)
	case errors.Is(err, memory.ErrTableExists): // the right to make it has ended
		err = fmt.Errorf("%w: %w", memory.ErrEnded, err)
	}
	return err
}

// leafHints is the part of the address cache that the addresses of leaves may take, by 8 bytes each.
const leafHints = 8 * 8

// opened notes a table that was opened, with what is known of it by now. db.ctlMu is held.
func (db *DB) opened(t *occ.Table) {
	db.tables[t.Name] = t
	db.names.add(t)
	db.space.WithTable(t.ID, db.fold)
}

// openIndex opens the index of a table, which no transaction uses yet. What is damaged of its
// primary is repaired from a copy, when others has returned nil: no transaction of another process
// that may change it is under way.
func (db *DB) openIndex(c *rdma.Coro, meta layout.Table, others func() error) (*race.Index, error) {
	ix, err := race.Open(c, db.space, meta.Root, meta.ID)
	if ill := errors.Is(err, ErrCorrupt) || err == nil && ix.Ill(); !ill || db.space.ReadOnly() || !db.space.Tidy() ||
		db.space.FailoverPending() {
		return ix, err
	}
	if others() != nil {
		return ix, err // it is repaired when a transaction meets the damage, or at the next opening
	}
	words, e := race.Heal(c, db.space, meta.Root, meta.ID)
	if words > 0 {
		db.opts.Logger.Warn("a damaged index was mended from another copy", zap.String("table", meta.Name),
			zap.Stringer("near", meta.Root), zap.Int("words", words))
	}
	if e != nil && !errors.Is(e, ErrCorrupt) {
		return nil, e
	}
	return race.Open(c, db.space, meta.Root, meta.ID)
}

// othersRest is calm of the control coroutine, if others have the database open. ctlMu is held, and
// nothing is under way on the coroutine.
func (db *DB) othersRest(c *rdma.Coro) error {
	if !db.space.Shared() {
		return nil
	}
	db.resting.idle.Store(true)
	defer db.resting.idle.Store(false)
	return db.calm(context.Background(), c, func() {})
}

// equip tells an index what it needs to know of the database.
func (db *DB) equip(ix *race.Index) {
	ix.SetGone(db.gone)
	ix.SetVacant(recovery.Vacant(db.space))
	ix.SetSpoilt(recovery.Spoilt(db.space))
}

// makeTable is findTable, and gives the caller the right to make the index of a table that has none
// yet, until it calls made: one process at a time does so.
func (db *DB) makeTable(name string, want tableOptions, create bool) (meta layout.Table, made func(), err error) {
	made = func() {}
	c := db.ctl.Plain()
	for since := c.Thread().Now(); ; {
		meta, err = db.findTable(name, want, create)
		if errors.Is(err, memory.ErrTableExists) || errors.Is(err, memory.ErrRevision) { // since it was looked for
			continue
		}
		if err != nil || meta.Root != 0 {
			return meta, made, err
		}
		of := uint32(meta.ID)
		if !db.space.AcquireRight(of) {
			if c.Thread().Now()-since > dropRestNs {
				return meta, made, fmt.Errorf("another process makes it: %w", index.ErrBusy)
			}
			c.Sleep(dropPauseNs)
			continue
		}
		ts, err := db.space.Tables()
		if err != nil {
			db.space.ReleaseRight(of)
			return meta, made, err
		}
		if t := &ts[meta.ID-1]; t.Root == 0 && t.State == layout.TableLive && bytes.Equal(t.Options, meta.Options) {
			return meta, func() { db.space.ReleaseRight(of) }, nil
		}
		db.space.ReleaseRight(of)
	}
}

func (db *DB) findTable(name string, want tableOptions, create bool) (layout.Table, error) {
	ts, err := db.space.Tables()
	if err == nil && liveTable(ts, name) == nil && db.space.Shared() { // another process may have made it just now
		if err = db.space.Follow(); err == nil {
			ts, err = db.space.Tables()
		}
	}
	if err != nil {
		return layout.Table{}, err
	}
	if t := liveTable(ts, name); t != nil {
		return *t, nil
	}
	if !create {
		return layout.Table{}, ErrNoTable
	}
	var of *layout.Table
	if want.Of != "" {
		if of = liveTable(ts, want.Of); of == nil || !hasIndex(of, name) {
			return layout.Table{}, fmt.Errorf("%w: table %q, or its index, was dropped meanwhile", ErrNoTable, want.Of)
		}
	}
	for _, x := range want.Indexes {
		if liveTable(ts, indexTable(name, x.Name)) != nil {
			return layout.Table{}, notIndex(name, x.Name)
		}
	}
	// Others could not be told from it when the table is opened.
	var faults validate.Faults
	faults.Check(want.Key != "" && utf8.ValidString(want.Key),
		"the Name of its Key is %q: some words in UTF-8 are needed", want.Key)
	faults.Check(want.Value != "" && utf8.ValidString(want.Value),
		"the Name of its Codec is %q: some words in UTF-8 are needed", want.Value)
	if err := faults.Err(ErrOptions); err != nil {
		return layout.Table{}, err
	}
	options, err := json.Marshal(want)
	if err != nil {
		return layout.Table{}, err
	}
	switch want.Index {
	case indexOrdered:
		nodes, err := tree.Fit(want.MaxKey)
		if err != nil {
			return layout.Table{}, fmt.Errorf("%w: MaxKey is %d: from 1 to %d are possible: %w", ErrOptions,
				want.MaxKey, record.MaxKey, err)
		}
		return db.space.CreateNodesTable(name, options, nodes, want.MaxKey, of)
	case indexHash:
		if db.opts.LeafIndex {
			return db.space.CreateNodesTable(name, options, tree.LeafClass, 0, of)
		}
		return db.space.CreateTable(name, options)
	}
	return layout.Table{}, fmt.Errorf("%w: it has an index %q, which this program does not know", ErrTableType,
		want.Index)
}

// nodesTable returns a table with an index of nodes. If that has no root yet, w makes it.
func (db *DB) nodesTable(w *Worker, meta layout.Table) (*occ.Table, error) {
	t := &occ.Table{ID: meta.ID, Name: meta.Name, Hashed: !meta.Ordered()}
	if meta.Root == 0 {
		if w == nil {
			return nil, ErrReadOnly
		}
		root, err := w.newNodes(t, meta.Nodes)
		if err == nil {
			err = db.setRoot(meta.ID, root)
		}
		if err != nil && !errors.Is(err, ErrNoSpace) { // it may have been committed: the next opening frees it
			e := db.space.ChangeTables(memory.TableChange{ID: meta.ID, Drop: true, Unmade: true})
			if !errors.Is(e, memory.ErrTableExists) { // else it has a root, and other processes may have records in it
				err = errors.Join(err, e)
			}
		}
		if err != nil {
			return nil, err
		}
		meta.Root = root
	}
	return db.withTree(t, meta)
}

// newNodes makes the first nodes of the index of a table.
func (w *Worker) newNodes(t *occ.Table, nodes layout.Class) (root layout.Addr, err error) {
	empty := tree.Empty
	if t.Hashed {
		empty = tree.EmptyHashed
	}
	err = w.insist(context.Background(), func() (err error) {
		if root, err = w.o.NewNodes(t, nodes, empty); errors.Is(err, ErrConflict) {
			err = ErrFenced // only the epoch is in its way
		}
		return err
	})
	return root, err
}

// withTree gives a table its index of nodes.
func (db *DB) withTree(t *occ.Table, meta layout.Table) (*occ.Table, error) {
	ix, err := tree.Open(db.space, &meta, db.treeOptions())
	if err != nil {
		return nil, err
	}
	t.Ordered = ix
	return t, nil
}

// treeOptions are those of indexes of nodes.
func (db *DB) treeOptions() tree.Options {
	return tree.Options{
		MaxEntries: db.opts.NodeEntries, Leaves: cmp.Or(db.opts.CacheBytes, occ.DefaultCacheBytes) / leafHints,
	}
}
