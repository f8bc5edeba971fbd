package sim

import "unsafe"

// prefetch starts loading the n cache lines at p, at least one.
//
//go:noescape
func prefetch(p unsafe.Pointer, n uintptr)
