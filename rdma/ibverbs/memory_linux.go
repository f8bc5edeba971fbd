package ibverbs

import (
	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

const mapHuge = unix.MAP_HUGETLB

// adviseHuge asks for transparent huge pages: a device keeps fewer addresses of them.
func adviseHuge(p []byte) {
	_ = eintr.Repeat(func() error { return unix.Madvise(p, unix.MADV_HUGEPAGE) }) // a hint
}
