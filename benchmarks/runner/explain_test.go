package runner_test

import (
	"context"
	"errors"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/runner/runnertest"
	"txnode/benchmarks/workload"
)

func TestExplainCountsEachTypeAndPhase(t *testing.T) {
	x, err := runner.Explain(context.Background(), runnertest.New(runnertest.Options{TxnNs: 1000}), &counters{keys: 7},
		runner.ExplainConfig{Warmup: 100, Samples: 450})
	if err != nil {
		t.Fatal(err)
	}
	if !x.Phased || len(x.Types) != 3 {
		t.Fatalf("%+v", x)
	}
	inc := x.Types[0]
	if inc.Outcomes[workload.Committed] != 450 || inc.MinVerbs != 7 || inc.MaxVerbs != 7 || inc.MinTrips != 2 ||
		inc.MaxTrips != 2 {
		t.Errorf("increments: %+v", inc)
	}
	for p, want := range map[workload.Phase]uint64{
		workload.PhaseRead: 2, workload.PhaseValidate: 0, workload.PhaseLog: 2, workload.PhaseCommit: 2,
		workload.PhaseRelease: 1,
	} {
		if got := inc.Phases[workload.Committed][p].Verbs; got != 450*want {
			t.Errorf("%v: %d verbs, want %d", p, got, 450*want)
		}
	}
	if absent := x.Types[2]; absent.Outcomes[workload.RowAbsent] != 450 || absent.MinVerbs != 0 ||
		absent.Total[workload.RowAbsent].Verbs != 450 {
		t.Errorf("absent rows: %+v", absent)
	}
	// counters draws its types in turn: a third each.
	if m := x.Mix; m.Outcomes[workload.Committed] < 450 || m.Outcomes[workload.RowAbsent] != 450 ||
		m.Total[workload.Committed].Verbs < 450*7 {
		t.Errorf("mix: %+v", m)
	}
}

func TestExplainWithoutPhases(t *testing.T) {
	x, err := runner.Explain(context.Background(), reference.Open(reference.Options{}), &counters{keys: 7},
		runner.ExplainConfig{Warmup: 1, Samples: 1})
	if err != nil || x.Phased || x.Types[0].Outcomes[workload.Committed] != 1 {
		t.Errorf("%+v, %v", x, err)
	}
}

func TestExplainErrors(t *testing.T) {
	_, err := runner.Explain(context.Background(), runnertest.New(runnertest.Options{LoseEvery: 10}),
		&counters{keys: 7}, runner.ExplainConfig{Warmup: 1, Samples: 100})
	if !errors.Is(err, runner.ErrVerification) {
		t.Errorf("a store that loses writes: %v", err)
	}
	_, err = runner.Explain(context.Background(), runnertest.New(runnertest.Options{}), panicking{&counters{keys: 7}},
		runner.ExplainConfig{Warmup: 50, Samples: 1})
	var p *runner.PanicError
	if !errors.As(err, &p) {
		t.Errorf("a panic: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = runner.Explain(ctx, runnertest.New(runnertest.Options{}), &counters{keys: 7},
		runner.ExplainConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	var c *workload.OptionsError
	if _, err = runner.Explain(context.Background(), runnertest.New(runnertest.Options{}), &counters{keys: 7},
		runner.ExplainConfig{Samples: -1}); !errors.As(err, &c) {
		t.Errorf("a wrong option: %v", err)
	}
}
