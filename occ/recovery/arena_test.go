package recovery_test

import (
	"fmt"
	"testing"

	"txnode/rdma"
)

// TestSmallArena: who recovers 64 transactions has an arena that is as small as its scratch memory,
// or coroutines have the most of it. Indexes can be opened and looked up in all the same.
func TestSmallArena(t *testing.T) {
	for _, free := range []int{1 << 20, 512 << 10, 256 << 10, 128 << 10, 96 << 10} {
		for _, s := range settings(t) {
			for _, before := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d KiB, %v, %v", free>>10, s, before), func(t *testing.T) {
					recoveryOn(t, s, before, long, 300, func(w *world) *rdma.Thread {
						th := w.newThreadOf(1 << 20)
						for used := 0; used < 1<<20-free; used += 32 << 10 {
							if _, err := th.Alloc(32 << 10); err != nil {
								t.Fatal(err)
							}
						}
						return th
					})
				})
			}
		}
	}
}
