package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// A benchmark of several processes: the command starts others of itself, members, with the same
// flags and --member. They exchange lines of JSON by their standard input and output:
//
//	to a member     {"run":0,"meeting":"bench-1","processes":3}   begin run 0; the end of the
//	                                                              input: there are no more
//	from a member   {}                 every memberTick: it is there
//	                {"ready":true}     once, when it has loaded
//	                {"part":{...}}     what it has measured of a run
//
// The leader sends the orders of a run together, when all are ready or have reported the run
// before. A run begins when all have met, and ends when all have met again: see meeting. That lies
// on the blades that are measured, and may be lost with one. The pipes do not, so such a benchmark
// goes on if its database does.

type memberOrder struct {
	Run int `json:"run"`
	// Meeting is the name, and Processes how many meet.
	Meeting   string `json:"meeting"`
	Processes int    `json:"processes"`
}

type memberReport struct {
	Ready bool         `json:"ready,omitempty"`
	Part  *runner.Part `json:"part,omitempty"`
}

// memberTick is how often a member says that it is there, and tells its total.
const memberTick = 200 * time.Millisecond

// memberTicks is how many ticks in a row a member may be silent.
const memberTicks = 50

// maxReport bounds a line of a member: histograms of some types.
const maxReport = 64 << 20

// leaderFlags are the flags that are the leader's alone.
var leaderFlags = []string{
	"processes", "save", "no-save", "report", "cpuprofile", "output", "history-file", "seed", "rate", "txns", "cluster",
	"fabric", "blades", "replicas", "blade-size", "segment-size", "huge-pages", // of blades that it has started
}

// memberArgs is the command line of member i, from 1, of a command on a cluster.
func memberArgs(cmd *cobra.Command, i int, c *runner.Config, cluster string) []string {
	args := strings.Fields(cmd.CommandPath())[1:]
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(leaderFlags, f.Name) {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	n := int64(c.Processes)
	txns := c.Txns / n
	if int64(i) <= c.Txns%n || c.Txns > 0 && txns == 0 {
		txns++
	}
	return append(args, "--cluster="+cluster, "--no-save", fmt.Sprint("--member=", i),
		fmt.Sprint("--seed=", c.Seed+uint64(i)<<32),
		fmt.Sprint("--rate=", c.Rate/float64(n)), fmt.Sprint("--txns=", txns))
}

// member is a process that was started, as the leader sees it.
type member struct {
	number int
	cmd    *exec.Cmd
	orders io.WriteCloser
	of     *members

	reports chan memberReport // but those that say nothing; closed when there are no more
	err     error             // why, once it is closed
	silent  atomic.Int64      // ticks
}

// listen receives reports until there are no more.
func (m *member) listen(lines *bufio.Scanner) {
	defer close(m.reports)
	for lines.Scan() {
		var r memberReport
		if m.err = json.Unmarshal(lines.Bytes(), &r); m.err != nil {
			return
		}
		m.silent.Store(0)
		if r.Ready || r.Part != nil {
			m.reports <- r
		}
	}
	if m.err = lines.Err(); m.err == nil {
		m.err = errors.New("it has ended: it was killed, or what it said is on standard error")
	}
}

// receive returns the next report. A process that stands still is killed, and is an error.
func (m *member) receive() (memberReport, error) {
	tick := time.NewTicker(memberTick)
	defer tick.Stop()
	for {
		select {
		case r, ok := <-m.reports:
			if !ok {
				return r, m.failed(m.err)
			}
			return r, nil
		case <-tick.C:
			// Ticks are counted, and not time: the leader may have been stopped itself.
			if m.silent.Add(1) > memberTicks {
				_ = m.cmd.Process.Kill() // it has not ended, since its output has not
				return memberReport{}, m.failed(fmt.Errorf("it has stood still for %v, and was killed",
					memberTicks*memberTick))
			}
		}
	}
}

// failed is an error of this process. The others are to end their run.
func (m *member) failed(err error) error {
	m.of.stop()
	for _, other := range m.of.all {
		_ = other.cmd.Process.Signal(os.Interrupt) // one that has ended needs none
	}
	return fmt.Errorf("process %d of the benchmark: %w", m.number, err)
}

// Run implements runner.Partner.
func (m *member) Run(n int) (part runner.Part, err error) {
	if m.number == 1 {
		defer m.of.watch(n)()
	}
	if err := line(m.orders, memberOrder{n, m.of.name, len(m.of.all) + 1}); err != nil {
		if _, ended := m.receive(); ended != nil { // which says more
			err = ended
		}
		return runner.Part{}, err
	}
	r, err := m.receive()
	if err == nil && r.Part == nil {
		err = m.failed(errors.New("it has measured nothing"))
	}
	if err != nil {
		return runner.Part{}, err
	}
	return *r.Part, nil
}

// members are the processes of a benchmark.
type members struct {
	w    *World
	args func(i int) []string
	all  []*member
	done []func() error
	cfg  runner.Config

	name    string // of the meeting
	meeting *meeting
	ctx     context.Context // until stop
	stop    context.CancelFunc
}

// watch meets the members before run n and after it, and shows the rate of all processes together
// until the function that it returns is called.
func (ms *members) watch(n int) (stop func()) {
	p := runner.Progress{Stage: runner.Measuring, Run: n + 1, Runs: ms.cfg.Runs}
	if ms.cfg.Duration > 0 {
		p.Total = int64(ms.cfg.Warmup + ms.cfg.Duration)
	}
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ms.meeting.wait(ms.ctx)
		done.Go(func() { ms.meeting.wait(ms.ctx) })
		if ms.cfg.Progress == nil {
			return
		}
		tick := time.NewTicker(memberTick)
		defer tick.Stop()
		began := time.Now()
		before, told := ms.meeting.committed()
		for last := began; ; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			committed, ok := ms.meeting.committed()
			now := time.Now()
			p.Done = min(int64(now.Sub(began)), p.Total)
			if p.PerSecond = 0; ok && told {
				p.PerSecond = float64(committed-min(before, committed)) / now.Sub(last).Seconds()
			}
			before, told, last = committed, ok, now
			ms.cfg.Progress(p)
		}
	})
	return func() { close(ended); done.Wait() }
}

// start starts members, and returns when all have loaded. The reports of each are read until end.
func (ms *members) start(ctx context.Context, n int) ([]runner.Partner, error) {
	partners := make([]runner.Partner, n)
	for i := range n {
		c := ms.w.Self(ms.args(i + 1)...)
		c.Stderr = ms.w.errScreen
		c.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // an interrupt of the terminal is passed on, and comes once
		in, err := c.StdinPipe()
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		out, err := c.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			return nil, fmt.Errorf("starting a process of the benchmark: %w", err)
		}
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, maxReport)
		m := &member{number: i + 1, cmd: c, orders: in, of: ms, reports: make(chan memberReport)}
		ms.all, partners[i] = append(ms.all, m), m
		stop := context.AfterFunc(ctx, func() { _ = c.Process.Signal(os.Interrupt) }) // one that has ended needs none
		ms.done = append(ms.done, func() error {
			stop()
			err := in.Close()
			for range m.reports { // it has nothing more to say
			}
			_, _ = io.Copy(io.Discard, out)
			var exit *exec.ExitError
			if e := c.Wait(); !errors.As(e, &exit) { // its exit code: what has failed is known
				err = errors.Join(err, e)
			}
			return err
		})
		go m.listen(lines)
	}
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i, m := range ms.all {
		wg.Go(func() { _, errs[i] = m.receive() })
	}
	wg.Wait()
	return partners, errors.Join(errs...)
}

// end waits until all members have ended.
func (ms *members) end() error {
	var errs []error
	for _, done := range ms.done {
		errs = append(errs, done())
	}
	return errors.Join(errs...)
}

// lead is runner.Bench with members.
func (b *benchmark) lead(ctx context.Context, store workload.Store, cfg runner.Config) (res *runner.Result, err error) {
	ms := &members{w: b.w, args: b.memberArgs, cfg: cfg, name: fmt.Sprint("bench-", rand.Uint64())}
	ms.ctx, ms.stop = context.WithCancel(ctx)
	defer ms.stop()
	res, err = runner.Lead(ctx, store, b.driver.(workload.Bookkeeper), cfg, func() ([]runner.Partner, error) {
		partners, err := ms.start(ctx, cfg.Processes)
		if err == nil {
			ms.meeting, err = meet(ctx, store, ms.name, len(partners)+1)
		}
		return partners, err
	})
	if err != nil && ctx.Err() != nil && !errors.Is(err, runner.ErrVerification) {
		// Members that have not begun yet end by the signal alone, and others without a report:
		// that is no fault of theirs.
		res.Interrupted, err = true, nil
	}
	return res, errors.Join(err, ms.end(), ms.meeting.close(true))
}

// errLeaderGone is of a member that cannot report.
var errLeaderGone = errors.New("the process that has started this one is gone")

// teller writes reports of a member, from one goroutine at a time.
type teller struct {
	mu sync.Mutex
	w  io.Writer
}

func (t *teller) tell(r memberReport) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := line(t.w, r); err != nil {
		return fmt.Errorf("%w: %w", errLeaderGone, err)
	}
	return nil
}

// alive says every memberTick that the process is there until the function that it returns is
// called. When that fails it calls failed.
func (t *teller) alive(failed func()) (stop func()) {
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(memberTick)
		defer tick.Stop()
		for t.tell(memberReport{}) == nil {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
		failed()
	})
	return func() { close(ended); done.Wait() }
}

// follow makes this process a member.
func (b *benchmark) follow(ctx context.Context, store workload.Store) error {
	signal.Ignore(unix.SIGPIPE) // without the leader it ends in good order
	measuring, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := bufio.NewScanner(b.w.Stdin)
	t := &teller{w: b.w.Stdout}
	stop := t.alive(cancel)
	ready := false
	var m *meeting
	next := func() (int, bool, error) {
		if !ready {
			ready = true
			if err := t.tell(memberReport{Ready: true}); err != nil {
				return 0, false, err
			}
		}
		if !lines.Scan() {
			return 0, false, lines.Err()
		}
		var o memberOrder
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil && m == nil {
			m, err = meet(measuring, store, o.Meeting, o.Processes)
		}
		if err == nil {
			m.wait(measuring)
		}
		return o.Run, err == nil, err
	}
	err := runner.Member(measuring, store, b.driver.(workload.Bookkeeper), b.o.Run, next, func(p runner.Part) error {
		m.wait(measuring)
		return t.tell(memberReport{Part: &p})
	})
	stop()
	return errors.Join(err, m.close(false), store.Close(context.WithoutCancel(ctx)))
}
