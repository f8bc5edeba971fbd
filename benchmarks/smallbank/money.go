package smallbank

import (
	"fmt"
	"math"

	"github.com/cockroachdb/apd/v3"
)

// Money is an amount in units of 0.0001, as it is stored.
type Money int64

// decimals is the number of decimal places of Money.
const decimals = 4

// ParseMoney converts a decimal number, like "20.2" or "1e6". It fails on what
// is not a finite number, has more than 4 decimals that are not zero, or does
// not fit; it never rounds.
func ParseMoney(text string) (Money, error) {
	d, _, err := apd.NewFromString(text)
	if err != nil || d.Form != apd.Finite {
		return 0, fmt.Errorf("%q is not a decimal number", text)
	}
	d.Reduce(d) // to the largest exponent
	if d.IsZero() {
		return 0, nil
	}
	if d.Exponent < -decimals {
		return 0, fmt.Errorf("%q has more than %d decimals", text, decimals)
	}
	shift := d.Exponent + decimals
	if int64(shift)+d.NumDigits() > 19 {
		return 0, fmt.Errorf("%q is beyond the range of %s to %s", text, Money(math.MinInt64), Money(math.MaxInt64))
	}
	d.Exponent = shift
	n, err := d.Int64()
	if err != nil {
		return 0, fmt.Errorf("%q is beyond the range of %s to %s", text, Money(math.MinInt64), Money(math.MaxInt64))
	}
	return Money(n), nil
}

// String returns the amount with all its 4 decimals.
func (m Money) String() string { return apd.New(int64(m), -decimals).Text('f') }
