package command_test

import (
	"strings"
	"testing"
)

// TestHeal: a cluster that no program has open is healed: a blade that has restarted is taken in, one that is gone is declared dead, and
// copies are built when it is back. Without --wait the command ends when nothing is left that it can do, and says what is wrong.
func TestHeal(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"})
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	heal := func(want int, says string, args ...string) {
		t.Helper()
		code, out, stderr := inSystem(t, append([]string{"cluster", "heal", c.catalog}, args...)...)
		if code != want || !strings.Contains(out, says) || (stderr == "") != (code == 0) {
			t.Errorf("%v: exit code %d: %s%s", args, code, out, stderr)
		}
	}
	heal(0, ": all\n")
	c.ends["y"]()
	c.serve("y") // blank
	c.status(1).says(t, "its region is blank")
	heal(0, ": all\n")
	c.status(0)
	c.ends["y"]()
	heal(1, "\nwrong: blade 1 was declared dead")
	healed := make(chan struct{})
	go func() {
		defer close(healed)
		heal(0, ": all\n", "--wait")
	}()
	c.serve("y")
	<-healed
	if st := c.status(0); st.Servers[1].Blades[0].Copies != st.Database.Segments {
		t.Errorf("%+v", st)
	}
	if code, _, stderr := inSystem(t, "cluster", "heal", c.catalog, "--timeout", "-1s"); code != 2 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// TestHealLost: data is lost, and no wait brings it back: the command ends, with --wait, too, and says so.
func TestHealLost(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"}, "--replicas", "0")
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.bury()
	code, out, stderr := inSystem(t, "cluster", "heal", c.catalog, "--wait")
	if code != 1 || !strings.Contains(out, "\nwrong: data is lost") || !strings.Contains(stderr, "data is lost") || strings.Contains(out, "declared dead") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
}
