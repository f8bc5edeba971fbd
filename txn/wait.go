package txn

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"
)

// A goroutine whose function of Update or View calls Update, View or Begin holds one worker and
// waits for another. When every worker is held by such a goroutine, all wait for ever. Its own
// stack tells a goroutine how many workers it holds, so the last one to close the circle knows, and
// gets an error. What stacks cannot tell is bounded by Options.WorkerWait: transactions of Begin,
// functions that wait for another goroutine's transaction, and programs with several databases.

// await waits until a worker is handed over, nil: look again.
func (db *DB) await(ctx context.Context, shut <-chan struct{}, workers int) (*Worker, error) {
	p := &db.pool
	if held := inside(1); held > 0 && openDatabases.Load() == 1 {
		defer p.nested.Add(-held)
		if int(p.nested.Add(held)) >= workers {
			return nil, fmt.Errorf("%w: each of the %d is held by a function of Update or View that waits for "+
				"another one: "+
				"use the function's own tx instead of Update, View or Begin inside of it, or a worker of NewWorker, "+
				"or raise Workers", ErrNoWorker, workers)
		}
	}
	var late <-chan time.Time
	if db.opts.WorkerWait > 0 {
		t := time.NewTimer(db.opts.WorkerWait)
		defer t.Stop()
		late = t.C
	}
	select {
	case w := <-p.handed:
		return w, nil
	case <-shut:
		return nil, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("txn: waiting for one of %d workers, which are all in use: %w", workers, canceled(ctx))
	case <-late:
		return nil, fmt.Errorf("%w: all %d have been in use for %v (WorkerWait): transactions of Begin hold one "+
			"until they end, "+
			"and so does a function that waits for another transaction: end them, or raise Workers",
			ErrNoWorker, workers, db.opts.WorkerWait)
	}
}

// openDatabases counts the databases of the process. A stack does not tell to which of several a
// frame belongs.
var openDatabases atomic.Int32

// borrowers are the names of the functions that take a worker from the pool: Update and View
// hold it as long as they are on the stack, Begin does not.
var borrowers [3]string

func init() {
	for i, fn := range []any{(*DB).Update, (*DB).View, (*DB).Begin} {
		borrowers[i] = runtime.FuncForPC(reflect.ValueOf(fn).Pointer()).Name()
	}
}

// inside is how many calls of Update and View the calling goroutine is in, up to most of them left
// out: the innermost ones, if they are inside no call of Begin.
func inside(most int32) (calls int32) {
	var pcs [64]uintptr
	left := most
	for skip := 1; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == 0 {
			return calls
		}
		frames := runtime.CallersFrames(pcs[:n])
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			switch f.Function {
			case borrowers[0], borrowers[1]:
				if left > 0 {
					left--
				} else {
					calls++
				}
			case borrowers[2]:
				left = 0
			}
		}
		if n < len(pcs) {
			return calls
		}
	}
}
