package region

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"txnode/rdma"
)

// exec executes the first n of wrs in order, as (*Lane).execute does, and
// returns how many it has: it stops at the first that is not plain. Plain is a
// READ or WRITE of at most execMax bytes whose ends are word-aligned on both
// sides, a CAS or a FAA, that passes every check. It announces itself as enter
// and leave do.
//
// Before that it brings the first two lines of the targets of the first ahead
// requests into the cache, for reading or for writing, so that the batch waits
// for memory about once. It checks nothing but the blade: a prefetch never faults.
//
// An access to a file's memory may fault: head.left says then at which request.
//
// exec cannot be preempted; execMax and postChunk bound how long it takes.
//
//go:noescape
func exec(wrs *rdma.WR, n, ahead int, l *head) int

// copyWords copies n bytes, a multiple of 8, in words and in increasing address order.
//
//go:noescape
func copyWords(dst, src unsafe.Pointer, n uintptr)

// storesOrdered: stores become visible in program order, so exec may announce
// itself with plain ones.
const storesOrdered = true

// wide: 16-byte moves of aligned memory are single accesses, which the
// processor's makers promise wherever there is AVX.
var wide = cpu.X86.HasAVX

// Layout that the assembly relies on; it finds the names in go_asm.h.
//
//nolint:unused // by Go
const (
	wrSize   = unsafe.Sizeof(rdma.WR{})
	wrOp     = unsafe.Offsetof(rdma.WR{}.Op)
	wrBlade  = unsafe.Offsetof(rdma.WR{}.Blade)
	wrKey    = unsafe.Offsetof(rdma.WR{}.Key)
	wrOff    = unsafe.Offsetof(rdma.WR{}.Off)
	wrLocal  = unsafe.Offsetof(rdma.WR{}.Local)
	wrLen    = unsafe.Offsetof(rdma.WR{}.Len)
	wrCmp    = unsafe.Offsetof(rdma.WR{}.Cmp)
	wrSwap   = unsafe.Offsetof(rdma.WR{}.Swap)
	wrResult = unsafe.Offsetof(rdma.WR{}.Result)

	opRead      = uint8(rdma.OpRead)
	opWrite     = uint8(rdma.OpWrite)
	opCAS       = uint8(rdma.OpCAS)
	opFAA       = uint8(rdma.OpFAA)
	opMaskedCAS = uint8(rdma.OpMaskedCAS)
)

// The assembly finds a queue pair by shifting the blade's number by 6.
var (
	_ [64 - unsafe.Sizeof(queuePair{})]byte
	_ [unsafe.Sizeof(queuePair{}) - 64]byte
)
