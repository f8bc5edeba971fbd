package shm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
	"txnode/rdma"
	"txnode/rdma/region"
)

// The file of lanes begins with a page:
//
//	 0  magic
//	 8  version
//	16  lines    how many
//	24  id       a number that no other file of lanes has
//	32  fenced   0: membarrier(2) works for all; 1: lanes use memory fences
//	40  taken    so many lines were taken since the file was made, or more
//
// and has a line of 128 bytes for each lane then:
//
//	 0  owner     the member that has the line; 0: it is free
//	 8  announced odd while the lane executes
//	16  process   the owner's id, by its own count: for texts of errors
type lanesHeader struct {
	magic, version, lines, id, fenced uint64
	taken                             atomic.Uint64
}

type line struct {
	owner     atomic.Uint64
	announced uint64
	process   atomic.Uint64
	_         [104]byte
}

const (
	lanesMagic = 0x73656e616c2e7874 // "tx.lanes"
	linesMax   = 4096
	lanesSize  = headerSize + linesMax*int(unsafe.Sizeof(line{}))
	headerSize = 4096
)

// lanes are the lines of all processes that use a directory: region.Lines.
type lanes struct {
	f      *os.File // has the locks of me
	mem    []byte
	header *lanesHeader
	lines  []line
	me     member
	fenced bool
	bound  time.Duration // of a fence
	// overdue is called again and again while a fence waits for a member. A server ends one then
	// that does not live any more. An error ends the fence. nil: nothing is done but wait.
	overdue func(member) error
}

var _ region.Lines = (*lanes)(nil)

// openLanes maps the lanes of a directory, as a new member of it. Servers make the file if there is
// none.
func openLanes(dir string, server bool, bound time.Duration) (*lanes, error) {
	if err := checkDirectory(dir, server); err != nil {
		return nil, err
	}
	mode := os.O_RDWR | unix.O_NOFOLLOW
	if server {
		mode |= os.O_CREATE
	}
	f, err := os.OpenFile(filepath.Join(dir, lanesFile), mode, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w: no server has used it: %w", ErrDirectory, err, rdma.ErrBladeDown)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	l := &lanes{f: f, me: draw(), bound: bound}
	err = ownFile(f, dir)
	if err == nil {
		err = l.open(server)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lanes) open(server bool) error {
	works := registerBarrier() == nil
	alone, err := l.join()
	if err != nil {
		return err
	}
	if alone && server {
		if err := makeLanes(l.f, !works); err != nil {
			return err
		}
	}
	if alone {
		if _, err := take(l.f, unix.F_RDLCK, usersLock); err != nil { // others come in
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
	}
	var h lanesHeader
	switch size, err := readHeader(l.f, unsafe.Pointer(&h), unsafe.Sizeof(h)); {
	case err != nil:
		return damaged(l.f.Name(), "it is too short: %v", err)
	case h.magic != lanesMagic:
		return damaged(l.f.Name(), "it is no file of lanes")
	case h.version != Version:
		return damaged(l.f.Name(), "it has version %d, and this program has %d", h.version, Version)
	case h.lines != linesMax || size != int64(lanesSize) || h.fenced > 1 || h.id == 0:
		return damaged(l.f.Name(), "it has %d bytes and %d lines, and should have %d and %d",
			size, h.lines, lanesSize, linesMax)
	case h.fenced == 0 && !works:
		return fmt.Errorf("%w: %s: other processes that use it can call membarrier(2), and this one may not: allow "+
			"it, for instance in the container's seccomp profile", ErrDirectory, l.f.Name())
	}
	l.fenced = h.fenced == 1
	if l.mem, err = mapShared(l.f, lanesSize); err != nil {
		return fmt.Errorf("%w: mapping %s: %w", ErrDirectory, l.f.Name(), err)
	}
	l.header = (*lanesHeader)(unsafe.Pointer(&l.mem[0]))
	l.lines = unsafe.Slice((*line)(unsafe.Pointer(&l.mem[headerSize])), linesMax)
	return nil
}

// join takes the locks of a member. alone: no process uses the file, and none can begin to before
// usersLock is shared.
func (l *lanes) join() (alone bool, err error) {
	_, err = take(l.f, unix.F_WRLCK, int64(l.me))
	for until := time.Now().Add(DefaultConnect); err == nil; time.Sleep(time.Millisecond) {
		if alone, err = take(l.f, unix.F_WRLCK, usersLock); alone {
			return true, nil
		}
		var in bool
		if err == nil {
			in, err = take(l.f, unix.F_RDLCK, usersLock)
		}
		if in {
			return false, nil
		}
		if err == nil && time.Now().After(until) {
			err = fmt.Errorf("for %v another process makes %s", DefaultConnect, l.f.Name())
		}
	}
	return false, fmt.Errorf("%w: %w: the directory must be on a file system that has locks, such as /run or /dev/shm",
		ErrDirectory, err)
}

// makeLanes makes the file, which no process uses: one that is empty or was used before. A file of
// something else is left as it is.
func makeLanes(f *os.File, fenced bool) error {
	var h lanesHeader
	size, err := readHeader(f, unsafe.Pointer(&h), unsafe.Sizeof(h))
	if used := err == nil && h.magic == lanesMagic && h.version == Version && size == int64(lanesSize); size != 0 &&
		!used {
		return nil // the caller says what is wrong
	}
	p := make([]byte, headerSize)
	to := (*lanesHeader)(unsafe.Pointer(&p[0]))
	to.magic, to.version, to.lines, to.id = lanesMagic, Version, linesMax, h.id
	for to.id == 0 {
		to.id = rand.Uint64()
	}
	if fenced {
		to.fenced = 1
	}
	if err = reserve(f, lanesSize); err == nil {
		_, err = f.WriteAt(make([]byte, lanesSize-headerSize), headerSize) // lines of processes that have ended
	}
	if err == nil {
		_, err = f.WriteAt(p, 0)
	}
	if err != nil {
		return fmt.Errorf("%w: making %s, of %d bytes: %w", ErrDirectory, f.Name(), lanesSize,
			errors.Join(err, f.Truncate(0)))
	}
	return nil
}

// reserve makes a file have size bytes and space for them, so that no access to it fails on
// a full file system.
func reserve(f *os.File, size int) error {
	err := eintr.Repeat(func() error { return fallocate(int(f.Fd()), 0, 0, int64(size)) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.WriteAt(make([]byte, size), 0)
	}
	return err
}

// fallocate is unix.Fallocate, but in tests.
var fallocate = unix.Fallocate

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

// Take takes a line that is free: region.Lines. If there is none it frees those of members
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
			x.process.Store(uint64(os.Getpid()))
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

// Settle waits for each lane that is executing: until it has done so, or its process has ended. It
// waits no longer than ctx and the bound; then the error is ErrStuck. Lines of members that have
// ended become free. region.Lines.
func (l *lanes) Settle(ctx context.Context) error {
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
	ctx, cancel := context.WithTimeout(ctx, l.bound)
	defer cancel()
	var errs []error
	for _, b := range all {
		errs = append(errs, l.await(ctx, b.x, b.n))
	}
	return errors.Join(append(errs, l.sweep())...)
}

// Pauses of await.
const (
	firstPause = 100 * time.Microsecond
	lastPause  = 5 * time.Millisecond
)

// await returns when a line has ended what it announces as n, or its member has ended.
func (l *lanes) await(ctx context.Context, x *line, n uint64) error {
	began, pause := time.Now(), firstPause
	for i := 0; atomic.LoadUint64(&x.announced) == n; i++ {
		if i < 100 {
			runtime.Gosched()
			continue
		}
		owner := member(x.owner.Load())
		over, err := l.over(owner)
		if err == nil && !over && l.overdue != nil {
			err = l.overdue(owner)
		}
		switch {
		case over:
			x.free(owner)
			return nil
		case err != nil:
			return fmt.Errorf("%w: process %d: %w", ErrStuck, x.process.Load(), err)
		case ctx.Err() != nil && atomic.LoadUint64(&x.announced) == n:
			return fmt.Errorf("%w: process %d was in the middle of one for %v: it is stopped, or waits for a disk: "+
				"continue it, or end it",
				ErrStuck, x.process.Load(), time.Since(began).Round(time.Millisecond))
		}
		time.Sleep(pause)
		pause = min(2*pause, lastPause)
	}
	return nil
}

// over reports whether a member has ended, for certain. One that is no member executes nothing.
func (l *lanes) over(m member) (bool, error) {
	if m == l.me || !m.valid() {
		return m != l.me, nil
	}
	lives, err := lives(l.f, int64(m))
	return err == nil && !lives, err
}

// free takes a line from a member that has ended. What it announced ends before the line can be
// taken; a number comes but once, so the next owner's is never touched.
func (x *line) free(owner member) {
	if member(x.owner.Load()) != owner {
		return
	}
	if n := atomic.LoadUint64(&x.announced); n%2 == 1 && member(x.owner.Load()) == owner {
		atomic.CompareAndSwapUint64(&x.announced, n, n+1)
	}
	x.owner.CompareAndSwap(uint64(owner), 0)
}

// sweep frees the lines of members that have ended.
func (l *lanes) sweep() error {
	over := map[member]bool{0: false}
	used := l.used()
	for i := range used {
		owner := member(used[i].owner.Load())
		if _, known := over[owner]; !known {
			var err error
			if over[owner], err = l.over(owner); err != nil {
				return fmt.Errorf("%w: %w", ErrStuck, err)
			}
		}
		if over[owner] {
			used[i].free(owner)
		}
	}
	return nil
}

// shut lets no more verbs on the blades of a server, of whichever process, and waits for those
// that are in progress.
func (l *lanes) shut(ctx context.Context, k *keys) error {
	for i := range k.blades {
		region.Stop(k.words(i))
	}
	return l.Settle(ctx)
}

// close gives up the member.
func (l *lanes) close() error {
	var err error
	if l.mem != nil {
		err = unix.Munmap(l.mem)
	}
	return errors.Join(err, l.f.Close())
}
