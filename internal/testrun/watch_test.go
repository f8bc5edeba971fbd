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

func TestLook(t *testing.T) {
	const m = time.Minute
	for name, c := range map[string]struct {
		last, now int64
		used      time.Duration
		stuck     bool
	}{
		"has just printed":          {int64(19 * m), int64(20 * m), 30 * m, false},
		"not for long":              {0, int64(9 * m), 30 * m, false},
		"waits":                     {0, int64(10 * m), 1 * m, true},
		"works on a busy machine":   {0, int64(40 * m), 9 * m, false},
		"goes round in a circle":    {0, int64(40 * m), 11 * m, true},
		"on a system without times": {0, int64(10 * m), 0, true},
	} {
		s := since{used: 1 * m}
		if c.used == 0 {
			s.used = 0
		}
		if why := s.look(c.last, c.now, c.used, 10*m); (why != "") != c.stuck {
			t.Errorf("%s: %q", name, why)
		}
	}
}
