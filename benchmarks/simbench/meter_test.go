package simbench

import "testing"

// With a quota a thread counts until it is through, and the time is that of the last.
func TestMeterQuota(t *testing.T) {
	now := int64(0)
	m := &meter{now: func() int64 { return now }, from: 100, limit: 1, quota: 2, threads: make([]uint64, 2), open: 2}
	for _, e := range []struct {
		at     int64
		thread int
	}{{50, 0}, {110, 0}, {120, 0}, {130, 0}, {150, 1}} {
		now = e.at
		m.count(e.thread, true, e.at-5)
	}
	if m.open != 1 || !m.through(0) || m.through(1) {
		t.Errorf("after 2 transactions of thread 0 and one of thread 1 %d threads are not through", m.open)
	}
	now = 400
	m.count(1, false, 300)
	if m.open != 0 || m.ended != 4 || m.committed != 3 || m.end != 400 || len(m.latencies) != 3 {
		t.Errorf("at the end: %+v", m)
	}
}

// Without one, whoever is free takes the next one, and the first of them are measured.
func TestMeterLimit(t *testing.T) {
	now := int64(0)
	m := &meter{now: func() int64 { return now }, limit: 3}
	for now < 5 {
		now++
		m.count(0, true, 0)
	}
	if m.ended != 3 || m.end != 3 || m.through(0) {
		t.Errorf("%+v", m)
	}
}
