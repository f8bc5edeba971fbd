// Package local is a host of package channel for members of one process: a [Catalog] of objects, in
// the memory of the process, on the blades of any fabric. Benchmarks and tests use it. It knows no
// other process, and is gone with its own.
package local
