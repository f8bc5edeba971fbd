package txn

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"txnode/internal/validate"
	"txnode/memory/layout"
	"txnode/occ"
)

// Errors of secondary indexes; test with errors.Is.
var (
	// ErrUnique: a value would have a key in a unique index that another record has; errors.As with
	// *UniqueError names index and key.
	ErrUnique = errors.New("txn: another record has this key in a unique index")
	// ErrIndex: the function of an index has panicked, or has returned a key that is empty or too
	// long. The message names the index and the record.
	ErrIndex = errors.New("txn: an index cannot be kept")
	// ErrIndexes: the write would leave a table and its indexes different. The table has an index
	// that this handle was opened without, or it is the table of an index itself.
	ErrIndexes = errors.New("txn: the write would leave a table and its indexes different: open the table with all " +
		"its indexes and write by that handle, or drop them")
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

// Index is a secondary index of a table with keys of type K and values of type V: it finds records
// by keys of type I that a function makes of each. Pass it to CreateTable, OpenTable,
// CreateOrderedTable or OpenOrderedTable: whoever writes to the table needs it, and every write
// keeps it, in the same transaction. An Index belongs to one table of one database; when the table
// or the index was dropped it can be passed on once more. Safe for concurrent use.
//
// It is an ordered table of its own, named after the table and the index, with a record for each
// key. A write reads the value that it replaces, and costs what these records cost.
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
	define() (o indexOptions, fault error)
	bind(t *Table[K, V], create bool) error
	begin() error // builds the index if the table is empty
	alive() error // ErrDropped: it was dropped
	// change appends what becomes of the index by a change of a record; nil: it has no value.
	// lost: the old value could not be read, and old says nothing.
	change(tx *Tx, k K, old, now *V, lost bool) ([]indexChange, error)
	indexEntries[K, V]
}

// indexEntries is what tells entries of an index from stray ones.
type indexEntries[K, V any] interface {
	options() indexOptions                        // what it was defined as
	entries() *occ.Table                          // the table that it is
	keys(k K, v *V) (entries [][]byte, err error) // the entries of a record, in order; nil: it has no value
	leads(entry, value []byte) (K, error)         // the key of the record that an entry leads to
}

// NewIndex defines an index in which several records may have a key. of returns the keys of a
// record in the index, none or several. It must be a function of its arguments alone, and give the
// same for a value that the table's Codec has encoded and decoded again. To change it, or key, is
// to make another index: [Table.CheckIndexes] finds what an index has of another function.
func NewIndex[K, V, I any](name string, key Key[I], of func(k K, v V) []I) *Index[K, V, I] {
	return &Index[K, V, I]{name: name, key: key, of: of}
}

// NewUniqueIndex is NewIndex of an index in which only one record may have a key.
func NewUniqueIndex[K, V, I any](name string, key Key[I], of func(k K, v V) []I) *Index[K, V, I] {
	return &Index[K, V, I]{name: name, key: key, of: of, unique: true}
}

// define returns what the catalog is to have of the index.
func (x *Index[K, V, I]) define() (indexOptions, error) {
	var faults validate.Faults
	faults.Check(x.name != "", "an index needs a name")
	faults.Check(utf8.ValidString(x.name), "its name is not UTF-8")
	faults.Check(x.of != nil, "index %q: it has no function", x.name)
	faults.Check(x.key.Append != nil && x.key.Decode != nil && x.key.Ordered && x.key.Name != "",
		"index %q: its Key must have Name, Append and Decode, and be Ordered", x.name)
	faults.Check(x.table == nil || x.alive() != nil, "index %q belongs to a table already: define another one", x.name)
	return x.options(), faults.Err(ErrOptions)
}

// bind opens the table of the index, which the catalog has, for a handle of its table.
func (x *Index[K, V, I]) bind(t *Table[K, V], create bool) error {
	name := indexTable(t.t.Name, x.name)
	want := tableOptions{
		Key: "index(" + x.key.Name + "," + t.key.Name + ")", Value: Bytes().Name, Index: indexOrdered, Of: t.t.Name,
	}
	x.entry = func(dst []byte, i I, k K) []byte { return x.pair().Append(dst, T2(i, k)) }
	if x.unique {
		want.Key = "unique(" + x.key.Name + ")"
		x.entry = func(dst []byte, i I, _ K) []byte { return x.key.Append(dst, i) }
	}
	x.primary = t.key
	// If the process that made it stopped here, there is no table yet.
	if create = create || !t.db.built(t.t.Name, x.name) && !t.db.readOnly(); create {
		want.MaxKey = indexMaxKey
	}
	ts, err := t.db.table(name, want, create)
	if err != nil {
		return err
	}
	x.table, x.t = t, ts
	return nil
}

func (x *Index[K, V, I]) options() indexOptions {
	return indexOptions{Name: x.name, Key: x.key.Name, Unique: x.unique}
}

func (x *Index[K, V, I]) entries() *occ.Table { return x.t }

func (x *Index[K, V, I]) leads(entry, value []byte) (k K, err error) {
	if x.unique {
		return x.primary.Decode(value)
	}
	p, err := x.pair().Decode(entry)
	return p.B, err
}

func (x *Index[K, V, I]) alive() error {
	if x.t.Dropped() || x.table.t.Dropped() {
		return fmt.Errorf("%w: index %q of table %q", ErrDropped, x.name, x.table.t.Name)
	}
	return nil
}

// defineIndexes returns what the catalog is to have of the indexes of a table.
func defineIndexes[K, V any](table string, key Key[K], indexes []TableIndex[K, V]) (options []indexOptions, err error) {
	if len(indexes) > 0 && key.Decode == nil {
		return nil, fmt.Errorf("%w: table %q has an index, Key %q", ErrNoDecode, table, key.Name)
	}
	for _, x := range indexes {
		o, err := x.define()
		if err == nil && slices.ContainsFunc(options, func(other indexOptions) bool { return other.Name == o.Name }) {
			err = fmt.Errorf("%w: it is there twice", ErrOptions)
		}
		if err != nil {
			return nil, fmt.Errorf("txn: table %q: index %q: %w", table, o.Name, err)
		}
		if n := len(indexTable(table, o.Name)); n > layout.MaxTableName {
			return nil, fmt.Errorf("%w: table %.40q: index %.40q: their names have %d bytes together, with a dot, "+
				"and %d are possible", ErrOptions, table, o.Name, n, layout.MaxTableName)
		}
		options = append(options, o)
	}
	return options, nil
}

// bindIndexes gives a new handle its indexes.
func (t *Table[K, V]) bindIndexes(indexes []TableIndex[K, V], create bool) error {
	if len(indexes) == 0 {
		return nil
	}
	options, err := defineIndexes(t.t.Name, t.key, indexes)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, o := range options {
		names[o.Name] = true
	}
	if err := t.db.noteIndexes(t.t.Name, options, create); err != nil {
		return fmt.Errorf("txn: table %q: %w", t.t.Name, err)
	}
	for i, x := range indexes {
		if err := x.bind(t, create); err != nil {
			return fmt.Errorf("txn: table %q: index %q: %w", t.t.Name, options[i].Name, err)
		}
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

// withIndexes gives a new handle its indexes.
func withIndexes[K, V any](t *Table[K, V], indexes []TableIndex[K, V], create bool) (*Table[K, V], error) {
	if err := t.bindIndexes(indexes, create); err != nil {
		return nil, err
	}
	return t, nil
}

// indexMaxKey is the longest key of the table of an index: those of two tables, escaped.
const indexMaxKey = 2*DefaultMaxKey + 2

// pair is the key of an index that is not unique.
func (x *Index[K, V, I]) pair() Key[Tuple2[I, K]] { return Tuple2Key(x.key, x.primary) }
