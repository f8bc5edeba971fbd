package command

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
	"txnode/channel"
	"txnode/memory/channelhost"
	"txnode/rdma"
)

// meetingTerm is how long a process of a benchmark may stand still before the others end without it.
const meetingTerm = 10 * time.Second

// meetingTick is how often a process tells its totals.
const meetingTick = 200 * time.Millisecond

// runTotals is what a process tells the others: the row of a table that all see.
type runTotals struct {
	Process            uint64 // 0: the leader
	Committed, Aborted uint64 // transactions, since the process has opened the database
}

// meeting is where the processes of a benchmark wait for each other: a barrier on a blade of their database, and a table of totals. The
// leader is a party of the barrier, too.
type meeting struct {
	process int
	parties int
	all     bool // have come
	store   *engine.Store
	host    channel.Host
	thread  *rdma.Thread

	mu      sync.Mutex // the thread is used by one goroutine at a time
	member  *channel.Member
	barrier *channel.Barrier
	totals  *channel.SST[runTotals]

	stop context.CancelFunc
	done sync.WaitGroup
}

// meet joins the meeting of a name as one of so many processes, each under its number, and tells totals until close.
func meet(ctx context.Context, s workload.Store, name string, process, processes int) (m *meeting, err error) {
	store, ok := s.(*engine.Store)
	if !ok {
		return nil, fmt.Errorf("%s has no blades on which processes can meet", s.Name())
	}
	space := store.DB().Space()
	m = &meeting{process: process, parties: processes, store: store, host: channelhost.New(space)}
	if m.thread, err = rdma.NewThread(space.Fabric(), rdma.ThreadOptions{Arena: 1 << 20}); err != nil {
		return nil, err
	}
	c := m.thread.Plain()
	identity := channel.Identity{Name: fmt.Sprint("bench-", process), Term: int64(meetingTerm), Slots: maxProcesses + 1}
	if m.member, err = channel.Join(ctx, c, m.host, identity); err == nil {
		scope := m.member.Scope(name)
		if m.barrier, err = channel.OpenBarrier(ctx, c, scope, "barrier", processes); err == nil {
			m.totals, err = channel.OpenSST(ctx, c, scope, "totals", channel.Plain[runTotals]("bench.totals"), processes)
		}
	}
	if err == nil {
		err = m.totals.Store(c, m.own())
	}
	if err != nil {
		if m.member != nil {
			err = errors.Join(err, m.member.Leave(c))
		}
		return nil, errors.Join(err, m.thread.Close())
	}
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.done.Go(func() { m.tell(ctx) })
	return m, nil
}

// own are the totals of this process.
func (m *meeting) own() runTotals {
	x := m.store.DB().Metrics()
	return runTotals{uint64(m.process), x.Committed, x.RolledBack + x.Failed}
}

// tell beats and tells totals until ctx ends.
func (m *meeting) tell(ctx context.Context) {
	tick := time.NewTicker(meetingTick)
	defer tick.Stop()
	for {
		x := m.own()
		m.mu.Lock()
		c := m.thread.Plain()
		err := m.member.Beat(c)
		if err == nil {
			err = m.totals.Store(c, x)
		}
		m.mu.Unlock()
		if errors.Is(err, channel.ErrFenced) {
			return // the next wait says so; other errors go, or stay
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// wait returns when all processes wait. If one of them is dead, the error is a *channel.MissingError.
func (m *meeting) wait(ctx context.Context) error {
	if err := m.gather(ctx); err != nil {
		return err
	}
	c := m.thread.Plain()
	arrive := m.barrier.Wait
	err := context.DeadlineExceeded
	for ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) { // totals are told meanwhile
		part, cancel := context.WithTimeout(ctx, meetingTick/2)
		m.mu.Lock()
		err = arrive(part, c)
		m.mu.Unlock()
		cancel()
		arrive = m.barrier.Resume
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	var missing *channel.MissingError
	if errors.As(err, &missing) {
		return fmt.Errorf("%s of the benchmark has ended, or stands still: %w", m.nameOf(missing.Member), err)
	}
	return err
}

// gather waits until all have come, the first time: a process that ends before that is missing at no barrier.
func (m *meeting) gather(ctx context.Context) error {
	if m.all {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*meetingTerm)
	defer cancel()
	here := 0
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.totals.Await(ctx, m.thread.Plain(), func(t *channel.SST[runTotals]) bool {
		here = 0
		for range t.Rows() {
			here++
		}
		return here == m.parties
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%d of %d processes of the benchmark have come within %v: what has become of the others is on standard error", here, m.parties, 3*meetingTerm)
	}
	m.all = err == nil
	return err
}

// nameOf says which process a member is of.
func (m *meeting) nameOf(id channel.MemberID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.totals.Look(m.thread.Plain()) // what was seen before tells, too
	for other, r := range m.totals.Rows() {
		if other == id && r.Value.Process == 0 {
			return "the first process"
		} else if other == id {
			return fmt.Sprint("process ", r.Value.Process)
		}
	}
	return fmt.Sprint("member ", id)
}

// sum adds what all processes have told.
func (m *meeting) sum() (committed uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.totals.Look(m.thread.Plain()); err != nil {
		return 0, err
	}
	for _, r := range m.totals.Rows() {
		committed += r.Value.Committed
	}
	return committed, nil
}

// watch calls show with the rate of all processes together until the function that it returns is called.
func (m *meeting) watch(show func(runner.Progress), p runner.Progress) (stop func()) {
	if show == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(meetingTick)
		defer tick.Stop()
		began := time.Now()
		before, _ := m.sum()
		for last := began; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			committed, err := m.sum()
			now := time.Now()
			if err != nil {
				continue
			}
			p.Done = min(int64(now.Sub(began)), p.Total)
			p.PerSecond = float64(committed-min(before, committed)) / now.Sub(last).Seconds()
			before, last = committed, now
			show(p)
		}
	})
	return func() { cancel(); done.Wait() }
}

// abandon ends the telling, and leaves nothing: the others find this process missing.
func (m *meeting) abandon() error {
	if m == nil {
		return nil
	}
	m.stop()
	m.done.Wait()
	return m.thread.Close()
}

// close leaves the meeting. The leader, which is the last, also gives the memory back.
func (m *meeting) close(last bool) error {
	if m == nil {
		return nil
	}
	m.stop()
	m.done.Wait()
	c := m.thread.Plain()
	barrier, totals := m.barrier, m.totals
	err := totals.Leave(c)
	if err == nil && last {
		err = errors.Join(m.host.Forget(c, totals.Name(), totals.Incarnation()), m.host.Forget(c, barrier.Name(), barrier.Incarnation()))
	}
	barrier.Close()
	if err == nil {
		err = m.member.Leave(c)
	}
	return errors.Join(err, m.thread.Close())
}
