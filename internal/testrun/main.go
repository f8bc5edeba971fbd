//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

var silence = flag.Duration("silence", 10*time.Minute, "how long a command that makes no progress may go on")

func main() {
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: testrun [-silence 10m] :: [label=WORD] [dir=PATH] go test -json ... [:: ...]")
	}
	flag.Parse()
	steps, err := parse(flag.Args())
	if err != nil || *silence <= 0 {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		flag.Usage()
		os.Exit(2)
	}
	r := newReport(os.Stdout, status(os.Stderr))
	for _, s := range steps {
		r.begin(s.label)
		before := r.failures
		code, err := watch(s, *silence, r, os.Stderr)
		r.flush()
		if err != nil || code != 0 && r.failures == before {
			r.broken(strings.Join(s.args, " "), code, err)
		}
		if errors.Is(err, errInterrupted) {
			break
		}
	}
	if !r.end() {
		os.Exit(1)
	}
}

// step is one command.
type step struct {
	label, dir string
	args       []string
}

func parse(args []string) ([]step, error) {
	var steps []step
	for _, a := range args {
		if a == "::" {
			steps = append(steps, step{})
			continue
		}
		if len(steps) == 0 {
			return nil, fmt.Errorf("%q is not behind a \"::\"", a)
		}
		s := &steps[len(steps)-1]
		label, isLabel := strings.CutPrefix(a, "label=")
		dir, isDir := strings.CutPrefix(a, "dir=")
		switch {
		case len(s.args) == 0 && isLabel:
			s.label = label
		case len(s.args) == 0 && isDir:
			s.dir = dir
		default:
			s.args = append(s.args, a)
		}
	}
	for _, s := range steps {
		if len(s.args) == 0 {
			return nil, errors.New("a \"::\" without a command")
		}
	}
	if len(steps) == 0 {
		return nil, errors.New("no command")
	}
	return steps, nil
}

// status is where the line of what runs goes: nil if f is no terminal.
func status(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
		return nil
	}
	return f
}
