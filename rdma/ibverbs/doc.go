// Package ibverbs is the fabric over RDMA devices: cards, and the kernel's Soft-RoCE. A [Server] has
// memory of blades that a device reads and writes by itself, and a [Fabric] is the client's side.
// It uses libibverbs, so any device will do that the kernel's stack knows.
//
//	process of transactions                          process of blades
//	Thread -> port: queue pairs, completion queue <-> device: memory, by rkey
//	link: connection to the service "ibverbs"     <-> Server.Answer: partners of queue pairs
//	tcp.Fabric: control connections               <-> tcp.Server: Provision, Grant, Revoke, blades
//
// # Building
//
// The part that calls libibverbs needs cgo and the tag ibverbs (device_linux.go, verbs_linux.c). The
// library is loaded when a device is opened. Without the tag, [Dial] and [NewServer] return
// ErrNotBuilt. Everything else is Go, and is tested on a device in software (fake_test.go); make
// test-rdma runs the tests on a kernel with Soft-RoCE.
//
// # Data path
//
// A port is one thread: a completion queue with a channel, an arena, and a reliable connected queue
// pair to each blade, all on a doorbell register of their own where the device has thread domains.
// Post writes requests of libibverbs (struct ibv_send_wr) where the device's library reads them, as
// one chain for each blade, and one call posts the chains and reaps completions. The last request of
// a chain is signalled; WRITEs of a few words are inline. A thread that waits polls a little, and
// then sleeps in Go's network poller on the channel.
//
// # How the contract is kept
//
//   - Words and lines (1) are as devices move them: whole words, and a line at once. The
//     specification does not say so; all published systems rely on it. Caps.OrderedLine is false.
//   - Order (2) is that of a reliable connection; FlagFence is the device's.
//   - Placement (3): a WRITE that was acknowledged has reached the card. A later READ or atomic has it
//     placed; so does FLUSH, which is a READ where one of the two devices does not know FLUSH.
//     Requests of no bytes become READs of 8 bytes, because a device looks at neither memory nor key
//     for none.
//   - Atomics (4) are exact among those of one device. So a blade is reached through one device
//     only, by clients of its own host, too, and the process of the server never writes to it.
//   - Errors (5): what the blade's device refuses (NAK) has no effect, nor has what is behind:
//     StatusFlushed. When answers fail to come, all that was posted is StatusTimeout: it may have
//     taken effect. Reset makes a new connection, on which late packets of the old one have no effect.
//   - Bad verbs (6): bounds, rights, alignment and local buffers are checked in Post, in order. The
//     device checks again. What it refuses then is the key.
//
// # Keys
//
// A key is a registration of the blade's memory: its rkey, exclusive-or a mask that is random in
// each incarnation, since devices give the same rkeys again. Grant takes a registration that was made
// in the background. Revoke has succeeded when the older registrations are gone: the device lets no
// request in by them, and none is under way.
//
// # Left out
//
// Masked compare-and-swap, which libibverbs does not have (Caps.MaskedCAS is false: it costs a round
// trip a lock); FLUSH into persistent memory; queue pairs that threads share; rdma_cm; memory windows;
// on-demand paging; files as memory of blades.
package ibverbs
