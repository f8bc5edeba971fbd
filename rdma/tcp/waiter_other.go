//go:build unix && !linux

package tcp

var newWaiter = func() (waiter, error) { return &polling{}, nil }
