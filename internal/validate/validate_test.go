package validate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/internal/validate"
)

var errBad = errors.New("bad options")

func ExampleFaults() {
	var f validate.Faults
	f.Check(1 < 2, "never said")
	f.Check(false, "%d threads", 0)
	f.Check(false, "no blades")
	fmt.Println(f.Err(errBad))
	// Output: bad options: 0 threads; no blades
}

func TestNoFaults(t *testing.T) {
	var f validate.Faults
	if err := f.Err(errBad); err != nil {
		t.Error(err)
	}
}

func TestByName(t *testing.T) {
	self := func(s string) string { return s }
	if x, err := validate.ByName(errBad, "color", "red", []string{"blue", "red"}, self); x != "red" || err != nil {
		t.Errorf("got %q, %v", x, err)
	}
	x, err := validate.ByName(errBad, "color", "green", []string{"blue", "red"}, self)
	if x != "" || !errors.Is(err, errBad) || !strings.Contains(err.Error(), `no color "green": there are blue, red`) {
		t.Errorf("got %q, %v", x, err)
	}
}
