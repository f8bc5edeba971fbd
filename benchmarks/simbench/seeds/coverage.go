package seeds

import (
	"fmt"
	"slices"
	"strings"

	"txnode/memory/layout"
	"txnode/rdma/sim"
	"txnode/verify"
)

// Coverage is what a run, or many, has come to: a fault that never strikes and a path
// that is never taken prove nothing.
type Coverage struct {
	Runs     uint64
	Txns     uint64 // recorded
	Verbs    uint64
	Survived uint64 // runs in which whoever was left recovered the dead

	Workloads [16]uint64                 // runs, by number of the workload
	Struck    [16]uint64                 // runs in which a fault has struck, by sim.FaultKind
	Policies  [2]uint64                  // runs
	Backups   [layout.MaxReplicas]uint64 // runs, by f

	Durable      uint64 // runs with every commit flushed
	Grown        uint64 // runs in which an index was split
	SubTables    uint64 // of the indexes at the end
	Coordinators uint64 // that were recovered
	Finished     uint64 // transactions that recovery has found committed
	Undone       uint64 // and that it has undone, or was asked for
	Unknown      uint64 // transactions whose clients were not told, and that have an answer
	NoAnswer     uint64 // and that have none: on threads with several coroutines
	Epochs       uint64
	Kept         uint64 // runs in which a blade has stopped, and kept its memory
	Erased       uint64 // or lost it
	Outages      uint64 // blades that were declared dead
	Promoted     uint64 // segments whose backups became primaries
	Built        uint64 // copies that were built in their place
	Gone         uint64 // runs that ended without a blade
	Sieges       uint64 // runs with one loss of blades after the other
	Losses       uint64 // of blades, in those

	Several   uint64 // runs with several processes
	Processes uint64 // in those
	Killed    uint64 // processes that were killed
	Joined    uint64 // that have opened the database while others were at work
	Closed    uint64 // that have closed it then
	Ended     uint64 // times that registrations of processes were ended
	Rejoined  uint64 // workers that were fenced, or had met a fault, and went on
	Foreign   uint64 // blades that a process found declared dead by another one
	Succeeded uint64 // rounds in which another process has outlived the one that was there first
	Extinct   uint64 // and in which none has
	Networks  uint64 // runs with a network between processes and blades
	Witnessed uint64 // of those, with a witness
	Tended    uint64 // and with maintenance and copies on bodies of their own
	Changes   uint64 // runs in which tables and indexes come and go beside other processes
	Dropped   uint64 // tables that were dropped in those
	Indexed   uint64 // indexes that were built
}

// Add adds what another run has come to.
func (c *Coverage) Add(d *Coverage) {
	c.Runs += d.Runs
	c.Txns += d.Txns
	c.Verbs += d.Verbs
	c.Survived += d.Survived
	for i := range c.Workloads {
		c.Workloads[i] += d.Workloads[i]
	}
	for i := range c.Struck {
		c.Struck[i] += d.Struck[i]
	}
	for i := range c.Policies {
		c.Policies[i] += d.Policies[i]
	}
	for i := range c.Backups {
		c.Backups[i] += d.Backups[i]
	}
	c.Durable += d.Durable
	c.Grown += d.Grown
	c.SubTables += d.SubTables
	c.Coordinators += d.Coordinators
	c.Finished += d.Finished
	c.Undone += d.Undone
	c.Unknown += d.Unknown
	c.NoAnswer += d.NoAnswer
	c.Epochs += d.Epochs
	c.Kept += d.Kept
	c.Erased += d.Erased
	c.Outages += d.Outages
	c.Promoted += d.Promoted
	c.Built += d.Built
	c.Gone += d.Gone
	c.Sieges += d.Sieges
	c.Losses += d.Losses
	c.Several += d.Several
	c.Processes += d.Processes
	c.Killed += d.Killed
	c.Joined += d.Joined
	c.Closed += d.Closed
	c.Ended += d.Ended
	c.Rejoined += d.Rejoined
	c.Foreign += d.Foreign
	c.Succeeded += d.Succeeded
	c.Extinct += d.Extinct
	c.Networks += d.Networks
	c.Witnessed += d.Witnessed
	c.Tended += d.Tended
	c.Changes += d.Changes
	c.Dropped += d.Dropped
	c.Indexed += d.Indexed
}

// String tells it in a few lines.
func (c *Coverage) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d transactions, %d verbs; workloads:", c.Txns, c.Verbs)
	for i := range works {
		fmt.Fprintf(&b, " %s %d", works[i].name, c.Workloads[i])
	}
	fmt.Fprintf(&b, "\nf:")
	for i, n := range c.Backups {
		if n > 0 {
			fmt.Fprintf(&b, " %d in %d", i, n)
		}
	}
	fmt.Fprintf(&b, "; policy default in %d, ford in %d; durability power in %d; indexes split in %d",
		c.Policies[0], c.Policies[1], c.Durable, c.Grown)
	faults := ""
	for _, k := range faultKinds {
		if c.Struck[k] > 0 {
			faults += fmt.Sprintf(" %v %d", k, c.Struck[k])
		}
	}
	if c.Several > 0 {
		fmt.Fprintf(&b, "\nseveral processes: %d in %d runs; %d joined while others were at work, %d closed the "+
			"database then, %d were killed; their registrations were ended %d times, "+
			"blades found declared dead by another: %d, workers rejoined: %d; the first process died, and others "+
			"stayed: %d times, or none: %d times",
			c.Processes, c.Several, c.Joined, c.Closed, c.Killed, c.Ended, c.Foreign, c.Rejoined,
			c.Succeeded, c.Extinct)
	}
	if c.Networks > 0 {
		fmt.Fprintf(&b, "\na network between processes and blades in %d runs, with a witness in %d, maintenance "+
			"beside the sessions in %d", c.Networks, c.Witnessed, c.Tended)
	}
	if c.Changes > 0 {
		fmt.Fprintf(&b, "\ntables come and go in %d runs: %d dropped, %d indexes built, beside other processes",
			c.Changes, c.Dropped, c.Indexed)
	}
	if faults == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "\nruns that a fault has struck:%s; survivors went on in %d", faults, c.Survived)
	fmt.Fprintf(&b, "\nrecovered: %d coordinators, %d transactions finished or found committed, %d undone; %d "+
		"unknown outcomes answered, %d not", c.Coordinators,
		c.Finished, c.Undone, c.Unknown, c.NoAnswer)
	if c.Outages > 0 {
		fmt.Fprintf(&b, "\nblades declared dead: %d; they had kept their memory in %d runs, lost it in %d; segments "+
			"promoted: %d, copies built: %d, runs that ended without one: %d",
			c.Outages, c.Kept, c.Erased, c.Promoted, c.Built, c.Gone)
	}
	if c.Sieges > 0 {
		fmt.Fprintf(&b, "\nunder siege: %d runs, in which %d blades came back", c.Sieges, c.Losses)
	}
	return b.String()
}

// cover notes what the plan was, and what catalog, fabric and walk tell.
func (b *bench) cover(l *layout.Layout, sum *verify.Summary) {
	c := &b.cov
	c.Runs = 1
	for i := range works {
		if &works[i] == b.work {
			c.Workloads[i] = 1
		}
	}
	c.Policies[b.policy&1], c.Backups[b.backups] = 1, 1
	for _, k := range faultKinds {
		if b.world.fabric.Struck(k) > 0 {
			c.Struck[k] = 1
		}
	}
	if b.survive {
		c.Survived = 1
	}
	if b.durable {
		c.Durable = 1
	}
	if b.gone >= 0 {
		c.Gone = 1
	}
	if c.Struck[sim.FaultRestart] > 0 {
		for _, x := range slices.Concat(append(b.later, b.faults)...) {
			switch {
			case x.Kind != sim.FaultRestart:
			case x.Memory:
				c.Kept = 1
			default:
				c.Erased = 1
			}
		}
	}
	if b.siege.span > 0 {
		c.Sieges, c.Losses = 1, b.siege.lost[0]+b.siege.lost[1]
		c.Kept, c.Erased = min(b.siege.lost[1], 1), min(b.siege.lost[0], 1)
	}
	if b.processes > 1 {
		c.Several, c.Processes, c.Killed = 1, uint64(b.processes), b.world.fabric.Struck(sim.FaultKill)
	}
	for n, is := range map[*uint64]bool{
		&c.Networks: b.remote, &c.Witnessed: b.witnessed, &c.Tended: b.tended, &c.Changes: b.changes,
	} {
		if is {
			*n = 1
		}
	}
	c.Epochs, c.Coordinators = uint64(l.Epoch), uint64(len(l.Verdicts))
	for i := range l.Verdicts {
		c.Finished += uint64(len(l.Verdicts[i].Committed))
		c.Undone += uint64(len(l.Verdicts[i].Aborted))
	}
	for i := range sum.Tables {
		c.SubTables += sum.Tables[i].SubTables
		if sum.Tables[i].SubTables > startTables || sum.Tables[i].Leaves > 1 {
			c.Grown = 1
		}
	}
}

// startTables is how many sub-tables a new index has.
const startTables = 1
