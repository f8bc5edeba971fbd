package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ"
)

// indexOptions is what the catalog keeps of an index, in the options of its table.
type indexOptions struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Unique bool   `json:"unique,omitempty"`
	Built  bool   `json:"built,omitempty"` // it knows all records
	// Since is not 0 of an index that was defined after the table was made: transactions that began
	// before do not keep it.
	Since uint32 `json:"since,omitempty"`
}

// entryKey is the name of the Key of the entries; primary is that of the Key of the table.
func (o *indexOptions) entryKey(primary string) string {
	if o.Unique {
		return o.Key
	}
	return "tuple(" + o.Key + "," + primary + ")"
}

// indexTable is the name of the table of an index.
func indexTable(table, name string) string { return table + "." + name }

// tableIndexes are the indexes of tables, by name, as the catalog has them.
type tableIndexes map[string][]indexOptions

// indexes returns those of a table that this process has opened, or defined.
func (db *DB) indexes(table string) []indexOptions {
	if all := db.known.Load(); all != nil {
		return (*all)[table]
	}
	return nil
}

// laterIndex is indexOptions.Since of an index that was defined after its table was made.
const laterIndex = math.MaxUint32

// later reports whether an index was defined after its table was made.
func (db *DB) later(table, name string) bool {
	return slices.ContainsFunc(db.indexes(table), func(x indexOptions) bool { return x.Name == name && x.Since != 0 })
}

// built reports whether an index knows all records.
func (db *DB) built(table, name string) bool {
	return slices.ContainsFunc(db.indexes(table), func(x indexOptions) bool { return x.Name == name && x.Built })
}

// isBuilt is built, as far as any process has noted it.
func (db *DB) isBuilt(table, name string) (bool, error) {
	if !db.built(table, name) && db.space.Shared() {
		if err := db.space.Follow(); err != nil {
			return false, err
		}
	}
	return db.built(table, name), nil
}

// lacking is ErrIndexes if a table has an index that is not one of names.
func (db *DB) lacking(t *occ.Table, names map[string]bool) error {
	for _, x := range db.indexes(t.Name) {
		if !names[x.Name] {
			return fmt.Errorf("%w: table %q, index %q", ErrIndexes, t.Name, x.Name)
		}
	}
	return nil
}

// know notes the indexes of a table that was opened. It leaves the writes of the table to
// handles that know all its indexes, if it has any, and those of the table of an index to the
// writes of the table that it is an index of. It is called within the lock of the space: the
// newest options come last.
func (db *DB) know(t *occ.Table, o tableOptions) {
	if o.Of != "" {
		t.Reserve(fmt.Errorf("%w: table %q is an index of table %q", ErrIndexes, t.Name, o.Of))
		return
	}
	if len(o.Indexes) > 0 || db.indexes(t.Name) != nil {
		all := tableIndexes{}
		if old := db.known.Load(); old != nil {
			all = maps.Clone(*old)
		}
		all[t.Name] = o.Indexes
		db.known.Store(&all)
	}
	t.Reserve(db.lacking(t, nil))
}

// changeIndexes changes what the catalog knows of the indexes of a table. The indexes that drop
// names are dropped in the same step.
func (db *DB) changeIndexes(table string,
	change func(ts []layout.Table, list []indexOptions) (now []indexOptions, drop []string, err error)) error {
	for {
		if err := db.tryIndexes(table, change); !errors.Is(err, memory.ErrRevision) {
			return err
		}
	}
}

// tryIndexes is changeIndexes; memory.ErrRevision: another process has changed them meanwhile.
func (db *DB) tryIndexes(table string,
	change func(ts []layout.Table, list []indexOptions) (now []indexOptions, drop []string, err error)) error {
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	ts, err := db.space.Tables()
	if err != nil {
		return err
	}
	t := liveTable(ts, table)
	if t == nil {
		return ErrNoTable
	}
	o, err := decodeTableOptions(t.Options)
	if err != nil {
		return err
	}
	list, drop, err := change(ts, slices.Clone(o.Indexes))
	if err != nil {
		return err
	}
	if !slices.Equal(list, o.Indexes) {
		o.Indexes = list
		p, err := json.Marshal(o)
		if err != nil {
			return err
		}
		return db.mark(ts, drop, memory.TableChange{ID: t.ID, Options: p, Was: t.Options})
	}
	return nil
}

// notIndex is the error of an index whose table is there, and is none.
func notIndex(table, name string) error {
	return fmt.Errorf("index %q: %w: a table %q is there, which is not this index",
		name, ErrTableType, indexTable(table, name))
}

// noteIndexes makes sure that the catalog has indexes of a table: all of them, or none. Handles of
// other processes would not keep those that it has not.
func (db *DB) noteIndexes(table string, all []indexOptions, create bool) error {
	if has := db.indexes(table); create && !slices.ContainsFunc(all, func(x indexOptions) bool {
		return !slices.ContainsFunc(has, func(y indexOptions) bool { return x.Name == y.Name })
	}) {
		create = false // the catalog had them all when the table was opened
	}
	refused := create && db.readOnly()
	create = create && !refused
	return db.changeIndexes(table, func(ts []layout.Table, list []indexOptions) ([]indexOptions, []string, error) {
		for _, x := range all {
			i := slices.IndexFunc(list, func(has indexOptions) bool { return has.Name == x.Name })
			switch {
			case i >= 0 && (list[i].Key != x.Key || list[i].Unique != x.Unique):
				return nil, nil, fmt.Errorf("index %q: %w: it has keys %s, unique %v; asked for %s, %v",
					x.Name, ErrTableType, list[i].Key, list[i].Unique, x.Key, x.Unique)
			case i >= 0:
			case refused:
				return nil, nil, fmt.Errorf("%w: index %q can not be made", ErrReadOnly, x.Name)
			case !create:
				return nil, nil, fmt.Errorf("index %q: %w: the table has no such index; CreateTable makes it",
					x.Name, ErrNoTable)
			case liveTable(ts, indexTable(table, x.Name)) != nil:
				return nil, nil, notIndex(table, x.Name)
			default:
				x.Since = laterIndex
				list = append(list, x)
			}
		}
		return list, nil, nil
	})
}

// noteBuilt notes that an index knows all records, unless it is another one of this name by now.
func (db *DB) noteBuilt(table, name string, alive func() error) error {
	return db.changeIndexes(table, func(_ []layout.Table, list []indexOptions) ([]indexOptions, []string, error) {
		if err := alive(); err != nil {
			return nil, nil, err
		}
		for i := range list {
			list[i].Built = list[i].Built || list[i].Name == name
		}
		return list, nil, nil
	})
}

// hasIndex reports whether a table has an index whose table has a name, as the catalog says.
func hasIndex(t *layout.Table, name string) bool {
	o, err := decodeTableOptions(t.Options)
	return err == nil && slices.ContainsFunc(o.Indexes, func(x indexOptions) bool {
		return indexTable(t.Name, x.Name) == name
	})
}

// DropIndex drops an index of a table, as DropTable drops a table, or returns ErrNoTable. Handles
// that were opened with it cannot write any more: open the table anew.
func (db *DB) DropIndex(ctx context.Context, table, name string) error {
	whole := indexTable(table, name)
	return db.dropTables(ctx, whole, func() error {
		return db.changeIndexes(table, func(ts []layout.Table, list []indexOptions) ([]indexOptions, []string, error) {
			n := len(list)
			list = slices.DeleteFunc(list, func(x indexOptions) bool { return x.Name == name })
			if len(list) == n && !slices.ContainsFunc(ts, func(t layout.Table) bool {
				return t.Name == whole && t.State == layout.TableDropping
			}) {
				return nil, nil, fmt.Errorf("%w: index %q", ErrNoTable, name)
			}
			return list, []string{whole}, nil
		})
	}, func(t *layout.Table) bool { return t.Name == whole })
}
