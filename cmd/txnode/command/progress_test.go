package command_test

import (
	"strings"
	"testing"
)

// TestProgress: whoever looks at a terminal is shown how far a benchmark is. This one would
// go on for seconds.
func TestProgress(t *testing.T) {
	b := newBed(t)
	b.interruptOn = "run 1 of 2: measuring"
	code, out, stderr := b.run("bench", "smallbank", "--accounts", "100", "--warmup", "1ms", "--duration", "60s",
		"--runs", "2", "--no-save")
	if code != 130 || !strings.Contains(out, "interrupted: these are the results until then") ||
		!strings.ContainsAny(stderr, "━─") {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
}
