// Package supervisor looks after the blades, the copies and the coordinators of a database,
// beside its transactions.
//
//	lease      the registration of the process, and the leases of its sessions, are renewed
//	silence    a blade that does not answer is judged: by the fabric, by its incarnation, or by
//	           all members of the database
//	failover   a blade that is gone is declared dead, and all transactions are decided; sessions
//	           wait meanwhile
//	keeper     blades that are back are taken in, copies are built and moved, segments go back
//	maintain   coordinators whose leases have expired are recovered, and what they left is swept
//	watch      changes of the catalog are followed
//
// Failover runs on the thread of the session that met the blade. Everything else is done by
// goroutines of a [Supervisor] where time is real. Where it is virtual, sessions do it between
// their transactions, or the rounds of a simulation's tenders do.
//
// A supervisor uses the memory, the fabric and the recovery of coordinators. It knows the database
// above by two small interfaces, [Host] and [Sessions], and imports no package of transactions.
package supervisor
