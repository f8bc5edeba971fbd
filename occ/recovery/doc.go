// Package recovery decides and finishes the transactions of coordinators that have
// died, and brings into order what else they have left on the blades. It is the
// protocol alone: it posts verbs on the caller's coroutine, changes the catalog
// through the memory space, and needs neither a goroutine nor a clock of its own,
// so that it runs step by step under a simulator. docs/recovery.md has the argument
// why it is right.
//
// [Recover] is for coordinators: it claims and fences them, reads their logs,
// decides, replicates the logs, makes the verdicts durable, finishes or undoes,
// clears the logs and forgets the coordinators, in this order. Whatever stops it, it
// is to be called again, and comes to the same decisions: those are made from what
// only the dead coordinator and the recoverers before have written, one at a time,
// since each of them begins with a new epoch.
//
// When it is over, whatever else is locked by the coordinator was locked by
// transactions without effect. [Unlock] resolves one such lock, when it is met;
// [Sweep] looks for all of them.
package recovery
