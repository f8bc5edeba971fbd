//go:build linux && cgo && ibverbs

package ibverbs

import (
	"testing"
	"unsafe"

	"txnode/rdma/ibverbs/internal/instant"
)

// BenchmarkLibrary is what posting a chain of 16 requests and polling cost through the library, whose
// device takes no time.
func BenchmarkLibrary(b *testing.B) {
	const n = 16
	pair, cq := instant.New()
	mem, err := mapMemory(requestSize*n, false)
	if err != nil {
		b.Fatal(err)
	}
	requests := unsafe.Slice((*request)(unsafe.Pointer(&mem[0])), n)
	for i := range n - 1 {
		requests[i].next = unsafe.Pointer(&requests[i+1])
	}
	requests[n-1].flags = flagSignaled
	q := &ibQueue{cq: cq}
	chains := make([]chain, 1)
	out := make([]completion, reapMax)
	b.ReportAllocs()
	began := processor()
	for b.Loop() {
		chains[0] = chain{pair: pair, first: unsafe.Pointer(&requests[0])}
		if got := q.ring(chains, out); got != 1 {
			b.Fatalf("%d completions", got)
		}
	}
	b.ReportMetric(float64(processor()-began)/float64(b.N)/n, "cpu-ns/request")
	if err := unmap(mem); err != nil {
		b.Fatal(err)
	}
}
