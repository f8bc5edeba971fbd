package crashtest

import (
	"flag"
	"os"
	"testing"
)

var (
	killsFlag = flag.Int("kills", 0, "how many times a writer is killed; 0: a few")
	lossFlag  = flag.Int("losses", 0, "how many times a writer is killed around the loss of a blade; 0: none")
	powerFlag = flag.Uint64("powers", 0, "how many seeds of losses of power are run; 0: a few")
	seedFlag  = flag.Uint64("seed", 1, "seed of what is drawn (not of when the system schedules what)")
)

// victimEnv makes this binary the process that is killed.
const victimEnv = "TXNODE_CRASH_VICTIM"

func TestMain(m *testing.M) {
	if spec := os.Getenv(victimEnv); spec != "" {
		os.Exit(victim(spec))
	}
	os.Exit(m.Run())
}
