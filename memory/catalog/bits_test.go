package catalog_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/catalog"
	"txnode/memory/layout"
)

// TestEveryBit changes each bit of a catalog, a small one, whose bucket is in the element that
// names it, too, and a larger one: reading it is an error; or gives an entry that does not match
// its checksum, which package memory notices; or what was there. In particular none is missing.
func TestEveryBit(t *testing.T) {
	raced.Skip(t)
	for _, n := range []int{3, 60} {
		t.Run(fmt.Sprint(n, " entries"), func(t *testing.T) { everyBit(t, n) })
	}
}

func everyBit(t *testing.T, n int) {
	sum := func(key string, value []byte) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key))
		_, _ = h.Write(value)
		return h.Sum64()
	}
	path := filepath.Join(t.TempDir(), "c.db")
	c := openBolt(t, path)
	_, rev, _ := c.Load()
	for round := range 3 {
		var changes []layout.Entry
		for i := range n {
			e := layout.Entry{Key: fmt.Sprintf("key/%04d", i), Value: fmt.Appendf(nil, "%0*d", 60+i%7, round)}
			e.Value = binary.LittleEndian.AppendUint64(e.Value, sum(e.Key, e.Value))
			changes = append(changes, e)
		}
		var err error
		if rev, err = c.Apply(rev, changes); err != nil {
			t.Fatal(err)
		}
	}
	want, _, err := c.Load()
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int(binary.NativeEndian.Uint32(good[16+8:]))
	noticed, harmless := 0, 0
	for at := range good {
		in := at % size // elements are at the start of a page
		for bit := range 8 {
			if testing.Short() && at%4 != 0 {
				continue
			}
			if (in >= 512 || in >= 32 && good[at] == 0) && (bit != at%8 || at%5 != 0) {
				continue // values, and what is blank: a few are enough
			}
			if _, err := f.WriteAt([]byte{good[at] ^ 1<<bit}, int64(at)); err != nil {
				t.Fatal(err)
			}
			var got []layout.Entry
			c, err := catalog.OpenBolt(path, true)
			if err == nil {
				got, _, err = c.Load()
				err = errors.Join(err, c.Close())
			}
			same := func(a, b layout.Entry) bool { return a.Key == b.Key && slices.Equal(a.Value, b.Value) }
			bad := func(e layout.Entry) bool {
				n := len(e.Value) - 8
				return n < 0 || binary.LittleEndian.Uint64(e.Value[n:]) != sum(e.Key, e.Value[:n])
			}
			switch {
			case err != nil && !errors.Is(err, catalog.ErrDamaged):
				t.Fatalf("bit %d of byte %#x: %v", bit, at, err)
			case err != nil, slices.ContainsFunc(got, bad):
				noticed++
			case !slices.EqualFunc(want, got, same):
				t.Errorf("bit %d of byte %#x: %d entries of %d", bit, at, len(got), len(want))
			default:
				harmless++
			}
			if _, err := f.WriteAt(good[at:at+1], int64(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d noticed, %d harmless", noticed, harmless)
}
