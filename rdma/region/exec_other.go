//go:build !amd64

package region

import (
	"sync/atomic"
	"unsafe"

	"txnode/rdma"
)

// storesOrdered: stores become visible in program order. Here sync/atomic sees to it.
const storesOrdered = false

// wide: exec can be used.
const wide = false

// exec executes no request: all are left to (*Lane).execute.
func exec(*rdma.WR, int, int, *head) int { return 0 }

// copyWords copies n bytes, a multiple of 8, word by word in increasing address
// order; loads and stores are ordered as sync/atomic orders them.
func copyWords(dst, src unsafe.Pointer, n uintptr) {
	for i := uintptr(0); i < n; i += 8 {
		atomic.StoreUint64((*uint64)(unsafe.Add(dst, i)), atomic.LoadUint64((*uint64)(unsafe.Add(src, i))))
	}
}
