package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// Format is the version of the format that Writer writes.
const Format = 2

const (
	magic     = "TXNSNAP1"
	frameHead = 8
	frameTail = 8
	// maxPayload bounds the frames that a reader accepts, and so what a damaged
	// length can make it allocate.
	maxPayload = 64 << 20
	entryHead  = 8
	deleted    = 1<<32 - 1
)

type kind uint8

const (
	kindHeader kind = 1 + iota
	kindBase
	kindChange
	kindEnd
)

// Header describes the database that was copied: the geometry with which it can be
// made again.
type Header struct {
	Format      int       `json:"format"`
	Created     time.Time `json:"created"`
	Blades      int       `json:"blades"`
	BladeSize   uint64    `json:"blade_size"` // of the largest blade, in bytes
	SegmentSize uint32    `json:"segment_size"`
	LogArea     uint32    `json:"log_area"`
	Backups     int       `json:"backups"`
}

// Table is a table of the copied database, with its number there and what the
// catalog kept of it.
type Table struct {
	ID      uint16          `json:"id"`
	Name    string          `json:"name"`
	Options json.RawMessage `json:"options"`
	// Records is how many records the table has in the copy, or, of the table of an
	// index, Entries is that.
	Records uint64 `json:"records,omitempty"`
	Entries uint64 `json:"entries,omitempty"`
	// Skipped is how many records and parts of the table were left out because they are damaged.
	Skipped uint64 `json:"skipped,omitempty"`
}

// Validate returns an error if the file could not carry the table's name as it is.
func (t *Table) Validate() error {
	if !utf8.ValidString(t.Name) {
		return fmt.Errorf("snapshot: the name of table %q is not UTF-8: copy its records into a table with another "+
			"name, and that one into the backup", t.Name)
	}
	return nil
}

// end is the payload of the last frame.
type end struct {
	Cut     uint64  `json:"cut"`
	Records uint64  `json:"records"` // base records
	Changes uint64  `json:"changes"`
	Tables  []Table `json:"tables"`
}

// check finds faults in it, given the numbers of the tables of all entries.
func (e *end) check(used map[uint16]uint64) error {
	ids, names := map[uint16]bool{}, map[string]bool{}
	for _, t := range e.Tables {
		if ids[t.ID] || names[t.Name] {
			return fmt.Errorf("%w: table %q (%d) is listed twice", ErrDamaged, t.Name, t.ID)
		}
		ids[t.ID], names[t.Name] = true, true
	}
	for id := range used {
		if !ids[id] {
			return fmt.Errorf("%w: it has records of table %d, which is not listed", ErrDamaged, id)
		}
	}
	return nil
}

// sum is the checksum of a frame, given that of the frame before; 0: it is the first. So a
// frame belongs to one file, whose header says when it was begun, and to one place in it.
func sum(before uint64, frame []byte) uint64 {
	return xxhash.Sum64(frame) ^ (before+1)*0x9e3779b97f4a7c15
}

// appendEntry appends a record or, with value nil and gone set, a deletion.
func appendEntry(p []byte, table uint16, key, value []byte, gone bool) []byte {
	n := uint32(len(value))
	if gone {
		n, value = deleted, nil
	}
	p = binary.LittleEndian.AppendUint16(p, table)
	p = binary.LittleEndian.AppendUint16(p, uint16(len(key)))
	p = binary.LittleEndian.AppendUint32(p, n)
	return append(append(p, key...), value...)
}

// entry is a decoded record or deletion; key and value alias the payload.
type entry struct {
	table      uint16
	gone       bool
	key, value []byte
}

// nextEntry cuts the first entry off a payload.
func nextEntry(p []byte) (e entry, rest []byte, err error) {
	if len(p) < entryHead {
		return e, nil, fmt.Errorf("%w: an entry is cut off", ErrDamaged)
	}
	e.table = binary.LittleEndian.Uint16(p)
	k, v := int(binary.LittleEndian.Uint16(p[2:])), int(binary.LittleEndian.Uint32(p[4:]))
	if v == deleted {
		v, e.gone = 0, true
	}
	p = p[entryHead:]
	if k > len(p) || v > len(p)-k {
		return e, nil, fmt.Errorf("%w: an entry is longer than its frame", ErrDamaged)
	}
	e.key, e.value = p[:k:k], p[k:k+v:k+v]
	return e, p[k+v:], nil
}
