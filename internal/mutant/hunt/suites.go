package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// suite is tests of one package that are run against each mutation.
type suite struct {
	name    string
	pkg     string // where they are
	args    []string
	seconds int  // of processor time, after which a run that has not ended counts as caught: it hangs
	long    bool // left out by -quick
	// seed is a format of the arguments that run one seed alone; empty: the test that
	// fails is run with args.
	seed string
}

// limit is the processor time after which a run counts as one that does not end.
func (s *suite) limit() time.Duration { return time.Duration(s.seconds) * time.Second }

// isolation are the workloads of package txn whose histories are checked, on the
// disorderly fabric with every subset of its promises.
const isolation = "Test(Bank|WriteSkew|LongFork|ListAppend|Counter|InsertRace|Churn|LargeValues|ValidateAtEnd)$"

// suites are what a mutation goes through whose catcher is not known, the cheap ones
// first.
var suites = []suite{
	{
		"memory", "memory",
		[]string{
			"-test.run", "Test(Crash|Epoch|Advance|Fenc|Adopt|Coordinator|Reopen|Kill|Late|Key|Claim|Rebuild|Copier)",
		}, 60, false, "",
	},
	{"nodes", "index/blink", []string{"-test.run", "Test", "-test.short"}, 60, false, ""},
	{"channels", "channel", []string{"-test.run", "."}, 60, false, ""},
	{"isolation", "txn", []string{"-test.run", isolation, "-disorderly"}, 60, false, ""},
	{
		"index", "index/race",
		[]string{"-test.run", "TestChaos|TestAbsenceAcrossSplit|TestInsertBeforeHeaders|TestSuite/Absence"}, 60, false,
		"",
	},
	{
		"index, seed 715", "index/race", []string{"-test.run", "TestChaos", "-from", "700", "-seeds", "730"}, 60, false,
		"",
	},
	{"stops, few", "occ/exhaustive", []string{
		"-test.run", "TestStops(WithFullLog|OnWeak)?/(default|ford)/f=1", "-test.short",
	}, 60, false, ""},
	{
		"pairs, few", "occ/exhaustive", []string{"-test.run", "TestPairs/(default|ford)/f=1", "-test.short"}, 60, false,
		"",
	},
	{"pairs, colliding", "occ/exhaustive", []string{"-test.run", "TestPairsOfColliding"}, 60, false, ""},
	{"blades", "occ/exhaustive", []string{"-test.run", "TestBladeLost", "-test.short"}, 60, false, ""},
	{"recovery", "occ/recovery", []string{"-test.run", ".", "-full"}, 600, false, ""},
	{"power", "txn/crashtest", []string{"-test.run", "TestPower", "-powers", "20"}, 60, false, "-seed %s -powers 1"},
	{"failover", "txn", []string{"-test.run", "TestOutcome|TestLease|TestFenced|TestBladeDies"}, 60, false, ""},
	{
		"simulator", "benchmarks/simbench/seeds", []string{"-test.run", "TestSeeds$", "-seeds", "200"}, 60, false,
		"-from %s -seeds 1",
	},
	{
		"faults", "benchmarks/simbench/seeds", []string{"-test.run", "TestSeedsWithFaults$", "-seeds", "300"}, 60,
		false,
		"-from %s -seeds 1",
	},
	{
		"pairs, unplaced", "occ/exhaustive",
		[]string{"-test.run", "TestPairs/default/f=1/unplaced/unordered/unmasked/write-ab?[+]", "-full"}, 60, false, "",
	},
	{
		"single schedules", "occ",
		[]string{"-test.run", "Collide|Collid|Stale|Phantom|TwoInserts|Rollback|Backup|Placed"},
		60, false, "",
	},
	{"isolation, more", "txn", []string{"-test.run", isolation, "-disorderly", "-seed", "1000"}, 60, true, ""},
	{"isolation, more", "txn", []string{"-test.run", isolation, "-disorderly", "-seed", "2000"}, 60, true, ""},
	{"isolation, more", "txn", []string{"-test.run", isolation, "-disorderly", "-seed", "3000"}, 60, true, ""},
	{"stops", "occ/exhaustive", []string{"-test.run", "TestStops"}, 240, true, ""},
	{"pairs", "occ/exhaustive", []string{"-test.run", "TestPairs"}, 240, true, ""},
	{"index, more", "index/race", []string{"-test.run", "TestChaos", "-from", "300", "-seeds", "2000"}, 120, true, ""},
	{
		"simulator, more", "benchmarks/simbench/seeds", []string{"-test.run", "TestSeeds$", "-seeds", "2000"}, 240,
		true,
		"-from %s -seeds 1",
	},
	{
		"faults, more", "benchmarks/simbench/seeds", []string{"-test.run", "TestSeedsWithFaults$", "-seeds", "4000"},
		240,
		true, "-from %s -seeds 1",
	},
}

// catchers are lines of a mutation, the package whose tests catch it, and their
// arguments: what an earlier hunt has found, made as narrow as it still catches. It is
// only where the search begins, so it need not be kept up to date: "-learn" writes it.
//
//go:embed catchers.txt
var catchers string

// known are the suites that are tried first.
func known() (map[string]suite, error) {
	out := map[string]suite{}
	for n, line := range strings.Split(catchers, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 3 {
			return nil, fmt.Errorf("catchers.txt, line %d: a mutation, a package and arguments are wanted: %q",
				n+1, line)
		}
		out[f[0]] = suite{name: "known", pkg: f[1], args: f[2:], seconds: 60}
	}
	return out, nil
}

// line is the line of catchers.txt.
func (s *suite) line(mutation string) string {
	return fmt.Sprintf("%s %s %s", mutation, s.pkg, strings.Join(s.args, " "))
}

// narrowed is the suite with nothing but a test, and, if that says enough, a seed.
func (s *suite) narrowed(test, seed string) suite {
	n := *s
	n.args = nil
	for i := 0; i < len(s.args); i++ {
		if s.args[i] == "-test.run" {
			i++
			continue
		}
		n.args = append(n.args, s.args[i])
	}
	number, ok := strings.CutPrefix(strings.Replace(seed, "=", " ", 1), "seed ")
	if s.seed != "" && ok {
		n.args = strings.Fields(fmt.Sprintf(s.seed, number))
	}
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	n.args = append([]string{"-test.run", strings.Join(parts, "/")}, n.args...)
	return n
}
