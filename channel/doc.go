// Package channel has LOCO's objects over the fabric contract: what members, threads of one process
// or of many, need to work together without a server. Their state lies on blades, and members
// change it with one-sided verbs alone.
//
//	Var          a word that all change
//	Owned        a value with one writer at a time
//	SST          a row for each member, all of them read at once
//	Barrier      members wait for each other, and do not wait for the dead
//	Mutex        a lock that costs one round trip when it is free
//	TicketLock   a lock that is given to waiting members in the order of their asking
//	Ring         messages from one sender to many receivers, which it waits for, or not
//	Queue        items from many members to many, each handled at least once
//	KV           a map, which readers look into without a lock
//
// It is coordination, not data: an object has one copy, and is gone when its blade begins anew.
// What must survive belongs into tables. The source is Hodgkins, Madler, Izraelevitz, "LOCO:
// Rethinking Objects for Network Memory", arXiv 2503.19270; docs/channel.md tells what differs.
//
// # Members
//
// A thread joins a [Host] with [Join] and gets a number that no other member has had. It has a slot
// in a table on a blade: its number, and a heartbeat. Other members judge by their own clocks
// whether the heartbeat moves: no clocks are compared. One that stands still for a term is declared
// dead, by a member that waits for it. Fence, then look again: before another member is robbed,
// skipped or called missing, [Host].Fence has returned, and the words that tell what it did were
// read once more. What they say then is final, and all survivors decide alike. A member that was
// fenced by mistake finds [ErrFenced], and joins again.
//
// # Objects
//
// Objects have names within a [Scope]. The first member that opens a name makes the object; the
// others get the same one, or a [*SpecError]. One object lies on one blade, so the order of a queue
// pair does the work of most fences. Blank memory is the initial state of each.
//
// A handle belongs to one coroutine at a time, and its member's thread. A member opens a name once.
// A method that changes an object without waiting for others has a twin, StageX, that only appends
// requests to a batch: several objects share a doorbell, posted with [Member.Do]. Methods that may
// wait for others take a context. They wait with pauses, beat, and start no goroutine.
//
// # Words
//
// A word is changed by atomics alone, or by WRITEs of one owner at a time, never by both. So
// nothing here depends on whether atomics are atomic against WRITEs. An atomic that grants
// something leaves the number of the member in the word, so an atomic without an answer is settled
// by a READ, after the epoch has moved: until then it may still arrive.
//
// # Epochs
//
// Fence changes the access keys of all blades. Each member's next verb then fails; [Member.Do] gets
// the new keys from the host and posts again what has not been executed.
//
// Layout of an object, in its first line:
//
//	 0  "txnchan", kind     8
//	 8  specification       8, a hash
//	16  incarnation         4
//	20  size in bytes       4
//	24  checksum            8
//
// Its words and images follow: see each type.
package channel
