package command

import (
	"fmt"
	"io"
	"regexp"
)

// color is the only sequence that a text may have for a terminal.
var color = regexp.MustCompile(`^\x1b\[[0-9;]*m`)

// plain is a text without what a terminal would take for a command, but for colors. Names of
// tables, of programs and of hosts, and texts of servers are others' words: they must not move the
// cursor, or name a window.
func plain(p []byte) []byte {
	command := func(i int) int { // how many bytes are one, from i on
		switch b := p[i]; {
		case b == 0xc2 && i+1 < len(p) && p[i+1]-0x80 < 0x20: // U+0080 to U+009F
			return 2
		case b < ' ' && b != '\n' && b != '\t', b == 0x7f:
			return 1
		}
		return 0
	}
	var out []byte
	last := 0 // up to where out has p
	for i := 0; i < len(p); {
		n := command(i)
		if n == 0 {
			i++
			continue
		}
		if c := color.Find(p[i:]); c != nil {
			i += len(c)
			continue
		}
		out = fmt.Appendf(append(out, p[last:i]...), `\x%02x`, p[i+n-1])
		i += n
		last = i
	}
	if out == nil {
		return p
	}
	return append(out, p[last:]...)
}

// plainWriter writes what is plain of a text to a terminal.
type plainWriter struct{ io.Writer }

func (w plainWriter) Write(p []byte) (int, error) {
	if _, err := w.Writer.Write(plain(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
