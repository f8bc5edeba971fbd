// Package members says who is gone: a pure machine over the entries of the catalog. It has no lock,
// no clock and no I/O.
//
// # Blades
//
// A blade is gone when no member that is alive can reach it, and at least one of them has tried
// with all that it needs. Members are the processes that are registered, and the witness, which is
// the server of the catalog.
//
//	a member hears nothing of a blade      it says so in the catalog: a round of questions has
//	                                       begun
//	each other member                      asks the blade, and answers: it hears it, hears
//	                                       nothing, or could not ask
//	one hears it                           the blade lives: [Heard]. The member that began is cut
//	                                       off, and harms itself alone
//	none does, and all have answered       the blade is gone: [Gone]. Any member declares it dead
//	some have not answered                 [Asked]. A member that is alive answers; else its lease
//	                                       ends, and it counts no more
//
// So trouble of one process is no evidence about a blade: neither a time-out nor an end of file nor
// a lack of descriptors of its own decides. A refusal of the blade to talk shows that it lives.
// FaRM (SOSP'15, section 5.2) has one configuration manager that probes suspects; here every member
// probes, since what counts is whether any of them can use the blade.
//
// What a fabric knows by itself needs no round: a blade whose server has begun another incarnation
// has lost its memory, and so has a blade of this process, or of this host, that has ended.
//
// # Leases
//
// [Leases] say of members that hold a lease, such as servers of blades, whether they are alive: by
// when an observer has seen their signs of life move, and never by a clock of theirs.
package members
