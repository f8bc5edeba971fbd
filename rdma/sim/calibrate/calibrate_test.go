package calibrate

import (
	"flag"
	"os"
	"testing"

	"txnode/rdma/sim"
)

var fit = flag.Bool("fit", false, "fit the constants anew and print the residuals")

func TestFit(t *testing.T) {
	if !*fit {
		t.Skip("takes a minute; use -fit")
	}
	r, err := Fit(Options{Progress: func(stage string, round int, cost float64) {
		t.Logf("%s, round %d: %.5f", stage, round, cost)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WriteText(os.Stdout); err != nil {
		t.Fatal(err)
	}
}

func TestNow(t *testing.T) {
	r, err := Evaluate(sim.ConnectX6(), Points(), 20_000)
	if err != nil {
		t.Fatal(err)
	}
	r.WriteText(os.Stdout)
}
