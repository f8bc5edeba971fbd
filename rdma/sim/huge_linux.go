package sim

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

// hugePages asks for huge pages behind what of b they fit. Random accesses to
// large memories otherwise spend most of their time in page table walks.
func hugePages(b []byte) {
	const size = 2 << 20
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % size
	if n := (len(b) - int(skip)) &^ (size - 1); n > 0 {
		// a hint; small pages work too
		_ = eintr.Repeat(func() error { return unix.Madvise(b[skip:int(skip)+n], unix.MADV_HUGEPAGE) })
	}
}
