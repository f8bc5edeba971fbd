package workload

import (
	"fmt"
	"math"
	"math/bits"
)

// Mix draws transaction types with given percentages. It is immutable and may
// be shared.
type Mix struct {
	below []uint64 // type t if 63 random bits are less than below[t] and not less than below[t-1]
}

// CheckMix returns nil if percent holds numbers of at least 0 that sum to 100
// (within a millionth), else an error that says which fault it has.
func CheckMix(percent []float64) error {
	sum := 0.0
	for i, p := range percent {
		if !(p >= 0 && p <= 100) {
			return fmt.Errorf("share %d of the mix is %v %%; it must be between 0 and 100", i+1, p)
		}
		sum += p
	}
	if math.Abs(sum-100) > 1e-6 {
		return fmt.Errorf("the mix %v sums to %v %%; it must sum to 100", percent, sum)
	}
	return nil
}

// NewMix returns the mix of percentages that CheckMix accepts.
func NewMix(percent []float64) Mix {
	below := make([]uint64, len(percent))
	sum, last := 0.0, 0
	for i, p := range percent {
		sum += p
		below[i] = Threshold(sum / 100)
		if p > 0 {
			last = i
		}
	}
	// Rounding must neither leave a gap at the end nor give it to a type of 0 %.
	for i := last; i < len(below); i++ {
		below[i] = 1 << 63
	}
	return Mix{below}
}

// Draw returns a type: the number of bounds that the bits drawn are not below. It is
// counted without a branch, which could not be predicted.
func (m Mix) Draw(r *Rand) int {
	x := r.Uint64() >> 1
	t := uint64(len(m.below))
	for _, b := range m.below {
		_, below := bits.Sub64(x, b, 0)
		t -= below
	}
	return int(t)
}
