package hashbench

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// feed lets operations end at the given intervals, until the meter has enough; it
// returns the point.
func feed(t *testing.T, c Config, every func(at int64) int64) (Point, error) {
	t.Helper()
	c.defaults()
	m := newMeter(&c, 0)
	for at := int64(0); ; {
		at += every(at)
		if m.over(at) {
			break
		}
		m.count(at, 3, 10, false, 0, 0)
	}
	var p Point
	err := m.fill(&p)
	return p, err
}

func windowed() Config {
	return Config{
		Threads: 1, Coroutines: 1, Warmup: time.Millisecond, Window: time.Millisecond, Limit: 20 * time.Millisecond,
	}
}

// A throughput that does not change settles in three windows behind the warm-up.
func TestSettles(t *testing.T) {
	p, err := feed(t, windowed(), func(int64) int64 { return 1000 })
	if err != nil || !p.Settled || p.WindowMs != 1 || p.TotalMs != 3 || p.Mops < 0.999 || p.Mops > 1.001 ||
		p.VerbsPerOp != 3 {
		t.Errorf("%+v, %v", p, err)
	}
}

// One that falls for 8 ms settles behind that, and the point is of what it has settled at.
func TestSettlesLate(t *testing.T) {
	p, err := feed(t, windowed(), func(at int64) int64 { return 1000 + min(at, 8_000_000)/2000 })
	if err != nil || !p.Settled || p.TotalMs < 8 || p.TotalMs > 12 || p.Mops < 0.198 || p.Mops > 0.206 {
		t.Errorf("%+v, %v", p, err)
	}
}

// One that goes on falling is marked.
func TestDoesNotSettle(t *testing.T) {
	p, err := feed(t, windowed(), func(at int64) int64 { return 1000 + at/2000 })
	if err != nil || p.Settled || p.mark() != "*" || p.TotalMs != 20 {
		t.Errorf("%+v, %v", p, err)
	}
	c := Curve{Name: "all", Mix: "a", Points: []Point{p}}
	if s := NewReport("", windowed(), []Curve{c}).summary(); !strings.Contains(s, "1 of 1 points have not settled") {
		t.Errorf("the summary is %q", s)
	}
}

// A window that is shorter than the queue of operations is doubled until it is not: 64 coroutines
// and 20 operations a millisecond are 3.2 ms for each, so a window is to have 12.8 ms at least.
func TestWindowGrows(t *testing.T) {
	c := windowed()
	c.Coroutines, c.Limit = 64, 500*time.Millisecond
	p, err := feed(t, c, func(int64) int64 { return 50_000 })
	if err != nil || !p.Settled || p.WindowMs != 16 {
		t.Errorf("%+v, %v", p, err)
	}
	c.Limit = 20 * time.Millisecond // no room for such windows
	if p, err = feed(t, c, func(int64) int64 { return 50_000 }); err != nil || p.Settled {
		t.Errorf("%+v, %v", p, err)
	}
}

// Where nothing ends, the error names the time that it takes.
func TestNothingEnds(t *testing.T) {
	_, err := feed(t, windowed(), func(int64) int64 { return 1_000_000_000 })
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "make Limit 40ms at least") {
		t.Errorf("got %v", err)
	}
}
