package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
)

// TestSimLOCO: experiments are chosen, printed with what the paper claims, and drawn on a page.
func TestSimLOCO(t *testing.T) {
	b := newBed(t)
	small := []string{"sim", "loco", "--nodes", "2", "--threads", "1", "--keys", "200", "--duration", "100us"}
	page := filepath.Join(b.dir, "loco.html")
	code, stdout, stderr := b.run(append(small, "--experiment", "fence,kv,barrier", "--report", page)...)
	p, err := os.ReadFile(page)
	if code != 0 || err != nil || !strings.Contains(string(p), "<svg") ||
		!strings.Contains(string(p), "LOCO &gt; Sherman") {
		t.Error(code, err, stderr)
	}
	for _, want := range []string{
		"The map: half updates, Zipf 0.99", "LOCO's layout, no fence", "Sherman > LOCO", "15 %",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output lacks %q:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "One lock") {
		t.Errorf("an experiment was measured that was not wanted:\n%s", stdout)
	}
	for _, args := range [][]string{
		{"--experiment", "chess"}, {"--nodes", "1"}, {"--nodes", "100"}, {"--threads", "0"},
		{"--window", "9999"}, {"--keys", "-1"},
		{"--duration", "0s"}, {"--machine", "abacus"}, {"x"}, {"-o", "xml"},
	} {
		if code, _, stderr := b.run(append(small, args...)...); code != command.ExitUsage {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestBenchChannel: operations are chosen, and faults told.
func TestBenchChannel(t *testing.T) {
	b := newBed(t)
	code, stdout, stderr := b.run("bench", "channel", "--threads", "2", "--operation", "queue,kv-get",
		"--duration", "2ms")
	if code != 0 || !strings.Contains(stdout, "kv-get") || !strings.Contains(stdout, "queue") ||
		strings.Contains(stdout, "var-add") {
		t.Error(code, stdout, stderr)
	}
	for _, args := range [][]string{
		{"--operation", "chess"}, {"--threads", "65"}, {"--threads", "0"}, {"--duration", "-1s"}, {"x"},
	} {
		if code, _, stderr := b.run(append([]string{"bench", "channel"}, args...)...); code != command.ExitUsage {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}
