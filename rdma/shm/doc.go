// Package shm is a fabric over shared memory: blades are memory, or files, that all processes of a
// host map. A verb is a few loads, stores and atomics of the client's own, as on the in-process
// fabric, with package region. A [Server] has blades: it hands out their memory, grants and ends
// their keys, and executes no verb. A [Fabric] is the client's side. It is for Linux.
//
//	server "a"                     directory                         client
//	memory of its blades  ------------- descriptors ------------->   mapped
//	control words         <-- a.keys: mapped by all ------------->   looks at them
//	a key fence           <-- lanes: mapped by all -------------->   announces itself
//	Grant, Revoke, ...    <-- a.sock: control calls, descriptors ->  Fabric
//	does the client live? --- a.sock: questions, answers --------->  Fabric
//
// # The directory
//
// A directory is where servers and clients of one database meet. It belongs to the user that runs
// all of them, no other user may write to it, and it is best on a tmpfs (/run, /dev/shm): every
// batch writes into the file lanes. A client of root's may use the directory of another user, a
// server may not. Files in it are for their user alone (0600), and servers make them:
//
//	lanes      a line for each lane of each process: the member, and what it announces
//	NAME.sock  where a server answers
//	NAME.keys  the control words of its blades (package region)
//
// What these files and the peers say is checked: sizes, versions, magic numbers, owners.
// Space for the files is reserved when they are made. A process that may write them is
// trusted, as it may write the data: it can make others fail, not read what they may not, and
// not have a process killed.
//
// # Members
//
// Each fabric and each server is a member of the directory. It draws a number, and holds a lock of
// the byte of that number in the file lanes for as long as it exists. The system ends this lock
// when all threads of the process have ended, and at no other time. A lock that is free is the
// proof that a member has ended. All decisions of this package about life and death rest on it:
// which lines are free, for which a fence need not wait, and whether a server has ended. Nothing
// else counts. A process id may be another process's, /proc may hide processes, and a socket may be
// gone, full or slow while its process lives. The lock is also right for a process that is stopped,
// whose first thread has ended, or in another name space of ids.
//
// A member's memory does not outlive it. Shared mappings are not inherited by a child that is
// forked (MADV_DONTFORK), nor by a program that a process executes. A child of fork that executes
// nothing holds the lock, so a fence waits for its end, too. Descriptors of blades are closed at
// exec. A client that hands them on deliberately is not guarded against.
//
// # Key fence
//
// Lanes announce themselves as within one process, with plain stores, in lines of the file lanes. A
// fence issues a memory barrier on all threads of all processes that have registered (membarrier,
// global expedited), and waits for each line that is odd: until it has changed, or its member has
// ended. Where membarrier is not to be had, all lanes use memory fences; the first server decides
// that for the directory.
//
// A client can stand still in the middle of a verb: it is stopped, a debugger has it, or it waits
// for a page of a blade's file from a slow disk. Until it goes on or has ended the fence is not
// complete. Revoke waits for three quarters of Options.Control, and then ends with ErrStuck, an
// rdma.ErrUnfenced, whose text names the process. The keys have ended then, so nothing new is let
// in. Revoke again waits again.
//
// One client that is stopped for good would so keep a database from its next epoch for ever.
// Package shm knows no leases: whether a client takes part is decided in the catalog, and a fence
// may be due to another client, or to a table that is dropped. So a server does not judge by how
// long a verb takes. While a fence waits for a client of its own, the server asks on the
// connection that every client keeps open. A goroutine of the client answers. A client that
// answers lives, and is waited for. One that has not answered for [ServerOptions].Patience has not
// run for so long, and so has not renewed its lease. With a Patience of at least the longest lease
// of a client that lease has ended. Then, and only then, the server kills the process, by the
// handle (pidfd) that the system gives of the peer of that connection, and tells
// ServerOptions.Report which process, and why. It counts time in which it waited and ran itself.
// The default is the default lease of package txn.
//
// A process is not killed if it has no such connection, if it is in a name space of ids that the
// server does not see, if it is another user's, or if it is the server's own. Then Revoke ends with
// ErrStuck until an operator continues or ends the process. Clients never kill, nor does a server
// at its start: clients of a server before are not its own.
//
// A client that dies leaves its lines as they are. Whatever fences next, or finds no
// free line, frees them.
//
// # The death of a server
//
// Clients have the memory of a dead server mapped still, and their verbs would go on. A client
// whose connection ends connects again. If that fails it looks at the server's lock as a member. If
// the server has ended the client sets the stopped bit in the shared control words and runs the
// same fence itself. Only then do its control calls fail with an rdma.ErrBladeDown that is no
// rdma.ErrSilent. So whatever a process does because of that error, no verb of any process takes
// effect on these blades any more. A new server of the name does the same before it touches the
// blades' files, if there are no clients. It has new control words and a new incarnation; Blades,
// Reset and the control path connect to it. A client that has a port on the old memory keeps it
// mapped until Reset or Close.
//
// A server that is alive and silent is another matter: calls end with rdma.ErrSilent after
// Options.Control, and verbs go on. As with package tcp, a call may have taken effect then. So it
// is if the socket was removed. If this process has no descriptors left, say, the error is neither.
//
// # Memory
//
// Shared memory is a memfd whose size is sealed. A restart without memory, in drills, punches
// holes into it. Transparent huge pages are asked for; the system gives them if
// /sys/kernel/mm/transparent_hugepage/shmem_enabled is "advise" or "always". Memory is used as it
// is touched, and counts as shared memory of the process that touches a page first. With files
// for all blades, FLUSH is an msync of the client's, and Caps.Durable says so. A failed one is
// noted in the control words: no process flushes that file again. A fault in a file stops the
// blade for all processes.
//
// # Clock
//
// Now is CLOCK_MONOTONIC, so times of several processes of a host compare.
package shm
