//go:build !amd64

package sim

import "unsafe"

func prefetch(unsafe.Pointer, uintptr) {}
