package txn

import (
	"math/bits"
	"time"
)

// Histogram is how many durations fell between fixed bounds, as running totals. The zero value is
// empty.
type Histogram struct {
	// Buckets counts durations of at most Bound(i) that are longer than Bound(i-1); the last bucket
	// has no upper bound.
	Buckets [HistogramBuckets]uint64
	Sum     time.Duration // of all durations
}

// HistogramBuckets is how many buckets a Histogram has.
const HistogramBuckets = 29

// histogramShift is the logarithm of the first bound, in nanoseconds.
const histogramShift = 8

// Bound returns the longest duration in bucket i of a Histogram: 256 ns for the first, and twice
// as much for each further one, up to 34 s. The last bucket has no bound, and neither has a
// number beyond it: 0.
func (h Histogram) Bound(i int) time.Duration {
	if i < 0 || i >= HistogramBuckets-1 {
		return 0
	}
	return 1 << (histogramShift + i)
}

// Count is how many durations there are.
func (h Histogram) Count() uint64 {
	n := uint64(0)
	for _, v := range h.Buckets {
		n += v
	}
	return n
}

// record adds a duration in nanoseconds; one that is negative counts as 0.
func (h *Histogram) record(ns int64) {
	ns = max(ns, 0)
	i := max(bits.Len64(uint64(max(ns-1, 0)))-histogramShift, 0)
	h.Buckets[min(i, HistogramBuckets-1)]++
	h.Sum += time.Duration(ns)
}

// Add adds d to h.
func (h *Histogram) Add(d *Histogram) {
	for i, v := range d.Buckets {
		h.Buckets[i] += v
	}
	h.Sum += d.Sum
}
