package mdtable_test

import (
	"strings"
	"testing"

	"txnode/internal/mdtable"
)

func TestWriteMarkdown(t *testing.T) {
	g := mdtable.New("threads")
	for _, c := range []string{"a", "b", "c", "d", "e", "f"} {
		g.Set("1", c, mdtable.Cell(2, 1.5))
	}
	g.Set("8", "b", mdtable.Cell(0, 12345.6))
	var out strings.Builder
	if err := g.WriteMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	want := `
| threads | a | b | c |
|---|---|---|---|
| 1 | 2/1.5 (-25) | 2/1.5 (-25) | 2/1.5 (-25) |
| 8 |  | 12346 |  |

| threads | d | e | f |
|---|---|---|---|
| 1 | 2/1.5 (-25) | 2/1.5 (-25) | 2/1.5 (-25) |
| 8 |  |  |  |
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestWriteText(t *testing.T) {
	long := strings.Repeat("word ", 25)
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"One.\nTwo.\n", "\nOne. Two.\n"},
		{"* A note.\n", "\n\\* A note.\n"},
		{"One.\n* A note.\n", "\nOne.\n\n\\* A note.\n"},
		{long, "\n" + strings.TrimSpace(strings.Repeat("word ", 20)) + "\n" +
			strings.TrimSpace(strings.Repeat("word ", 5)) + "\n"},
	} {
		var out strings.Builder
		if err := mdtable.WriteText(&out, c.text); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%q: got %q, want %q", c.text, out.String(), c.want)
		}
	}
}
