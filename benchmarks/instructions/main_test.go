package main

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	good := options{workload: "smallbank", policy: "default"}
	for _, c := range []struct {
		change       func(*options)
		args, n, top int
		want         string
	}{
		{func(*options) {}, 0, 1, 1, ""},
		{func(o *options) { o.typ = "SendPayment" }, 0, 1, 1, ""},
		{func(o *options) { o.typ = "Robbery" }, 0, 1, 1, "Robbery"},
		{func(o *options) { o.policy = "hope" }, 0, 1, 1, "hope"},
		{func(o *options) { o.workload = "tpcc" }, 0, 1, 1, "tpcc"},
		{func(o *options) { o.warm = -1 }, 0, 1, 1, "--warm"},
		{func(*options) {}, 1, 1, 1, "no arguments"},
		{func(*options) {}, 0, 0, 1, "--transactions"},
		{func(*options) {}, 0, 1, 0, "--top"},
	} {
		o := good
		c.change(&o)
		err := o.check(c.args, c.n, c.top)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, %d arguments, %d transactions, %d lines: %v, not %q", o, c.args, c.n, c.top, err, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	a, b := uint64(reflect.ValueOf(marker).Pointer()), uint64(reflect.ValueOf(strings.Index).Pointer())
	var out strings.Builder
	report(&out, counts{a: 2, b: 4, b + 1: 6}, 2, 10)
	want := `6 instructions a transaction, of 2

instructions  package
         5.0  strings
         1.0  txnode/benchmarks/instructions

instructions   calls    of each  function
         5.0    2.00        2.5  strings.Index
         1.0    1.00        1.0  txnode/benchmarks/instructions.marker
`
	if out.String() != want {
		t.Errorf("%s\ninstead of\n%s", out.String(), want)
	}
}

func TestReportLines(t *testing.T) {
	pc := uint64(reflect.ValueOf(marker).Pointer())
	file, line := runtime.FuncForPC(uintptr(pc)).FileLine(uintptr(pc))
	var out strings.Builder
	reportLines(&out, counts{pc: 3, uint64(reflect.ValueOf(strings.Index).Pointer()): 4}, 2, ".marker")
	want := fmt.Sprintf(`
instructions  line of txnode/benchmarks/instructions.marker
         1.5  %s:%d
`, path.Base(file), line)
	if out.String() != want {
		t.Errorf("%s\ninstead of\n%s", out.String(), want)
	}
}
