//go:build unix

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// report is a writer of the events of 'go test -json' (cmd/test2json) that makes of them what is
// shown. It is used by one goroutine at a time.
type report struct {
	out    io.Writer
	status *os.File // nil: none
	start  time.Time

	label   string
	line    []byte // the beginning of a line of events
	output  map[key]*strings.Builder
	running map[string]string // by package: the test that was begun last
	tests   map[string]int    // by package: how many tests have ended, and of these failed
	bad     map[string]int
	build   map[string]*strings.Builder // what the compiler says, by its import path

	count, skipped, failures int
	reasons                  map[string][]string // of tests that were skipped
	told                     strings.Builder     // what has failed
	shown                    time.Time           // when the status was
}

// key is a test, or with an empty name what a package prints outside of its tests.
type key struct{ pkg, test string }

// event is what 'go doc test2json' describes.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
	Elapsed                                                float64
}

func newReport(out io.Writer, status *os.File) *report {
	return &report{out: out, status: status, start: time.Now(), reasons: map[string][]string{}}
}

// begin begins a command.
func (r *report) begin(label string) {
	r.label, r.line = label, nil
	r.output, r.build = map[key]*strings.Builder{}, map[string]*strings.Builder{}
	r.running, r.tests, r.bad = map[string]string{}, map[string]int{}, map[string]int{}
}

// Write takes a piece of the events. It does not fail.
func (r *report) Write(p []byte) (int, error) {
	r.line = append(r.line, p...)
	for {
		i := bytes.IndexByte(r.line, '\n')
		if i < 0 {
			return len(p), nil
		}
		r.take(r.line[:i])
		r.line = r.line[i+1:]
	}
}

// flush takes a last line that was cut off.
func (r *report) flush() {
	if len(r.line) > 0 {
		r.take(r.line)
		r.line = nil
	}
	r.clear()
}

func (r *report) take(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		r.clear() // not an event: go's own words
		fmt.Fprintf(r.out, "%s\n", line)
		return
	}
	switch e.Action {
	case "build-output":
		add(r.build, e.ImportPath, e.Output)
	case "output":
		add(r.output, key{e.Package, e.Test}, e.Output)
	case "start", "run":
		r.running[e.Package] = e.Test
	case "pass", "fail", "skip":
		if e.Test != "" {
			r.ended(e)
		} else {
			r.endedPackage(e)
		}
	}
	r.show()
}

func add[K comparable](m map[K]*strings.Builder, k K, s string) {
	b := m[k]
	if b == nil {
		b = &strings.Builder{}
		m[k] = b
	}
	b.WriteString(s)
}

// words is what a test, or a package outside of its tests, has printed, which is forgotten.
func (r *report) words(k key) string {
	b := r.output[k]
	delete(r.output, k)
	if b == nil {
		return ""
	}
	return b.String()
}

func (r *report) ended(e event) {
	r.count++
	r.tests[e.Package]++
	out := r.words(key{e.Package, e.Test})
	switch e.Action {
	case "fail":
		r.failures++
		r.bad[e.Package]++
		fmt.Fprintf(&r.told, "\n=== FAIL: %s %s (%.2fs)\n%s", r.name(e.Package), e.Test, e.Elapsed, out)
	case "skip":
		r.skipped++
		why := reason(out)
		r.reasons[why] = append(r.reasons[why], r.name(e.Package)+" "+e.Test)
	}
}

// reason is what a test that was skipped says: the text behind "file_test.go:12: ".
func reason(out string) string {
	for l := range strings.Lines(out) {
		if _, why, ok := strings.Cut(l, "_test.go:"); ok {
			if _, why, ok = strings.Cut(why, ": "); ok {
				return strings.TrimSpace(why)
			}
		} else if _, why, ok := strings.Cut(l, ".go:"); ok {
			if _, why, ok = strings.Cut(why, ": "); ok {
				return strings.TrimSpace(why)
			}
		}
	}
	return "without a reason"
}

func (r *report) endedPackage(e event) {
	delete(r.running, e.Package)
	out := r.words(key{pkg: e.Package})
	mark := "ok  "
	switch {
	case e.Action == "skip" || strings.Contains(out, "[no tests to run]"),
		e.Action == "pass" && r.tests[e.Package] == 0:
		return // it has no tests, or none that were asked for
	case e.Action == "fail":
		mark = "FAIL"
		if r.bad[e.Package] == 0 { // outside of any test
			r.count, r.failures = r.count+1, r.failures+1
			if b := r.build[e.FailedBuild]; b != nil {
				out = b.String() + out
			}
			for _, k := range slices.SortedFunc(maps.Keys(r.output), func(a, b key) int {
				return cmp.Compare(a.test, b.test)
			}) {
				if k.pkg == e.Package { // what it was at when it ended
					out += r.words(k)
				}
			}
			fmt.Fprintf(&r.told, "\n=== FAIL: %s\n%s", r.name(e.Package), out)
		}
	}
	took := fmt.Sprintf("%7.1fs", e.Elapsed)
	if strings.Contains(out, "(cached)") {
		took = "  cached"
	}
	r.clear()
	fmt.Fprintf(r.out, "%s %s  %-40s %5d tests\n", mark, took, r.name(e.Package), r.tests[e.Package])
}

// name is a package's, with the label.
func (r *report) name(pkg string) string {
	pkg = strings.TrimPrefix(pkg, "txnode/")
	if r.label != "" {
		pkg += " [" + r.label + "]"
	}
	return pkg
}

// broken is told of a command that has failed without a test that did.
func (r *report) broken(cmd string, code int, err error) {
	r.count, r.failures = r.count+1, r.failures+1
	if err == nil {
		err = fmt.Errorf("exit code %d", code)
	}
	fmt.Fprintf(&r.told, "\n=== FAIL: %s\n%v\n", cmd, err)
}

// end prints what has failed, what was skipped, and the summary, and reports whether all is well.
func (r *report) end() bool {
	r.clear()
	fmt.Fprint(r.out, r.told.String())
	if r.skipped > 0 {
		fmt.Fprintln(r.out, "\nskipped:")
	}
	for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
		some := r.reasons[why]
		more := ""
		if len(some) > 2 {
			some, more = some[:2], fmt.Sprintf(" and %d more", len(some)-2)
		}
		fmt.Fprintf(r.out, "  %s: %s%s\n", why, strings.Join(some, ", "), more)
	}
	fmt.Fprintf(r.out, "\nDONE %d tests, %d skipped", r.count, r.skipped)
	if r.failures > 0 {
		fmt.Fprintf(r.out, ", %d %s", r.failures, map[bool]string{true: "failure", false: "failures"}[r.failures == 1])
	}
	fmt.Fprintf(r.out, " in %.1fs\n", time.Since(r.start).Seconds())
	return r.failures == 0
}

// show shows what runs, at most five times a second.
func (r *report) show() {
	if r.status == nil || time.Since(r.shown) < 200*time.Millisecond {
		return
	}
	r.shown = time.Now()
	var at []string
	for _, p := range slices.Sorted(maps.Keys(r.running)) {
		if t, _, _ := strings.Cut(r.running[p], "/"); t != "" {
			at = append(at, r.name(p)+" "+t)
		}
	}
	s := fmt.Sprintf("%4.0fs %d tests; %s", time.Since(r.start).Seconds(), r.count, strings.Join(at, ", "))
	fmt.Fprintf(r.status, "\r\x1b[K%.79s", s)
}

// clear clears the line of what runs.
func (r *report) clear() {
	if r.status != nil && !r.shown.IsZero() {
		fmt.Fprint(r.status, "\r\x1b[K")
	}
}
