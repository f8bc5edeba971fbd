package history

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Position is where a key stands in its ordered table: the number of the table, big-endian in 4
// bytes, and the encoded key. Places compare as strings, in the order of the table. The empty
// Position says that the key is in no ordered table.
type Position string

const tableBytes = 4

// PositionOf returns the position of an encoded key in a table.
func PositionOf(table uint32, key []byte) Position {
	b := make([]byte, tableBytes, tableBytes+len(key))
	binary.BigEndian.PutUint32(b, table)
	return Position(append(b, key...))
}

// TableStart returns the bound below all keys of a table.
func TableStart(table uint32) Position { return PositionOf(table, nil) }

// TableEnd returns the bound above all keys of a table, whose number is below 1<<32 - 1.
func TableEnd(table uint32) Position { return TableStart(table + 1) }

// After returns the bound directly above p: no position is between the two.
func (p Position) After() Position { return p + "\x00" }

// MarshalText writes the position in hexadecimal, because JSON has no strings of bytes.
func (p Position) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, []byte(p)), nil }

// UnmarshalText reads what MarshalText wrote.
func (p *Position) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil {
		return fmt.Errorf("history: position %q: %w", text, err)
	}
	*p = Position(b)
	return nil
}

// Range is a range read: some operations of a transaction, and what they say about the keys that
// are not among them.
//
// The operations Ops[First : First+Len] are its answer, in the order in which the caller got it.
// Each is a Read of a row, or a ReadAbsent of a tombstone, and has a Position. Rows that the
// transaction itself has written are Reads of its own version, or are left out. A key of the bounds
// that is not in the answer, and that the transaction does not write, had no record.
type Range struct {
	// From <= position < To are the bounds. An inclusive upper bound and an exclusive lower one are
	// expressed by Position.After, open ones by TableStart and TableEnd.
	From, To Position
	First    int
	Len      int
	// Descending: the answer has the largest key first.
	Descending bool `json:",omitempty"`
	// Cut: the range ended before its bound, because of a limit or because its caller had enough.
	// It then says nothing about keys behind the last operation of the answer.
	Cut bool `json:",omitempty"`
}

// Covered returns the bounds of what the range has read, from <= position < to, in a transaction
// with these operations. It is all of the range, unless that was cut.
func (r *Range) Covered(ops []Op) (from, to Position) {
	switch last := r.First + r.Len - 1; {
	case !r.Cut:
		return r.From, r.To
	case r.Len == 0:
		return r.From, r.From
	case r.Descending:
		return ops[last].Position, r.To
	default:
		return r.From, ops[last].Position.After()
	}
}
