// Package rdma is the bottom of the engine: one-sided verbs on the memory of
// blades, the threads and coroutines that post them, and SMART's three
// techniques beneath every verb. Everything above it (memory, index, log, occ)
// sees the world through this package alone: memory, time, waiting and
// randomness.
//
// # Contract
//
// A [Fabric] gives exactly this, and the layers above assume nothing more.
// Package fabrictest checks every clause on every fabric.
//
//  1. An aligned 8-byte word is never torn. Within one 64-byte line a READ is
//     atomic or copies words in increasing address order. Across lines: any order.
//  2. On one queue pair WRITEs and atomics take effect in posted order; a READ
//     sees the WRITEs and atomics posted before it. A WRITE may take effect
//     before an earlier READ returned, unless it carries [FlagFence]. Requests
//     complete in posted order. Nothing is ordered between queue pairs.
//  3. A completion of a WRITE says that it arrived, not that other readers see
//     it yet; it is placed before any later READ or atomic of the same queue
//     pair completes. Durability needs FLUSH.
//  4. Atomics are atomic against atomics of every client of that blade, and
//     against aligned 8-byte WRITEs.
//  5. A verb may fail, and then may or may not have taken effect. After an
//     error the queue pair is in the error state: everything behind it fails
//     too, until [Thread.Reconnect].
//  6. A verb outside its region, past its bounds, with a stale key or without
//     the access right fails with a [*VerbError] and never harms memory.
//
// A fabric may promise more in its [Caps]; a layer that profits from it asks.
//
// # Threads and coroutines
//
// A [Thread] owns a queue pair per blade, one completion queue, one doorbell,
// an arena of registered memory, and its credits (SMART, section 4.1). It
// belongs to one goroutine. Local buffers are offsets into the arena, so a work
// request ([WR]) holds no Go pointer and the garbage collector never looks at it.
//
// A [Coro] is a transaction in progress on a thread: it appends work requests
// to a [Batch], posts it (one doorbell per blade) and waits for its own
// completions. [Thread.Run] multiplexes many coroutines over the thread, on one
// goroutine, with iter.Pull; [Thread.Plain] gives a single one whose waits poll.
//
// # SMART's techniques
//
// Each is a switch in [Techniques], and all are on by default: the doorbell
// allocation policy ([QPPolicy], section 4.1), work request throttling
// (Algorithm 1, section 4.2), and conflict avoidance with truncated exponential
// backoff, a dynamic limit and coroutine credits (equation 1, section 4.3).
// Their times are in units of the fabric's clock.
package rdma
