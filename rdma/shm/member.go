package shm

import "math/rand/v2"

// member is a fabric or a server that uses a directory: a random number, which no other one has. 0:
// none.
//
// A member holds a lock of the byte that has its number in the file lanes, far beyond the end of
// the file. The lock belongs to the open file (F_OFD_SETLK), and nothing gives it up: the system
// does when all threads of the process have left their memory. So a lock that another process can
// have is the proof that no verb of the member is in progress. It needs no process id, which
// another process may get, no /proc, which may hide processes, and no time-out. A process that is
// stopped, or in another name space, holds its lock like any other. A child that was forked, and
// has executed nothing, holds it too.
type member uint64

// Offsets of locks in the file lanes. Numbers of members are from memberLock to twice that.
const (
	usersLock  = 0       // shared: by all members; exclusive: by the one that makes the file
	memberLock = 1 << 60 // of members, by number
	nameLock   = 1 << 61 // of servers, by a hash of the name
)

// draw returns the number of a new member.
func draw() member { return memberLock | member(rand.Uint64N(memberLock)) }

// valid reports whether a number from a file, or from a peer, may be a member's.
func (m member) valid() bool { return m >= memberLock && m < nameLock }
