// Package inproc is the fabric of the embedded default: blades are memory of
// this process, anonymous on huge pages or mapped from files, and a queue pair
// executes its work requests when they are posted.
//
// It is package region, which has the blades' memory and what executes verbs on it,
// with what a fabric needs besides: the process's clock, a seed and goroutines for Run.
// Its ports complete a batch when a lane has executed it. Hence Caps.Synchronous and
// Caps.Placed; Caps.OrderedLine because lanes copy words in increasing address order.
// With files for all blades, FLUSH is durable, and Caps.Durable says so.
package inproc
