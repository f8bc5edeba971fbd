package memory_test

import (
	"fmt"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
)

// BenchmarkClaimStrays: how long it takes to find that of so many free blocks in pools
// none is a stray, and (µs-most) for how long of that nobody can be given a block.
func BenchmarkClaimStrays(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bed := newBed(b, 2, 1200, 1)
			s, c := bed.open()
			a := bed.allocator(s, c)
			const k = layout.Class(0)
			var mine []layout.Addr
			for len(mine) < n {
				mine = append(mine, must(a.Alloc(c, k))(b))
			}
			found := make([]memory.FreeBlock, 0, n)
			for _, x := range mine {
				found = append(found, memory.FreeBlock{Addr: x, Version: 1 << 41})
				a.Free(x, k)
			}
			check(b, a.Maintain(c))
			b.ResetTimer()
			var most time.Duration
			for range b.N {
				most = max(most, s.ClaimMoment())
				x := s.ClaimStrays(found)
				if x == nil || len(x.Blocks) > 0 {
					b.Fatal(x)
				}
			}
			b.ReportMetric(float64(most.Microseconds()), "µs-most")
		})
	}
}
