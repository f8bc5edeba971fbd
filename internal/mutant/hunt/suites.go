//go:build mutants

package main

// suite is tests of one package that are run against each mutation.
type suite struct {
	name    string
	pkg     string // where they are
	args    []string
	seconds int  // of processor time, after which a run that has not ended counts as caught: it hangs
	long    bool // left out by -quick
}

// isolation are the workloads of package txn whose histories are checked, on the
// disorderly fabric with every subset of its promises.
const isolation = "Test(Bank|WriteSkew|LongFork|ListAppend|Counter|InsertRace|Churn|LargeValues)$"

// suites are tried in this order, the cheap ones first.
var suites = []suite{
	{"isolation", "txn", []string{"-test.run", isolation, "-disorderly"}, 60, false},
	{"index", "index/race", []string{"-test.run", "TestChaos|TestAbsenceAcrossSplit|TestInsertBeforeHeaders|TestSuite/Absence"}, 60, false},
	{"index, seed 715", "index/race", []string{"-test.run", "TestChaos", "-from", "700", "-seeds", "730"}, 60, false},
	{"stops, few", "occ/exhaustive", []string{"-test.run", "TestStops(WithFullLog)?/(default|ford)/f=1$", "-test.short"}, 60, false},
	{"pairs, few", "occ/exhaustive", []string{"-test.run", "TestPairs/(default|ford)/f=1", "-test.short"}, 60, false},
	{"pairs, colliding", "occ/exhaustive", []string{"-test.run", "TestPairsOfColliding"}, 60, false},
	{"pairs, unplaced", "occ/exhaustive", []string{"-test.run", "TestPairs/default/f=1/unplaced/unordered/unmasked/write-ab?[+]", "-full"}, 60, false},
	{"simulator", "benchmarks/simbench/seeds", []string{"-test.run", "TestSeeds$", "-seeds", "200"}, 60, false},
	{"single schedules", "occ", []string{"-test.run", "Collide|Collid|Stale|Phantom|TwoInserts|Rollback|Backup"}, 60, false},
	{"memory", "memory", []string{"-test.run", "Test(Crash|Epoch|Advance|Fenc|Adopt|Coordinator|Reopen|Kill|Late|Key|Claim)"}, 60, false},
	{"isolation, more", "txn", []string{"-test.run", isolation, "-disorderly", "-seed", "1000"}, 60, true},
	{"isolation, more", "txn", []string{"-test.run", isolation, "-disorderly", "-seed", "2000"}, 60, true},
	{"isolation, more", "txn", []string{"-test.run", isolation, "-disorderly", "-seed", "3000"}, 60, true},
	{"stops", "occ/exhaustive", []string{"-test.run", "TestStops"}, 240, true},
	{"pairs", "occ/exhaustive", []string{"-test.run", "TestPairs"}, 240, true},
	{"index, more", "index/race", []string{"-test.run", "TestChaos", "-from", "300", "-seeds", "2000"}, 120, true},
	{"simulator, more", "benchmarks/simbench/seeds", []string{"-test.run", "TestSeeds$", "-seeds", "2000"}, 240, true},
}
