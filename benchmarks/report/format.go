package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// none stands for a number that does not exist, or is exactly zero where zero is
// the rule.
const none = "·"

// groups writes an integer with a comma between thousands.
func groups(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// significant writes x with at least three digits of it, and no more after the
// point than they need: 0.842, 12.3, 1,234.
func significant(x float64) string {
	switch a := math.Abs(x); {
	case a == 0:
		return "0"
	case a < 0.995:
		return strconv.FormatFloat(x, 'f', 3, 64)
	case a < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return groups(int64(math.Round(x)))
}

// exact writes x with up to two digits after the point, and none that are zero:
// a mean of counts that are all alike shows as a whole number.
func exact(x float64) string {
	s := strconv.FormatFloat(x, 'f', 2, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// dotZero replaces a zero by a dot, so that the numbers of a sparse column stand out.
func dotZero(x float64, write func(float64) string) string {
	if x == 0 {
		return none
	}
	return write(x)
}

// percent writes a percentage with so many digits after the point: a dot for
// zero, and what would look like zero as less than the last digit.
func percent(p float64, digits int) string {
	least := math.Pow10(-digits)
	switch {
	case p == 0:
		return none
	case p < least/2:
		return "<" + strconv.FormatFloat(least, 'f', digits, 64)
	}
	return strconv.FormatFloat(p, 'f', digits, 64)
}

// cents writes x with two digits after the point, for columns of means.
func cents(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

// whole writes x rounded to an integer.
func whole(x float64) string { return groups(int64(math.Round(x))) }

// micros writes nanoseconds as microseconds.
func micros(ns float64) string {
	if ns == 0 {
		return none
	}
	return significant(ns / 1e3)
}

// duration writes nanoseconds for people: 10 s, 1.5 s, 250 ms.
func duration(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return exact(d.Seconds()) + " s"
	case d >= time.Millisecond:
		return exact(float64(ns)/1e6) + " ms"
	}
	return significant(float64(ns)/1e3) + " µs"
}

// plural writes n and the noun, with an s unless n is one.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return groups(n) + " " + noun + "s"
}

// bytesSize writes a size in binary units: 64 MiB.
func bytesSize(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	x, i := float64(n), 0
	for x >= 1024 && i < len(units)-1 {
		x, i = x/1024, i+1
	}
	return exact(x) + " " + units[i]
}

// wrap breaks text into lines of at most pageWidth runes, at spaces, each with an
// indent but the first with first.
func wrap(text, first, indent string) string {
	var b strings.Builder
	line := first
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > pageWidth {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	fmt.Fprintf(&b, "%s\n", strings.TrimRight(line, " "))
	return b.String()
}
