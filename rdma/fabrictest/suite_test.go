package fabrictest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// TestSuiteFindsBugs breaks a fabric in every way that rdmatest knows, and wants
// the suite to say so.
func TestSuiteFindsBugs(t *testing.T) {
	for bug, by := range map[rdmatest.Bug]string{
		rdmatest.TornWords:            "1-words-are-not-torn",
		rdmatest.LinesDownwards:       "1-lines-are-read-upwards",
		rdmatest.WritesReordered:      "2-queue-pair-order",
		rdmatest.ReadsOvertake:        "2-queue-pair-order",
		rdmatest.AtomicsOvertake:      "2-queue-pair-order",
		rdmatest.FenceFlagIgnored:     "2-fence-flag",
		rdmatest.CompletionsReordered: "2-completion-order",
		rdmatest.FlushIgnored:         "3-flush",
		rdmatest.AtomicsSplit:         "4-compare-and-swap",
		rdmatest.MasksIgnored:         "4-masked-compare-and-swap",
		rdmatest.WholeWords:           "4-neighbouring-bytes",
		rdmatest.NoErrorState:         "5-error-state",
		rdmatest.NoRecovery:           "5-error-state",
		rdmatest.OneErrorState:        "5-error-state-is-per-queue-pair",
		rdmatest.BoundsOverflow:       "6-bad-verbs-harm-nothing",
		rdmatest.BoundsLate:           "6-bad-verbs-harm-nothing",
		rdmatest.KeysUnchecked:        "6-access-keys",
		rdmatest.KeysCheckedEarly:     "6-fencing-under-load",
		rdmatest.LandingAfterRevoke:   "6-fencing-under-load",
		rdmatest.OlderKeysStay:        "6-access-keys",
		rdmatest.NewerKeysEnd:         "6-order-of-keys",
		rdmatest.StaleRevoke:          "6-order-of-keys",
		rdmatest.KeysRepeat:           "6-access-keys",
		rdmatest.KeysWithoutBound:     "6-order-of-keys",
		rdmatest.LocalUnchecked:       "6-bad-verbs-harm-nothing",
		rdmatest.AlignmentUnchecked:   "6-bad-verbs-harm-nothing",
		rdmatest.ResultsMixedUp:       "4-fetch-and-add",
		rdmatest.LongRequestsCut:      "transfers-large",
		rdmatest.BlindToOddLengths:    "transfers-unaligned",
	} {
		t.Run(string(bug), func(t *testing.T) {
			mustFail(t, clauseNamed(t, by), func(_ testing.TB, blades int, size uint64) rdma.Fabric {
				return rdmatest.New(rdmatest.Options{
					Blades: blades, Size: size, Bug: bug, Caps: rdma.Caps{MaskedCAS: true}, SpreadNs: 20_000,
				})
			})
		})
	}
}

// TestSuiteFindsLies has a fabric promise what it does not keep.
func TestSuiteFindsLies(t *testing.T) {
	for by, promise := range map[string]rdma.Caps{
		"caps-real-time":            {RealTime: true},
		"caps-synchronous":          {Synchronous: true},
		"3-placed-by-later-verbs":   {Placed: true},
		"3-fences":                  {Placed: true},
		"caps-ordered-line":         {OrderedLine: true},
		"4-masked-compare-and-swap": {MaskedCAS: true},
	} {
		t.Run(by, func(t *testing.T) {
			promise.MaxBatch = 100
			mustFail(t, clauseNamed(t, by), func(_ testing.TB, blades int, size uint64) rdma.Fabric {
				return liar{rdmatest.New(rdmatest.Options{Blades: blades, Size: size, SpreadNs: 20_000}), promise}
			})
		})
	}
	t.Run("read-only", func(t *testing.T) {
		mustFail(t, clause{"read-only", func(tb testing.TB, open Open) {
			readOnly(tb, func(tb testing.TB, size uint64) rdma.Fabric { return open(tb, 1, size) })
		}}, func(_ testing.TB, blades int, size uint64) rdma.Fabric {
			return liar{rdmatest.New(rdmatest.Options{Blades: blades, Size: size}), rdma.Caps{MaxBatch: 100}}
		})
	})
}

// liar promises what it is told to, and says that its blades are read-only.
type liar struct {
	*rdmatest.Fabric
	promise rdma.Caps
}

func (l liar) Caps() rdma.Caps { return l.promise }

func (l liar) Blades() []rdma.BladeInfo {
	all := l.Fabric.Blades()
	for i := range all {
		all[i].ReadOnly = true
	}
	return all
}

func clauseNamed(t *testing.T, name string) clause {
	for _, c := range clauses {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("no clause %q", name)
	return clause{}
}

// mustFail runs a clause on a fabric that breaks it.
func mustFail(t *testing.T, c clause, open Open) {
	t.Helper()
	if errs := failures(t, c, open); len(errs) == 0 {
		t.Errorf("%s passes", c.name)
	} else {
		t.Logf("%s: %s", c.name, errs[0])
	}
}

// failures runs a clause and returns what it complained about.
func failures(t *testing.T, c clause, open Open) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.check(r, open)
	}()
	<-done
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return r.errs
}

// recorder is a testing.TB that keeps failures to itself.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	errs     []string
	cleanups []func()
}

func (r *recorder) record(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, strings.TrimSpace(s))
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errs) > 0
}

func (r *recorder) Helper()                   {}
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(a ...any)            { r.record(fmt.Sprintln(a...)) }
func (r *recorder) Errorf(f string, a ...any) { r.record(fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(a ...any)            { r.Error(a...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }
func (r *recorder) Skip(a ...any)             { runtime.Goexit() }
