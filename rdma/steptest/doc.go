// Package steptest is a fabric for exhaustive tests: nothing happens on it but what
// its user decides, one step at a time. Clients run as coroutines of the calling
// goroutine until they wait; then [Fabric.Moves] lists what the contract of package
// rdma lets happen next, and [Fabric.Do] makes one of these happen. A run that is
// repeated with the same decisions is the same run.
//
// What a move is depends on the [Grain]: all that a client has posted at once, its
// share of one queue pair, a single request, or half a request, so that READs and
// WRITEs of a line are torn between the last word and those before it. Without
// Caps.Placed a WRITE that has completed becomes visible by a move of its own, at
// the latest when a READ or atomic of its queue pair, or a FLUSH, forces it.
//
// A client can be stopped for ever between any two moves, a request can lose its
// completion (it takes effect, and its client is told that there was no answer), a blade
// can stop, or restart with its memory or without, and the memory can be put back to what
// it was, at the price of the pages that have changed.
//
// Outside of a client the fabric is synchronous: verbs take effect when posted.
package steptest
