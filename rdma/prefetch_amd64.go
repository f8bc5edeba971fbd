package rdma

import "unsafe"

const canPrefetch = true

// prefetch begins to load the lines of n bytes at p. It never faults.
//
//go:noescape
func prefetch(p unsafe.Pointer, n uint32, write bool)
