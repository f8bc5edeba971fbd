package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
)

// function is what was executed of one function, as it was compiled: with what was
// inlined into it.
type function struct {
	name         string
	instructions uint64
	calls        uint64
}

// functions sums up the counts, which are of a process of this very program.
func functions(c counts) []function {
	by := map[uintptr]*function{}
	for pc, n := range c {
		f := runtime.FuncForPC(uintptr(pc))
		entry, name := uintptr(0), "(not Go)"
		if f != nil {
			entry = f.Entry()
			name = runtime.FuncForPC(entry).Name() // f may be inlined into that
		}
		x := by[entry]
		if x == nil {
			x = &function{name: name}
			by[entry] = x
		}
		x.instructions += n
		if uintptr(pc) == entry {
			x.calls += n
		}
	}
	var all []function
	for _, f := range by {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b function) int {
		if a.instructions != b.instructions {
			return int(b.instructions) - int(a.instructions)
		}
		return strings.Compare(a.name, b.name)
	})
	return all
}

// pkg is the package of a function.
func pkg(name string) string {
	dir := name[:strings.LastIndexByte(name, '/')+1]
	last, _, _ := strings.Cut(name[len(dir):], ".")
	return dir + last
}

// report prints what n transactions have executed, by package and by function, top of
// each.
func report(w io.Writer, c counts, n, top int) {
	all := functions(c)
	packages := map[string]uint64{}
	total := uint64(0)
	for _, f := range all {
		total += f.instructions
		packages[pkg(f.name)] += f.instructions
	}
	each := func(k uint64) float64 { return float64(k) / float64(n) }
	fmt.Fprintf(w, "%.0f instructions a transaction, of %d\n\n", each(total), n)
	names := make([]string, 0, len(packages))
	for p := range packages {
		names = append(names, p)
	}
	slices.SortFunc(names, func(a, b string) int {
		if packages[a] != packages[b] {
			return int(packages[b]) - int(packages[a])
		}
		return strings.Compare(a, b)
	})
	fmt.Fprintf(w, "%12s  package\n", "instructions")
	for _, p := range names[:min(top, len(names))] {
		fmt.Fprintf(w, "%12.1f  %s\n", each(packages[p]), p)
	}
	fmt.Fprintf(w, "\n%12s  %6s  %9s  function\n", "instructions", "calls", "of each")
	for _, f := range all[:min(top, len(all))] {
		one := "·"
		if f.calls > 0 {
			one = fmt.Sprintf("%.1f", float64(f.instructions)/float64(f.calls))
		}
		fmt.Fprintf(w, "%12.1f  %6.2f  %9s  %s\n", each(f.instructions), each(f.calls), one, f.name)
	}
}

// reportLines prints what the functions whose names end like suffix have executed by the lines
// of their source. What was inlined counts where it is called.
func reportLines(w io.Writer, c counts, n int, suffix string) {
	type line struct {
		file string
		line int
	}
	by := map[string]map[line]uint64{}
	for pc, k := range c {
		f := runtime.FuncForPC(uintptr(pc))
		if f == nil {
			continue
		}
		name := runtime.FuncForPC(f.Entry()).Name()
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		var at line
		frames := runtime.CallersFrames([]uintptr{uintptr(pc) + 1}) // as if it were a return address
		for more := true; more; {
			var x runtime.Frame
			x, more = frames.Next()
			at = line{path.Base(x.File), x.Line} // the last is the function itself
		}
		if by[name] == nil {
			by[name] = map[line]uint64{}
		}
		by[name][at] += k
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(w, "\n%12s  line of %s\n", "instructions", name)
		at := slices.SortedFunc(maps.Keys(by[name]), func(a, b line) int {
			return cmp.Or(strings.Compare(a.file, b.file), a.line-b.line)
		})
		for _, l := range at {
			fmt.Fprintf(w, "%12.1f  %s:%d\n", float64(by[name][l])/float64(n), l.file, l.line)
		}
	}
}
