//go:build unix

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain is the command that is watched when it is called by TestWatch.
func TestMain(m *testing.M) {
	switch os.Getenv("WATCHED") {
	case "ends":
		os.Stdout.WriteString("done\n")
		os.Exit(3)
	case "waits":
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

func TestWatch(t *testing.T) {
	for mode, want := range map[string]struct {
		code    int
		out     string
		silence time.Duration
	}{
		"ends":  {3, "done", time.Hour},
		"waits": {2, "goroutine 1", time.Second},
	} {
		t.Setenv("WATCHED", mode)
		var out bytes.Buffer
		code, err := watch(step{args: []string{os.Args[0]}}, want.silence, &out, &out)
		if code != want.code || (err != nil) != (want.code == 2) || !strings.Contains(out.String(), want.out) {
			t.Errorf("%s: exit code %d, error %v, output:\n%s", mode, code, err, out.String())
		}
	}
}

// TestLook: each case is a sequence of looks, a minute apart from one another: what was used since
// the look before, and whether something was printed.
func TestLook(t *testing.T) {
	type minute struct {
		used    time.Duration
		printed bool
	}
	minutes := func(n int, used time.Duration, printed bool) (ms []minute) {
		for range n {
			ms = append(ms, minute{used, printed})
		}
		return ms
	}
	const works, hardly = 10 * time.Second, 50 * time.Millisecond
	for name, c := range map[string]struct {
		looks []minute
		stuck int // the minute in which it is; 0: never
	}{
		"prints, and waits":            {minutes(40, 0, true), 0},
		"waits from the beginning":     {minutes(40, hardly, false), 10},
		"prints, then waits":           {append(minutes(20, works, true), minutes(20, 0, false)...), 30},
		"works without a word, slow":   {minutes(40, works, false), 0},
		"works, then waits":            {append(minutes(15, works, false), minutes(20, 0, false)...), 25},
		"goes round in a circle":       {minutes(40, time.Minute, false), 10},
		"in a circle after it printed": {append(minutes(20, works, true), minutes(20, time.Minute, false)...), 30},
	} {
		var s since
		var used time.Duration
		last, stuck := int64(0), 0
		for i, m := range c.looks {
			now := int64(i+1) * int64(time.Minute)
			if used += m.used; m.printed {
				last = now
			}
			if stuck == 0 && s.look(last, now, used, 10*time.Minute) != "" {
				stuck = i + 1
			}
		}
		if stuck != c.stuck {
			t.Errorf("%s: stuck in minute %d, not in %d", name, stuck, c.stuck)
		}
	}
}
