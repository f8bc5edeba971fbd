// Package shm is a fabric over shared memory: blades are memory, or files, that all processes of a host map.
// A verb is a few loads, stores and atomics of the client's own, as on the in-process fabric, with
// package region. A [Server] has blades: it hands out their memory, grants and ends their keys, and
// executes no verb. A [Fabric] is the client's side. It is for Linux.
//
//	server "a"                     directory                         client
//	memory of its blades  ------------- descriptors ------------->   mapped
//	control words         <-- a.keys: mapped by all ------------->   looks at them
//	a key fence           <-- lanes: mapped by all -------------->   announces itself
//	Grant, Revoke, ...    <-- a.sock: control calls, descriptors ->  Fabric
//
// # The directory
//
// A directory is where servers and clients of one database meet. It belongs to the user that runs all of
// them, and is best on a tmpfs (/run, /dev/shm): every batch writes into the file lanes. Files in it:
//
//	lanes      a line for each lane of each process: the process, and what it announces
//	lock       held while lanes is made
//	NAME.sock  where a server answers
//	NAME.keys  the control words of its blades (package region)
//	NAME.lock  held by the server while it lives: two of one name are refused
//
// What these files and the peers say is checked: sizes, versions, magic numbers, the run of the system
// and the name space of process ids. Space for the files is reserved when they are made. A process that may
// write them is trusted, as it may write the data: it can make others fail, not read what they may not.
//
// # Key fence
//
// Lanes announce themselves as within one process, with plain stores, in lines of the file lanes. A fence
// issues a memory barrier on all threads of all processes that have registered (membarrier, global
// expedited), and waits for each line that is odd. Where membarrier is not to be had, all lanes use memory
// fences; the first process decides that for the directory.
//
// A client can be stopped in the middle of a store. If a line stays odd for longer than
// [ServerOptions].Patience, its process is KILLED, by its pidfd, and the fence waits until all its threads
// have ended. A line names its process by id and start, so another process that has got the id is left
// alone. A process is killed also if it is merely slow: stopped by a debugger, or waiting for a page of
// a blade's file from a disk that takes longer. A larger Patience helps. The process that fences
// never kills itself: it returns ErrStuck. So does a fence that may not kill, or whose victim does not end in 2 seconds.
//
// A client that dies leaves its lines as they are. Whatever fences next, or finds no free line, frees them.
//
// # The death of a server
//
// Clients have the memory of a dead server mapped still, and their verbs would go on. A client whose
// connection ends connects again. If no server answers, or another one does, it sets the stopped bit in the
// shared control words and runs the same fence itself. Only then do its control calls fail with rdma.ErrBladeDown. So
// whatever a process does because of that error, no verb of any process takes effect on these blades any
// more. A new server of the name does the same before it touches the blades' files, if there are
// no clients. It has new control words and a new incarnation; Blades, Reset and the control path
// connect to it. A client that has a port on the old memory keeps it mapped until Reset or Close.
//
// A server that is alive and silent is another matter: calls end with rdma.ErrBladeDown after Options.Control, and verbs go on.
// As with package tcp, a call may have taken effect then.
//
// # Memory
//
// Shared memory is a memfd whose size is sealed. A restart without memory, in drills, punches holes into
// it. Transparent huge pages are asked for; the system gives them if
// /sys/kernel/mm/transparent_hugepage/shmem_enabled is "advise" or "always". Memory is used as it is touched, and
// counts as shared memory of the process that touches a page first.
// With files for all blades, FLUSH is an msync of the client's, and Caps.Durable says so. A failed one is
// noted in the control words: no process flushes that file again. A fault in a file
// stops the blade for all processes.
//
// # Clock
//
// Now is CLOCK_MONOTONIC, so times of several processes of a host compare.
package shm
