package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long no step may be done. A thread that waits for one of those that are
// halted would wait for ever.
const patience = 10 * time.Second

// counts is how often the instruction at an address was executed.
type counts map[uint64]uint64

// count single-steps thread tid of process pid from the moment in which it comes to the
// instruction at marker until it has come there n times more. The process is its caller's
// child, and killed when count returns. progress is told how many of the n are done. stop
// ends it early, with what has been counted since the last marker left out; done says how
// many there were.
func count(pid, tid int, marker uint64, n int, stop <-chan struct{}, progress func(done int)) (_ counts,
	done int, _ error) {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	tids, err := halt(pid, tid)
	defer end(pid, tids)
	if err != nil {
		return nil, 0, err
	}
	var beat atomic.Int64
	ended := make(chan struct{})
	defer close(ended)
	stuck := watch(pid, tids, &beat, ended)

	total, round := counts{}, counts{}
	begun := false
	var regs unix.PtraceRegs
	for done < n {
		if err := unix.PtraceGetRegs(tid, &regs); err != nil {
			return nil, 0, tracing("read the registers of", tid, err, stuck)
		}
		if pc := regs.PC(); pc == marker {
			if begun {
				done++
				for pc, k := range round {
					total[pc] += k
				}
				progress(done)
			}
			begun = true
			clear(round)
			select {
			case <-stop:
				return total, done, nil
			default:
			}
		}
		round[regs.PC()]++
		if err := unix.PtraceSingleStep(tid); err != nil {
			return nil, 0, tracing("step", tid, err, stuck)
		}
		if err := wait(tid); err != nil {
			return nil, 0, tracing("step", tid, err, stuck)
		}
		beat.Add(1)
	}
	return total, done, nil
}

// halt stops all threads of a process, and makes this thread their tracer. Threads that
// others start meanwhile are met in the next turn. It returns those that it traces.
func halt(pid, tid int) (tids []int, _ error) {
	seen := map[int]bool{}
	for {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return tids, err
		}
		fresh := 0
		for _, e := range entries {
			t, err := strconv.Atoi(e.Name())
			if err != nil || seen[t] {
				continue
			}
			seen[t] = true
			fresh++
			switch err := unix.PtraceSeize(t); {
			case errors.Is(err, unix.ESRCH) && t != tid: // it has ended
				continue
			case err != nil:
				return tids, fmt.Errorf("trace thread %d: %w (is ptrace allowed here?)", t, err)
			}
			tids = append(tids, t)
			if err := unix.PtraceInterrupt(t); err != nil {
				return tids, fmt.Errorf("halt thread %d: %w", t, err)
			}
			if err := wait(t); err != nil {
				return tids, fmt.Errorf("halt thread %d: %w", t, err)
			}
		}
		if fresh == 0 {
			break
		}
	}
	if !seen[tid] {
		return tids, fmt.Errorf("process %d has no thread %d", pid, tid)
	}
	return tids, nil
}

// end kills a process. Its threads that are traced stay until their tracer has heard of
// their end, and the process with them; the process itself is its parent's to wait for.
func end(pid int, tids []int) {
	_ = unix.Kill(pid, unix.SIGKILL)
	for _, t := range tids {
		for t != pid && !errors.Is(wait(t), errEnded) {
			_ = unix.PtraceCont(t, 0)
		}
	}
}

// errEnded: a thread that was to stop has ended, or there is none.
var errEnded = errors.New("the thread has ended")

// wait waits until a thread has stopped. Signals that were to stop it are swallowed: they
// are the Go scheduler's, which has nobody to give way to.
func wait(tid int) error {
	var s unix.WaitStatus
	for {
		_, err := unix.Wait4(tid, &s, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD), err == nil && !s.Stopped():
			return errEnded
		case err != nil:
			return err
		}
		return nil
	}
}

// watch ends a process whose beat has stopped, and tells so.
func watch(pid int, tids []int, beat *atomic.Int64, ended <-chan struct{}) *atomic.Bool {
	stuck := new(atomic.Bool)
	go func() {
		tick := time.NewTicker(patience)
		defer tick.Stop()
		for last := int64(-1); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			now := beat.Load()
			if now == last {
				stuck.Store(true)
				end(pid, tids)
				return
			}
			last = now
		}
	}()
	return stuck
}

func tracing(what string, tid int, err error, stuck *atomic.Bool) error {
	if stuck.Load() {
		return errWaits
	}
	return fmt.Errorf("%s thread %d: %w", what, tid, err)
}
