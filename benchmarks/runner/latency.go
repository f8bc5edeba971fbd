package runner

import (
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms resolve three digits from 1 ns to about 1000 s; what takes longer
// counts as that.
const (
	maxLatencyNs  = 1_000_000_000_000
	latencyDigits = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatencyNs, latencyDigits)
}

// histograms are those of a run, one per transaction type, shared by all
// workers: each is some 250 KB, which many workers cannot each have for
// every type.
type histograms struct {
	mu     sync.Mutex
	byType []*hdrhistogram.Histogram
}

// sampleBuffer keeps the latencies of one worker until there are enough of them
// to be worth the lock of the histograms.
type sampleBuffer struct {
	to      *histograms
	n       int
	samples [512]sample
}

// sample is a transaction type and a latency: type << 48 | ns, which holds 78 hours.
type sample uint64

const sampleNsBits = 48

func (b *sampleBuffer) add(typ int, ns int64) {
	b.samples[b.n] = sample(typ)<<sampleNsBits | sample(min(max(ns, 0), maxLatencyNs))
	b.n++
	if b.n == len(b.samples) {
		b.flush()
	}
}

func (b *sampleBuffer) flush() {
	if b.n == 0 {
		return
	}
	b.to.mu.Lock()
	for _, s := range b.samples[:b.n] {
		// It cannot fail: add has bounded the value.
		_ = b.to.byType[s>>sampleNsBits].RecordValue(int64(s & (1<<sampleNsBits - 1)))
	}
	b.to.mu.Unlock()
	b.n = 0
}
