package cluster_test

import (
	"testing"
	"time"

	"txnode/cluster"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// TestDeadlinesFollow: deadlines that are not set follow from the lease term, so that a server
// without power is noticed within it.
func TestDeadlinesFollow(t *testing.T) {
	const term = txn.DefaultLeaseTerm
	for _, c := range []struct {
		o                      cluster.Options
		connect, control, verb time.Duration
	}{
		{cluster.Options{}, term / 2, term, term / 2},
		{cluster.Options{Term: 10 * term}, 5 * term, 10 * term, 5 * term},
		{cluster.Options{Term: term / 10}, term / 2, term, term / 2},
		{cluster.Options{Term: -1, TCP: tcp.Options{Verb: 7}}, term / 2, term, 7},
		{cluster.Options{TCP: tcp.Options{Connect: 5, Control: 6, Verb: 7}}, 5, 6, 7},
	} {
		d := c.o.Deadlines()
		if d.Connect != c.connect || d.Control != c.control || d.Verb != c.verb {
			t.Errorf("term %v: %v to connect, %v for a call, %v for a verb", c.o.Term, d.Connect, d.Control, d.Verb)
		}
	}
}
