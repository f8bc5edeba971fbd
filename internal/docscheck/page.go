package docscheck

import (
	"regexp"
	"slices"
	"strings"
)

// kind of a piece of a page.
type kind uint8

const (
	prose    kind = iota // a paragraph, an item of a list, a heading
	table                // the lines of a table
	indented             // code that is indented by four columns
	shell                // a fenced block of a shell
	other                // any other fenced block
)

// A piece is some lines of a page of one kind. Every line is in one piece.
type piece struct {
	kind  kind
	first int // the number of its first line, from 1
	lines []string
}

// shells are the languages of fenced blocks that hold command lines.
var shells = []string{"sh", "shell", "bash", "console"}

// parse cuts a page into pieces.
func parse(text string) []piece {
	var pieces []piece
	var fence kind
	in := false // a fenced block
	blank := true
	for i, l := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(l)
		k := prose
		switch {
		case strings.HasPrefix(trimmed, "```"):
			if !in {
				fence = other
				if slices.Contains(shells, strings.TrimPrefix(trimmed, "```")) {
					fence = shell
				}
			}
			in, k = !in, other
		case in:
			k = fence
		case strings.HasPrefix(trimmed, "|"):
			k = table
		case strings.HasPrefix(l, "    ") && (blank || last(pieces) == indented):
			k = indented
		}
		if n := len(pieces); n > 0 && pieces[n-1].kind == k && !(k == prose && (blank || trimmed == "")) {
			pieces[n-1].lines = append(pieces[n-1].lines, l)
		} else {
			pieces = append(pieces, piece{k, i + 1, []string{l}})
		}
		blank = trimmed == ""
	}
	return pieces
}

func last(pieces []piece) kind {
	if len(pieces) == 0 {
		return prose
	}
	return pieces[len(pieces)-1].kind
}

// A span is text between backquotes.
type span struct {
	line int // where it begins
	text string
}

var backquoted = regexp.MustCompile("`([^`]+)`")

// spans are what is between backquotes. In prose they may go over the end of a line.
func (p piece) spans() []span {
	var out []span
	if p.kind == table {
		for i, l := range p.lines {
			for _, m := range backquoted.FindAllStringSubmatch(l, -1) {
				out = append(out, span{p.first + i, m[1]})
			}
		}
		return out
	}
	text := strings.Join(p.lines, "\n")
	for _, m := range backquoted.FindAllStringSubmatchIndex(text, -1) {
		line := p.first + strings.Count(text[:m[0]], "\n")
		out = append(out, span{line, strings.Join(strings.Fields(text[m[2]:m[3]]), " ")})
	}
	return out
}
