package verify_test

import (
	"fmt"
	"testing"

	"txnode/occ"
)

// TestHealthyDatabasesAreClean checks databases after churn, of every kind, and
// again after they have been opened and changed once more.
func TestHealthyDatabasesAreClean(t *testing.T) {
	for _, v := range []variant{
		{1, 0, occ.PolicyDefault}, {2, 1, occ.PolicyDefault}, {4, 2, occ.PolicyDefault},
		{2, 1, occ.PolicyFORD}, {3, 2, occ.PolicyFORD},
	} {
		t.Run(fmt.Sprintf("blades=%d,backups=%d,%v", v.blades, v.backups, v.policy), func(t *testing.T) {
			dir := t.TempDir()
			for round := range 2 {
				populate(t, dir, v, 400)
				sum, found := check(t, dir, false)
				if len(found) > 0 {
					t.Fatalf("after round %d:\n%s", round, show(found))
				}
				if sum.Coordinators != 0 || sum.Live == 0 || sum.Tables[0].Records == 0 || sum.Tables[1].Records == 0 ||
					sum.Tables[0].Records+sum.Tables[1].Records != sum.Live || sum.Tables[0].SubTables < 2 ||
					sum.Tables[0].Slots != sum.Tables[0].Records+sum.Tables[0].Tombstones || !sum.Clean() {
					t.Errorf("%+v", sum)
				}
			}
		})
	}
}
