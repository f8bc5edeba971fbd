package inproc

import "unsafe"

//go:noescape
func copyWords(dst, src unsafe.Pointer, n uintptr)

//go:noescape
func prefetch(wrs unsafe.Pointer, n uintptr, blades unsafe.Pointer, nblades uintptr)
