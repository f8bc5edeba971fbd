package command

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"github.com/vbauerster/mpb/v8/cwriter"
	"golang.org/x/sys/unix"

	"txnode/benchmarks/report"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// World is what the commands see of the outside.
type World struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// StdoutTerminal and StderrTerminal say whether a person is looking: colors on
	// standard output, progress on standard error.
	StdoutTerminal, StderrTerminal bool
	// StdoutWidth is how many columns the terminal on standard output has, 0: not known, or there
	// is none.
	StdoutWidth int

	// Stdout and Stderr, for commands to a terminal, and for processes that see to that themselves.
	screen, errScreen io.Writer

	CPUs        int // that this process may use
	Getenv      func(string) string
	Environ     func() []string // nil: it has nothing but what Getenv finds
	Now         func() time.Time
	Environment func() runner.Environment
	CacheDir    func() (string, error)
	// Open opens the store that benchmarks run on.
	Open func(ctx context.Context, o StoreOptions) (workload.Store, error)
	// Self is a command that runs this program with arguments.
	Self func(args ...string) *exec.Cmd
	// Again hears of signals that ask for the end of the process, until stop is called; nil: none
	// is heard. The context of Main ends at the first of them.
	Again func() (signals <-chan os.Signal, stop func())
	// Fabric says in words what the store's verbs go over.
	Fabric string
}

// System returns the world of a real process, with the embedded engine.
func System() World {
	return World{
		Stdin:          os.Stdin,
		Stdout:         os.Stdout,
		Stderr:         os.Stderr,
		StdoutWidth:    columns(os.Stdout),
		StdoutTerminal: cwriter.IsTerminal(int(os.Stdout.Fd())),
		StderrTerminal: cwriter.IsTerminal(int(os.Stderr.Fd())),
		CPUs:           runtime.NumCPU(),
		Getenv:         os.Getenv,
		Environ:        os.Environ,
		Now:            time.Now,
		Environment:    runner.ReadEnvironment,
		CacheDir:       os.UserCacheDir,
		Open:           openEngine,
		Self: func(args ...string) *exec.Cmd {
			path, err := os.Executable()
			if err != nil {
				path = os.Args[0]
			}
			return exec.Command(path, args...)
		},
		Again: func() (<-chan os.Signal, func()) {
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, os.Interrupt, unix.SIGTERM)
			return signals, func() { signal.Stop(signals) }
		},
		Fabric: "in-process fabric: verbs are memory accesses of this process, no network",
	}
}

// theme returns how to print on standard output.
func (w *World) theme() report.Theme {
	return report.Theme{Width: w.StdoutWidth, Color: w.StdoutTerminal && w.Getenv("NO_COLOR") == "" &&
		w.Getenv("TERM") != "dumb"}
}

// columns is the width of a terminal, 0 if f is none.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// historyEnv is the environment variable that names the history file.
const historyEnv = "TXNODE_HISTORY"

// history returns the history file: of the flag, the environment variable, or
// the user's cache directory.
func (w *World) history(flag string) (report.HistoryFile, error) {
	path := flag
	if path == "" {
		path = w.Getenv(historyEnv)
	}
	if path == "" {
		dir, err := w.CacheDir()
		if err != nil {
			return report.HistoryFile{},
				failf("no place for the history of results: %v; name one with --history-file or %s", err, historyEnv)
		}
		path = filepath.Join(dir, "txnode", "history.db")
	}
	return report.HistoryFile{Path: path}, nil
}
