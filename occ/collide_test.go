package occ_test

import (
	"fmt"
	"strings"
	"testing"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
)

// TestCollidingKeys: keys that the index can not tell apart, by lengths of values on
// both sides of what is read of a block at first, and absent ones among them.
func TestCollidingKeys(t *testing.T) {
	for _, p := range policies {
		for _, backups := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/backups=%v", p, backups), func(t *testing.T) {
				m := memory.Options{Backups: 1, SegmentSize: 1 << 20, LogArea: 256 << 10}
				b := newBedSized(t, 2, m, occ.Options{Policy: p, ReadBackups: backups})
				_, ix, err := race.Create(b.ctl.Plain(), b.space, b.table.ID, race.Options{Groups: 2})
				must(t, err)
				b.table.Index = ix
				_, tx := b.session()
				var keys []string
				for i := 0; len(keys) < 10; i++ {
					if k := fmt.Sprintf("key %d", i); record.Hash(b.table.ID, []byte(k))>>56 == 7 {
						keys = append(keys, k)
					}
				}
				sizes := []int{0, 10_000, 30, 4000, 4096, 20_000, 500}
				want := map[string]string{}
				check := func() {
					t.Helper()
					for _, k := range keys {
						b.eng.ForgetAddresses()
						if v, ok := b.value(tx, k); v != want[k] || ok != (want[k] != "") {
							t.Fatalf("%q has %d bytes, %v; want %d", k, len(v), ok, len(want[k]))
						}
					}
				}
				for i, k := range keys {
					v := strings.Repeat(string(rune('a'+i)), 1+sizes[i%len(sizes)])
					must(t, b.do(tx, put(k, v)))
					want[k] = v
					check()
				}
				for i, k := range keys[:7] {
					if i%2 == 0 {
						must(t, b.do(tx, del(k)))
						delete(want, k)
					} else {
						b.eng.ForgetAddresses()
						must(t, b.do(tx, put(k, "again")))
						want[k] = "again"
					}
					check()
				}
			})
		}
	}
}
