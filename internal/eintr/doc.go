// Package eintr repeats system calls that a signal has interrupted.
//
// Functions of package os repeat their calls themselves. Functions of golang.org/x/sys/unix and of
// syscall do not: they return EINTR, and Go's own signals for preemption and profiling are enough
// to cause it. Every such call of the product stands within Repeat; a test of this package reads
// the tree and demands it.
package eintr
