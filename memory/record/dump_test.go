package record_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// TestDump pins the bytes of records, word by word.
//
//	record state=live key=<text> value=<text> [keylen=<n>] [valuelen=<n>] [lock] [freed=<n>]
//
// makes the record of transaction c7.42 in table 3 at seg 5 +0x80; lengths repeat
// the text.
func TestDump(t *testing.T) {
	datadriven.RunTest(t, "testdata/record", func(t *testing.T, d *datadriven.TestData) string {
		text := func(name string) []byte {
			var s string
			d.MaybeScanArgs(t, name, &s)
			n := len(s)
			d.MaybeScanArgs(t, name+"len", &n)
			return []byte(strings.Repeat(s, n/max(len(s), 1)+1)[:n])
		}
		key, value := text("key"), text("value")
		var name string
		d.ScanArgs(t, "state", &name)
		state := map[string]record.State{
			"free": record.Free, "live": record.Live, "absent": record.Absent, "node": record.Node,
		}[name]
		var lock record.TxID
		if d.HasArg("lock") {
			lock = record.MakeTxID(8, 1)
		}
		class, ok := record.ClassFor(len(key), len(value))
		if !ok {
			d.Fatalf(t, "no class")
		}
		b := make(record.Image, class.Size())
		n := record.LineSize
		if d.HasArg("freed") {
			var number uint64
			d.ScanArgs(t, "freed", &number)
			b.PutFree(layout.MakeAddr(5, 0x80), record.MakeTxID(7, 42), 3, class, number)
		} else {
			n = b.Put(layout.MakeAddr(5, 0x80), record.MakeTxID(7, 42), state, 3, class, lock, key, value)
		}
		return fmt.Sprintf("class %d of %d bytes, %d used\n%s", class, class.Size(), n, dump(b[:n]))
	})
}

// dump is an annotated hex dump of a record.
func dump(b record.Image) string {
	m := b.Meta()
	ka, va := record.KeyAt(m.KeyLen()), record.ValueAt(m.KeyLen(), m.ValueLen())
	var out strings.Builder
	for at := 0; at < len(b); at += 8 {
		w := binary.LittleEndian.Uint64(b[at:])
		note := "-"
		switch {
		case at == record.VersionOff:
			note = "version " + b.Version().String()
		case at == record.MetaOff:
			note = fmt.Sprintf("meta: value %d, key %d, %v, class %d, table %d", m.ValueLen(), m.KeyLen(), m.State(),
				m.Class(), m.Table())
		case at == record.ChecksumOff:
			note = "checksum"
		case at == record.GuardOff && b.Guard().Held():
			note = "guard: held by " + b.Lock().String()
		case at == record.GuardOff:
			note = "guard: free at " + b.Guard().Version().String()
		case at == record.KeyOff && m.State() == record.Free:
			note = fmt.Sprintf("number of its freeing: %#x", b.Freed())
		case at >= ka && at < ka+m.KeyLen():
			note = "key"
		case at >= va && at < va+m.ValueLen():
			note = "value"
		}
		text := strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '.'
			}
			return r
		}, string(b[at:at+8]))
		fmt.Fprintf(&out, "%04x  % x  |%s|  %016x  %s\n", at, b[at:at+8], text, w, note)
	}
	return out.String()
}
