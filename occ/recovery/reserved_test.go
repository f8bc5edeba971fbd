package recovery

import (
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// TestIsReserved: what a commit reserves is told from a record that was deleted,
// whatever has that locked.
func TestIsReserved(t *testing.T) {
	mine, later, other := record.MakeTxID(3, 10), record.MakeTxID(3, 11), record.MakeTxID(4, 1)
	for _, x := range []struct {
		name    string
		version record.TxID
		state   record.State
		guard   record.Guard
		want    bool
	}{
		{"reserved", later, record.Absent, record.HeldBy(mine), true},
		{"reserved, of which the guard is that of before", later, record.Absent, record.FreeAt(mine), true},
		{"deleted", later, record.Absent, record.FreeAt(later), false},
		{"deleted, and locked by the coordinator's next transaction", mine, record.Absent, record.HeldBy(later), false},
		{"deleted, and locked by another coordinator", later, record.Absent, record.HeldBy(other), false},
		{"deleted, and the guard has not followed", mine, record.Absent, record.HeldBy(mine), false},
		{"a record", later, record.Live, record.HeldBy(mine), false},
		{"a node", later, record.Node, record.HeldBy(mine), false},
	} {
		img := make(record.Image, record.LineSize)
		img.Put(layout.MakeAddr(1, 0), x.version, x.state, 2, 0, 0, []byte("key"), nil)
		img.SetGuard(x.guard)
		if got := isReserved(img); got != x.want {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}
