package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is one run of the program: its flags, and where it writes.
type bench struct {
	only       string
	time       time.Duration
	goroutines int
	keys       int
	txKeys     int
	tables     int
	dir        string
	profile    string
	child      string
	power      bool // of child

	out, progress io.Writer
}

// shapes are the measurements, in the order in which they are made.
var shapes = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"keys", (*bench).manyKeys},
	{"contention", (*bench).contention},
	{"inserts", (*bench).inserts},
	{"churn", (*bench).churn},
	{"directory", (*bench).directory},
	{"tables", (*bench).manyTables},
	{"values", (*bench).values},
	{"commit", (*bench).commit},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends things in good order; a second one ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	b := bench{out: stdout, progress: stderr}
	var names []string
	for _, s := range shapes {
		names = append(names, s.name)
	}
	f := flag.NewFlagSet("shapes", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&b.only, "only", "", "`names` of measurements, with commas: "+strings.Join(names, ", ")+
		"; default: all")
	f.DurationVar(&b.time, "time", 5*time.Second,
		"`duration` of each figure of contention and commit; churn takes six times as long")
	f.IntVar(&b.goroutines, "goroutines", 1000, "`goroutines` that contend; half as many commit durably")
	f.IntVar(&b.keys, "keys", 5_000_000, "`keys` that are inserted, and that the directory has")
	f.IntVar(&b.txKeys, "tx-keys", 16_000,
		"`keys` of the largest transaction; the others have a quarter, and a sixteenth")
	f.IntVar(&b.tables, "tables", 4000, "`tables` of one database; in a directory a tenth")
	f.StringVar(&b.dir, "dir", "",
		"`directory` in which those for databases are made, and removed; default: that for temporary files, "+
			"often no disk")
	f.StringVar(&b.profile, "cpuprofile", "", "write a CPU profile to this `file`")
	f.StringVar(&b.child, "child", "", "be the process that fills a database in this `directory`, and is killed")
	f.BoolVar(&b.power, "power", false, "with --child: that is to survive the loss of power")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := b.check(f.NArg(), names); err != nil {
		fmt.Fprintln(stderr, "shapes:", err)
		return 2
	}
	err = b.run(ctx)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "shapes: interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(stderr, "shapes:", err)
		return 1
	}
	return 0
}

func (b *bench) check(args int, names []string) error {
	if args > 0 {
		return errors.New("no arguments, only flags: see -help")
	}
	if b.time <= 0 || b.goroutines < 2 || b.keys < 1000 || b.txKeys < 16 || b.tables < 100 {
		return errors.New("--time is more than 0, --goroutines at least 2, --keys 1000, --tx-keys 16, --tables 100")
	}
	if b.only == "" {
		return nil
	}
	for name := range strings.SplitSeq(b.only, ",") {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--only %q: there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.child != "" {
		return b.fill(ctx, b.child)
	}
	if b.profile != "" {
		f, e := os.Create(b.profile)
		if e != nil {
			return e
		}
		var profile bytes.Buffer // pprof does not say that it could not write
		if e := pprof.StartCPUProfile(&profile); e != nil {
			return errors.Join(e, f.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			_, e := f.Write(profile.Bytes())
			err = errors.Join(err, e, f.Close())
		}()
	}
	for _, s := range shapes {
		if b.only != "" && !slices.Contains(strings.Split(b.only, ","), s.name) {
			continue
		}
		if err := s.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// line writes one line of results.
func (b *bench) line(shape, what, format string, args ...any) {
	fmt.Fprintf(b.out, "%-10s  %-48s  %s\n", shape, what, fmt.Sprintf(format, args...))
}
