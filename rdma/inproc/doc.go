// Package inproc is the fabric of the embedded default: blades are memory of
// this process, anonymous on huge pages or mapped from files, and a queue pair
// executes its work requests when they are posted.
//
// Post first touches the cache lines of the whole batch with prefetch
// instructions, then executes the requests in order, so that a batch waits for
// memory about once. It takes no lock, allocates nothing and makes no call per
// verb except the copy itself.
//
// # How the contract is kept
//
// READ and WRITE copy whole aligned words in increasing address order (SSE
// moves on amd64, word loops elsewhere); atomics are sync/atomic on the mapped
// memory. On amd64 stores become visible in program order, hence
// Caps.OrderedLine and Caps.Placed; elsewhere the last word of each line is
// stored with release order. Memory is outside the Go heap, so neither the
// garbage collector nor the race detector looks at it: what crosses it is
// copied into private buffers and checked there.
//
// A changed access key must stop every verb with the old one before SetKey
// returns. Ports announce that they execute with a plain store; SetKey changes
// the key, issues a process-wide memory barrier (membarrier), and waits for
// each port that is inside Post to leave it. The fast path pays two plain
// stores per batch.
//
// # Files
//
// With a directory each blade is a sparse file, mapped shared: its contents
// survive the process, however it ends. FLUSH is msync, and survives power loss
// as far as the file system and disk keep their promises.
package inproc
