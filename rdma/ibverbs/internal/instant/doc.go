// Package instant has a queue pair and a completion queue of libibverbs whose device takes no time:
// what is posted completes at once, and nothing is moved. It is for measuring the calls of the
// library, and needs cgo and the tag ibverbs.
package instant
