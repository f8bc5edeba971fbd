package txn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"txnode/index"
	"txnode/internal/validate"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// Errors of secondary indexes; test with errors.Is.
var (
	// ErrUnique: a value would have a key in a unique index that another record has; errors.As with *UniqueError names
	// index and key.
	ErrUnique = errors.New("txn: another record has this key in a unique index")
	// ErrIndex: the function of an index has panicked, or has returned a key that is empty or too long. The message
	// names the index and the record.
	ErrIndex = errors.New("txn: an index cannot be kept")
	// ErrIndexes: the table has an index that this handle was opened without, and so cannot write.
	ErrIndexes = errors.New("txn: the table has indexes that the handle was opened without: open it with them, or drop them")
	// ErrBuilding: the index does not know all records yet; Index.Build makes it.
	ErrBuilding = errors.New("txn: the index is not built yet; call its Build")
)

// UniqueError is an ErrUnique.
type UniqueError struct {
	Table, Index string
	Key          []byte // in the index, as its Key has encoded it

	name string
}

// Error names the index and the key.
func (e *UniqueError) Error() string {
	return fmt.Sprintf("%v: index %q of table %q, key %s", ErrUnique, e.Index, e.Table, showKey(e.name, e.Key))
}

// Is matches ErrUnique.
func (e *UniqueError) Is(target error) bool { return target == ErrUnique }

// Index is a secondary index of a table with keys of type K and values of type V: it finds records by keys of type I
// that a function makes of each. Pass it to CreateTable, OpenTable, CreateOrderedTable or OpenOrderedTable: whoever writes
// to the table needs it, and every write keeps it, in the same transaction. An Index belongs to one table of one database.
// Safe for concurrent use.
//
// It is an ordered table of its own, named after the table and the index, with a record for each key. A write
// reads the value that it replaces, and costs what these records cost.
type Index[K, V, I any] struct {
	name   string
	key    Key[I]
	of     func(k K, v V) []I
	unique bool

	table   *Table[K, V] // nil: it belongs to none yet
	t       *occ.Table
	primary Key[K]
	entry   func(dst []byte, i I, k K) []byte // of the table of the index
}

// TableIndex is an Index of a table with keys of type K and values of type V.
type TableIndex[K, V any] interface {
	define() (name string, fault error)
	bind(t *Table[K, V], create bool) error
	begin() error // builds the index if the table is empty
	// change appends what becomes of the index by a change of a record; nil: it has no value.
	change(tx *Tx, k K, old, now *V) ([]indexChange, error)
}

// indexChange is a change of an entry of an index.
type indexChange struct {
	t      *occ.Table
	key    []byte
	value  []byte
	add    bool
	unique error // what it is that the key is there already; nil: no fault
	i      int   // item
	staged bool  // its insert was staged with the fetch
}

// NewIndex defines an index in which several records may have a key. of returns the keys of a record in the index, none
// or several. It must be a function of its arguments alone. To change it, or key, is to make another index.
func NewIndex[K, V, I any](name string, key Key[I], of func(k K, v V) []I) *Index[K, V, I] {
	return &Index[K, V, I]{name: name, key: key, of: of}
}

// NewUniqueIndex is NewIndex of an index in which only one record may have a key.
func NewUniqueIndex[K, V, I any](name string, key Key[I], of func(k K, v V) []I) *Index[K, V, I] {
	return &Index[K, V, I]{name: name, key: key, of: of, unique: true}
}

// indexOptions is what the catalog keeps of an index, in the options of its table.
type indexOptions struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Unique bool   `json:"unique,omitempty"`
	Built  bool   `json:"built,omitempty"` // it knows all records
}

// indexTable is the name of the table of an index.
func indexTable(table, name string) string { return table + "." + name }

func (x *Index[K, V, I]) define() (string, error) {
	var faults validate.Faults
	faults.Check(x.name != "", "an index needs a name")
	faults.Check(x.of != nil, "index %q: it has no function", x.name)
	faults.Check(x.key.Append != nil && x.key.Decode != nil && x.key.Ordered && x.key.Name != "", "index %q: its Key must have Name, Append and Decode, and be Ordered", x.name)
	faults.Check(x.table == nil, "index %q belongs to a table already: define another one", x.name)
	return x.name, faults.Err(ErrOptions)
}

// options is what the catalog is to have of the index.
func (x *Index[K, V, I]) options() indexOptions {
	return indexOptions{Name: x.name, Key: x.key.Name, Unique: x.unique}
}

func (x *Index[K, V, I]) bind(t *Table[K, V], create bool) error {
	if t.key.Decode == nil {
		return fmt.Errorf("%w: table %q has an index, Key %q", ErrNoDecode, t.t.Name, t.key.Name)
	}
	if err := t.db.noteIndex(t.t.Name, x.options(), create); err != nil {
		return err
	}
	name := indexTable(t.t.Name, x.name)
	want := tableOptions{Key: "index(" + x.key.Name + "," + t.key.Name + ")", Value: Bytes().Name, Index: indexOrdered, Of: t.t.Name}
	x.entry = func(dst []byte, i I, k K) []byte { return x.pair().Append(dst, T2(i, k)) }
	if x.unique {
		want.Key = "unique(" + x.key.Name + ")"
		x.entry = func(dst []byte, i I, _ K) []byte { return x.key.Append(dst, i) }
	}
	x.primary = t.key
	if create {
		want.MaxKey = indexMaxKey
	}
	ts, err := t.db.table(name, want, create, 0)
	if err != nil {
		return err
	}
	x.table, x.t = t, ts
	return nil
}

// begin builds the index if the table has no record yet: of one that has, Build may take long.
func (x *Index[K, V, I]) begin() error {
	t, ctx := x.table, context.Background()
	if t.db.built(t.t.Name, x.name) || t.db.opts.ReadOnly {
		return nil
	}
	empty := true
	if err := t.db.View(ctx, func(tx *Tx) error {
		for range t.Keys(tx) {
			empty = false
			break
		}
		return nil
	}); err != nil || !empty {
		return err
	}
	return x.Build(ctx, nil)
}

// indexMaxKey is the longest key of the table of an index: those of two tables, escaped.
const indexMaxKey = 2*DefaultMaxKey + 2

// pair is the key of an index that is not unique.
func (x *Index[K, V, I]) pair() Key[Tuple2[I, K]] { return Tuple2Key(x.key, x.primary) }

// keys are the entries of a record, in order.
func (x *Index[K, V, I]) keys(k K, v *V) (keys [][]byte, err error) {
	if v == nil {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: index %q of table %q: its function has panicked at key %v: %v", ErrIndex, x.name, x.table.t.Name, k, p)
		}
	}()
	for _, i := range x.of(k, *v) {
		if len(x.key.Append(nil, i)) == 0 {
			return nil, fmt.Errorf("%w: index %q of table %q: the record of key %v has an empty key in it", ErrIndex, x.name, x.table.t.Name, k)
		}
		p := x.entry(nil, i, k)
		if most := x.t.Ordered.MaxKey(); len(p) > most {
			return nil, fmt.Errorf("%w: index %q of table %q: the record of key %v has an entry of %d bytes in it, and %d are possible", ErrIndex, x.name, x.table.t.Name, k, len(p), most)
		}
		keys = append(keys, p)
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), nil
}

func (x *Index[K, V, I]) change(_ *Tx, k K, old, now *V) (changes []indexChange, err error) {
	was, err := x.keys(k, old)
	if err != nil {
		return nil, err
	}
	is, err := x.keys(k, now)
	if err != nil {
		return nil, err
	}
	for _, p := range was {
		if _, kept := slices.BinarySearchFunc(is, p, bytes.Compare); !kept {
			changes = append(changes, indexChange{t: x.t, key: p})
		}
	}
	for _, p := range is {
		if _, kept := slices.BinarySearchFunc(was, p, bytes.Compare); kept {
			continue
		}
		c := indexChange{t: x.t, key: p, add: true}
		if x.unique {
			c.value = x.primary.Append(nil, k)
			c.unique = &UniqueError{Table: x.table.t.Name, Index: x.name, Key: p, name: x.key.Name}
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// bindIndexes gives a new handle its indexes.
func (t *Table[K, V]) bindIndexes(indexes []TableIndex[K, V], create bool) error {
	if len(indexes) == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, x := range indexes {
		name, err := x.define()
		if err == nil && names[name] {
			err = fmt.Errorf("%w: index %q is there twice", ErrOptions, name)
		}
		if err == nil {
			err = x.bind(t, create)
		}
		if err != nil {
			return fmt.Errorf("txn: table %q: index %q: %w", t.t.Name, name, err)
		}
		names[name] = true
	}
	t.indexes, t.indexNames = indexes, names
	if !create {
		return nil
	}
	for _, x := range indexes {
		if err := x.begin(); err != nil {
			return fmt.Errorf("txn: table %q: %w", t.t.Name, err)
		}
	}
	return nil
}

// keep changes the indexes by a change of a record from old to now, nil: it has no value, before the record is changed.
func (t *Table[K, V]) keep(tx *Tx, k K, old, now *V) error {
	var all []indexChange
	for _, x := range t.indexes {
		changes, err := x.change(tx, k, old, now)
		if err != nil {
			return err
		}
		all = append(all, changes...)
	}
	for n := range all {
		c := &all[n]
		i, err := tx.stage(c.t, c.key, true)
		if err != nil {
			return err
		}
		if c.i = i; c.add && !tx.o.Executed(i) && !tx.o.Exists(i) {
			c.staged = true
			if err := tx.note(tx.o.Insert(i, c.value)); err != nil {
				return err
			}
		}
	}
	if tx.o.Pending() {
		if err := tx.Execute(); err != nil {
			return err
		}
	}
	for n := range all {
		c := &all[n]
		if c.staged {
			if !tx.o.Found(c.i) {
				continue // it is added
			}
			tx.o.Withdraw(c.i)
		}
		var err error
		switch has := tx.o.Exists(c.i); {
		case !c.add && has:
			err = tx.o.Delete(c.i)
		case c.add && !has:
			err = tx.o.Put(c.i, c.value)
		case c.add && c.unique != nil && !t.sameEntry(tx, c):
			err = c.unique
		}
		if err != nil {
			return tx.note(err)
		}
	}
	return nil
}

// withIndexes gives a new handle its indexes.
func withIndexes[K, V any](t *Table[K, V], indexes []TableIndex[K, V], create bool) (*Table[K, V], error) {
	if err := t.bindIndexes(indexes, create); err != nil {
		return nil, err
	}
	return t, nil
}

// sameEntry reports whether an entry of a unique index is that of the record already.
func (t *Table[K, V]) sameEntry(tx *Tx, c *indexChange) bool {
	v, ok := tx.o.Read(c.i)
	return ok && bytes.Equal(v, c.value)
}

// What a write of a table with indexes is. They are functions of their own, so that values of other tables stay off the heap.

func (t *Table[K, V]) putIndexed(tx *Tx, k K, v V) error {
	return t.store(tx, k, &v, func(bool) error { return nil })
}

func (t *Table[K, V]) removeIndexed(tx *Tx, k K) error {
	return t.store(tx, k, nil, func(bool) error { return nil })
}

func (t *Table[K, V]) insertIndexed(tx *Tx, k K, v V) error {
	return t.store(tx, k, &v, func(found bool) error {
		if found {
			return ErrExists
		}
		return nil
	})
}

func (t *Table[K, V]) deleteIndexed(tx *Tx, k K) error {
	return t.store(tx, k, nil, func(found bool) error {
		if !found {
			return ErrNotFound
		}
		return nil
	})
}

// store sets the value of a key of a table with indexes, nil: deletes it. found is whether it had one.
func (t *Table[K, V]) store(tx *Tx, k K, now *V, want func(found bool) error) error {
	if err := t.db.lacking(t.t, t.indexNames); err != nil {
		return err
	}
	key := bytes.Clone(t.encode(tx, k))
	i, err := tx.fetch(t.t, key, true)
	if err != nil {
		return named(err, t.key.Name)
	}
	var old *V
	p, found := tx.o.Read(i)
	if err := want(found); err != nil {
		return named(keyError(err, t.t, key), t.key.Name)
	}
	if now == nil && !found {
		return nil
	}
	if found {
		v, err := t.decode(k, bytes.Clone(p))
		if err != nil {
			return err
		}
		old = &v
	}
	if err := t.keep(tx, k, old, now); err != nil {
		return err
	}
	if now == nil {
		return tx.note(tx.o.Delete(i))
	}
	value, err := t.encodeValue(tx, k, *now)
	if err != nil {
		return err
	}
	return tx.note(tx.o.Put(i, value))
}

// ready returns why the index cannot be asked in tx, or nil.
func (x *Index[K, V, I]) ready(tx *Tx) error {
	if x.table == nil {
		return fmt.Errorf("%w: index %q belongs to no table: create or open one with it", ErrOptions, x.name)
	}
	if err := tx.usable(); err != nil {
		return err
	}
	if !x.table.db.built(x.table.t.Name, x.name) {
		return fmt.Errorf("%w: index %q of table %q", ErrBuilding, x.name, x.table.t.Name)
	}
	return nil
}

// bounds are those of the entries of the index keys between two bounds.
func (x *Index[K, V, I]) bounds(from, to Bound[I]) (a, b index.Bound) {
	end := func(o Bound[I], behind bool) index.Bound {
		p := x.key.Append(nil, o.key)
		if x.unique {
			return index.Bound{Key: p, After: behind}
		}
		p = part(x.key).Append(nil, o.key) // what the entries of this key begin with
		if behind {
			return behindPrefix(p)
		}
		return index.Bound{Key: p}
	}
	b.End = true
	if from.bound != unbounded {
		a = end(from, from.bound == excluding)
	}
	if to.bound != unbounded {
		b = end(to, to.bound == including)
	}
	return a, b
}

// walk calls fn for each entry between two bounds.
func (x *Index[K, V, I]) walk(tx *Tx, from, to Bound[I], o rangeOptions, fn func(i I, k K) (bool, error)) {
	if err := x.ready(tx); err != nil {
		if !tx.over() && tx.err == nil {
			_ = tx.stop(err)
		}
		return
	}
	a, b := x.bounds(from, to)
	tx.walkRange(x.table.db, x.t, a, b, o, func(key, value []byte) (bool, error) {
		if x.unique {
			i, err := x.key.Decode(key)
			if err != nil {
				return false, err
			}
			k, err := x.primary.Decode(value)
			if err != nil {
				return false, err
			}
			return fn(i, k)
		}
		p, err := x.pair().Decode(key)
		if err != nil {
			return false, err
		}
		return fn(p.A, p.B)
	})
}

// Range ranges over the keys of the index between two bounds, in order, with the keys of the records that have them: see
// [OrderedTable.Range]. The records are not read.
func (x *Index[K, V, I]) Range(tx *Tx, from, to Bound[I], options ...RangeOption) iter.Seq2[I, K] {
	o := optionsOf(options)
	return func(yield func(I, K) bool) {
		x.walk(tx, from, to, o, func(i I, k K) (bool, error) { return yield(i, k), nil })
	}
}

// rowsAtOnce is how many records Rows fetches in one round trip.
const rowsAtOnce = 64

// Rows ranges over the records whose keys in the index are between two bounds, in the order of these keys: Range, and
// a round trip for every 64 records.
func (x *Index[K, V, I]) Rows(tx *Tx, from, to Bound[I], options ...RangeOption) iter.Seq2[K, V] {
	o := optionsOf(options)
	return func(yield func(K, V) bool) {
		var keys []K
		flush := func() (bool, error) {
			if err := x.table.StageAll(tx, ForRead, keys...); err != nil {
				return false, err
			}
			for _, k := range keys {
				v, found, err := x.table.Lookup(tx, k)
				if err == nil && !found {
					continue // the loop has deleted it
				}
				if err != nil || !yield(k, v) {
					return false, err
				}
			}
			keys = keys[:0]
			return true, nil
		}
		ended := false
		x.walk(tx, from, to, o, func(_ I, k K) (bool, error) {
			if keys = append(keys, k); len(keys) < rowsAtOnce {
				return true, nil
			}
			ok, err := flush()
			ended = !ok
			return ok, err
		})
		if ended || len(keys) == 0 || tx.usable() != nil {
			return
		}
		if _, err := flush(); err != nil && tx.usable() == nil {
			_ = tx.stop(err)
		}
	}
}

// Lookup returns the first record that has the key i in the index; found is false if none has.
func (x *Index[K, V, I]) Lookup(tx *Tx, i I) (k K, v V, found bool, err error) {
	if err := x.ready(tx); err != nil {
		return k, v, false, err
	}
	for a, b := range x.Rows(tx, Including(i), Including(i), Limit(1)) {
		k, v, found = a, b, true
		break
	}
	return k, v, found, tx.usable()
}

// Build makes an index that was defined when the table had records. It goes on beside transactions, in small ones of its own;
// progress, if not nil, is told how many records it has looked at. If it is stopped, or the process dies, another call begins
// again, and has less to do. A second record with a key of a unique index is ErrUnique. Build of an index that is built does nothing.
func (x *Index[K, V, I]) Build(ctx context.Context, progress func(records uint64)) (err error) {
	if x.table == nil {
		return fmt.Errorf("%w: index %q belongs to no table: create or open one with it", ErrOptions, x.name)
	}
	t, db := x.table, x.table.db
	if db.built(t.t.Name, x.name) {
		return nil
	}
	w, err := db.NewWorker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	// Transactions that do not keep the index may be under way. None begins, since the catalog has it.
	for rest := occ.NewRest(w.thread.Now()); !rest.Ended(w.session, w.coro); w.coro.Sleep(dropPauseNs) {
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		db.askIdle()
	}
	var keys []K
	done := uint64(0)
	flush := func() error {
		err := w.Update(ctx, func(tx *Tx) error {
			if err := t.StageAll(tx, ForUpdate, keys...); err != nil {
				return err
			}
			for _, k := range keys {
				v, found, err := t.Lookup(tx, k)
				if err != nil {
					return err
				}
				if !found {
					continue
				}
				if err := (&Table[K, V]{t: t.t, db: db, key: t.key, value: t.value, indexes: []TableIndex[K, V]{x}}).keep(tx, k, nil, &v); err != nil {
					return err
				}
			}
			return nil
		})
		done += uint64(len(keys))
		keys = keys[:0]
		if err == nil && progress != nil {
			progress(done)
		}
		return err
	}
	walker, ok := t.t.Index.(index.Walker)
	if !ok {
		return fmt.Errorf("%w: table %q", occ.ErrNoScan, t.t.Name)
	}
	heads := keyReader{w: w, table: t.t}
	err = walker.Walk(w.coro, func(_ memory.Addr, c index.Candidate) error {
		p, err := heads.key(c)
		if err != nil || p == nil {
			return err
		}
		k, err := t.decodeKey(p)
		if err != nil {
			return err
		}
		if keys = append(keys, k); len(keys) < rowsAtOnce {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return fmt.Errorf("txn: building index %q of table %q: %w", x.name, t.t.Name, err)
	}
	return db.noteBuilt(t.t.Name, x.name)
}

// keyReader reads keys of records outside of transactions.
type keyReader struct {
	w     *Worker
	table *occ.Table
}

// key returns the key of the record in a block, nil: it is none of the table's just now.
func (r *keyReader) key(c index.Candidate) ([]byte, error) {
	th, v := r.w.thread, r.w.db.space.ViewOn(r.w.thread)
	if !v.Valid(c.Addr) {
		return nil, nil
	}
	n := int(min(c.Class.Size(), record.LineSize+record.MaxKey))
	buf, err := th.Alloc(n)
	if err != nil {
		return nil, err
	}
	defer th.Free(buf, n)
	var b rdma.Batch
	b.Read(v.At(c.Addr, 0), buf, uint32(n))
	if err := r.w.coro.Do(&b); err != nil {
		return nil, err
	}
	img := record.Image(th.Bytes(buf, uint32(n)))
	m := img.Meta()
	at := record.KeyAt(m.KeyLen())
	if m.State() != record.Live || m.Table() != r.table.ID || at+m.KeyLen() > n {
		return nil, nil
	}
	return bytes.Clone(img[at : at+m.KeyLen()]), nil
}

// tableIndexes are the indexes of tables, by name, as the catalog has them.
type tableIndexes map[string][]indexOptions

// indexes returns those of a table that this process has opened, or defined.
func (db *DB) indexes(table string) []indexOptions {
	if all := db.known.Load(); all != nil {
		return (*all)[table]
	}
	return nil
}

// built reports whether an index knows all records.
func (db *DB) built(table, name string) bool {
	return slices.ContainsFunc(db.indexes(table), func(x indexOptions) bool { return x.Name == name && x.Built })
}

// lacking is ErrIndexes if a table has an index that is not one of names.
func (db *DB) lacking(t *occ.Table, names map[string]bool) error {
	if db.known.Load() == nil {
		return nil
	}
	for _, x := range db.indexes(t.Name) {
		if !names[x.Name] {
			return fmt.Errorf("%w: table %q, index %q", ErrIndexes, t.Name, x.Name)
		}
	}
	return nil
}

// know notes the indexes of a table. The caller holds ctlMu.
func (db *DB) know(table string, list []indexOptions) {
	if len(list) == 0 && db.indexes(table) == nil {
		return
	}
	all := tableIndexes{}
	if old := db.known.Load(); old != nil {
		all = maps.Clone(*old)
	}
	all[table] = list
	db.known.Store(&all)
}

// changeIndexes changes what the catalog knows of the indexes of a table.
func (db *DB) changeIndexes(table string, change func(list []indexOptions) ([]indexOptions, error)) error {
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	meta, err := db.findTable(table, tableOptions{}, false)
	if err != nil {
		return err
	}
	o, err := decodeTableOptions(meta.Options)
	if err != nil {
		return err
	}
	list, err := change(slices.Clone(o.Indexes))
	if err != nil {
		return err
	}
	if !slices.Equal(list, o.Indexes) {
		o.Indexes = list
		p, err := json.Marshal(o)
		if err != nil {
			return err
		}
		if err := db.space.SetTableOptions(meta.ID, p); err != nil {
			return err
		}
	}
	db.know(table, list)
	return nil
}

// noteIndex makes sure that the catalog has an index of a table.
func (db *DB) noteIndex(table string, x indexOptions, create bool) error {
	return db.changeIndexes(table, func(list []indexOptions) ([]indexOptions, error) {
		for _, has := range list {
			if has.Name != x.Name {
				continue
			}
			if has.Key != x.Key || has.Unique != x.Unique {
				return nil, fmt.Errorf("%w: it has keys %s, unique %v; asked for %s, %v", ErrTableType, has.Key, has.Unique, x.Key, x.Unique)
			}
			return list, nil
		}
		if !create {
			return nil, fmt.Errorf("%w: the table has no such index; CreateTable makes it", ErrNoTable)
		}
		return append(list, x), nil
	})
}

// noteBuilt notes that an index knows all records.
func (db *DB) noteBuilt(table, name string) error {
	return db.changeIndexes(table, func(list []indexOptions) ([]indexOptions, error) {
		for i := range list {
			list[i].Built = list[i].Built || list[i].Name == name
		}
		return list, nil
	})
}

// withItsIndexes lists a table, and the tables of its indexes.
func (db *DB) withItsIndexes(table string) []string {
	all := []string{table}
	meta, err := db.findTable(table, tableOptions{}, false)
	if err != nil {
		return all
	}
	o, err := decodeTableOptions(meta.Options)
	if err != nil {
		return all
	}
	for _, x := range o.Indexes {
		all = append(all, indexTable(table, x.Name))
	}
	return all
}

// DropIndex drops an index of a table, as DropTable drops a table. Handles that were opened with it cannot write any more.
func (db *DB) DropIndex(ctx context.Context, table, name string) error {
	found := false
	if err := db.changeIndexes(table, func(list []indexOptions) ([]indexOptions, error) {
		n := len(list)
		list = slices.DeleteFunc(list, func(x indexOptions) bool { return x.Name == name })
		found = len(list) < n
		return list, nil
	}); err != nil {
		return fmt.Errorf("txn: table %q: index %q: %w", table, name, err)
	}
	err := db.DropTable(ctx, indexTable(table, name))
	if errors.Is(err, ErrNoTable) && found {
		return nil
	}
	return err
}
