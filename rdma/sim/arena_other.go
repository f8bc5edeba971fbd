//go:build !unix

package sim

func newArena(size int) ([]byte, error) { return make([]byte, size), nil }

func freeArena([]byte) error { return nil }
