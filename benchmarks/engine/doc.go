// Package engine makes the transaction engine a workload.Store, so that the
// benchmarks run on it: tables of bytes under 8-byte keys.
package engine
