package cluster

import (
	"errors"
	"reflect"
	"testing"

	"txnode/memory/layout"
)

var two = []Server{
	{Address: "unix:/run/a", Blades: []uint64{1 << 20, 1 << 30}},
	{Address: "tcp:127.0.0.1:7000", Blades: []uint64{1 << 20}},
}

// TestEntry: what is encoded is decoded, and a bit that changes is found.
func TestEntry(t *testing.T) {
	v := encode(two)
	want := "txnode cluster 1 c9e4dece\n" +
		`[{"address":"unix:/run/a","blades":[1048576,1073741824]},{"address":"tcp:127.0.0.1:7000","blades":[1048576]}]`
	if string(v) != want {
		t.Errorf("the entry is %q, and was %q", v, want)
	}
	got, err := decode(v)
	if err != nil || !reflect.DeepEqual(got, two) {
		t.Errorf("%v, %v", got, err)
	}
	for i := range v {
		for bit := range 8 {
			v[i] ^= 1 << bit
			if _, err := decode(v); !errors.Is(err, ErrDamaged) || !errors.Is(err, layout.ErrCorrupt) {
				t.Errorf("bit %d of byte %d: %v", bit, i, err)
			}
			v[i] ^= 1 << bit
		}
	}
	for name, servers := range map[string][]Server{
		"no servers":      {},
		"no blades":       {{Address: "unix:/run/a"}},
		"one twice":       {two[0], two[0]},
		"no address":      {{Address: "here", Blades: []uint64{1}}},
		"too many blades": {{Address: "unix:/run/a", Blades: make([]uint64, layout.MaxBlades+1)}},
	} {
		if _, err := decode(encode(servers)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzEntry: no bytes harm the decoder, and what it accepts can be dialled.
func FuzzEntry(f *testing.F) {
	f.Add(encode(two))
	f.Add([]byte("txnode cluster 1 00000000\n"))
	f.Fuzz(func(t *testing.T, v []byte) {
		servers, err := decode(v)
		if err == nil && check([]BladeAddress{servers[0].Address}) != nil {
			t.Errorf("%v", servers)
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}
