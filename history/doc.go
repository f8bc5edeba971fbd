// Package history defines what one transaction reports about itself, and a
// recorder that keeps it at the price of a few stores per operation.
//
// The engine reports, per committed transaction, every version that it read and every version
// that it replaced and installed; package check builds the dependency graph from that. Of
// transactions that have failed it reports what they would have written. Of a range read it
// reports the bounds and the answer, so that the checker knows which keys were absent, too
// ([Range]). The package is a leaf: it imports nothing of txnode, so that the engine, the
// benchmarks and the checker can share it.
//
// A [Session] belongs to one worker and is not safe for concurrent use; a
// [Recorder] hands out sessions and is.
package history
