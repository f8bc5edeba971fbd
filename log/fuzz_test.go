package log_test

import (
	"bytes"
	"errors"
	"testing"

	"txnode/log"
	"txnode/memory/record"
)

// FuzzDecode: no bytes make Decode panic or read past their end, also not such
// with a right checksum; and what it accepts is, built anew, the same record.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(make([]byte, 64), false)
	f.Add(sample(log.Redo), false)
	f.Add(sample(log.Undo), true)
	f.Add(fresh(), true)
	f.Add(build(log.Redo, 1, 1, nil), true)
	f.Fuzz(func(t *testing.T, p []byte, reseal bool) {
		if reseal {
			log.Reseal(p)
		}
		r, err := log.Decode(p)
		if err != nil {
			if !errors.Is(err, log.ErrTorn) && !errors.Is(err, log.ErrNoRecord) && !errors.Is(err, log.ErrFormat) {
				t.Fatalf("%v is no error of this package", err)
			}
			return
		}
		entries := make([]entry, 0, len(r.Entries))
		for _, e := range r.Entries {
			if len(e.Image) < record.LineSize {
				t.Fatalf("image of %d bytes", len(e.Image))
			}
			_, _ = e.Image.Check(e.Addr) // what recovery asks of it
			entries = append(entries, entry{
				kind: e.Kind, addr: e.Addr, prev: e.Prev, from: e.From, freed: e.Freed, image: e.Image,
			})
		}
		again, err := log.Decode(build(r.Kind, r.Tx, r.Generation, entries))
		if err != nil {
			t.Fatal(err)
		}
		if again.Kind != r.Kind || again.Tx != r.Tx || again.Generation != r.Generation ||
			len(again.Entries) != len(r.Entries) {
			t.Fatalf("%+v\n%+v", again, r)
		}
		for i, e := range r.Entries {
			if x := again.Entries[i]; x.Kind != e.Kind || x.Addr != e.Addr || x.Prev != e.Prev || x.From != e.From ||
				x.Freed != e.Freed || !bytes.Equal(x.Image, e.Image) {
				t.Fatalf("entry %d: %+v\n%+v", i, x, e)
			}
		}
	})
}
