package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"txnode/occ"
)

// indexOptions is what the catalog keeps of an index, in the options of its table.
type indexOptions struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Unique bool   `json:"unique,omitempty"`
	Built  bool   `json:"built,omitempty"` // it knows all records
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
