// Package logsink keeps the writing of a log from holding up, or ending, what logs.
//
// A pipe that nobody reads blocks its writer, and a full disk refuses it. So a [Sink] takes lines
// into a bounded queue, and a goroutine of its own writes them. Two kinds of lines are left out,
// and counted: those that find the queue full, and those of a kind of which there were
// [PerSecond] in the same second already. When there is room again, one line says of each kind
// how many were left out.
//
// The daemons of cmd/txnode and the databases of package txn log through it.
package logsink
