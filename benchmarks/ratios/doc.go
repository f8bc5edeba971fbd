// Command ratios measures what the engine costs on the in-process fabric as
// ratios of two things timed in turn in one run, which is all that a machine
// shared with others can tell:
//
//   - a batch of 16 random 64-byte READs over 1 GiB, against a plain Go loop that
//     copies the same lines;
//   - SmallBank transactions on the engine, one thread, against their bare verbs: the
//     work requests that those transactions post, drawn and rolled back alike, in the
//     same batches, on records that lie alike;
//   - SmallBank over many accounts against 100,000.
//
// docs/performance.md explains the numbers; make bench-engine runs it.
package main
