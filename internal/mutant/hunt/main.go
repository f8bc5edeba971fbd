//go:build mutants

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"txnode/internal/mutant"
)

var (
	only  = flag.String("only", ".", "run the mutations whose names match this `pattern`")
	jobs  = flag.Int("jobs", runtime.NumCPU(), "how many run at once")
	list  = flag.Bool("list", false, "list the mutations and what each breaks, and run nothing")
	show  = flag.Bool("show", false, "show the output of the test that failed")
	quick = flag.Bool("quick", false, "leave the long suites out")
	learn = flag.String("learn", "", "do not begin with the known catchers, and add those that are found to this `file`")
)

func main() {
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hunt:", err)
		os.Exit(2)
	}
	var todo []mutant.Mutation
	for _, m := range mutant.All() {
		if pattern.MatchString(m.Name) {
			todo = append(todo, m)
		}
	}
	if len(todo) == 0 {
		fmt.Fprintf(os.Stderr, "hunt: no mutation matches %q; -list lists them\n", *only)
		os.Exit(2)
	}
	if *list {
		for _, m := range todo {
			fmt.Printf("%-30s %s\n", m.Name, m.Breaks)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := hunt(ctx, todo)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hunt:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// hunt runs everything, prints the table, and reports whether no mutation survived. A
// hunt that is interrupted prints what it knows.
func hunt(ctx context.Context, todo []mutant.Mutation) (bool, error) {
	first, err := known()
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "hunt")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	start := time.Now()
	r := &runner{dir: dir, controls: map[string]*control{}}
	all := packages(first)
	fmt.Fprintf(os.Stderr, "building the tests of %d packages\n", len(all))
	if err := build(ctx, dir, all); err != nil {
		return false, err
	}
	fmt.Fprintf(os.Stderr, "built in %v; %d mutations, %d at once\n", round(time.Since(start)), len(todo), max(*jobs, 1))

	results := make([]result, len(todo))
	for i := range todo {
		results[i].name = todo[i].Name
	}
	if *learn == "" {
		r.round(ctx, results, func(name string) []suite {
			if k, ok := first[name]; ok {
				return []suite{k}
			}
			return nil
		})
		left := 0
		for i := range results {
			if !results[i].caught {
				results[i].over = false
				left++
			}
		}
		if left > 0 && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "%d are not caught by what is known to catch them, and go through all suites\n", left)
		}
	}
	r.round(ctx, results, func(string) []suite { return suites })
	report(results, todo, time.Since(start))
	var survivors []string
	for i := range results {
		if results[i].over && !results[i].caught {
			survivors = append(survivors, fmt.Sprintf("  %s: %s", todo[i].Name, todo[i].Breaks))
		}
	}
	if len(survivors) > 0 {
		fmt.Printf("survivors, for which a test is missing:\n%s\n", strings.Join(survivors, "\n"))
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("interrupted: %w", err)
	}
	return len(survivors) == 0, nil
}

// round tries on every mutation that is not caught the suites that it is given for it.
func (r *runner) round(ctx context.Context, results []result, try func(name string) []suite) {
	next := make(chan *result)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range max(*jobs, 1) {
		wg.Go(func() {
			for x := range next {
				r.hunt(ctx, x, try(x.name))
				mu.Lock()
				r.tell(ctx, x, len(results))
				mu.Unlock()
			}
		})
	}
	for i := range results {
		if results[i].caught {
			continue
		}
		select {
		case next <- &results[i]:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
}

// tell prints what has become of a mutation, and keeps what was learnt. It is called by
// one at a time.
func (r *runner) tell(ctx context.Context, x *result, all int) {
	if ctx.Err() != nil || !x.over {
		return
	}
	if x.caught {
		r.caught++
	}
	fmt.Fprintf(os.Stderr, "[%d/%d] %s\n", r.caught, all, x.line())
	if *show {
		fmt.Fprintln(os.Stderr, x.output)
	}
	if *learn != "" && x.caught {
		if err := keep(*learn, x.by.line(x.name)); err != nil {
			fmt.Fprintln(os.Stderr, "hunt:", err)
		}
	}
}

// report prints the table.
func report(results []result, todo []mutant.Mutation, took time.Duration) {
	fmt.Printf("%-28s %-20s %-66s %s\n", "mutation", "caught in", "by", "time")
	caught := 0
	for i := range results {
		x := &results[i]
		switch {
		case !x.over:
			fmt.Printf("%-28s not known\n", todo[i].Name)
		case !x.caught:
			fmt.Printf("%-28s SURVIVED %*v\n", x.name, 87, round(x.took))
		default:
			caught++
			fmt.Printf("%-28s %-20s %-66s %v\n", x.name, filepath.Base(x.by.pkg), x.what(), round(x.took))
		}
	}
	fmt.Printf("%d of %d mutations caught, in %v\n", caught, len(todo), round(took))
}

// keep adds a line to a file.
func keep(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
