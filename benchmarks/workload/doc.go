// Package workload is the seam between benchmark transactions and the stores
// that run them: SmallBank and TATP are written once against [Tx] and run
// unchanged on the engine (any fabric), on the peers that we compare with, and
// on the reference map that their tests use.
package workload
