// Package heartbeat tells the processes that have a database open which of them have died, sooner than their leases in the catalog do.
//
// Each process has a row in a table on a blade ([channel.SST]) with a counter. It counts on with one WRITE, and READs the rows of all,
// four times a term. A process whose counter stands still for a term and an eighth of the observer's clock counts as dead
// there ([memory.Space.Silence]): its registration and its leases have expired for this observer, which takes over and recovers.
//
//	m := heartbeat.New(space, heartbeat.Options{Term: 50e6, Longest: 10e9})
//	for each m.Every() nanoseconds {
//		changed, err := m.Turn(ctx, c)	// changed: look for expired leases now
//	}
//	m.Leave(c)
//
// # What is decided by it
//
// Nothing but when. The catalog decides which process is dead, in one change that begins an epoch, and verbs of a process that is late
// fail from then on. A false alarm costs that epoch: the process registers anew, and its sessions rejoin. It says then in its row that it
// wants twice the term, up to the longest one, so a host that cannot keep a term ends with one that it can.
//
// # What a process is never judged by
//
//	a row that did not move while it was watched   a process that has not joined, or is of another release: its lease counts
//	a table that could not be read                 terms begin again with the next look
//	more than half a term between two looks        the rest does not count: the observer was late, and perhaps the whole host
//	a row of a process that is not registered      it is gone, or this one has not followed the catalog yet
//
// The table has one copy. If its blade is lost, drained, or does not answer, leases in the catalog are all there is until the processes
// have joined another one. So it is if there are more processes than rows.
package heartbeat
