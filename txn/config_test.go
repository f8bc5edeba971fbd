package txn

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"txnode/occ"
)

// FuzzTableOptions: whatever the catalog says of a table, opening it ends with the
// table or an error, and what is written is what is read.
func FuzzTableOptions(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("{}"))
	f.Add([]byte(`{"key":"uint64","value":"plain:8","index":"race"}`))
	f.Add([]byte(`{"key":7}`))
	f.Add([]byte(`[[[[[[`))
	f.Fuzz(func(t *testing.T, p []byte) {
		o, err := decodeTableOptions(p)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		q, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeTableOptions(q); err != nil || !reflect.DeepEqual(again, o) {
			t.Fatalf("%+v, %v; it was %+v", again, err, o)
		}
	})
}

// FuzzOptions: no options make Validate or Open panic, and what Validate accepts is
// opened, or refused for want of memory.
func FuzzOptions(f *testing.F) {
	f.Add(2, uint64(64<<20), uint32(256<<10), uint32(64<<10), 1, uint8(0), 4, 1<<20, 1<<20, uint32(4), false)
	f.Add(0, uint64(0), uint32(0), uint32(0), -1, uint8(1), 0, 0, 0, uint32(0), true)
	f.Fuzz(func(t *testing.T, blades int, size uint64, segment, log uint32, backups int, policy uint8, workers, arena,
		cache int, groups uint32, noBackups bool) {
		o := Options{
			Blades: blades, BladeSize: size, SegmentSize: segment, LogArea: log, Workers: workers, Arena: arena,
			CacheBytes: min(cache, 1<<20), IndexGroups: groups,
		}
		o.Policy = occ.Policy(policy)
		if !noBackups {
			o.Backups = &backups
		}
		if o.Validate() != nil {
			if _, err := Open(t.Context(), o); !errors.Is(err, ErrOptions) {
				t.Fatalf("options that are wrong: %v", err)
			}
			return
		}
		if size > 1<<36 || blades > 8 {
			return // mapping so much is slow
		}
		db, err := Open(t.Context(), o)
		if err != nil {
			return
		}
		tab, err := CreateTable(db, "t", Uint64, Bytes())
		if err == nil {
			err = db.Update(t.Context(), func(tx *Tx) error { return tab.Put(tx, 1, []byte("v")) })
		}
		_ = err // the blades may be too small for it
		if err := db.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
