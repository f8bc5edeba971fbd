package command

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteSize is a flag in bytes, with binary units: 64MiB, 1GiB, 4096.
type byteSize int64

var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, {"B", 1},
}

// String implements pflag.Value.
func (b *byteSize) String() string {
	for _, u := range sizeUnits[:4] {
		if n := float64(*b) / u.bytes; n >= 1 && n == math.Trunc(n) {
			return fmt.Sprintf("%d%s", int64(n), u.name)
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "size" }

// Set implements pflag.Value.
func (b *byteSize) Set(s string) error {
	unit := 1.0
	number := s
	for _, u := range sizeUnits {
		if n, ok := cutSuffixFold(s, u.name); ok {
			number, unit = n, u.bytes
			break
		}
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(x >= 0) || x*unit > math.MaxInt64/2 {
		return errors.New("want a size in bytes, such as 64MiB, 1GiB or 1048576")
	}
	*b = byteSize(x * unit)
	return nil
}

func cutSuffixFold(s, suffix string) (string, bool) {
	if n := len(s) - len(suffix); n >= 0 && strings.EqualFold(s[n:], suffix) {
		return s[:n], true
	}
	return s, false
}
