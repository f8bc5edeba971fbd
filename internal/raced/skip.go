package raced

import "testing"

// Skip skips a test under the race detector. One goroutine at a time works in it, and what runs
// beside it (maintenance, workers that wait) is raced by other tests of its package.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("under the race detector: one goroutine at a time works in this test")
	}
}
