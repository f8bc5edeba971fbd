package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/cmd/txnode/command"
	"txnode/txn"
)

// topView is a view, as it is printed for programs.
type topView struct {
	Catalog, Error string
	Database       *struct {
		Epoch, Workers, Tables, Segments int
		Missing                          int `json:"copies_missing"`
	}
	Blades []struct {
		Blade         int
		State, Server string
		Bytes         uint64
		Provisioned   uint64 `json:"provisioned_bytes"`
		Connections   int
		Rates         *struct {
			Verbs map[string]float64
			Read  float64 `json:"read_bytes"`
		}
	}
	Processes []struct {
		Process, PID, Workers int
		Reports               bool
		Lease                 struct{ State string }
		Rates                 *struct {
			Committed float64
			Aborts    map[string]float64
			Verbs     float64 `json:"verbs_per_txn"`
			Trips     float64 `json:"round_trips_per_txn"`
			Latency   map[string]struct {
				P50 int64 `json:"p50_ns"`
				P99 int64 `json:"p99_ns"`
			}
		}
	}
	Tables []struct {
		Table          string
		Reads, Updates float64
	}
}

// TestTop: what a process does is seen by blade, process and table; and what is away.
func TestTop(t *testing.T) {
	for _, kind := range []string{"unix", "shm"} {
		if kind == "shm" && runtime.GOOS != "linux" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			dir, ctx := socketDir(t), t.Context()
			catalog := "unix:" + filepath.Join(dir, "c")
			_, endCatalog := startServe(t, "--listen", catalog, "--catalog", "memory", "--memory", "0")
			var ends []func() (int, string)
			init := []string{"cluster", "init", "--catalog", catalog}
			for _, name := range []string{"a", "b"} {
				args := []string{"--memory", "64MiB", "--listen", "unix:" + filepath.Join(dir, name)}
				if kind == "shm" {
					args = []string{"--memory", "64MiB", "--shm", dir, "--name", name}
				}
				_, end := startServe(t, args...)
				ends, init = append(ends, end), append(init, "--blade", kind+":"+filepath.Join(dir, name))
			}
			if code, _, stderr := inSystem(t, init...); code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			db, err := cluster.Open(ctx, catalog, txn.Options{IndexGroups: 64, LatencySample: 1},
				cluster.Options{Post: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			table, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]())
			if err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			var working sync.WaitGroup
			working.Go(func() {
				for i := uint64(0); ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if err := db.Update(ctx,
						func(tx *txn.Tx) error { return table.Put(tx, fmt.Sprint("key ", i%10), i) }); err != nil {
						t.Error(err)
						return
					}
				}
			})
			look := func() (v topView) {
				t.Helper()
				code, out, stderr := inSystem(t, "top", catalog, "--once", "--interval", "200ms", "-o", "json")
				if err := json.Unmarshal([]byte(out), &v); code != 0 || stderr != "" || err != nil {
					t.Fatalf("exit code %d, %v: %s%s", code, err, out, stderr)
				}
				return v
			}
			v := look()
			// a slow machine
			for len(v.Processes) == 0 || v.Processes[0].Rates == nil || v.Processes[0].Rates.Committed == 0 {
				v = look()
			}
			// an idle one that is looked at, as by Metrics, is not there for a moment: then
			// another one is made
			p, n := &v.Processes[0], db.Metrics().Workers
			if len(v.Processes) != 1 || p.Process != int(db.Space().Process()) || !p.Reports ||
				p.Lease.State != "live" || p.Workers == 0 || p.Workers > n.Open+n.Own ||
				p.Rates.Verbs < 1 || p.Rates.Trips < 1 || len(p.Rates.Aborts) != int(txn.NumAbortReasons) ||
				p.Rates.Latency["update"].P50 == 0 || p.Rates.Latency["update"].P99 < p.Rates.Latency["update"].P50 {
				t.Errorf("%+v", v.Processes)
			}
			if len(v.Tables) != 1 || v.Tables[0].Table != "words" || v.Tables[0].Updates == 0 ||
				v.Tables[0].Reads != 0 {
				t.Errorf("%+v", v.Tables)
			}
			if d := v.Database; d == nil || d.Epoch == 0 || d.Workers == 0 || d.Tables != 1 || d.Segments == 0 ||
				d.Missing != 0 {
				t.Errorf("%+v", d)
			}
			for i, b := range v.Blades {
				if b.Blade != i || b.State != "up" || b.Bytes != 64<<20 || b.Provisioned == 0 || kind == "unix" &&
					b.Connections == 0 || (b.Rates != nil) != (kind == "unix") {
					t.Errorf("%+v", b)
				}
				if b.Rates != nil && b.Rates.Verbs["WRITE"] == 0 {
					t.Errorf("blade %d: %+v", i, b.Rates)
				}
			}
			if code, out, stderr := inSystem(t, "top", catalog, "--once", "--interval", "200ms"); code != 0 ||
				stderr != "" || strings.Contains(out, "\x1b") ||
				!strings.Contains(out, "catalog "+catalog+"  epoch ") || !strings.Contains(out, "commits/s") ||
				!strings.Contains(out, "  conflicts/s\n") || !strings.Contains(out, "words") ||
				!strings.Contains(out, kind+":"+filepath.Join(dir, "b")) {
				t.Errorf("exit code %d: %s%s", code, out, stderr)
			}
			close(stop)
			working.Wait()
			if err := db.Close(ctx); err != nil {
				t.Fatal(err)
			}
			if code, stderr := ends[1](); code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			if v := look(); len(v.Blades) != 2 || v.Blades[0].State != "up" || v.Blades[1].State != "silent" ||
				len(v.Processes) != 0 {
				t.Errorf("%+v", v)
			}
			for _, end := range []func() (int, string){ends[0], endCatalog} {
				if code, stderr := end(); code != 0 {
					t.Errorf("exit code %d: %s", code, stderr)
				}
			}
		})
	}
}

// screen is a terminal on which a command is interrupted when it has drawn so many views.
type screen struct {
	bytes.Buffer
	views  int
	cancel func()
}

func (s *screen) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Count(s.String(), "catalog unix:") >= s.views {
		s.cancel()
	}
	return n, err
}

// TestTopTerminal: a view is drawn over the one before on a terminal, in its width, and one stands
// below the other elsewhere; Ctrl-C is the good end.
func TestTopTerminal(t *testing.T) {
	dir := socketDir(t)
	catalog := "unix:" + filepath.Join(dir, "c")
	_, end := startServe(t, "--listen", catalog, "--catalog", "memory", "--memory", "64MiB")
	if code, _, stderr := inSystem(t, "cluster", "init", "--catalog", catalog, "--blade", catalog); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, x := range []struct {
		name, term string
		terminal   bool
		drawn      bool
	}{{"terminal", "xterm", true, true}, {"dumb", "dumb", true, false}, {"pipe", "xterm", false, false}} {
		t.Run(x.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, errs := &screen{views: 3, cancel: cancel}, bytes.Buffer{}
			w := command.System()
			w.Getenv = func(name string) string { return map[string]string{"TERM": x.term}[name] }
			w.Stdout, w.Stderr, w.StdoutTerminal, w.StdoutWidth = out, &errs, x.terminal, 40
			code := command.Main(ctx, w, []string{"top", catalog, "--interval", "100ms"})
			if code != 0 || errs.Len() > 0 {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
			views := 3
			if x.drawn {
				views = strings.Count(out.String(), "\x1b[H")
			}
			if views != 3 || strings.Contains(out.String(), "\x1b[") != x.drawn {
				t.Errorf("%d views: %q", views, out.String())
			}
			for l := range strings.Lines(out.String()) {
				l = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(l, "\x1b[J"), "\x1b[H"), "\x1b[K\n")
				if x.drawn && len([]rune(l)) > 40 {
					t.Errorf("a line of %d columns: %q", len(l), l)
				}
			}
		})
	}
	for _, args := range [][]string{{}, {"here"}, {catalog, "--interval", "1ms"}, {catalog, "--interval", "2h"}} {
		if code, out, stderr := inSystem(t, append([]string{"top"}, args...)...); code != 2 || out != "" ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
	if code, stderr := end(); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, _, stderr := inSystem(t, "top", catalog); code != 1 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// asProgram has the test binary be the program, with the arguments of the command line.
const asProgram = "TXNODE_TEST_AS_PROGRAM"

func init() {
	programs[asProgram] = func(string) int {
		ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
		defer cancel()
		return command.Main(ctx, command.System(), os.Args[1:])
	}
}

// TestTopBenchmark: the processes of a benchmark are seen, each with its commits.
func TestTopBenchmark(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	dir := socketDir(t)
	at := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	_, endCatalog := startServe(t, "--listen", at("c"), "--catalog", "memory", "--memory", "0")
	_, endBlade := startServe(t, "--listen", at("b"), "--memory", "256MiB")
	if code, _, stderr := inSystem(t, "cluster", "init", "--catalog", at("c"), "--blade", at("b")); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs bytes.Buffer
	w := command.System()
	w.Stdout, w.Stderr, w.StdoutTerminal, w.StderrTerminal = &out, &errs, false, false
	w.Self = func(args ...string) *exec.Cmd {
		path, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(path, args...)
		c.Env = append(os.Environ(), asProgram+"=1")
		return c
	}
	done := make(chan int, 1)
	go func() {
		done <- command.Main(ctx, w, []string{
			"bench", "smallbank", "--cluster", at("c"), "--processes", "2", "--threads", "1", "--coroutines", "2",
			"--accounts", "500", "--hot-accounts", "20",
			"--warmup", "0s", "--duration", "5m", "--no-save",
		})
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		code, text, stderr := inSystem(t, "top", at("c"), "--once", "-o", "json")
		var v topView
		if err := json.Unmarshal([]byte(text), &v); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v: %s%s", code, err, text, stderr)
		}
		busy := map[int]bool{}
		for _, p := range v.Processes {
			if p.Rates != nil && p.Rates.Committed > 0 && p.Lease.State == "live" && p.Workers >= 2 {
				busy[p.PID] = true
			}
		}
		if len(busy) >= 2 && len(v.Tables) == 2 && v.Blades[0].Rates != nil && v.Blades[0].Rates.Verbs["WRITE"] > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%+v", v)
			break
		}
	}
	cancel()
	if code := <-done; code != command.ExitInterrupted {
		t.Errorf("exit code %d: %s%s", code, out.String(), errs.String())
	}
	for _, end := range []func() (int, string){endBlade, endCatalog} {
		if code, stderr := end(); code != 0 {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	}
}
