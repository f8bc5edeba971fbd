package exhaustive

import (
	"fmt"
	"slices"
	"testing"

	"txnode/occ"
	"txnode/rdma"
)

// config is a kind of database.
type config struct {
	policy  occ.Policy
	backups int
	caps    rdma.Caps
	groups  uint32 // of a sub-table; 0: 8
	ahead   int    // blades whose turn to have an extent comes before that of the root's
	reclaim int    // occ.Options.ReclaimAfter
	entries int    // the table's index has nodes, and they have so many entries at most; 0: it has slots
	hashed  bool   // it is an index of hashes, not an ordered one

	readBackups bool // occ.Options.ReadBackups
	atEnd       bool // transactions validate at their end
	witnessed   bool // what running transactions see is part of the history
}

func (c config) String() string {
	s := fmt.Sprintf("%v/f=%d", c.policy, c.backups)
	if !c.caps.Placed {
		s += "/unplaced"
	}
	if !c.caps.OrderedLine {
		s += "/unordered"
	}
	if !c.caps.MaskedCAS {
		s += "/unmasked"
	}
	if c.readBackups {
		s += "/from-backups"
	}
	if c.atEnd {
		s += "/at-end"
	}
	switch {
	case c.hashed:
		s += "/leaves"
	case c.entries > 0:
		s += "/ordered"
	}
	return s
}

// strong are the promises of the in-process fabric, weak is none.
var strong, weak = rdma.Caps{Placed: true, OrderedLine: true, MaskedCAS: true}, rdma.Caps{}

// configs are both policies with one and two backups, on a fabric that promises much, and on one
// that promises nothing: with -full. Else four of these eight, in which each two of a policy, a
// number of backups and a fabric are together once at least; with -short two.
func configs() []config {
	if testing.Short() && !*full {
		return []config{
			{policy: occ.PolicyDefault, backups: 1, caps: strong, reclaim: 1},
			{policy: occ.PolicyFORD, backups: 2, caps: weak, reclaim: 1},
		}
	}
	var all []config
	for _, p := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		for f := 1; f <= 2; f++ {
			for _, caps := range []rdma.Caps{strong, weak} {
				all = append(all, config{policy: p, backups: f, caps: caps, reclaim: 1})
			}
		}
	}
	return usually(all, func(c config) bool {
		return (c.byDefault() == c.promised()) == c.oneBackup()
	})
}

// What a kind of database may be chosen by.
func (c config) promised() bool  { return c.caps == strong }
func (c config) oneBackup() bool { return c.backups == 1 }
func (c config) byDefault() bool { return c.policy == occ.PolicyDefault }

// those are the kinds that all of the conditions hold for.
func those(all []config, conditions ...func(config) bool) []config {
	return slices.DeleteFunc(slices.Clone(all), func(c config) bool {
		return slices.ContainsFunc(conditions, func(ok func(config) bool) bool { return !ok(c) })
	})
}

// usually are the kinds that a condition holds for, and with -full all of them.
func usually(all []config, ok func(config) bool) []config {
	if *full {
		return all
	}
	return those(all, ok)
}

// tries reports whether a transaction is stopped on this kind of database: a part of them is on a
// fabric without promises, and with -short, when it is not about all.
func (c config) tries(x txn) bool {
	some := []string{"DepositChecking", "WriteCheck", "InsertCallForwarding", "insert", "delete", "move"}
	switch {
	case *full:
		return true
	case testing.Short():
		return c.promised() && slices.Contains(append(some, "SendPayment", "insert-roll-back", "delete-insert",
			"lock-only"), x.name)
	case c.promised():
		return true
	}
	return c.oneBackup() && slices.Contains(some, x.name)
}

// stride is for how many first stops there is one whose recovery is stopped.
func (c config) stride() int {
	if c.promised() || *full {
		return byRun(80, 1, 80)
	}
	return 120
}
