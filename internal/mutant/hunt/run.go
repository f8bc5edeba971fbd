//go:build mutants

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"txnode/internal/mutant"
)

// packages lists those that suites are in, and the known catchers.
func packages(first map[string]suite) (all []string) {
	for _, s := range slices.Concat(suites, slices.Collect(maps.Values(first))) {
		if p := "./" + s.pkg; !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all
}

// build compiles the tests of every package that a suite is in, once for all
// mutations: each process is told which one it has.
func build(ctx context.Context, dir string, packages []string) error {
	args := append([]string{"test", "-c", "-tags", "mutants", "-o", dir + string(filepath.Separator)}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	if p, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, p)
	}
	return nil
}

// runner runs suites.
type runner struct {
	dir string // of the binaries

	caught int

	mu       sync.Mutex
	controls map[string]*control
}

// control is what a suite says of the engine as it is.
type control struct {
	once sync.Once
	outcome
}

// outcome is what became of a run.
type outcome struct {
	failed bool
	hung   bool          // it failed for it did not end
	took   time.Duration // of the processor's time
	output string        // of a run that failed
}

// result is what became of a mutation.
type result struct {
	name   string
	over   bool // it was tried to the end
	caught bool
	by     suite
	test   string // that failed
	seed   string
	took   time.Duration
	output string
}

// what is the test that failed, and what repeats it.
func (r *result) what() string {
	if r.seed != "" {
		return r.test + " (" + r.seed + ")"
	}
	return r.test
}

func (r *result) line() string {
	if !r.caught {
		return fmt.Sprintf("%s: not caught so far, %v", r.name, round(r.took))
	}
	return fmt.Sprintf("%s: %s, %s, %v", r.name, r.by.pkg, r.what(), round(r.took))
}

// hunt tries the known catcher, or all suites, until one fails that does not fail without
// the mutation. It goes on with what an earlier call has left of x.
func (r *runner) hunt(ctx context.Context, x *result, try []suite) {
	start := time.Now()
	defer func() { x.took += time.Since(start) }()
	for _, s := range try {
		if s.long && *quick {
			continue
		}
		o := r.run(ctx, s, x.name)
		if ctx.Err() != nil {
			return
		}
		if !o.failed {
			continue
		}
		test, seed := culprit(o.output)
		if *learn != "" && strings.HasPrefix(test, "Test") && !strings.Contains(test, " ") {
			n := s.narrowed(test, seed)
			n.seconds = 30
			if again := r.run(ctx, n, x.name); again.failed {
				s, o = n, again
			}
		}
		c := r.control(ctx, s)
		if ctx.Err() != nil {
			return
		}
		if c.failed {
			fmt.Fprintf(os.Stderr, "%s: %s %s fails without it, too: it does not count\n%s\n", x.name, s.pkg, strings.Join(s.args, " "), c.output)
			continue
		}
		if o.hung && 2*c.took > s.limit() {
			fmt.Fprintf(os.Stderr, "%s: %s %s takes %v without it, too: that it has not ended after %v does not count\n",
				x.name, s.pkg, strings.Join(s.args, " "), round(c.took), s.limit())
			continue
		}
		x.by, x.caught, x.output, x.test, x.seed = s, true, o.output, test, seed
		break
	}
	x.over = true
}

// control runs a suite without any mutation, once.
func (r *runner) control(ctx context.Context, s suite) outcome {
	key := s.pkg + " " + strings.Join(s.args, " ")
	r.mu.Lock()
	c := r.controls[key]
	if c == nil {
		c = &control{}
		r.controls[key] = c
	}
	r.mu.Unlock()
	c.once.Do(func() {
		s.seconds = 20 * 60 // it is to end by itself
		c.outcome = r.run(ctx, s, "")
	})
	return c.outcome
}

// slack is how much longer a run may take by the clock than by the processor, in case it
// waits for ever.
const slack = 10

// run runs one suite. Its time is that of the processor, not of the clock: others may
// be at work on the machine.
func (r *runner) run(ctx context.Context, s suite, name string) outcome {
	bin := filepath.Join(r.dir, filepath.Base(s.pkg)+".test")
	args := append([]string{"-c", `ulimit -t "$0"; exec "$@"`, fmt.Sprint(s.seconds), bin,
		"-test.failfast", "-test.timeout", fmt.Sprintf("%ds", slack*s.seconds)}, s.args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = s.pkg
	cmd.Env = append(os.Environ(), mutant.Variable+"="+name, "GOMAXPROCS=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var o outcome
	if p := cmd.ProcessState; p != nil {
		o.took = p.UserTime() + p.SystemTime()
	}
	if err == nil || ctx.Err() != nil {
		return o
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		fmt.Fprintf(&out, "\n%s%d s\n", noEnd, s.seconds)
	}
	o.failed, o.output = true, out.String()
	o.hung = strings.Contains(o.output, noEnd) || strings.Contains(panicLine.FindString(o.output), timedOut)
	return o
}

// What the output of a run says that did not end.
const (
	noEnd    = "no end after "
	timedOut = "test timed out"
)

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
	case strings.Contains(m, timedOut):
		if t := hangLine.FindStringSubmatch(output); t != nil {
			test = t[1] + " "
		}
		test += "waits for ever"
	case m != "":
		test = m[:min(len(m), 60)]
	case strings.Contains(output, noEnd):
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
