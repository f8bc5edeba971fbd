package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
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
	learn = flag.String("learn", "",
		"do not begin with the known catchers, and add those that are found to this `file`")

	refresh = flag.Bool("refresh", false, "make the patches anew that do not apply as they are, and run nothing")
	edit    = flag.String("edit", "",
		"leave copies of the files that the mutation of this `name` changes, and of those named after the flags, to "+
			"be edited; run nothing")
	save = flag.String("save", "",
		"write the patch of the mutation of this `name` from the copies that were edited, and run nothing")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := do(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hunt:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// do does what the flags say, and reports whether all is well.
func do(ctx context.Context) (bool, error) {
	if *save != "" {
		e := editor{root: ".", dir: workshop(*save)}
		return true, e.save(*save)
	}
	all, err := mutant.All(".")
	if err != nil {
		return false, err
	}
	if *edit != "" {
		m := mutant.Mutation{Name: *edit, Breaks: "Write here what is done wrong, and what that breaks."}
		if i := slices.IndexFunc(all, func(x mutant.Mutation) bool { return x.Name == *edit }); i >= 0 {
			m = all[i]
		}
		e := editor{root: ".", dir: workshop(*edit)}
		return true, e.edit(&m, flag.Args())
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return false, err
	}
	todo := slices.DeleteFunc(all, func(m mutant.Mutation) bool { return !pattern.MatchString(m.Name) })
	switch {
	case len(todo) == 0:
		return false, fmt.Errorf("no mutation matches %q; -list lists them", *only)
	case *list:
		for _, m := range todo {
			fmt.Printf("%-30s %s\n", m.Name, m.Breaks)
		}
		return true, nil
	case *refresh:
		return refreshAll(todo)
	}
	if err := applicable(todo); err != nil {
		return false, err
	}
	return hunt(ctx, todo)
}

// refreshAll makes patches anew.
func refreshAll(todo []mutant.Mutation) (bool, error) {
	all := true
	var errs []error
	for i := range todo {
		e := editor{root: ".", dir: workshop(todo[i].Name)}
		ok, err := e.refresh(&todo[i])
		all, errs = all && ok, append(errs, err)
	}
	return all, errors.Join(errs...)
}

// applicable says which patches do not apply, and what to do.
func applicable(todo []mutant.Mutation) error {
	var errs []error
	var names []string
	for i := range todo {
		if _, err := todo[i].Apply("."); err != nil {
			errs, names = append(errs, err), append(names, todo[i].Name)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w\n%d patches do not apply; make them anew: go run ./internal/mutant/hunt -only "+
		"'^(%s)$' -refresh",
		errors.Join(errs...), len(names), strings.Join(names, "|"))
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
	defer func() { _ = os.RemoveAll(dir) }()
	start := time.Now()
	r := &runner{controls: map[string]*control{}}
	if r.tests, err = prepare(dir, todo); err != nil {
		return false, err
	}
	// What the packages have in common is compiled once, before two of them do it at the same time.
	all := packages(todo, first)
	fmt.Fprintf(os.Stderr, "building the tests of %d packages\n", len(all))
	for _, p := range all {
		if _, err := r.tests.binary(ctx, p); err != nil {
			return false, err
		}
	}
	fmt.Fprintf(os.Stderr, "built in %v; %d mutations, %d at once\n",
		round(time.Since(start)), len(todo), max(*jobs, 1))

	results := make([]result, len(todo))
	for i := range todo {
		results[i].name, results[i].number = todo[i].Name, i+1
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
			if x := &results[i]; !x.caught {
				x.over = false
				left++
			}
		}
		if left > 0 && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "%d are not caught by what is known to catch them, and go through all suites\n",
				left)
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
	return len(survivors) == 0, r.failure()
}

// prepare writes what is compiled in place of the files that mutations change.
func prepare(dir string, todo []mutant.Mutation) (*builder, error) {
	root, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	module, err := exec.Command("go", "list", "-m").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	texts, err := withVariants(root, strings.TrimSpace(string(module)), todo)
	if err != nil {
		return nil, err
	}
	overlay, err := writeOverlay(root, filepath.Join(dir, "variants"), texts)
	return &builder{dir: dir, overlay: overlay, builds: map[string]*build{}}, err
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
			fmt.Printf("%-28s SURVIVED %*v\n", todo[i].Name, 87, round(x.took))
		default:
			caught++
			fmt.Printf("%-28s %-20s %-66s %v\n", todo[i].Name, filepath.Base(x.by.pkg), x.what(), round(x.took))
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
