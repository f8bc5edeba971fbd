package txn

import (
	"encoding/binary"
	"sync"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
)

// tally counts the records of a copy. The walk meets some of them twice: when a split moves a slot,
// when the walk begins again, and when a transaction puts a record elsewhere meanwhile. So the
// tally knows blocks, a bit each:
//
//   - A record that no transaction changes stays in its block. It counts when the walk comes
//     to its block first.
//   - Beside a tap, a record that a transaction changes, or makes, counts by what the last change
//     up to the cut has made of it. If the walk has counted it before, in its block, that is taken
//     back. The tap tells before the walk can meet what is new: see occ.Tap.
//   - Beside several processes, all that is counted is of before the cut, so a block has one record
//     of that kind at most, whether the walk meets it or it was kept.
//
// It takes a bit for each 64 bytes of the segments with records, and the keys that have changed.
type tally struct {
	mu      sync.Mutex
	blocks  map[layout.SegmentID][]uint64
	counts  map[uint16]uint64        // of what was met, by table
	writes  map[string][]tallyChange // of keys that have changed
	retired []tallyRetired
}

// tallyChange is a change of a key by the transaction with a number.
type tallyChange struct {
	number uint64
	gone   bool
}

// tallyRetired is a record that was counted before the transaction with a number has changed it.
type tallyRetired struct {
	number uint64
	table  uint16
}

// newTally makes a tally; tapped: it is told of changes.
func newTally(tapped bool) *tally {
	y := &tally{blocks: map[layout.SegmentID][]uint64{}, counts: map[uint16]uint64{}}
	if tapped {
		y.writes = map[string][]tallyChange{}
	}
	return y
}

// tallyKey appends what stands for a key of a table.
func tallyKey(p []byte, table uint16, key []byte) []byte {
	return append(binary.LittleEndian.AppendUint16(p, table), key...)
}

// bit is the place of the bit of a block.
func (y *tally) bit(a layout.Addr) (word *uint64, mask uint64) {
	n := int(a.Offset()) / record.LineSize
	words := y.blocks[a.Segment()]
	if n/64 >= len(words) {
		words = append(words, make([]uint64, n/64+1-len(words))...)
		y.blocks[a.Segment()] = words
	}
	return &words[n/64], 1 << (n % 64)
}

// met notes that a record was met in a block, and reports whether it counts.
func (y *tally) met(table uint16, key []byte, a layout.Addr) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.writes) > 0 {
		var buf [64]byte
		if _, changed := y.writes[string(tallyKey(buf[:0], table, key))]; changed {
			return false
		}
	}
	word, mask := y.bit(a)
	if *word&mask != 0 {
		return false
	}
	*word |= mask
	y.counts[table]++
	return true
}

// changed notes what the transaction with a number has written.
func (y *tally) changed(number uint64, writes []occ.TapWrite) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for i := range writes {
		w := &writes[i]
		if word, mask := y.bit(w.Block); *word&mask != 0 {
			*word &^= mask
			y.retired = append(y.retired, tallyRetired{number, w.Table.ID})
		}
		if w.Key != nil {
			id := string(tallyKey(nil, w.Table.ID, w.Key))
			y.writes[id] = append(y.writes[id], tallyChange{number, w.Deleted})
		}
	}
}

// at returns how many records each table has, by number, at a cut.
func (y *tally) at(cut uint64) map[uint16]uint64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	all := map[uint16]uint64{}
	for table, n := range y.counts {
		all[table] = n
	}
	for _, r := range y.retired {
		if r.number <= cut { // else the copy has it as the walk has met it
			all[r.table]--
		}
	}
	for id, changes := range y.writes {
		last, there := uint64(0), false
		for _, c := range changes {
			if c.number <= cut && c.number >= last {
				last, there = c.number, !c.gone
			}
		}
		if there {
			all[binary.LittleEndian.Uint16([]byte(id))]++
		}
	}
	return all
}
