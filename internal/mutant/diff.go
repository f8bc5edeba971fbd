package mutant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// File is what a mutation changes in one file.
type File struct {
	Path  string // below the root of the module, with slashes
	Hunks []Hunk
}

// Hunk is one place of a change. Each line begins with ' ' if it stays, '-' if it goes, '+' if it
// comes.
type Hunk struct {
	Line  int // where the old lines began, when the patch was made; from 1
	Lines []string
}

// context is how many lines a patch shows on each side of a change.
const context = 3

func parseDiff(text string) ([]File, error) {
	var files []File
	var hunk *Hunk // that lines belong to
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		switch line := cmp.Or(lines[i], " "); { // an editor may have taken the blank of an empty line away
		case strings.HasPrefix(line, "--- a/") && i+1 < len(lines) && lines[i+1] == "+++ b/"+line[len("--- a/"):]:
			files = append(files, File{Path: line[len("--- a/"):]})
			hunk = nil
			i++
		case strings.HasPrefix(line, "@@ ") && len(files) > 0:
			f := &files[len(files)-1]
			f.Hunks = append(f.Hunks, Hunk{})
			hunk = &f.Hunks[len(f.Hunks)-1]
			if _, err := fmt.Sscanf(line, "@@ -%d", &hunk.Line); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		case hunk != nil && (line[0] == ' ' || line[0] == '-' || line[0] == '+'):
			hunk.Lines = append(hunk.Lines, line)
		default:
			return nil, fmt.Errorf("%q is no line of a unified diff with the paths a/FILE and b/FILE", lines[i])
		}
	}
	for _, f := range files {
		if len(f.Hunks) == 0 {
			return nil, fmt.Errorf("no change of %s", f.Path)
		}
		for _, h := range f.Hunks {
			if slices.Equal(h.Old(), h.New()) {
				return nil, fmt.Errorf("the hunk of line %d of %s changes nothing", h.Line, f.Path)
			}
		}
	}
	if len(files) == 0 {
		return nil, errors.New("no change")
	}
	return files, nil
}

// Old lists the lines that the hunk replaces.
func (h *Hunk) Old() []string { return h.side("-") }

// New lists the lines that the hunk puts there.
func (h *Hunk) New() []string { return h.side("+") }

func (h *Hunk) side(sign string) []string {
	var out []string
	for _, l := range h.Lines {
		if s := l[:1]; s == " " || s == sign {
			out = append(out, l[1:])
		}
	}
	return out
}

// trimmed is the hunk without the n outermost lines of context on each side, or as many as there
// are.
func (h *Hunk) trimmed(n int) Hunk {
	t := Hunk{Line: h.Line, Lines: h.Lines}
	for k := 0; k < n && len(t.Lines) > 0 && t.Lines[0][0] == ' '; k++ {
		t.Line, t.Lines = t.Line+1, t.Lines[1:]
	}
	for k := 0; k < n && len(t.Lines) > 0 && t.Lines[len(t.Lines)-1][0] == ' '; k++ {
		t.Lines = t.Lines[:len(t.Lines)-1]
	}
	return t
}

// Apply makes the change in the text of a file, except for the hunks that do not apply, which it
// returns. The old lines of a hunk must be where the patch says, given what the hunks before
// have shifted, or at exactly one other place. Up to fuzz lines of context on each side may
// differ: then the place must be the only one.
func (f *File) Apply(text string, fuzz int) (out string, rejected []Hunk) {
	lines := strings.Split(text, "\n")
	from, drift := 0, 0 // where the next hunk may begin, and how much later than it says
	for _, h := range f.Hunks {
		done := false
		for n := 0; n <= fuzz && !done; n++ {
			t := h.trimmed(n)
			old, with := t.Old(), t.New()
			at, ok := place(lines, old, from, t.Line-1+drift, n == 0)
			if !ok {
				continue
			}
			lines = slices.Replace(lines, at, at+len(old), with...)
			drift = at - (t.Line - 1) + len(with) - len(old)
			from = at + len(with)
			done = true
		}
		if !done {
			rejected = append(rejected, h)
		}
	}
	return strings.Join(lines, "\n"), rejected
}

// place finds old in lines[from:]: at want, if that is enough, or at the only place.
func place(lines, old []string, from, want int, enough bool) (at int, ok bool) {
	matches := func(i int) bool {
		return i >= from && i+len(old) <= len(lines) && slices.Equal(lines[i:i+len(old)], old)
	}
	if len(old) == 0 {
		return 0, false
	}
	if enough && matches(want) {
		return want, true
	}
	n := 0
	for i := from; i < len(lines); i++ {
		if matches(i) {
			at = i
			n++
		}
	}
	return at, n == 1
}

// Diff is what changes a file from one text to another; both end with a newline. ok: they differ.
func Diff(path, from, to string) (f File, ok bool) {
	a, b := strings.Split(strings.TrimSuffix(from, "\n"), "\n"), strings.Split(strings.TrimSuffix(to, "\n"), "\n")
	f.Path = path
	edits := script(a, b)
	line := 1 // of a
	for i := 0; i < len(edits); {
		if edits[i][0] == ' ' {
			line++
			i++
			continue
		}
		first := max(0, i-context)
		last := i // one after the last change of the hunk
		for k := i; k < len(edits) && k <= last+2*context; k++ {
			if edits[k][0] != ' ' {
				last = k
			}
		}
		end := min(len(edits), last+1+context)
		h := Hunk{Line: line - (i - first), Lines: edits[first:end]}
		f.Hunks = append(f.Hunks, h)
		for ; i < end; i++ {
			if edits[i][0] != '+' {
				line++
			}
		}
	}
	return f, len(f.Hunks) > 0
}

// script is the lines of both texts in order, as those of a hunk: the fewest changes, removals
// first.
func script(a, b []string) []string {
	var head, tail []string
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head, a, b = append(head, " "+a[0]), a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail, a, b = append(tail, " "+a[len(a)-1]), a[:len(a)-1], b[:len(b)-1]
	}
	slices.Reverse(tail)
	common := make([][]int, len(a)+1) // lines that a[i:] and b[j:] have in common, in order
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	out := head
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, " "+a[i])
			i++
			j++
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			out = append(out, "-"+a[i])
			i++
		default:
			out = append(out, "+"+b[j])
			j++
		}
	}
	return append(out, tail...)
}

// text writes the file's part of a patch.
func (f *File) text(b *strings.Builder) {
	fmt.Fprintf(b, "--- a/%s\n+++ b/%s\n", f.Path, f.Path)
	shift := 0
	for i := range f.Hunks {
		h := &f.Hunks[i]
		old, with := len(h.Old()), len(h.New())
		fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", h.Line, old, h.Line+shift, with)
		for _, l := range h.Lines {
			b.WriteString(l)
			b.WriteByte('\n')
		}
		shift += with - old
	}
}
