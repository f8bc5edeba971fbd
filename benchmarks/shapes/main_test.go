package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--child" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestShapes makes each measurement once, as small as it gets: the program itself fails
// when the tables do not hold what was committed.
func TestShapes(t *testing.T) {
	for name, lines := range map[string]int{
		"keys": 7, "contention": 8, "inserts": 4, "churn": 1, "directory": 4, "tables": 2, "values": 4, "commit": 4,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var out, progress strings.Builder
			code := run(t.Context(), []string{
				"--only", name, "--time", "5ms", "--goroutines", "20", "--keys", "1000", "--tx-keys", "64", "--tables",
				"100", "--dir", dir,
			}, &out, &progress)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, progress.String())
			}
			got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(got) != lines {
				t.Errorf("%d lines instead of %d:\n%s", len(got), lines, out.String())
			}
			for _, line := range got {
				if !regexp.MustCompile(`^` + name + ` +\S.{45,}  +\D*\d`).MatchString(line) {
					t.Errorf("line %q", line)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%v is left in the directory, %v", left, err)
			}
		})
	}
}

func TestCrowd(t *testing.T) {
	c := crowd{goroutines: 30, keys: 3, perTx: 2}
	o, err := c.run(t.Context(), 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	transactions := o.conflicts
	for _, n := range o.commits {
		transactions += n
	}
	if len(o.commits) != c.goroutines || transactions != len(o.latencies) || transactions < c.goroutines ||
		o.commits[0] > o.commits[len(o.commits)-1] {
		t.Errorf("%d commits and ErrConflict of %d goroutines, and %d latencies",
			transactions, len(o.commits), len(o.latencies))
	}
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]int{
		"--help":               0,
		"--only churn,tabels":  2,
		"--keys 10":            2,
		"churn":                2,
		"--nothing":            2,
		"--only keys --time 0": 2,
	} {
		var out, errs strings.Builder
		if code := run(t.Context(), strings.Fields(args), &out, &errs); code != want || errs.Len() == 0 ||
			out.Len() > 0 {
			t.Errorf("%s: exit code %d, not %d; %s%s", args, code, want, errs.String(), out.String())
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	var out, errs strings.Builder
	if code := run(ctx, []string{"--only", "commit", "--time", "1h", "--goroutines", "20", "--dir", t.TempDir()}, &out,
		&errs); code != 130 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestProfile: a profile that cannot be written is an error, at the end.
func TestProfile(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "profile")
	for file, want := range map[string]int{profile: 0, "/dev/full": 1, "/dev/null/none": 1} {
		if _, err := os.Stat("/dev/full"); err != nil && file == "/dev/full" {
			continue
		}
		var out, errs strings.Builder
		if code := run(t.Context(), []string{"--only", "keys", "--tx-keys", "64", "--cpuprofile", file}, &out,
			&errs); code != want || (errs.Len() == 0) != (want == 0) {
			t.Errorf("%s: exit code %d, not %d; %s", file, code, want, errs.String())
		}
	}
	if st, err := os.Stat(profile); err != nil || st.Size() == 0 {
		t.Errorf("%v, %v", st, err)
	}
}
