package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"txnode/internal/eintr"
)

// process names a process, and never another one: its id in the upper 22 bits, and when it started,
// in ticks of the system since it started itself. 0: none.
type process uint64

const startBits = 42

func (p process) id() int { return int(p >> startBits) }

func (p process) String() string { return fmt.Sprintf("process %d", p.id()) }

// self is this process.
func self() (process, error) {
	id := os.Getpid()
	start, err := startOf(id)
	if err != nil {
		return 0, fmt.Errorf("shm: when this process started (is there a /proc?): %w", err)
	}
	return process(uint64(id)<<startBits | start), nil
}

// startOf tells when a process started, by its id.
func startOf(id int) (uint64, error) {
	p, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return 0, err
	}
	// Its name is in parentheses, and may have some itself. The start is field 22; the id is 1.
	fields := bytes.Fields(p[bytes.LastIndexByte(p, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is %q", id, p)
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return start & (1<<startBits - 1), err
}

// open returns a descriptor of a process; -1: it has ended, with all its threads.
func (p process) open() (fd int, err error) {
	if p.id() == 0 {
		return -1, nil
	}
	fd, err = unix.PidfdOpen(p.id(), 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // none, or a thread has the id now
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("shm: %v: %w", p, err)
	}
	// The descriptor was opened first. If the process of the id is p now, the descriptor is p's.
	start, err := startOf(p.id())
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && start != uint64(p)&(1<<startBits-1):
		return -1, unix.Close(fd)
	case err != nil:
		return -1, errors.Join(fmt.Errorf("shm: %v: %w", p, err), unix.Close(fd))
	}
	if over, err := ended(fd, 0); over || err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// ended waits until the process of a descriptor has ended, with all its threads, so long at most.
func ended(fd int, wait time.Duration) (bool, error) {
	until := time.Now().Add(wait)
	n := 0
	err := eintr.Repeat(func() (err error) {
		left := max(time.Until(until), 0)
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err = unix.Poll(p, int((left+time.Millisecond-1)/time.Millisecond))
		return err
	})
	return n > 0, err
}

// dead reports whether a process has ended. After an error it may live.
func (p process) dead() (bool, error) {
	fd, err := p.open()
	if err != nil || fd < 0 {
		return err == nil, err
	}
	return false, unix.Close(fd)
}

// killWait is how long a process that was killed may take to end.
const killWait = 2 * time.Second

// kill ends a process and waits until none of its threads can change memory any more.
func (p process) kill() error {
	fd, err := p.open()
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	err = eintr.Repeat(func() error { return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) })
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: killing %v, which is in the middle of a verb: %w", ErrStuck, p, err)
	}
	over, err := ended(fd, killWait)
	if err == nil && !over {
		err = fmt.Errorf("%w: %v was killed in the middle of a verb, and is still there after %v", ErrStuck, p, killWait)
	}
	return err
}
