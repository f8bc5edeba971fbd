package log_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"txnode/log"
	"txnode/memory/record"
)

// TestDump pins the bytes of log records, word by word. Regenerate with -rewrite,
// but a difference here is another format: raise the number of the format.
//
//	record kind=redo|undo|new
func TestDump(t *testing.T) {
	datadriven.RunTest(t, "testdata/record", func(t *testing.T, d *datadriven.TestData) string {
		var name string
		d.ScanArgs(t, "kind", &name)
		of, ok := map[string]func() []byte{
			"redo": func() []byte { return sample(log.Redo) },
			"undo": func() []byte { return sample(log.Undo) },
			"new":  fresh,
		}[name]
		if !ok {
			d.Fatalf(t, "unknown kind %q", name)
		}
		p := of()
		if _, err := log.Decode(p); err != nil {
			d.Fatalf(t, "%v", err)
		}
		return dump(p)
	})
}

// dump is an annotated hex dump of a record.
func dump(p []byte) string {
	var out strings.Builder
	line := func(at int, note string) {
		fmt.Fprintf(&out, "%04x  % x  %s\n", at, p[at:at+8], strings.TrimSpace(note))
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(p[at:]) }
	half := func(at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
	entries := int(word(0) >> 48)
	line(0, fmt.Sprintf("magic %q, format %d, kind %d, %d entries", p[:4], p[4], p[5], entries))
	line(8, fmt.Sprintf("transaction %v", record.TxID(word(8))))
	line(16, fmt.Sprintf("%d bytes, generation %d", half(16), half(20)))
	line(24, "checksum")
	at := log.HeaderSize
	for i := range entries {
		kind := log.EntryKind(word(at) >> 48)
		line(at, fmt.Sprintf("entry %d: kind %d, block %012x", i, kind, word(at)&(1<<48-1)))
		line(at+8, fmt.Sprintf("replaces %v", record.TxID(word(at+8))))
		line(at+16, fmt.Sprintf("image of %d bytes in %d", half(at+16), half(at+20)))
		if kind == log.Update || kind == log.New {
			line(at+24, fmt.Sprintf("%#x blocks freed before", word(at+24)))
		} else {
			line(at+24, fmt.Sprintf("moves from %012x", word(at+24)))
		}
		size, room := int(half(at+16)), int(half(at+20))
		at += log.EntryHeaderSize
		for k := 0; k < room; k += 8 {
			switch {
			case k >= size:
				line(at+k, "  unused")
			case k == record.VersionOff:
				line(at+k, fmt.Sprintf("  version %v", record.TxID(word(at))))
			default:
				line(at+k, "  image")
			}
		}
		at += room
	}
	return out.String()
}
