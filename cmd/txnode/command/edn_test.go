package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every window of a history is a file that Elle can read: events of transactions,
// one a line, each invocation with its completion.
func TestHistoryFiles(t *testing.T) {
	b := newBed(t)
	code, _, stderr := b.run("bench", "smallbank", "--accounts", "1000", "--hot-accounts", "40", "--warmup",
		"0s", "--txns", "300",
		"--verify", "--verify-window", "200", "--history", "$DIR/h.edn", "--no-save")
	if code != 0 {
		t.Fatal(stderr)
	}
	for _, name := range []string{"h.edn", "h.2.edn"} {
		p, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		invoked, completed := 0, 0
		for line := range strings.Lines(string(p)) {
			switch {
			case !strings.HasPrefix(line, "{:index ") || !strings.Contains(line, ":f :txn"):
				t.Fatalf("%s: %.100s", name, line)
			case strings.Contains(line, ":type :invoke"):
				invoked++
			case strings.Contains(line, ":type :ok"):
				completed++
			}
		}
		if invoked < 50 || invoked != completed {
			t.Errorf("%s: %d transactions invoked, %d completed", name, invoked, completed)
		}
	}
	// A file that cannot be written ends it before the run, which would take a minute.
	code, out, stderr := b.run("bench", "smallbank", "--accounts", "1000", "--hot-accounts", "40", "--duration", "1m",
		"--verify", "--history", "$DIR/none/h.edn", "--no-save")
	if code != 1 || out != "" || !strings.Contains(stderr, "no history") {
		t.Errorf("a history that cannot be written: exit code %d, %s%s", code, stderr, out)
	}
	if code, _, stderr := b.run("bench", "smallbank", "--history", "x"); code != 2 ||
		!strings.Contains(stderr, "--verify") {
		t.Errorf("without --verify: exit code %d, %s", code, stderr)
	}
}
