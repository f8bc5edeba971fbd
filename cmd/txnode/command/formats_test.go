package command_test

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
)

// TestMachineReadableOutput: what -o json and -o csv print is that and nothing else,
// whatever is asked for, also when a run was cut short; and JSON names its values alike.
func TestMachineReadableOutput(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	const small = " --accounts 100 --txns 500 --warmup 1ms --threads 2"
	for _, c := range []struct {
		line        string
		interruptAt int64
		rows        int // of CSV, with the header; 0: some
	}{
		{"bench smallbank --save a,b" + small, 0, 8},
		{"bench smallbank --verify --runs 3 --rate 100000" + small, 0, 1 + 3*7},
		{"bench tatp --subscribers 50 --txns 500 --warmup 1ms", 0, 9},
		{"bench ycsb --workload d --records 50 --txns 500 --warmup 1ms", 0, 4},
		{"bench ycsb --workload e --table ordered --records 50 --txns 200 --warmup 1ms --scan-length 10", 0, 4},
		{"bench tpcc --customers 10 --items 100 --txns 200 --warmup 1ms", 0, 7},
		{"bench smallbank --duration 1h --accounts 100 --warmup 1ms", 1e9 + 20e6, 8},
		{"explain smallbank --txns 10 --warmup-txns 10", 0, 0},
		{"explain tatp --policy ford --txns 10 --warmup-txns 10", 0, 0},
		{"compare", 0, 0},
		{"compare a,b 2", 0, 0},
		{"history", 0, 0},
		{"history list --limit 1", 0, 2},
		{"history show 1", 0, 0},
		{"check $DIR/data", 0, 1},
		{"version", 0, 2},
		{"sim smallbank --accounts 500 --threads 1 --txns 50 --warmup 10us", 0, 0},
		{"sim ycsb --workload f --records 500 --threads 1 --txns 50 --warmup 10us", 0, 4},
		{"sim verbs --threads 2 --duration 20us", 0, 2},
		{"sim loco --experiment failure,lock --nodes 2 --duration 100us", 0, 13},
		{"bench channel --operation kv-put,mutex --duration 1ms", 0, 3},
		{"sim hash --keys 1000 --threads 1 --warmup 10us --window 60us --limit 200us", 0, 0},
	} {
		for _, format := range []string{"json", "csv"} {
			b.interruptAt = c.interruptAt
			// which the store of tests has not
			if b.open = nil; strings.Contains(c.line, "ordered") || strings.Contains(c.line, "tpcc") {
				b.open = command.System().Open
			}
			code, out, stderr := b.run(append(strings.Fields(c.line), "-o", format)...)
			if want := map[bool]int{false: 0, true: 130}[c.interruptAt > 0]; code != want {
				t.Fatalf("%s: exit code %d, %s", c.line, code, stderr)
			}
			if format == "csv" {
				rows, err := csv.NewReader(strings.NewReader(out)).ReadAll() // all of one length
				if err != nil || len(rows) == 0 || c.rows > 0 && len(rows) != c.rows {
					t.Errorf("%s: %d rows of CSV, %v\n%s", c.line, len(rows), err, out)
				}
				continue
			}
			d := json.NewDecoder(strings.NewReader(out))
			values := 0
			for {
				var v any
				if err := d.Decode(&v); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%s: %v\n%s", c.line, err, out)
				}
				values++
				for _, name := range names(v, nil) {
					if !snake.MatchString(name) {
						t.Errorf("%s: a value is called %q", c.line, name)
					}
				}
			}
			if values != 1 {
				t.Errorf("%s: %d values of JSON\n%s", c.line, values, out)
			}
		}
	}
}

// snake is how values are called.
var snake = regexp.MustCompile("^[a-z0-9]+(_[a-z0-9]+)*$")

// names lists what the values within v are called.
func names(v any, out []string) []string {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			out = names(x, append(out, name))
		}
	case []any:
		for _, x := range v {
			out = names(x, out)
		}
	}
	return out
}
