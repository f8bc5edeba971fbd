//go:build !linux

package sim

func hugePages([]byte) {}
