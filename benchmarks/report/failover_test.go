package report

import (
	"strings"
	"testing"
	"time"

	"txnode/benchmarks/runner"
)

// TestGaps: the gap of what happened is not the longest of the run.
func TestGaps(t *testing.T) {
	const bucket = 100 * time.Microsecond
	commits := make([]uint32, 80_000) // 8 s
	for i := range commits {
		commits[i] = 2
	}
	clear(commits[20_003:20_050]) // the loss
	clear(commits[34_000:46_000]) // something else
	line := &runner.Timeline{
		Bucket: bucket, Commits: commits, Events: []runner.Happened{{Name: "blade 0 stopped", At: 2 * time.Second}},
	}
	f := failoverOf(line)
	if f.GapNs != int64(1200*time.Millisecond) || f.GapAtNs != int64(3400*time.Millisecond) {
		t.Errorf("longest gap %d at %d", f.GapNs, f.GapAtNs)
	}
	if f.EventGapNs != int64(4700*time.Microsecond) || f.EventGapAt != int64(2000300*time.Microsecond) {
		t.Errorf("gap of the loss %d at %d", f.EventGapNs, f.EventGapAt)
	}
	if f.BeforePerS != 20_000 || f.EndPerS != 20_000 {
		t.Errorf("%v, %v per second", f.BeforePerS, f.EndPerS)
	}
	text := strings.Join(f.lines(), "\n")
	if want := "no commit for 4.7 ms, at 2.000 s; longest time without one in the whole run: 1.2 " +
		"s, at 3.400 s"; !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}

	clear(commits[20_003:35_000]) // a loss that lasts
	if f = failoverOf(line); f.EventGapNs != int64(2599700*time.Microsecond) {
		t.Errorf("gap of a loss that lasts: %d", f.EventGapNs)
	}
	clear(commits[20_003:]) // one that is not over
	f = failoverOf(line)
	if f.EventGapNs != int64(5999700*time.Microsecond) || f.GapNs != f.EventGapNs || f.DegradedPerS != 0 ||
		f.EndPerS != 0 {
		t.Errorf("gap of a loss that lasts until the end: %d, in the whole run %d; %v, %v per second",
			f.EventGapNs, f.GapNs, f.DegradedPerS, f.EndPerS)
	}
	if text, want := strings.Join(f.lines(), "\n"),
		"no commit for 6 s, at 2.000 s, until the end; longest"; !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
	f.EndNs = 0 // of a result that was saved when nobody noted that
	if text := strings.Join(f.lines(), "\n"); strings.Contains(text, "until the end") {
		t.Errorf("when the run has ended is not known, and it says\n%s", text)
	}
	line.Events = nil
	if text := strings.Join(failoverOf(line).lines(), "\n"); strings.Contains(text, "committed") {
		t.Errorf("nothing has happened, and it says\n%s", text)
	}
}
