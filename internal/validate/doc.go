// Package validate collects what is wrong with options, so that a caller hears of
// every fault at once.
package validate

import (
	"fmt"
	"strings"
)

// Faults are the faults found so far. The zero value has none.
type Faults struct{ found []string }

// Check adds a fault unless ok.
func (f *Faults) Check(ok bool, format string, a ...any) {
	if !ok {
		f.found = append(f.found, fmt.Sprintf(format, a...))
	}
}

// Err returns an error that wraps kind and lists the faults, or nil if there are none.
func (f *Faults) Err(kind error) error {
	if f.found == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", kind, strings.Join(f.found, "; "))
}

// ByName returns the one of all that is called name, or an error that wraps kind and
// lists the names that there are; what says what they are of.
func ByName[T any](kind error, what, name string, all []T, nameOf func(T) string) (T, error) {
	var names []string
	for _, x := range all {
		n := nameOf(x)
		if n == name {
			return x, nil
		}
		names = append(names, n)
	}
	var none T
	return none, fmt.Errorf("%w: no %s %q: there are %s", kind, what, name, strings.Join(names, ", "))
}
