package verify

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// address is what an address looks like: as findings print it, or shorter.
var address = regexp.MustCompile(`^(?:seg(?:ment)?\s*)?(\d+)\s*\+\s*(0x[0-9a-fA-F]+|\d+)$`)

// ParseAddr reads an address: "seg 3 +0x40" as findings print it, "3+0x40", "3+64",
// or the 48 bits as "0xc000040". The error is an ErrSyntax.
func ParseAddr(s string) (layout.Addr, error) {
	s = strings.TrimSpace(s)
	if m := address.FindStringSubmatch(s); m != nil {
		seg, err := strconv.ParseUint(m[1], 10, layout.SegmentBits)
		off, err2 := strconv.ParseUint(m[2], 0, layout.OffsetBits)
		if err == nil && err2 == nil {
			return layout.MakeAddr(layout.SegmentID(seg), uint32(off)), nil
		}
	} else if strings.HasPrefix(s, "0x") {
		if a, err := strconv.ParseUint(s, 0, layout.AddrBits); err == nil {
			return layout.Addr(a), nil
		}
	}
	return 0, fmt.Errorf("%w: %q is no address; write 3+0x40 for offset 0x40 of segment 3", ErrSyntax, s)
}

// ParseTx reads the name of a transaction: "c7.42", or its id, a number or "0x...".
func ParseTx(s string) (record.TxID, error) {
	if c, n, ok := strings.Cut(strings.TrimPrefix(s, "c"), "."); ok && strings.HasPrefix(s, "c") {
		coordinator, err := strconv.ParseUint(c, 10, 24)
		seq, err2 := strconv.ParseUint(n, 10, record.SequenceBits)
		if err == nil && err2 == nil {
			return record.MakeTxID(uint32(coordinator), seq), nil
		}
	} else if id, err := strconv.ParseUint(s, 0, 64); err == nil {
		return record.TxID(id &^ record.HeldBit), nil
	}
	return 0, fmt.Errorf("%w: %q is no transaction; write c7.42 for the 42nd of coordinator 7, or its id", ErrSyntax, s)
}

// ParseKey encodes a key of a table as the table does: a number for integer keys,
// text for strings, or that text in JSON; 0x... gives the bytes of any key.
func (d *Database) ParseKey(table layout.Table, s string) ([]byte, error) {
	if h, ok := strings.CutPrefix(s, "0x"); ok {
		p, err := hex.DecodeString(h)
		if err != nil || len(p) == 0 || len(p) > record.MaxKey {
			return nil, fmt.Errorf("%w: key %q: 0x must be followed by 1 to %d bytes in hexadecimal",
				ErrSyntax, s, record.MaxKey)
		}
		return p, nil
	}
	var o struct {
		Key string `json:"key"`
	}
	_ = json.Unmarshal(table.Options, &o) // what is not known is told below
	switch o.Key {
	case "uint64":
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			return binary.BigEndian.AppendUint64(nil, n), nil
		}
		return nil, fmt.Errorf("%w: key %q: table %q has keys of type uint64", ErrSyntax, s, table.Name)
	case "int64":
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return binary.BigEndian.AppendUint64(nil, uint64(n)^1<<63), nil
		}
		return nil, fmt.Errorf("%w: key %q: table %q has keys of type int64", ErrSyntax, s, table.Name)
	case "string":
		if text := ""; strings.HasPrefix(s, `"`) && json.Unmarshal([]byte(s), &text) == nil {
			s = text
		}
		if s != "" && len(s) <= record.MaxKey {
			return []byte(s), nil
		}
		return nil, fmt.Errorf("%w: keys have 1 to %d bytes", ErrSyntax, record.MaxKey)
	}
	return nil, fmt.Errorf("%w: table %q has keys of type %q: give the bytes of the key, after 0x",
		ErrSyntax, table.Name, o.Key)
}

// Table finds a table by its name, or its number.
func (d *Database) Table(name string) (layout.Table, error) {
	for _, t := range d.l.Tables {
		if t.Name == name && t.Root != 0 {
			return t, nil
		}
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= len(d.l.Tables) {
		return d.l.Tables[n-1], nil
	}
	var names []string
	for i := range d.l.Tables {
		if d.l.Tables[i].Root != 0 {
			names = append(names, strconv.Quote(d.l.Tables[i].Name))
		}
	}
	return layout.Table{}, fmt.Errorf("%w: table %q; there are %s", ErrNoSuch, name, strings.Join(names, ", "))
}
