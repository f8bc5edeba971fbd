package command

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/workload"
	"txnode/channel"
	"txnode/memory/channelhost"
	"txnode/rdma"
)

// meetingTerm is how long a process may stand still before the others go on without it.
const meetingTerm = 10 * time.Second

// runTotals is the row of a process in the table of live totals.
type runTotals struct {
	Committed uint64 // transactions, since the process has opened the database
}

// meeting is where the processes of a benchmark wait for each other before a run and after it: a
// barrier on a blade of their database, and a table of totals. The leader is a party, too. What is
// on a blade may be lost with it, and a benchmark goes on without its meeting: wait returns at once
// from then on, there are no totals, and the pipes alone say when runs begin.
type meeting struct {
	store  *engine.Store
	host   channel.Host
	thread *rdma.Thread

	mu      sync.Mutex // the thread is used by one goroutine at a time; nil objects: the meeting is over
	member  *channel.Member
	barrier *channel.Barrier
	totals  *channel.SST[runTotals]

	stop context.CancelFunc
	done sync.WaitGroup
}

// meet joins the meeting of a name as one of so many processes, and tells totals until close.
func meet(ctx context.Context, s workload.Store, name string, processes int) (m *meeting, err error) {
	store, ok := s.(*engine.Store)
	if !ok {
		return nil, fmt.Errorf("%s has no blades on which processes can meet", s.Name())
	}
	space := store.DB().Space()
	m = &meeting{store: store, host: channelhost.New(space)}
	if m.thread, err = rdma.NewThread(space.Fabric(), rdma.ThreadOptions{Arena: 1 << 20}); err != nil {
		return nil, err
	}
	c := m.thread.Plain()
	if m.member, err = channel.Join(ctx, c, m.host, channel.Identity{
		Name: "bench", Term: int64(meetingTerm), Slots: maxProcesses + 1,
	}); err == nil {
		scope := m.member.Scope(name)
		if m.barrier, err = channel.OpenBarrier(ctx, c, scope, "barrier", processes); err == nil {
			m.totals, err = channel.OpenSST(ctx, c, scope, "totals", channel.Plain[runTotals]("bench.totals"),
				processes)
		}
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

// tell beats and tells totals until ctx ends.
func (m *meeting) tell(ctx context.Context) {
	tick := time.NewTicker(memberTick)
	defer tick.Stop()
	for {
		x := runTotals{m.store.DB().Metrics().Committed}
		m.mu.Lock()
		if m.member != nil {
			c := m.thread.Plain()
			if err := errors.Join(m.member.Beat(c), m.totals.Store(c, x)); lasts(err) {
				m.over()
			}
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lasts reports whether an error of an object does not go away.
func lasts(err error) bool {
	var missing *channel.MissingError
	return errors.Is(err, channel.ErrFenced) || errors.Is(err, channel.ErrIncarnation) || errors.As(err, &missing)
}

// over ends the meeting for this process: others find it missing. The caller holds the lock.
func (m *meeting) over() { m.member, m.barrier, m.totals = nil, nil, nil }

// wait returns when all processes wait, when ctx ends, or when the meeting is over.
func (m *meeting) wait(ctx context.Context) {
	if m == nil {
		return
	}
	arrived := false
	for again := true; again && ctx.Err() == nil; { // totals are told meanwhile
		part, cancel := context.WithTimeout(ctx, memberTick/2)
		m.mu.Lock()
		again = m.barrier != nil
		if again {
			arrive := m.barrier.Wait
			if arrived {
				arrive = m.barrier.Resume
			}
			err := arrive(part, m.thread.Plain())
			again, arrived = errors.Is(err, context.DeadlineExceeded), true
			if err != nil && !again && ctx.Err() == nil {
				m.over()
			}
		}
		m.mu.Unlock()
		cancel()
	}
}

// committed adds what all processes have told. ok: they have.
func (m *meeting) committed() (n uint64, ok bool) {
	if m == nil {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.totals == nil || m.totals.Look(m.thread.Plain()) != nil {
		return 0, false
	}
	for _, r := range m.totals.Rows() {
		n += r.Value.Committed
	}
	return n, true
}

// close leaves the meeting. The leader, which is the last, also gives the memory back. What cannot
// be given back is, when no process has the database open any more.
func (m *meeting) close(last bool) error {
	if m == nil {
		return nil
	}
	m.stop()
	m.done.Wait()
	c := m.thread.Plain()
	if m.member != nil {
		err := m.totals.Leave(c)
		if err == nil && last {
			err = errors.Join(m.host.Forget(c, m.totals.Name(), m.totals.Incarnation()),
				m.host.Forget(c, m.barrier.Name(), m.barrier.Incarnation()))
		}
		m.barrier.Close()
		if err == nil {
			err = m.member.Leave(c)
		}
		if lasts(err) || errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrBladeDown) {
			err = nil // it was lost meanwhile
		}
		if err != nil {
			return errors.Join(err, m.thread.Close())
		}
	}
	return m.thread.Close()
}
