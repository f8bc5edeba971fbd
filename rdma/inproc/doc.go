// Package inproc is the fabric of the embedded default: blades are memory of
// this process, anonymous on huge pages or mapped from files, and a queue pair
// executes its work requests when they are posted.
//
// Post first touches the cache lines of the whole batch with prefetch
// instructions, then executes the requests in order, so that a batch waits for
// memory about once. It takes no lock, allocates nothing, and on amd64 is one
// loop in assembly (exec) for the requests that are plain: READs and WRITEs of up
// to 4 KiB between aligned places, and atomics, that pass every check. The others
// go through its complete twin in Go (port.execute), as do all on other
// processors; a test runs the two against each other.
//
// # How the contract is kept
//
// READ and WRITE copy whole aligned words of the region in increasing address
// order, whatever the alignment of the request: words, or aligned pairs of them
// where the processor moves those at once. A word of which a WRITE changes only
// some bytes is replaced by compare-and-swap. Atomics are the processor's. On
// amd64 stores become visible in program order, hence Caps.OrderedLine and
// Caps.Placed; elsewhere words are moved by sync/atomic. Memory is outside the Go
// heap, so neither the garbage collector nor the race detector looks at it: what
// crosses it is copied into private buffers and checked there.
//
// A changed access key must stop every verb with the old one before SetKey
// returns. Ports announce that they execute with a plain store, then look at the
// keys; SetKey changes the key, issues a process-wide memory barrier
// (membarrier), and waits for each port that announces itself to have done. So
// either the port sees the new key, or SetKey sees the port. The fast path pays
// two plain stores per batch; without membarrier they are fences.
//
// # Files
//
// With a directory each blade is a sparse file, mapped shared: its contents
// survive the process, however it ends. FLUSH is msync: what it covers survives
// power loss as far as the file system and disk keep their promises. A write to
// a hole of a file on a full disk is a fault, hence Fabric.Provision.
//
// A fault, also where a disk cannot be read, or of a file that was cut short,
// stops the blade, as Fabric.StopBlade does: the request that met it fails, those before it
// have taken effect, once, and the process goes on (filePort). Ports of a fabric with files
// pay for that with a deferred call a Post: a batch of three READs takes 42 ns and not 34 (BenchmarkFiles).
// All pay with two instructions a request.
package inproc
