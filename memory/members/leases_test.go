package members_test

import (
	"testing"

	"txnode/memory/layout"
	"txnode/memory/members"
)

// TestLeases: a lease lasts for a term from when its count was seen to move.
func TestLeases(t *testing.T) {
	var l members.Leases
	const term = 30
	for _, x := range []struct {
		at    int64
		count uint64 // 0: the catalog does not tell of it
		want  members.Lease
	}{
		{0, 0, members.LeaseUnknown},
		{1, 5, members.LeaseUnknown}, // it may have said so long ago
		{30, 5, members.LeaseUnknown},
		{32, 5, members.LeaseExpired},
		{33, 6, members.LeaseAlive},
		{53, 6, members.LeaseAlive},
		{54, 6, members.LeaseLate},
		{63, 6, members.LeaseLate},
		{64, 6, members.LeaseExpired},
		{65, 1, members.LeaseAlive}, // the catalog was opened anew
		{66, 0, members.LeaseUnknown},
		{67, 2, members.LeaseUnknown},
	} {
		var beats []layout.Beat
		if x.count > 0 {
			beats = append(beats, layout.Beat{Member: 7, Count: x.count})
		}
		l.Heed(beats, x.at)
		if got := l.State(7, term, x.at); got != x.want || l.Known(7) != (x.count > 0) {
			t.Errorf("at %d, with count %d: %v, want %v", x.at, x.count, got, x.want)
		}
	}
	if l.Over(7, term, 2, 67+2*term) || !l.Over(7, term, 2, 67+3*term) || l.Over(8, term, 2, 1<<40) {
		t.Error("a member is silent for more than two terms when three have passed, and not before")
	}
}
