package command_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
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
	if s := command.OneLine(errors.New("server says \x1b]52;c;aGVsbG8=\a\nand more")); strings.ContainsAny(s, "\x1b\a\n") || !strings.Contains(s, "and more") {
		t.Errorf("%q", s)
	}
	var out bytes.Buffer
	w := command.System()
	w.Stdout, w.StdoutTerminal = &out, true
	w.Getenv = func(string) string { return "" }
	if code := command.Main(t.Context(), w, []string{"version"}); code != 0 || out.Len() == 0 || bytes.ContainsAny(out.Bytes(), "\a\r") {
		t.Errorf("exit code %d: %q", code, out.String())
	}
}
