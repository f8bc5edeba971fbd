package command_test

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/cmd/txnode/command"
	"txnode/txn"
)

// TestPlain: what a terminal takes for a command is shown and not done, but for colors.
func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\n":               "a\tb\n",
		"größer \u2713":        "größer \u2713",
		"\x1b[1;31mred\x1b[0m": "\x1b[1;31mred\x1b[0m",
		"\x1b]0;title\a.":      `\x1b]0;title\x07.`,
		"over\rwritten\x1b[2J": `over\x0dwritten\x1b[2J`,
		"c1 \u009b2J, \x7f":    `c1 \x9b2J, \x7f`,
		"cut \x1b[":            `cut \x1b[`,
	} {
		if got := string(command.Plain([]byte(text))); got != want {
			t.Errorf("%q is %q, and not %q", text, got, want)
		}
	}
	if s := command.OneLine(errors.New("server says \x1b]52;c;aGVsbG8=\a\nand more")); strings.ContainsAny(s,
		"\x1b\a\n") || !strings.Contains(s, "and more") {
		t.Errorf("%q", s)
	}
	var out bytes.Buffer
	w := command.System()
	w.Stdout, w.StdoutTerminal = &out, true
	w.Getenv = func(string) string { return "" }
	if code := command.Main(t.Context(), w, []string{"version"}); code != 0 || out.Len() == 0 ||
		bytes.ContainsAny(out.Bytes(), "\a\r") {
		t.Errorf("exit code %d: %q", code, out.String())
	}
}

// drawn are the sequences with which top draws over itself.
var drawn = regexp.MustCompile(`\x1b\[[HKJ]`)

// TestOthersWords: names of programs, hosts and tables that others tell reach no terminal
// as commands, nor do they make lines; what the process tells that builds copies is shown
// by status and top.
func TestOthersWords(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"})
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	const evil = "\x1b]0;owned\a\r\n\u009b2Jforged 1 2 3"
	r := cluster.ProcessReport{Life: 1, Process: 7, Host: evil, Program: evil, At: 1, Time: time.Now()}
	r.Metrics.Tables = []txn.TableMetrics{{Table: evil}}
	r.Metrics.Copies = txn.CopyMetrics{Done: 12 << 20, Total: 40 << 20, Rate: 10 << 20, Left: 2800 * time.Millisecond}
	post(t, c.catalog, r)
	run := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		w := command.System()
		w.Getenv = func(string) string { return "" }
		w.Stdout, w.Stderr, w.StdoutTerminal, w.StderrTerminal = &out, &errs, true, true
		if code := command.Main(t.Context(), w, args); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, &errs)
		}
		return out.String() + errs.String()
	}
	for _, args := range [][]string{{"cluster", "status", c.catalog}, {
		"top", c.catalog, "--once", "--interval", "100ms",
	}, {"doctor", c.catalog}} {
		text := run(args...)
		if strings.ContainsAny(drawn.ReplaceAllString(text, ""), "\x1b\a\r\u009b") ||
			strings.Contains(text, "\nforged") || !strings.Contains(text, "forged") {
			t.Errorf("%v: %q", args, text)
		}
		if args[0] != "doctor" && !strings.Contains(text, "12 MiB of 40 MiB, 10 MiB/s, 3s left") {
			t.Errorf("%v: %q", args, text)
		}
	}
	if st := c.status(0); st.Database.Build == nil || st.Database.Build.Done != 12<<20 ||
		st.Database.Build.Left != 2800*time.Millisecond {
		t.Errorf("%+v", st)
	}
	if s := command.BesideBar(evil); strings.ContainsAny(s, "\x1b\a\r\n\u009b") || !strings.Contains(s, "forged") {
		t.Errorf("%q", s)
	}
}
