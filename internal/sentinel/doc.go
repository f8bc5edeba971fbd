// Package sentinel tells errors apart where errors.Is takes too long: between two
// transactions of which many roll back.
package sentinel

import (
	"errors"
	"reflect"
)

// plain is the type of what errors.New returns, which wraps nothing.
var plain = reflect.TypeOf(errors.New(""))

// Is is errors.Is for a target that can be compared, and quick for what programs mostly
// roll back with: errors of errors.New. Those it compares; errors.Is asks them for methods
// that they do not have, which takes 20 ns.
func Is(err, target error) bool {
	//nolint:errorlint // an error of type plain wraps nothing
	return err == target || reflect.TypeOf(err) != plain && errors.Is(err, target)
}
