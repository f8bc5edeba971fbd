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
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// A benchmark of several processes: the command starts others of itself, members, with the same flags and --member. They
// exchange lines of JSON by their standard input and output:
//
//	to a member     {"run":0,"meeting":"bench-1","processes":3}    begin run 0; the end of the input: there are no more
//	from a member   {"ready":true}   once, when it has loaded
//	                {"part":{...}}   what it has measured of a run
//
// A run begins when all have met, the leader among them, and ends when all have met again: see meeting.

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
	return append(args, "--cluster="+cluster, "--no-save", fmt.Sprint("--member=", i), fmt.Sprint("--seed=", c.Seed+uint64(i)<<32),
		fmt.Sprint("--rate=", c.Rate/float64(n)), fmt.Sprint("--txns=", txns))
}

// member is a process that was started, as the leader sees it.
type member struct {
	number int
	cmd    *exec.Cmd
	orders io.WriteCloser
	lines  *bufio.Scanner
	of     *members
}

// receive returns the next report.
func (m *member) receive() (memberReport, error) {
	var r memberReport
	if !m.lines.Scan() {
		err := m.lines.Err()
		if err == nil {
			err = errors.New("it has ended: it was killed, or what it said is on standard error")
		}
		return r, fmt.Errorf("process %d of the benchmark: %w", m.number, err)
	}
	if err := json.Unmarshal(m.lines.Bytes(), &r); err != nil {
		return r, fmt.Errorf("process %d of the benchmark: %w", m.number, err)
	}
	return r, nil
}

// Run implements runner.Partner.
func (m *member) Run(n int) (part runner.Part, err error) {
	if m.number == 1 { // the leader meets them, too
		met := make(chan error, 1)
		go func() { met <- m.of.meet(n) }()
		defer func() { err = errors.Join(err, <-met) }()
	}
	p, err := json.Marshal(memberOrder{n, m.of.name, len(m.of.all) + 1})
	if err == nil {
		_, err = m.orders.Write(append(p, '\n'))
	}
	if err != nil {
		return runner.Part{}, fmt.Errorf("process %d of the benchmark: %w", m.number, err)
	}
	r, err := m.receive()
	if err == nil && r.Part == nil {
		err = fmt.Errorf("process %d of the benchmark has measured nothing", m.number)
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

	ctx     context.Context
	name    string // of the meeting
	meeting *meeting
	cfg     runner.Config
}

// meet has the leader meet the members before run n and after it, and show how far all are. When one is missing, the others are to end
// their run.
func (ms *members) meet(n int) (err error) {
	defer func() {
		for _, m := range ms.all {
			if err != nil {
				_ = m.cmd.Process.Signal(os.Interrupt) // one that has ended needs none
			}
		}
	}()
	if err := ms.meeting.wait(ms.ctx); err != nil {
		return err
	}
	p := runner.Progress{Stage: runner.Measuring, Run: n + 1, Runs: ms.cfg.Runs}
	if ms.cfg.Duration > 0 {
		p.Total = int64(ms.cfg.Warmup + ms.cfg.Duration)
	}
	stop := ms.meeting.watch(ms.cfg.Progress, p)
	defer stop()
	return ms.meeting.wait(ms.ctx)
}

// start starts members, and returns when all have loaded.
func (ms *members) start(ctx context.Context, n int) ([]runner.Partner, error) {
	partners := make([]runner.Partner, n)
	for i := range n {
		c := ms.w.Self(ms.args(i + 1)...)
		c.Stderr = ms.w.Stderr
		c.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // an interrupt of the terminal is passed on, and comes once
		in, err := c.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := c.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			return nil, fmt.Errorf("starting a process of the benchmark: %w", err)
		}
		m := &member{number: i + 1, cmd: c, orders: in, lines: bufio.NewScanner(out), of: ms}
		m.lines.Buffer(nil, maxReport)
		ms.all, partners[i] = append(ms.all, m), m
		stop := context.AfterFunc(ctx, func() { _ = c.Process.Signal(os.Interrupt) }) // one that has ended needs none
		ms.done = append(ms.done, func() error {
			stop()
			err := in.Close()
			_, _ = io.Copy(io.Discard, out) // it has nothing more to say
			var exit *exec.ExitError
			if e := c.Wait(); !errors.As(e, &exit) { // its exit code: what has failed is known
				err = errors.Join(err, e)
			}
			return err
		})
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
func (b *benchmark) lead(ctx context.Context, store workload.Store, cfg runner.Config) (*runner.Result, error) {
	ms := &members{w: b.w, args: b.memberArgs, ctx: context.WithoutCancel(ctx), name: fmt.Sprint("bench-", rand.Uint64()), cfg: cfg}
	res, err := runner.Lead(ctx, store, b.driver.(workload.Bookkeeper), cfg, func() ([]runner.Partner, error) {
		partners, err := ms.start(ctx, cfg.Processes)
		if err == nil {
			ms.meeting, err = meet(ms.ctx, store, ms.name, 0, len(partners)+1)
		}
		return partners, err
	})
	return res, errors.Join(err, ms.end(), ms.meeting.close(true))
}

// follow makes this process a member.
func (b *benchmark) follow(ctx context.Context, store workload.Store) error {
	lines := bufio.NewScanner(b.w.Stdin)
	ready := false
	var m *meeting
	apart := context.WithoutCancel(ctx) // a process that is interrupted ends its run, and meets the others
	say := func(r memberReport) error { return line(b.w.Stdout, r) }
	next := func() (int, bool, error) {
		if !ready {
			ready = true
			if err := say(memberReport{Ready: true}); err != nil {
				return 0, false, err
			}
		}
		if !lines.Scan() {
			return 0, false, lines.Err()
		}
		var o memberOrder
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil && m == nil {
			m, err = meet(apart, store, o.Meeting, b.o.Member, o.Processes)
		}
		if err == nil {
			err = m.wait(apart)
		}
		return o.Run, err == nil, err
	}
	measured := func(p runner.Part) error {
		if err := m.wait(apart); err != nil {
			return err
		}
		return say(memberReport{Part: &p})
	}
	err := runner.Member(ctx, store, b.driver.(workload.Bookkeeper), b.o.Run, next, measured)
	if err == nil {
		err = m.close(false)
	} else {
		err = errors.Join(err, m.abandon())
	}
	return errors.Join(err, store.Close(apart))
}
