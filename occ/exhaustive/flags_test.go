package exhaustive

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"txnode/rdma/steptest"
)

// How much is tried.
var (
	full = flag.Bool("full", false, "all schedules instead of a part of them")
	fine = flag.Bool("fine", false,
		"READs and WRITEs fall into two moves, the last words of their lines and the rest, of the tests in which two "+
			"clients run to their ends:"+
			" TestPairs, TestMorePairs, TestOpacity, TestPairsOfColliding, TestReduction. TestStops, "+
			"TestStopsWithFullLog, TestStopsWithUsedLog, TestBladeLost, TestBladeLostInRecovery and "+
			"TestFailOverStops heed it, too,"+
			" but then their findings may be false: a client that they stop leaves halves of WRITEs, which "+
			"only the end "+
			"of a whole process does, and nobody is at work then but who opens the database. The others do not heed it")
)

// What is tried alone, in the one case that -run selects. A failure prints these flags.
var (
	only     = flag.String("schedule", "", "of the tests in which two clients run to their ends: this schedule")
	single   = flag.Bool("replay", false, "only what -schedule says, which may be empty")
	caseFlag = flag.String("case", "", "of the other tests of two clients at once: this case, three numbers")
	stopAt   = flag.String("stop", "-",
		"of the tests that stop one client: stop the coordinator here, and nowhere else")
	stopAgain = flag.String("again", "-", "of the same: stop the recovery here, and nowhere else")
	bladeFlag = flag.Int("blade", 0,
		"of TestBladeLost, TestBladeLostInSplit, TestBladeLostInRecovery and TestFailOverStops, with -stop: the "+
			"blade that is lost")
	mishapFlag = flag.Int("mishap", 0, "of the same: what happens to it")
)

// byRun is what goes for this run: usually, with -full, or with -short.
func byRun(usually, withFull, withShort int) int {
	switch {
	case *full:
		return withFull
	case testing.Short():
		return withShort
	}
	return usually
}

// fineOr is g, or the finest grain with -fine.
func fineOr(g steptest.Grain) steptest.Grain {
	if *fine {
		return steptest.Words
	}
	return g
}

// rerun is the command that repeats a case of a test, whose flags are given.
func rerun(t testing.TB, flags string) string {
	name := "^" + strings.ReplaceAll(strings.ReplaceAll(t.Name(), "+", "[+]"), "/", "$/^") + "$"
	out := fmt.Sprintf("go test ./occ/exhaustive -run '%s' %s", name, flags)
	if *fine {
		out += " -fine"
	}
	if *full {
		out += " -full" // some kinds of database are tried only then
	}
	return out
}
