//go:build mutants

package main

import (
	"bytes"
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
	"strings"
	"sync"
	"time"

	"txnode/internal/mutant"
)

var (
	only  = flag.String("only", ".", "run the mutations whose names match this `pattern`")
	jobs  = flag.Int("jobs", runtime.NumCPU(), "how many run at once")
	list  = flag.Bool("list", false, "list the mutations and what each breaks, and run nothing")
	show  = flag.Bool("show", false, "show the output of the test that failed")
	quick = flag.Bool("quick", false, "leave the long suites out")
	base  = flag.Bool("base", true, "run the engine without a mutation first: nothing may fail")
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
	if *list {
		for _, m := range todo {
			fmt.Printf("%-30s %s\n", m.Name, m.Breaks)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
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

// hunt runs everything and reports whether no mutation survived.
func hunt(ctx context.Context, todo []mutant.Mutation) (bool, error) {
	dir, err := os.MkdirTemp("", "hunt")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	bin, err := build(ctx, dir)
	if err != nil {
		return false, err
	}
	start := time.Now()
	if *base {
		r := run(ctx, bin, "")
		if r.test != "" {
			return false, fmt.Errorf("without a mutation %s fails already:\n%s", r.test, r.output)
		}
		fmt.Printf("without a mutation nothing fails, in %v\n", r.took.Round(time.Second))
	}
	results := make([]result, len(todo))
	next := make(chan int)
	var wg sync.WaitGroup
	var print sync.Mutex
	for range max(*jobs, 1) {
		wg.Go(func() {
			for i := range next {
				r := run(ctx, bin, todo[i].Name)
				results[i] = r
				print.Lock()
				fmt.Println(r.line())
				if *show {
					fmt.Println(r.output)
				}
				print.Unlock()
			}
		})
	}
	for i := range todo {
		next <- i
	}
	close(next)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	var survivors []string
	for i := range results {
		if results[i].test == "" {
			survivors = append(survivors, fmt.Sprintf("  %s: %s", todo[i].Name, todo[i].Breaks))
		}
	}
	fmt.Printf("%d of %d mutations caught, in %v\n", len(todo)-len(survivors), len(todo), time.Since(start).Round(time.Second))
	if len(survivors) > 0 {
		fmt.Printf("survivors, for which a test is missing:\n%s\n", strings.Join(survivors, "\n"))
	}
	return len(survivors) == 0, nil
}

// build compiles the tests of every package that a suite is in.
func build(ctx context.Context, dir string) (map[string]string, error) {
	bin := map[string]string{}
	for _, s := range suites {
		if bin[s.pkg] != "" {
			continue
		}
		out := filepath.Join(dir, strings.ReplaceAll(s.pkg, "/", "_")+".test")
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "mutants", "-o", out, "./"+s.pkg)
		if p, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", cmd, err, p)
		}
		bin[s.pkg] = out
	}
	return bin, nil
}

// result is what became of a mutation.
type result struct {
	name   string
	test   string // that failed; empty: it survived
	suite  string
	seed   string
	took   time.Duration
	output string
}

func (r *result) line() string {
	if r.test == "" {
		return fmt.Sprintf("%-30s SURVIVED %28v", r.name, r.took.Round(100*time.Millisecond))
	}
	line := fmt.Sprintf("%-30s %-15s %7v  %s", r.name, r.suite, r.took.Round(100*time.Millisecond), r.test)
	if r.seed != "" {
		line += " (" + r.seed + ")"
	}
	return line
}

// run tries the suites until one fails.
func run(ctx context.Context, bin map[string]string, name string) result {
	r := result{name: name}
	start := time.Now()
	for _, s := range suites {
		if s.long && *quick {
			continue
		}
		failed, output := try(ctx, s, bin[s.pkg], name)
		if failed {
			r.suite, r.output = s.name, output
			r.test, r.seed = culprit(output)
			break
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.took = time.Since(start)
	return r
}

// idle is how long a run may take in all, in case it waits for ever.
const idle = 20 * time.Minute

// try runs one suite. Its time is that of the processor, not of the clock: others may
// be at work on the machine.
func try(ctx context.Context, s suite, bin, name string) (failed bool, output string) {
	args := append([]string{"-c", `ulimit -t "$0"; exec "$@"`, fmt.Sprint(s.seconds), bin,
		"-test.failfast", "-test.timeout", idle.String()}, s.args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = s.pkg
	cmd.Env = append(os.Environ(), mutant.Variable+"="+name, "GOMAXPROCS=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil || ctx.Err() != nil {
		return false, ""
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		fmt.Fprintf(&out, "\n%s: no end after %d s\n", s.name, s.seconds)
	}
	return true, out.String()
}

var (
	failLine  = regexp.MustCompile(`--- FAIL: (\S+)`)
	panicLine = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*)$`)
	hangLine  = regexp.MustCompile(`(?m)^\s+(Test\S+) \(`)
	seedText  = regexp.MustCompile(`seed[= ]\d+|-(schedule|stop) '[^']*'( -again '[^']*')?|completion \d+ was lost`)
)

// culprit is the test that failed, the innermost of the first, and what chose its
// schedule.
func culprit(output string) (test, seed string) {
	for _, m := range failLine.FindAllStringSubmatch(output, -1) {
		if test != "" && !strings.HasPrefix(m[1], test+"/") {
			break
		}
		test = m[1]
	}
	switch m := panicLine.FindString(output); {
	case test != "":
	case strings.Contains(m, "test timed out"):
		if t := hangLine.FindStringSubmatch(output); t != nil {
			test = t[1] + " "
		}
		test += "waits for ever"
	case m != "":
		test = m[:min(len(m), 60)]
	case strings.Contains(output, ": no end after "):
		test = "does not end"
	}
	if test == "" {
		test = "something"
	}
	if m := seedText.FindString(output); m != "" && !strings.Contains(test, m) {
		seed = m
	}
	return test, seed
}
