package runner

import (
	"testing"
	"time"
)

// TestTimelineToItsEnd: a store that does not commit any more, or only when the time is over, is
// seen.
func TestTimelineToItsEnd(t *testing.T) {
	rd := &round{run: &run{timeline: newTimeline([]Event{{Name: "e"}}, time.Second)}}
	rd.base.Store(0)
	for _, at := range []time.Duration{0, 5 * timelineBucket, time.Second, 3 * time.Second, 3 * time.Second} {
		rd.commit(int64(at))
	}
	line := rd.timeline.result(4 * time.Second)
	at := func(d time.Duration) uint32 { return line.Commits[d/line.Bucket] }
	if n := len(line.Commits); n != int(4*time.Second/line.Bucket) {
		t.Errorf("%d buckets", n)
	}
	if at(0) != 1 || at(5*timelineBucket) != 1 || at(time.Second) != 1 || at(3*time.Second) != 2 {
		t.Error("a commit is missing")
	}
	for _, c := range []struct{ from, to, gap, at time.Duration }{
		{0, 4 * time.Second, 2*time.Second - timelineBucket, time.Second + timelineBucket},
		{2 * time.Second, 4 * time.Second, time.Second, 2 * time.Second},
		{3500 * time.Millisecond, 9 * time.Second, 500 * time.Millisecond, 3500 * time.Millisecond},
		{0, timelineBucket, 0, 0},
	} {
		if gap, at := line.GapIn(c.from, c.to); gap != c.gap || at != c.at {
			t.Errorf("from %v to %v: %v at %v", c.from, c.to, gap, at)
		}
	}
	if len(rd.timeline.result(0).Commits) != int(3*time.Second/line.Bucket)+1 {
		t.Error("what came after the end is lost")
	}
}
