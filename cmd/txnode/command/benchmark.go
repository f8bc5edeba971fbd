package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/pprof"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"txnode/benchmarks/report"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// benchmark is one txnode bench.
type benchmark struct {
	w          *World
	o          *benchOptions
	driver     workload.Driver
	parameters []report.Parameter
	args       []string            // for the record
	given      func(string) bool   // whether the command line has a flag
	words      func(string) string // says an error in flags
	memberArgs func(i int) []string
}

// run opens the store, runs the benchmark, prints the result and keeps it.
func (b *benchmark) run(ctx context.Context) (err error) {
	kept := ""
	if h, err := b.w.history(b.o.History); err == nil { // else there is none to write over
		kept = h.Path
	}
	if b.o.NoSave {
		kept = ""
	}
	if err := b.outputs(kept, b.o.EDN, b.o.Profile, b.o.Report); err != nil {
		return err
	}
	if s := &b.o.Store; s.Cluster == "" && s.Fabric != fabricInproc {
		own, e := startBlades(ctx, b.w, s)
		if e != nil {
			return interruptedOr(ctx, e)
		}
		defer func() { err = errors.Join(err, own.end()) }()
		s.Cluster = own.catalog
	}
	store, err := b.w.Open(ctx, b.o.Store)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	if b.o.Member > 0 {
		return b.follow(ctx, store)
	}
	result, err := b.measure(ctx, store)
	if result != nil {
		b.keep(result, err == nil)
		if b.o.Report != "" {
			err = errors.Join(err, writeFileAs(allowed(b.o.Store.Dir), b.o.Report, result.WriteHTML))
		}
		if e := printResult(b.w, b.o.Output, result); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// outputs fails if the files that the benchmark writes are one, or the database's.
func (b *benchmark) outputs(paths ...string) error {
	if err := distinct(paths...); err != nil {
		return err
	}
	if err := apart(b.o.Store.Dir, paths...); err != nil {
		return err
	}
	return apartFromWindows(b.o.EDN, paths...)
}

// measure runs the benchmark and closes the store. The result is nil if nothing
// was measured.
func (b *benchmark) measure(ctx context.Context, store workload.Store) (*report.Result, error) {
	closeStore := func() error { return store.Close(context.WithoutCancel(ctx)) }
	mode := allowed(b.o.Store.Dir)
	stopProfile, err := startProfile(b.o.Profile, mode)
	if err != nil {
		return nil, errors.Join(err, closeStore())
	}
	progress := newProgress(b.w)
	cfg := b.o.Run
	if cfg.Progress = progress.callback(); cfg.Progress == nil {
		// there is no line that shows it
		cfg.Waiting = func() { _ = say(b.w.Stderr, "another process loads the tables: waiting for it\n") }
	}
	if b.o.EDN != "" {
		done, err := writableAs(mode, b.o.EDN)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("no history: %w", err), stopProfile(), closeStore())
		}
		defer done()
		edn := &ednWriter{path: b.o.EDN, mode: mode}
		cfg.History = edn.window
	}
	unused, err := writableAs(mode, b.o.Report)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("no report: %w", err), stopProfile(), closeStore())
	}
	defer unused()
	if cfg.Events, err = b.o.Kill.events(store); err != nil {
		return nil, errors.Join(err, stopProfile(), closeStore())
	}
	bench := b.lead
	if b.o.Run.Processes == 1 {
		bench = func(ctx context.Context, store workload.Store, cfg runner.Config) (*runner.Result, error) {
			return runner.Bench(ctx, store, b.driver, cfg)
		}
	}
	res, err := bench(ctx, store, cfg)
	progress.close()
	if len(res.Runs) > 0 {
		err = errors.Join(err, b.o.Kill.settle(store))
	}
	description := b.o.Store.describe(store, b.w.Fabric)
	// A directory is complete when it is closed: an error then spoils the result.
	out := report.FromRunner(b.driver.Name(), res)
	outages(out, res, store)
	b.o.Kill.lostBlades(out, store)
	err = errors.Join(err, stopProfile(), closeStore())
	if err == nil && res.Interrupted {
		err = errInterrupted
		switch {
		case len(res.Runs) > 0:
		case res.Load.Records > 0:
			err = fmt.Errorf("%w before anything was measured", err)
		case b.o.Store.Dir != "":
			err = fmt.Errorf("%w while loading: unless the data was in %s before, it has a part of it now, which the "+
				"next run clears", err, b.o.Store.Dir)
		default:
			err = fmt.Errorf("%w while loading", err)
		}
	}
	if len(res.Runs) == 0 {
		return nil, err
	}
	out.Time = b.w.Now().UTC()
	out.Name = b.o.Save
	out.Command = b.args
	out.Store = description
	out.Parameters = b.parameters
	if res.Load.Existed {
		out.Parameters = b.withoutLoading()
	}
	out.Environment = report.FromEnvironment(b.w.Environment())
	switch {
	case errors.Is(err, runner.ErrVerification):
		out.Error = "verification failed" // the run says how
	case err != nil && !errors.Is(err, errInterrupted):
		out.Error = b.words(oneLine(err))
	}
	return out, err
}

// withoutLoading returns the parameters without those that only loading uses: what the data that
// was there had been loaded with is not known. Who gave one on the command line is told.
func (b *benchmark) withoutLoading() (used []report.Parameter) {
	for _, p := range b.parameters {
		switch {
		case !slices.Contains(loadingFlags, p.Name):
			used = append(used, p)
		case b.given(p.Name):
			fmt.Fprintf(b.w.Stderr,
				"txnode: warning: --%s is for loading, and the data was in %s already: it had no effect\n",
				p.Name, b.o.Store.Dir)
		}
	}
	return used
}

// keep saves the result if it is whole, or has a name. A history that cannot be
// written spoils nothing.
func (b *benchmark) keep(r *report.Result, whole bool) {
	if b.o.NoSave || !whole && b.o.Save == "" {
		return
	}
	h, err := b.w.history(b.o.History)
	if err == nil {
		err = h.Save(r)
	}
	if err != nil {
		fmt.Fprintf(b.w.Stderr, "txnode: warning: the result is not kept: %s\n", oneLine(err))
	}
}

// printResult prints a result as asked for.
func printResult(w *World, o outputFormat, r *report.Result) error {
	switch o {
	case outputJSON:
		return report.WriteJSON(w.Stdout, r)
	case outputCSV:
		return report.WriteCSV(w.Stdout, r)
	default:
		return r.WriteTable(w.Stdout, w.theme())
	}
}

// interruptedOr is errInterrupted if that is why err is there.
func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return err
}

// startProfile begins a CPU profile, if path is not empty, and returns what ends it.
func startProfile(path string, mode fs.FileMode) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := create(path, mode)
	if err != nil {
		return nil, fmt.Errorf("no profile: %w", err)
	}
	to := &keeping{to: f}
	if err := pprof.StartCPUProfile(to); err != nil {
		return nil, errors.Join(fmt.Errorf("no profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		if err := errors.Join(to.err, f.Close()); err != nil {
			return fmt.Errorf("no profile: %w", err)
		}
		return nil
	}, nil
}

// changedFlags returns the command and the flags that were given.
func changedFlags(cmd *cobra.Command) []string {
	out := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) { out = append(out, "--"+f.Name+"="+f.Value.String()) })
	return out
}
