//go:build !amd64

package rdma

import "unsafe"

const canPrefetch = false

func prefetch(unsafe.Pointer, uint32, bool) {}
