package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"txnode/memory/layout"
	"txnode/txn"
)

// member is a record of a table with secondary indexes.
type member struct {
	Group, Mail uint64 // of several; of one alone, 0: it has none
	Number      uint64
}

// numMembers is how many keys the table has: so many that a build takes several transactions.
const numMembers = 300

// indexed is a table with indexes, which clients write beside the records: by groups, by mail,
// which is unique, and sometimes a third one, which is dropped and made anew meanwhile, as
// another one each time.
type indexed struct {
	ordered bool
	now     atomic.Pointer[members]
}

// members is a handle of the table. Those of a table whose indexes have changed
// meanwhile cannot write.
type members struct {
	table           *txn.Table[uint64, member]
	byGroup, byMail *txn.Index[uint64, member, uint64]
	late            *txn.Index[uint64, member, uint64] // nil: there is none
	unique          bool                               // it is
}

// lateIndex is the name of the index that comes and goes.
const lateIndex = "late"

// lateKeys are the keys of a record in it: that of its mail, or several.
func lateKeys(unique bool, m member) []uint64 {
	switch {
	case !unique:
		return []uint64{m.Number % 7, 100 + m.Group, m.Number % 3}
	case m.Mail == 0:
		return nil
	}
	return []uint64{m.Mail + 1000}
}

// openIndexed opens the table with the indexes that it has, or makes it.
func openIndexed(db *txn.DB, ordered bool) (*indexed, error) {
	x := &indexed{ordered: ordered}
	info, err := db.TableInfo("members")
	if err != nil && !errors.Is(err, txn.ErrNoTable) {
		return nil, err
	}
	late, unique := false, false
	for _, i := range info.Indexes {
		if i.Name == lateIndex {
			late, unique = true, i.Unique
		}
	}
	return x, x.open(db, late, unique)
}

func (x *indexed) open(db *txn.DB, late, unique bool) error {
	m := &members{unique: unique}
	m.byGroup = txn.NewIndex("by_group", txn.Uint64, func(_ uint64, m member) []uint64 { return []uint64{m.Group} })
	m.byMail = txn.NewUniqueIndex("by_mail", txn.Uint64, func(_ uint64, m member) []uint64 {
		if m.Mail == 0 {
			return nil
		}
		return []uint64{m.Mail}
	})
	all := []txn.TableIndex[uint64, member]{m.byGroup, m.byMail}
	if late {
		define := txn.NewIndex[uint64, member, uint64]
		if unique {
			define = txn.NewUniqueIndex[uint64, member, uint64]
		}
		m.late = define(lateIndex, txn.Uint64, func(_ uint64, m member) []uint64 { return lateKeys(unique, m) })
		all = append(all, m.late)
	}
	var err error
	if !x.ordered {
		m.table, err = txn.CreateTable(db, "members", txn.Uint64, txn.Plain[member](), all...)
	} else {
		var t *txn.OrderedTable[uint64, member]
		if t, err = txn.CreateOrderedTable(db, "members", txn.Uint64, txn.Plain[member](), all...); err == nil {
			m.table = t.Table
		}
	}
	if err != nil {
		return err
	}
	x.now.Store(m)
	return nil
}

// change makes the late index and builds it, or goes on with that, or drops it.
func (x *indexed) change(ctx context.Context, db *txn.DB, r *rand.Rand) error {
	m := x.now.Load()
	if m.late == nil {
		if err := x.open(db, true, r.IntN(2) == 0); err != nil {
			return err
		}
		m = x.now.Load()
	} else if r.IntN(2) == 0 {
		if err := db.DropIndex(ctx, "members", lateIndex); err != nil {
			return err
		}
		return x.open(db, false, false)
	}
	return m.late.Build(ctx, nil)
}

// turn writes some members in one transaction. A mail that another one has is refused, and that is
// another one's indeed.
func (x *indexed) turn(ctx context.Context, w *txn.Worker, r *rand.Rand) error {
	n, seed := 1+r.IntN(3), r.Uint64()
	err := w.Update(ctx, func(tx *txn.Tx) error {
		r := rand.New(rand.NewPCG(seed, 0))
		m := x.now.Load()
		for range n {
			k, now := r.Uint64N(numMembers), member{r.Uint64N(12), r.Uint64N(numMembers), r.Uint64()}
			if r.IntN(5) == 0 {
				if err := m.table.Delete(tx, k); err != nil && !errors.Is(err, txn.ErrNotFound) {
					return err
				}
				continue
			}
			err := m.table.Put(tx, k, now)
			if !errors.Is(err, txn.ErrUnique) {
				if err != nil {
					return err
				}
				continue // or the next member is written none the less
			}
			other, had, found, err := m.byMail.Lookup(tx, now.Mail)
			if err != nil {
				return err
			}
			if !found || other == k || had.Mail != now.Mail {
				return fmt.Errorf("mail %d of member %d is refused as another's; it is that of %d: %v, %+v",
					now.Mail, k, other, found, had)
			}
		}
		return nil
	})
	if errors.Is(err, txn.ErrIndexes) || errors.Is(err, txn.ErrDropped) {
		return nil // the late index has come or gone
	}
	return err
}

// agrees holds entries of the indexes against records, and records against entries.
func (x *indexed) agrees(tx *txn.Tx, from uint64) error {
	m := x.now.Load()
	group := from % 12
	has := map[uint64]bool{}
	for g, k := range m.byGroup.Range(tx, txn.Including(group), txn.Including(group)) {
		if g != group || has[k] {
			return fmt.Errorf("group %d has an entry of group %d, member %d, there before: %v", group, g, k, has[k])
		}
		has[k] = true
	}
	if err := tx.Err(); err != nil {
		return err
	}
	for k := range uint64(numMembers) {
		if !has[k] && (k < from%numMembers || k >= from%numMembers+12) {
			continue
		}
		v, found, err := m.table.Lookup(tx, k)
		if err != nil {
			return err
		}
		if has[k] != (found && v.Group == group) {
			return fmt.Errorf("member %d is %+v, found %v; the index has it in group %d: %v",
				k, v, found, group, has[k])
		}
		if !found || v.Mail == 0 {
			continue
		}
		other, _, found, err := m.byMail.Lookup(tx, v.Mail)
		if err != nil {
			return err
		}
		if !found || other != k {
			return fmt.Errorf("mail %d of member %d leads to %d, %v", v.Mail, k, other, found)
		}
	}
	return nil
}

// holds demands of a database that was opened again that every index has an entry of every record,
// and no other one. An index that was not built yet is built first.
func (x *indexed) holds(ctx context.Context, db *txn.DB) error {
	m := x.now.Load()
	if m.late != nil {
		if err := m.late.Build(ctx, nil); err != nil {
			return err
		}
	}
	var want, got [3][]string
	err := db.View(ctx, func(tx *txn.Tx) error {
		want, got = [3][]string{}, [3][]string{}
		mails := map[uint64]uint64{}
		for k, v := range m.table.All(tx) {
			if other, taken := mails[v.Mail]; taken && v.Mail != 0 {
				return fmt.Errorf("mail %d is that of %d and %d", v.Mail, other, k)
			}
			mails[v.Mail] = k
			want[0] = append(want[0], fmt.Sprintf("%03d %03d", v.Group, k))
			if v.Mail != 0 {
				want[1] = append(want[1], fmt.Sprintf("%03d %03d", v.Mail, k))
			}
			if m.late != nil {
				for _, i := range lateKeys(m.unique, v) {
					want[2] = append(want[2], fmt.Sprintf("%03d %03d", i, k))
				}
			}
		}
		for n, i := range []*txn.Index[uint64, member, uint64]{m.byGroup, m.byMail, m.late} {
			if i == nil {
				continue
			}
			for e, k := range i.Range(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}) {
				got[n] = append(got[n], fmt.Sprintf("%03d %03d", e, k))
			}
		}
		return tx.Err()
	})
	if err != nil {
		return err
	}
	for n := range want {
		slices.Sort(want[n])
		slices.Sort(got[n]) // of numbers that differ in length
		want[n] = slices.Compact(want[n])
		if !slices.Equal(want[n], got[n]) {
			return fmt.Errorf("index %d of %d, unique %v: %d entries, of the records %d: these are entries alone %q, "+
				"these are not there %q", n, len(want), m.unique,
				len(got[n]), len(want[n]), without(got[n], want[n]), without(want[n], got[n]))
		}
	}
	return nil
}

// without is what is in one list and not in another, a few of it.
func without(list, other []string) (out []string) {
	for _, x := range list {
		if !slices.Contains(other, x) && len(out) < 8 {
			out = append(out, x)
		}
	}
	return out
}

// noStrays demands that every table of an index is that of an index which its table has.
func noStrays(db *txn.DB) error {
	tables, err := db.Space().Tables()
	if err != nil {
		return err
	}
	for _, t := range tables {
		var o struct{ Of string }
		if t.State != layout.TableLive || t.Root == 0 || json.Unmarshal(t.Options, &o) != nil || o.Of == "" {
			continue
		}
		info, err := db.TableInfo(o.Of)
		if err != nil || !slices.ContainsFunc(info.Indexes, func(i txn.IndexInfo) bool { return i.Table == t.Name }) {
			return fmt.Errorf("table %d %q is there, and is no index of %q: %w", t.ID, t.Name, o.Of, err)
		}
	}
	return nil
}
