package txn

import (
	"context"
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// IndexCheckOptions are options of Table.CheckIndexes. The zero value counts what is wrong.
type IndexCheckOptions struct {
	// Repair has entries added that are missing, and stray ones deleted.
	Repair bool
	// Report, if not nil, is called for each fault, once, from the goroutine of the caller. An
	// error from it ends the check.
	Report func(IndexFault) error
	// Progress, if not nil, is told now and then how many records were compared, from the
	// goroutine of the caller.
	Progress func(records uint64)
}

// IndexCheck is what Table.CheckIndexes has counted. A record, or an entry, that moved
// meanwhile may count twice.
type IndexCheck struct {
	Records  uint64
	Entries  uint64 // of all indexes that were checked
	Faults   uint64
	Repaired uint64   // faults that are no more
	Unbuilt  []string // indexes that are not built, and were not checked: Index.Build makes them
}

// CheckIndexes compares the indexes of the table with its records: each record has the entries that
// the functions of the indexes say, and each entry leads to a record that has it. txnode check,
// which does not have the functions, finds only entries that lead to no record. The error says why
// the check could not go on; what is wrong with indexes is in the result and goes to Report, not in
// the error. ErrIndexes: the handle was opened without an index of the table.
//
// It goes on beside transactions, by small ones of its own, and takes one worker. Each fault was
// one at a moment during the call. A record or an entry that stays as it is from the beginning to
// the end is compared; one that is written meanwhile may be.
//
// With Repair it writes entries, in the transactions in which it finds the faults. A record whose
// key in a unique index another record has, too, stays a fault (EntryTaken) until one of them is
// changed; so does one that cannot be read.
func (t *Table[K, V]) CheckIndexes(ctx context.Context, o IndexCheckOptions) (sum IndexCheck, err error) {
	db := t.db
	if err := db.lacking(t.t, t.indexNames); err != nil {
		return sum, err
	}
	if o.Repair && db.readOnly() {
		return sum, fmt.Errorf("%w: indexes of table %q cannot be repaired", ErrReadOnly, t.t.Name)
	}
	w, err := db.ownWorker(ctx)
	if err != nil {
		return sum, err
	}
	defer func() { err = w.dismiss(ctx, err) }() // also when Report panics
	c := comparison[K, V]{ctx: ctx, w: w, t: t, progress: o.Progress, repair: o.Repair, spares: true}
	for _, x := range t.indexes {
		name := x.options().Name
		switch built, err := db.isBuilt(t.t.Name, name); {
		case err != nil:
			return sum, err
		case built:
			c.indexes = append(c.indexes, x)
		default:
			sum.Unbuilt = append(sum.Unbuilt, name)
		}
	}
	if len(c.indexes) == 0 {
		return sum, nil
	}
	told := map[string]bool{} // the walk over a table begins again if the epoch moves
	c.report = func(f IndexFault) error {
		id := fmt.Sprintf("%d %q %x %x", f.Kind, f.Index, f.Key, f.Entry)
		if told[id] {
			return nil
		}
		told[id] = true
		if sum.Faults++; f.Repaired {
			sum.Repaired++
		}
		if o.Report == nil {
			return nil
		}
		return o.Report(f)
	}
	err = c.run()
	sum.Records, sum.Entries = c.records, c.entries
	for _, x := range c.indexes {
		err = errors.Join(err, x.alive()) // it has no entries any more if it was dropped meanwhile
	}
	if err != nil {
		err = fmt.Errorf("txn: checking the indexes of table %q: %w", t.t.Name, err)
	}
	return sum, err
}

// CatalogIndexes lists the secondary indexes of the tables of a catalog that are built, and
// whose entries tell to which record they lead: all unique ones, and those whose Key, and
// that of their table, KeyNamed knows. It is for Options.Indexes of package verify, a check
// of a database at rest.
func CatalogIndexes(tables []layout.Table) (list []record.Secondary) {
	for i := range tables {
		t := liveTable(tables, tables[i].Name)
		if t != &tables[i] {
			continue
		}
		o, err := decodeTableOptions(t.Options)
		if err != nil {
			continue
		}
		for _, x := range o.Indexes {
			e := liveTable(tables, indexTable(t.Name, x.Name))
			if e == nil || !x.Built {
				continue
			}
			if leads := x.leads(o.Key); leads != nil {
				list = append(list, record.Secondary{ID: e.ID, Of: t.ID, Key: leads})
			}
		}
	}
	return list
}

// leads is a function that returns the key of the record to which an entry leads, as the Key of the
// table, whose name is given, has encoded it; ok: it has one. nil: it cannot be told.
func (o *indexOptions) leads(primary string) func(entry, value []byte) (key []byte, ok bool) {
	if o.Unique {
		return func(_, value []byte) ([]byte, bool) { return value, len(value) > 0 }
	}
	pair, ok := KeyNamed(o.entryKey(primary))
	of, known := KeyNamed(primary)
	if !ok || !known {
		return nil
	}
	return func(entry, _ []byte) ([]byte, bool) {
		n := pair.Parts(entry, 1)
		if n == 0 || pair.Parts(entry, 2) != len(entry) {
			return nil, false
		}
		if of.Cut == nil {
			return unescape(entry[n:])
		}
		return entry[n:], true
	}
}
