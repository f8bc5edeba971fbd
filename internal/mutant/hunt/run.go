package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"txnode/internal/mutant"
)

// packages lists those in which mutations have known catchers.
func packages(todo []mutant.Mutation, first map[string]suite) (all []string) {
	for _, m := range todo {
		if s, ok := first[m.Name]; ok && !slices.Contains(all, s.pkg) {
			all = append(all, s.pkg)
		}
	}
	slices.Sort(all)
	return all
}

// runner runs suites.
type runner struct {
	tests *builder

	caught int

	mu       sync.Mutex
	controls map[string]*control
	failed   error // that ends the hunt: tests could not be compiled
}

func (r *runner) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
}

// failure is what has ended the hunt, other than an interruption.
func (r *runner) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// stopped reports whether what was run last says nothing.
func (r *runner) stopped(ctx context.Context) bool { return ctx.Err() != nil || r.failure() != nil }

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
	number int  // that chooses it
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
		o := r.run(ctx, s, x.number)
		if r.stopped(ctx) {
			return
		}
		if !o.failed {
			continue
		}
		test, seed := culprit(o.output)
		if *learn != "" && strings.HasPrefix(test, "Test") && !strings.Contains(test, " ") {
			n := s.narrowed(test, seed)
			n.seconds = 30
			if again := r.run(ctx, n, x.number); again.failed {
				s, o = n, again
			}
		}
		c := r.control(ctx, s)
		if r.stopped(ctx) {
			return
		}
		if c.failed {
			fmt.Fprintf(os.Stderr, "%s: %s %s fails without it, too: it does not count\n%s\n",
				x.name, s.pkg, strings.Join(s.args, " "), c.output)
			continue
		}
		if o.hung && 2*c.took > s.limit() {
			fmt.Fprintf(os.Stderr,
				"%s: %s %s takes %v without it, too: that it has not ended after %v does not count\n",
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
		c.outcome = r.run(ctx, s, 0)
	})
	return c.outcome
}

// slack is how much longer a run may take by the clock than by the processor, in case it
// waits for ever.
const slack = 10

// run runs one suite on a mutation, 0: on the engine as it is. Its time is that of the
// processor, not of the clock: others may be at work on the machine. If the suite does not
// compile the hunt fails.
func (r *runner) run(ctx context.Context, s suite, number int) (o outcome) {
	bin, err := r.tests.binary(ctx, s.pkg)
	if err != nil {
		r.fail(err)
		return o
	}
	args := append([]string{"-c", `ulimit -t "$0"; exec "$@"`, fmt.Sprint(s.seconds), bin,
		"-test.failfast", "-test.timeout", fmt.Sprintf("%ds", slack*s.seconds)}, s.args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = s.pkg
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", choice, number), "GOMAXPROCS=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
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
