package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"txnode/txn"
)

const mib = 1 << 20

// table is what all measurements use but that of values.
type table = txn.Table[uint64, [2]uint64]

// with opens a database, runs fn on it with a new table, and closes it, also after a
// Ctrl-C. It returns how long the closing has taken.
func with(ctx context.Context, o txn.Options, fn func(db *txn.DB, t *table) error) (closing time.Duration, err error) {
	debug.FreeOSMemory() // what the one before has left does not count as this one's
	db, err := txn.Open(ctx, o)
	if err != nil {
		return 0, err
	}
	t, err := txn.CreateTable(db, "t", txn.Uint64, txn.Plain[[2]uint64]())
	if err == nil {
		err = fn(db, t)
	}
	start := time.Now()
	err = errors.Join(err, db.Close(context.WithoutCancel(ctx)))
	return time.Since(start), err
}

// together runs fn in n goroutines, and returns one of their errors.
func together(n int, fn func(g int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() { errs[g] = fn(g) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// watch says on stderr how far done is, when it takes long, until stop is called.
func (b *bench) watch(what string, done *atomic.Int64, of int) (stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(b.progress, "%s: %d of %d\n", what, done.Load(), of)
			case <-ctx.Done():
				return
			}
		}
	}()
	return stop
}

// expect fails unless the record at k begins with want, or, if it is not to be there, is absent.
func expect(ctx context.Context, db *txn.DB, t *table, k, want uint64, there bool) error {
	return db.View(ctx, func(tx *txn.Tx) error {
		v, err := t.Get(tx, k)
		switch {
		case !there && errors.Is(err, txn.ErrNotFound):
			return nil
		case err == nil && (!there || v[0] != want):
			err = fmt.Errorf("key %d has %d", k, v[0])
		}
		return err
	})
}

// resident is the memory of the process, in bytes; 0 but on Linux.
func resident() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	n := 0.0 // KiB
	if _, rest, found := strings.Cut(string(status), "VmRSS:"); found {
		_, err = fmt.Sscan(rest, &n)
	}
	if err != nil {
		return 0
	}
	return n * 1024
}

// processor is the time that this process has had of the processors.
func processor() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// onDisk is the space that the files in dir take, in bytes, without their holes.
func onDisk(dir string) (n float64, err error) {
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var s unix.Stat_t
		if err == nil {
			err = unix.Stat(path, &s)
		}
		n += float64(s.Blocks) * 512
		return err
	})
	return n, err
}

// temporary makes a directory for a database.
func (b *bench) temporary() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp(b.dir, "shapes-")
	return dir, func() { _ = os.RemoveAll(dir) }, err // what is left has lost its use, and harms nothing
}

// each is d/n in microseconds.
func each(d time.Duration, n int) float64 { return float64(d) / 1e3 / float64(n) }
