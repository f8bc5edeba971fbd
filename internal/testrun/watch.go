//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// errInterrupted is the end of a command that was interrupted.
var errInterrupted = errors.New("interrupted")

// heard is a writer that notes when something was written.
type heard struct {
	w  io.Writer
	at *atomic.Int64
}

func (h heard) Write(p []byte) (int, error) {
	h.at.Store(time.Now().UnixNano())
	return h.w.Write(p)
}

// watch runs a command to its end, and returns its exit code; an error when it was stuck,
// interrupted, or could not be run.
func watch(st step, silence time.Duration, stdout, stderr io.Writer) (int, error) {
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	cmd := exec.Command(st.args[0], st.args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = st.dir, heard{stdout, &last}, heard{stderr, &last}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Minute // what a test has left behind may hold the pipes
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	group := cmd.Process.Pid
	send := func(sig syscall.Signal) { _ = syscall.Kill(-group, sig) }
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(silence / 10)
	defer look.Stop()
	var kill <-chan time.Time
	var why error
	used := processorTime(group)
	s := since{at: last.Load(), used: used, idle: last.Load(), then: used}
	for {
		select {
		case err := <-ended:
			if why != nil {
				return 2, why
			}
			var exit *exec.ExitError
			if err == nil || errors.As(err, &exit) && exit.ExitCode() >= 0 {
				return cmd.ProcessState.ExitCode(), nil
			}
			return 2, err
		case sig := <-signals:
			why = errInterrupted
			send(sig.(syscall.Signal))
		case <-kill:
			send(syscall.SIGKILL)
		case <-look.C:
			if why != nil {
				continue
			}
			if how := s.look(last.Load(), time.Now().UnixNano(), processorTime(group), silence); how != "" {
				why = fmt.Errorf("stuck: no progress for %v, in which it %s; where its goroutines were is above",
					silence, how)
				send(syscall.SIGQUIT)
				kill = time.After(30 * time.Second)
			}
		}
	}
}

// since is when something was printed last, as far as it was seen, and the processor time by then.
type since struct {
	at   int64
	used time.Duration
	idle int64 // since when the command has hardly used a processor
	then time.Duration
}

// look says why a command is stuck that printed last at the time last and has used so much of the
// processor; "": it is not.
func (s *since) look(last, now int64, used, silence time.Duration) string {
	if last != s.at {
		s.at, s.used = last, used
		s.idle, s.then = last, used
		return ""
	}
	if used-s.then >= silence/100 { // it has worked meanwhile
		s.idle, s.then = now, used
	}
	switch {
	case time.Duration(now-last) < silence:
	case used-s.used >= silence:
		return fmt.Sprintf("used %v of a processor", (used - s.used).Round(time.Second))
	case time.Duration(now-s.idle) >= silence:
		return "hardly used a processor"
	}
	return ""
}
