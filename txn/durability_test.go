package txn_test

import (
	"flag"
	"io"
	"strings"
	"testing"

	"txnode/txn"
)

// TestDurabilityNames: a durability is a flag, prints what it was set to, and takes
// nothing else. Nothing set is the process.
func TestDurabilityNames(t *testing.T) {
	var d txn.Durability
	fs := flag.NewFlagSet("t", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var(&d, "durability", "what a commit survives")
	if d != txn.DurabilityProcess || (txn.Options{}).Durability != d {
		t.Errorf("the zero value is %v", d)
	}
	for _, want := range []txn.Durability{txn.DurabilityPower, txn.DurabilityProcess} {
		if err := fs.Parse([]string{"-durability", want.String()}); err != nil || d != want {
			t.Errorf("%v was set as %v, %v", want, d, err)
		}
	}
	for _, wrong := range []string{"", "Power", "disk", "process,power"} {
		if err := fs.Parse([]string{"-durability=" + wrong}); err == nil || !strings.Contains(err.Error(), "must be one of process, power") {
			t.Errorf("%q was taken: %v", wrong, err)
		}
	}
	if d != txn.DurabilityProcess {
		t.Errorf("a name that was refused has set %v", d)
	}
	if s := txn.Durability(9).String(); s != "Durability(9)" {
		t.Errorf("an unknown one is called %q", s)
	}
}
