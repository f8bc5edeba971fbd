package verify

import (
	"fmt"
	"math/bits"
	"slices"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// An entry of a secondary index must lead to a record. The walk over an index notes the hashes of
// all keys of a table that has secondary indexes, and the walk over blocks the keys that were
// deleted, and the entries. What is locked passes: its transaction is undecided. A key that the
// walk could not make out puts all entries in doubt that may lead to it.

// keySet is what is known of the keys of a table that has secondary indexes.
type keySet struct {
	linked  []uint64 // hashes of the keys that the index has
	deleted []uint64 // of those of them that have no record any more
	doubt   bool     // there may be others
}

// entryPlace is an entry of a secondary index.
type entryPlace struct {
	block layout.Addr
	leads uint64 // hash of the key
	lame  bool   // it has none
}

// secondaries prepares the check of secondary indexes.
func (w *walker) secondaries() {
	w.keySets, w.entries = map[uint16]*keySet{}, map[uint16][]entryPlace{}
	if w.o.Indexes == nil {
		return
	}
	for _, x := range w.o.Indexes(w.l.Tables) {
		if w.table(x.ID) != nil && w.table(x.Of) != nil {
			w.secondary = append(w.secondary, x)
			w.keySets[x.Of] = &keySet{}
			w.table(x.ID).Of = w.table(x.Of).Name
		}
	}
}

// keyed notes the hash of a key that the index of a table leads to; known: it could be made out.
func (w *walker) keyed(table uint16, hash uint64, known bool) {
	if s := w.keySets[table]; s != nil && known {
		s.linked = append(s.linked, hash)
	} else if s != nil {
		s.doubt = true
	}
}

// entry notes a block that is intact, unlocked and linked, if it has a deleted record, or an
// entry of an index.
func (w *walker) entry(b *block, m record.Meta) {
	img := b.copies[0]
	if s := w.keySets[m.Table()]; s != nil && m.State() == record.Absent {
		s.deleted = append(s.deleted, record.Hash(m.Table(), img.Key()))
	}
	i := slices.IndexFunc(w.secondary, func(x record.Secondary) bool { return x.ID == m.Table() })
	if i < 0 || m.State() != record.Live {
		return
	}
	key, ok := w.secondary[i].Key(img.Key(), img.Value())
	w.entries[m.Table()] = append(w.entries[m.Table()], entryPlace{b.addr, record.Hash(w.secondary[i].Of, key), !ok})
}

// strayEntries reports entries that lead to no record, and counts the records to which none leads.
func (w *walker) strayEntries() {
	for _, s := range w.keySets {
		slices.Sort(s.deleted)
		s.linked = slices.DeleteFunc(s.linked, func(h uint64) bool {
			_, gone := slices.BinarySearch(s.deleted, h)
			return gone
		})
		slices.Sort(s.linked)
		s.linked = slices.Compact(s.linked)
	}
	for _, x := range w.secondary {
		s := w.keySets[x.Of]
		if s.doubt || w.unwalkedTable(x.Of) || w.unwalkedTable(x.ID) || w.unsure() {
			continue
		}
		met := make([]uint64, (len(s.linked)+63)/64)
		for _, e := range w.entries[x.ID] {
			n, has := slices.BinarySearch(s.linked, e.leads)
			if has && !e.lame {
				met[n/64] |= 1 << (n % 64)
				continue
			}
			if w.stopped() {
				return
			}
			w.strayEntry(x, e)
		}
		bare := len(s.linked)
		for _, m := range met {
			bare -= bits.OnesCount64(m)
		}
		w.table(x.ID).Bare = uint64(bare)
	}
}

// strayEntry reports an entry.
func (w *walker) strayEntry(x record.Secondary, e entryPlace) {
	img := record.Image(w.read(e.block, 0, w.whole[0], w.l.Segments[e.block.Segment()].Class.Size()))
	if img == nil {
		return
	}
	if _, err := img.Check(e.block); err != nil || img.Meta().State() != record.Live || img.Meta().Table() != x.ID {
		return // by a writer, meanwhile
	}
	leads := "to no key that can be one"
	if key, ok := x.Key(img.Key(), img.Value()); ok {
		leads = "to key " + keyText(key) + ", of which it has no record"
	}
	what := fmt.Sprintf("entry %s of the secondary index leads %s of %s; Table.CheckIndexes repairs it, or drop the "+
		"index and build it anew", keyText(img.Key()), leads, w.tableName(x.Of))
	w.found(w.at(Finding{Kind: KindEntry, Table: x.ID, What: what}, e.block, 0))
}

// unsure reports whether records may be missing that the next opening brings back, or that lie on
// blades which are not there.
func (w *walker) unsure() bool {
	if !w.proves() || len(w.sum.Strange)+len(w.sum.Missing)+w.sum.SegmentsLost > 0 {
		return true
	}
	for t := range w.pending {
		if !w.alive(t.Coordinator()) {
			return true
		}
	}
	return w.unswept()
}
