package occ_test

import (
	"slices"
	"testing"

	"txnode/occ"
	"txnode/rdma"
)

// TestFlushTogether: the log records of all sessions are one flush of each blade, as far as
// there is nothing but log areas between them.
func TestFlushTogether(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{})
	var at []rdma.RemoteAddr
	session := func() *occ.Tx {
		s, tx := b.session()
		for _, a := range s.LogAreas() {
			at = append(at, a.Addr)
		}
		return tx
	}
	check := func(what string, at []rdma.RemoteAddr, want int) {
		t.Helper()
		flushed := b.eng.Together(at...)
		if len(flushed) != want {
			t.Errorf("%s: %d records are %d flushes, not %d: %v", what, len(at), len(flushed), want, flushed)
		}
		for _, a := range at {
			if !slices.ContainsFunc(flushed, func(f [3]uint64) bool {
				return f[0] == uint64(a.Blade) && f[1] <= a.Off && a.Off+64 <= f[2]
			}) {
				t.Errorf("%s: %v is not flushed", what, a)
			}
		}
	}
	tx := session()
	check("one", at, 2)
	for i := range 20 { // more than there is room for where the first has its log areas
		if session(); i == 4 {
			must(t, b.do(tx, put("k", "with a segment between those of logs")))
		}
	}
	runs := 0
	for blade := range rdma.BladeID(2) {
		for i, r := range b.space.LogRuns(blade) {
			if runs++; r[0] >= r[1] || i > 0 && b.space.LogRuns(blade)[i-1][1] >= r[0] {
				t.Fatalf("log areas of blade %d: %v", blade, b.space.LogRuns(blade))
			}
		}
	}
	if runs < 3 {
		t.Fatalf("%d places of log areas", runs)
	}
	check("all", at, runs)
	// What is elsewhere keeps to itself.
	end := b.space.LogRuns(0)[len(b.space.LogRuns(0))-1][1]
	check("beyond", []rdma.RemoteAddr{{Off: end - 64}, {Off: end + 8192}, {Off: end + 16<<10}}, 3)
	check("near", []rdma.RemoteAddr{{Off: end + 8192}, {Off: end + 8192 + 4096}}, 1)
	var long []rdma.RemoteAddr // than is one flush
	for off := end + 8192; off < end+3<<29; off += 4096 {
		long = append(long, rdma.RemoteAddr{Off: off})
	}
	if flushed := b.eng.Together(long...); len(flushed) != 2 || flushed[0][2] > flushed[1][1] ||
		flushed[1][2] < end+3<<29-4096 {
		t.Errorf("a long one: %v", flushed)
	}
	check("out of order", []rdma.RemoteAddr{{Blade: 1, Off: end + 8192}, {Off: end + 8192}, {Off: end + 100<<10}}, 3)
}
