//go:build !amd64

package inproc

import (
	"sync/atomic"
	"unsafe"

	"txnode/rdma"
)

// fast: exec executes plain requests; here it executes none.
const fast = false

// storesOrdered: stores become visible in program order. Here sync/atomic sees to it.
const storesOrdered = false

func exec(*rdma.WR, int, *lanes) int { return 0 }

func prefetch(*rdma.WR, int, *lanes) {}

// copyWords copies n bytes, a multiple of 8, word by word in increasing address
// order; loads and stores are ordered as sync/atomic orders them.
func copyWords(dst, src unsafe.Pointer, n uintptr) {
	for i := uintptr(0); i < n; i += 8 {
		atomic.StoreUint64((*uint64)(unsafe.Add(dst, i)), atomic.LoadUint64((*uint64)(unsafe.Add(src, i))))
	}
}
