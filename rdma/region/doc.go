// Package region is the memory of blades and what executes verbs on it: the part
// that every fabric without a network card has in common. It knows no transport, no
// clock and no batch. The in-process fabric is a [Set] with a clock and completions.
//
// A [Set] is the regions of one host, anonymous memory on huge pages or mapped files,
// and their control path: provision, change a key, stop, restart, sync. A [Lane] is
// the executing side of a queue pair to each of them, with the memory that requests
// copy to and from. One goroutine hands it requests in order:
//
//	lane: request -> queue pair in order? -> checks (contract, clause 6) -> effect
//	                       |                        |
//	                 StatusFlushed            status; queue pair breaks
//
// Execute first touches the cache lines of the whole batch with prefetch
// instructions, then executes the requests in order, so that a batch waits for
// memory about once. It takes no lock, allocates nothing, and on amd64 is one
// loop in assembly (exec) for the requests that are plain: READs and WRITEs of up
// to 4 KiB between aligned places, and atomics, that pass every check. The others
// go through its complete twin in Go (Lane.execute), as do all on other
// processors; a test runs the two against each other. FLUSHes that follow each other
// run at once.
//
// # How the contract is kept
//
// READ and WRITE copy whole aligned words of the region in increasing address
// order, whatever the alignment of the request: words, or aligned pairs of them
// where the processor moves those at once. A word of which a WRITE changes only
// some bytes is replaced by compare-and-swap. Atomics are the processor's. On
// amd64 stores become visible in program order, so a line's last word publishes the
// line; elsewhere words are moved by sync/atomic. Memory is outside the Go
// heap, so neither the garbage collector nor the race detector looks at it: what
// crosses it is copied into private buffers and checked there.
//
// # Key fence
//
// No verb with a key that Revoke ends may take effect after Revoke has returned. Lanes announce
// that they execute with a plain store, then look at the control words of a region, which say what
// opens it; Revoke changes the words, issues a memory barrier for all threads (membarrier), and
// waits for each lane that announces itself to have done. So either the lane sees the new words, or
// Revoke sees the lane. The fast path pays two plain stores per batch; without membarrier they are
// fences. A lane announces each of its chunks, so the wait is short. It announces a FLUSH until
// that is let in, and not while the disk writes: a FLUSH changes no memory.
//
// The fast path compares with the oldest key alone: that which the last Revoke has named, so
// that of the present epoch. What carries a later one, between Grant and Revoke, goes through
// the twin, which looks at all of them. The oldest key of a stopped region is one that no
// request can carry (bit 32), so stopping and fencing are one mechanism, and the fast path has
// one check.
//
// # Several processes
//
// A region can be memory that other processes map (Options.Shared, or a file). Then its control
// words lie in shared memory, too (Options.Words), and so do the announcements of all lanes
// (Config.Lines). One process has the region, and changes its keys. The sets of the others have the
// region's File; they execute verbs on it, and can stop it.
//
//	process of the region              other processes
//	Set: memory  <----- mapped ------  Set: memory      lanes: verbs
//	     words   <----- mapped ------       words       look at them
//	Lines        <----- mapped ------  Lines            announce themselves
//	Grant, Revoke, ... and wait        StopBlade, Replace
//
// # Files
//
// A region with a path is a sparse file, mapped shared: its contents survive the
// process, however it ends. FLUSH is msync: what it covers survives power loss as far
// as the file system and disk keep their promises. A write to a hole of a file on a
// full disk is a fault, hence Set.Provision.
//
// A fault, also where a disk cannot be read, or of a file that was cut short,
// stops the region, as Set.StopBlade does: the request that met it fails, those before
// it have taken effect, once, and the process goes on (Lane.Execute). Lanes of a set
// with files pay for that with a deferred call a batch: one of three READs takes 42 ns
// and not 34 (BenchmarkFiles of the in-process fabric). All pay with two instructions a
// request.
package region
