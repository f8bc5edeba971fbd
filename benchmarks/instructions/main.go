package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/workload"
	"txnode/occ"
	"txnode/txn"
)

// options are what the child is told, too.
type options struct {
	workload string
	policy   string
	typ      string
	warm     int
}

func main() {
	var o options
	flag.StringVar(&o.workload, "workload", "smallbank", "`name`: smallbank or tatp, with its defaults")
	flag.StringVar(&o.policy, "policy", "default", "commit `policy`: default or ford")
	flag.StringVar(&o.typ, "type", "", "only transactions of this `type`, such as SendPayment; default: the mix")
	flag.IntVar(&o.warm, "warm", 1_000_000, "`transactions` before the count")
	n := flag.Int("transactions", 100, "`transactions` to count, a second each at the worst")
	top := flag.Int("top", 40, "`lines` of each table")
	lines := flag.String("lines", "", "also by source line, of the functions whose `name` ends like this")
	child := flag.Bool("child", false, "be the process that is counted")
	flag.Parse()
	err := o.check(flag.NArg(), *n, *top)
	switch {
	case err != nil:
	case *child:
		err = o.run(os.Stdout)
	default:
		err = o.count(os.Stdout, os.Stderr, *n, *top, *lines)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "instructions:", err)
		os.Exit(1)
	}
}

func (o *options) check(args, n, top int) error {
	switch {
	case args > 0:
		return errors.New("no arguments, only flags: see -help")
	case n < 1 || top < 1 || o.warm < 0:
		return errors.New("--transactions and --top are at least 1, --warm 0")
	}
	if _, err := o.parsed(); err != nil {
		return err
	}
	_, _, err := o.driver()
	return err
}

func (o *options) parsed() (occ.Policy, error) {
	for _, p := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		if p.String() == o.policy {
			return p, nil
		}
	}
	return 0, fmt.Errorf("--policy %q: neither default nor ford", o.policy)
}

// driver returns the workload, and the number of the type, -1 for the mix.
func (o *options) driver() (d workload.Driver, typ int, err error) {
	switch o.workload {
	case "smallbank":
		d, err = smallbank.New(smallbank.DefaultOptions())
	case "tatp":
		d, err = tatp.New(tatp.DefaultOptions())
	default:
		err = fmt.Errorf("--workload %q: neither smallbank nor tatp", o.workload)
	}
	if err != nil || o.typ == "" {
		return d, -1, err
	}
	if typ = slices.Index(d.Types(), o.typ); typ < 0 {
		return nil, 0, fmt.Errorf("--type %q: %s has %s", o.typ, o.workload, strings.Join(d.Types(), ", "))
	}
	return d, typ, nil
}

// marker is called once a transaction: the parent counts from one call to the next. It has
// no prologue that the scheduler could make it begin with twice.
//
//go:nosplit
//go:noinline
func marker() {}

func markerPC() uint64 { return uint64(reflect.ValueOf(marker).Pointer()) }

// run is the child: it writes the number of its thread to w when it is warm, and goes on
// until it is killed.
func (o *options) run(w io.Writer) error {
	ctx := context.Background()
	policy, err := o.parsed()
	if err != nil {
		return err
	}
	driver, typ, err := o.driver()
	if err != nil {
		return err
	}
	store, err := engine.Open(ctx, txn.Options{Seed: 1, Policy: policy})
	if err != nil {
		return err
	}
	if _, err := driver.Load(ctx, store, nil); err != nil {
		return err
	}
	return store.Run(ctx, 1, 1, func(ctx context.Context, id int, worker workload.Worker) error {
		runtime.LockOSThread()
		c := driver.NewClient(id, 1, worker)
		for i := 0; ; i++ {
			if i == o.warm {
				runtime.GC() // none may begin: its threads will be halted
				debug.SetGCPercent(-1)
				if _, err := fmt.Fprintln(w, threadID()); err != nil {
					return err
				}
			}
			marker()
			if typ < 0 {
				c.Next()
			} else {
				c.Draw(typ)
			}
			if _, err := c.Run(ctx); err != nil {
				return err
			}
		}
	})
}

// errWaits: the thread waits for one that is halted. The Go scheduler had just taken its
// processor away when the threads were halted, which is rare: another child does better.
var errWaits = errors.New("the thread waits for one that is halted: try again")

// tries is how many children are started before errWaits is the answer.
const tries = 5

// count is the parent.
func (o *options) count(out, notes io.Writer, n, top int, lines string) (err error) {
	for range tries {
		if err = o.countOnce(out, notes, n, top, lines); !errors.Is(err, errWaits) {
			return err
		}
	}
	return err
}

func (o *options) countOnce(out, notes io.Writer, n, top int, lines string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the child ends with the thread that starts it
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, "--child", "--workload", o.workload, "--policy", o.policy, "--type", o.typ,
		"--warm", fmt.Sprint(o.warm))
	cmd.Stderr = notes
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	stop := make(chan struct{})
	go func() {
		if _, ok := <-interrupted; ok {
			close(stop)
		}
	}()

	fmt.Fprintf(notes, "loading %s, and %d transactions to warm up\n", o.workload, o.warm)
	line, err := bufio.NewReader(pipe).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the process to count has ended: %w", err)
	}
	var tid int
	if _, err := fmt.Sscan(line, &tid); err != nil {
		return fmt.Errorf("the process to count says %q: %w", line, err)
	}
	progress := func(int) {}
	if terminal(notes) {
		progress = func(done int) { fmt.Fprintf(notes, "\r%d of %d transactions ", done, n) }
		defer fmt.Fprintln(notes)
	}
	c, done, err := count(cmd.Process.Pid, tid, markerPC(), n, stop, progress)
	if err != nil {
		return err
	}
	if done == 0 {
		return errors.New("interrupted before the first transaction was counted")
	}
	report(out, c, done, top)
	if lines != "" {
		reportLines(out, c, done, lines)
	}
	return nil
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	s, err := f.Stat()
	return err == nil && s.Mode()&os.ModeCharDevice != 0
}
