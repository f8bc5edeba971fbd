package shm

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"txnode/internal/eintr"
	"txnode/rdma/region"
)

// The file of lanes begins with a page:
//
//	 0  magic
//	 8  version
//	16  lines    how many
//	24  boot     of the system: no process of another one is left
//	32  ids      the name space in which processes have their ids
//	40  fenced   0: membarrier(2) works for all; 1: lanes use memory fences
//	48  taken    so many lines were taken ever
//
// and has a line of 128 bytes for each lane then:
//
//	0  process   that has the line; 0: it is free
//	8  announced odd while the lane executes
type lanesHeader struct {
	magic, version, lines, boot, ids, fenced uint64
	taken                                    atomic.Uint64
}

type line struct {
	owner     atomic.Uint64
	announced uint64
	_         [112]byte
}

const (
	lanesMagic = 0x73656e616c2e7874 // "tx.lanes"
	linesMax   = 4096
	lanesSize  = headerSize + linesMax*int(unsafe.Sizeof(line{}))
	headerSize = 4096
)

// lanes are the lines of all processes that use a directory: region.Lines.
type lanes struct {
	mem      []byte
	header   *lanesHeader
	lines    []line
	me       process
	fenced   bool
	patience time.Duration
}

var _ region.Lines = (*lanes)(nil)

// openLanes maps the lanes of a directory, and makes them if there are none.
func openLanes(dir string, patience time.Duration) (l *lanes, err error) {
	l = &lanes{patience: patience}
	if l.me, err = self(); err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(dir, lockFile), DefaultConnect)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	path := filepath.Join(dir, lanesFile)
	want := lanesHeader{magic: lanesMagic, version: Version, lines: linesMax}
	if want.boot, want.ids, err = here(); err != nil {
		return nil, err
	}
	works := registerBarrier() == nil
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		f, err = makeLanes(path, &want, !works)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	defer f.Close() // the mapping stays
	p := make([]byte, headerSize)
	if _, err := io.ReadFull(f, p); err != nil {
		return nil, damaged(path, "it is too short: %v", err)
	}
	h := (*lanesHeader)(unsafe.Pointer(&p[0]))
	if h.magic == lanesMagic && h.version == Version && h.boot != want.boot { // all its processes are gone
		if f, err = makeLanes(path, &want, !works); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
		}
		defer f.Close()
		if _, err := f.ReadAt(p, 0); err != nil {
			return nil, damaged(path, "%v", err)
		}
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	case h.magic != lanesMagic:
		return nil, damaged(path, "it is no file of lanes")
	case h.version != Version:
		return nil, damaged(path, "it has version %d, and this program has %d", h.version, Version)
	case h.lines != linesMax || st.Size() != int64(lanesSize) || h.fenced > 1:
		return nil, damaged(path, "it has %d bytes and %d lines, and should have %d and %d", st.Size(), h.lines, lanesSize, linesMax)
	case h.ids != want.ids:
		return nil, fmt.Errorf("%w: %s: other processes that use it have another name space of process ids: run all in the same, for instance containers with the host's", ErrDirectory, path)
	case h.fenced == 0 && !works:
		return nil, fmt.Errorf("%w: %s: other processes that use it can call membarrier(2), and this one may not: allow it, for instance in the container's seccomp profile", ErrDirectory, path)
	}
	l.fenced = h.fenced == 1
	if l.mem, err = unix.Mmap(int(f.Fd()), 0, lanesSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("%w: mapping %s: %w", ErrDirectory, path, err)
	}
	l.header = (*lanesHeader)(unsafe.Pointer(&l.mem[0]))
	l.lines = unsafe.Slice((*line)(unsafe.Pointer(&l.mem[headerSize])), linesMax)
	return l, nil
}

// makeLanes makes the file in the place of one that nothing uses. All its space is there, so that no
// access to it fails on a full file system.
func makeLanes(path string, h *lanesHeader, fenced bool) (*os.File, error) {
	p := make([]byte, headerSize)
	to := (*lanesHeader)(unsafe.Pointer(&p[0]))
	to.magic, to.version, to.lines, to.boot, to.ids = h.magic, h.version, h.lines, h.boot, h.ids
	if fenced {
		to.fenced = 1
	}
	return makeFile(path, p, lanesSize)
}

// makeFile makes a file of size bytes, that begin with p, and puts it in the place of path.
func makeFile(path string, p []byte, size int) (*os.File, error) {
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	err = eintr.Repeat(func() error { return fallocate(int(f.Fd()), 0, 0, int64(size)) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.WriteAt(make([]byte, size), 0)
	}
	if err == nil {
		_, err = f.WriteAt(p, 0)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making %s, of %d bytes: %w", path, size, err), f.Close(), os.Remove(path+".new"))
	}
	return f, nil
}

// fallocate is unix.Fallocate, but in tests.
var fallocate = unix.Fallocate

// lock takes the lock of a file, and waits for it at most so long.
func lock(path string, wait time.Duration) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	for until := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		err = eintr.Repeat(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(until) {
			return nil, errors.Join(fmt.Errorf("%w: locking %s: %w", ErrDirectory, path, err), f.Close())
		}
	}
}

// here names this run of the system and the name space of process ids.
func here() (boot, ids uint64, err error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, 0, fmt.Errorf("shm: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write(id) // a hash returns no error
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return 0, 0, fmt.Errorf("shm: /proc/self/ns/pid: %w", err)
	}
	return h.Sum64(), st.Ino, nil
}

// Commands of membarrier(2).
const (
	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2
)

// registerBarrier has the barriers of all processes reach the threads of this one, and tries one.
var registerBarrier = func() error {
	if err := membarrier(membarrierRegisterGlobalExpedited); err != nil {
		return err
	}
	return membarrier(membarrierGlobalExpedited)
}

func membarrier(command uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// Take takes a line that is free: region.Lines. If there is none it frees those of processes
// that have ended.
func (l *lanes) Take(*uint64) (word *uint64, fenced bool, err error) {
	for range 2 {
		for i := range l.lines {
			x := &l.lines[i]
			if x.owner.Load() != 0 || !x.owner.CompareAndSwap(0, uint64(l.me)) {
				continue
			}
			for high := l.header.taken.Load(); high <= uint64(i) && !l.header.taken.CompareAndSwap(high, uint64(i)+1); {
				high = l.header.taken.Load()
			}
			if n := atomic.LoadUint64(&x.announced); n%2 == 1 {
				atomic.CompareAndSwapUint64(&x.announced, n, n+1)
			}
			return &x.announced, l.fenced, nil
		}
		if err := l.sweep(); err != nil {
			return nil, false, err
		}
	}
	return nil, false, fmt.Errorf("%w: all %d lanes are taken: use fewer threads", ErrDirectory, linesMax)
}

// Leave gives a line back.
func (l *lanes) Leave(word *uint64) {
	at := uintptr(unsafe.Pointer(word)) - uintptr(unsafe.Pointer(&l.lines[0]))
	l.lines[at/unsafe.Sizeof(line{})].owner.Store(0)
}

// used are the lines that may be in use.
func (l *lanes) used() []line { return l.lines[:min(l.header.taken.Load(), linesMax)] }

// Settle waits for each lane that is executing: region.Lines. A process in which one is for longer
// than the patience is killed. Lines of processes that have ended become free.
func (l *lanes) Settle() error {
	if !l.fenced {
		if err := membarrier(membarrierGlobalExpedited); err != nil {
			return fmt.Errorf("%w: membarrier: %w", ErrStuck, err)
		}
	}
	type busy struct {
		x *line
		n uint64
	}
	var all []busy
	used := l.used()
	for i := range used {
		if n := atomic.LoadUint64(&used[i].announced); n%2 == 1 {
			all = append(all, busy{&used[i], n})
		}
	}
	until := time.Now().Add(l.patience)
	var errs []error
	for _, b := range all {
		errs = append(errs, l.await(b.x, b.n, until))
	}
	return errors.Join(append(errs, l.sweep())...)
}

// await returns when a line has ended what it announces as n, or its process has ended.
func (l *lanes) await(x *line, n uint64, until time.Time) error {
	for i := 0; atomic.LoadUint64(&x.announced) == n; i++ {
		owner := process(x.owner.Load())
		if i < 100 {
			runtime.Gosched()
			continue
		}
		over, err := owner.dead() // owner 0: a line that is free executes nothing
		switch {
		case over:
			x.free(owner)
			return nil
		case err != nil:
			return err
		case time.Now().After(until) && owner == l.me:
			return fmt.Errorf("%w: a thread of this process is in the middle of a verb for longer than %v", ErrStuck, l.patience)
		case time.Now().After(until):
			if atomic.LoadUint64(&x.announced) != n {
				return nil
			}
			if err := owner.kill(); err != nil {
				return err
			}
			x.free(owner)
			return nil
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

// free takes a line from a process that has ended. What it announced ends before the line can be
// taken; a number comes but once, so the next owner's is never touched.
func (x *line) free(owner process) {
	if process(x.owner.Load()) != owner {
		return
	}
	if n := atomic.LoadUint64(&x.announced); n%2 == 1 && process(x.owner.Load()) == owner {
		atomic.CompareAndSwapUint64(&x.announced, n, n+1)
	}
	x.owner.CompareAndSwap(uint64(owner), 0)
}

// sweep frees the lines of processes that have ended.
func (l *lanes) sweep() error {
	lives := map[process]bool{0: true, l.me: true}
	used := l.used()
	for i := range used {
		owner := process(used[i].owner.Load())
		if _, known := lives[owner]; !known {
			over, err := owner.dead()
			if err != nil {
				return err
			}
			lives[owner] = !over
		}
		if !lives[owner] {
			used[i].free(owner)
		}
	}
	return nil
}

func (l *lanes) close() error { return unix.Munmap(l.mem) }
