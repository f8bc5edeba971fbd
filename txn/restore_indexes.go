package txn

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"txnode/occ"
	"txnode/txn/snapshot"
)

// A backup that leaves out a damaged record (BackupOptions.SkipDamaged) still has the entries
// of indexes that lead to it, and a damaged entry is missing in an index whose record is there.
// The indexes of a restored database are those of its records. The functions of the indexes are
// not known here, so:
//
//  1. An entry whose record is not there is deleted, if the entry tells the key of its record: see
//     indexOptions.leads.
//  2. An index that lacks entries, or of which stray entries cannot be told, is not built: reading
//     it is ErrBuilding until Index.Build has compared it with its table.

// damage is how much a backup has left out, by table. Tables of which it has everything are not in
// it.
type damage map[string]uint64

// leftOut is the damage of a backup.
func leftOut(tables []snapshot.Table) damage {
	left := damage{}
	for i := range tables {
		if t := &tables[i]; t.Skipped > 0 {
			left[t.Name] = t.Skipped
		}
	}
	return left
}

// index changes what the catalog is to have of an index of a table. No coordinator of the restored
// database was there before the index.
func (left damage) index(o *tableOptions, table string, x *indexOptions) {
	x.Since = 0
	if left[indexTable(table, x.Name)] > 0 || left[table] > 0 && x.leads(o.Key) == nil {
		x.Built = false
	}
}

// restoredIndex is an index of a table whose records were loaded, without its function.
type restoredIndex struct {
	indexOptions
	t  *occ.Table
	to func(entry, value []byte) (key []byte, ok bool)
}

// Reasons why a restored index does not know.
var (
	errNoFunction = errors.New("txn: the function of the index is not known")
	errNoRecord   = errors.New("txn: an entry leads to no record")
)

func (x *restoredIndex) options() indexOptions                  { return x.indexOptions }
func (x *restoredIndex) entries() *occ.Table                    { return x.t }
func (x *restoredIndex) keys([]byte, *[]byte) ([][]byte, error) { return nil, errNoFunction }
func (x *restoredIndex) leads(entry, value []byte) ([]byte, error) {
	key, ok := x.to(entry, value)
	if !ok {
		return nil, errNoRecord
	}
	return key, nil
}

// dropStrays deletes the entries of indexes that lead to records which a backup has left out.
// tables are those that were loaded, by their numbers in the backup.
func (db *DB) dropStrays(ctx context.Context, w *Worker, of []snapshot.Table, left damage,
	tables map[uint16]*occ.Table) error {
	byName := map[string]*occ.Table{}
	for i := range of {
		byName[of[i].Name] = tables[of[i].ID]
	}
	for i := range of {
		t := &of[i]
		o, err := decodeTableOptions(t.Options)
		if err != nil {
			return err
		}
		for _, x := range o.Indexes {
			entries, to := byName[indexTable(t.Name, x.Name)], x.leads(o.Key)
			if left[t.Name] == 0 || entries == nil || to == nil {
				continue
			}
			n := 0
			c := comparison[[]byte, []byte]{
				ctx: ctx, w: w, repair: true,
				t:      &Table[[]byte, []byte]{t: tables[t.ID], db: db, key: BytesKey, value: Bytes()},
				report: func(IndexFault) error { n++; return nil },
			}
			if err := c.runEntries(&restoredIndex{x, entries, to}); err != nil {
				return fmt.Errorf("entries of index %q of table %q that lead to records which the backup has "+
					"left out: %w", x.Name, t.Name, err)
			}
			if n > 0 {
				db.opts.Logger.Warn("entries of an index led to records which the backup has left out, and "+
					"were deleted", zap.String("table", t.Name), zap.String("index", x.Name), zap.Int("entries", n))
			}
		}
		for _, x := range db.indexes(t.Name) {
			if !x.Built {
				db.opts.Logger.Warn("an index is not built: its Build makes it", zap.String("table", t.Name),
					zap.String("index", x.Name))
			}
		}
	}
	return nil
}
