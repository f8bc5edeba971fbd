package txn_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/txn"
)

// sticking is a fabric of real time whose requests complete when they are waited for, but for one,
// of a certain number: that one sticks, and with it what follows on its thread, until it is let go;
// then all of these fail, without effect.
type sticking struct {
	rdma.Fabric
	mu     sync.Mutex
	posted int
	at     int           // the number of the request that sticks
	stuck  chan struct{} // closed when a thread waits for it
	gone   chan struct{} // closed when it is let go
}

func (f *sticking) Caps() rdma.Caps {
	c := f.Fabric.Caps()
	c.Synchronous = false
	return c
}

func (f *sticking) NewPort(c rdma.PortConfig) (rdma.Port, error) {
	t, err := rdma.NewThread(f.Fabric, rdma.ThreadOptions{Index: c.Index, Arena: c.Arena})
	return &stickingPort{f: f, t: t, size: uint32(c.Arena)}, err
}

// sticks counts a request, and reports whether it sticks.
func (f *sticking) sticks() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.posted++
	return f.posted == f.at
}

type stickingPort struct {
	f    *sticking
	t    *rdma.Thread
	size uint32
	held []held
	said bool
}

type held struct {
	b *rdma.Batch
	i int
}

func (p *stickingPort) Now() int64                 { return p.t.Now() }
func (p *stickingPort) Arena() []byte              { return p.t.Bytes(0, p.size) }
func (p *stickingPort) Reset(b rdma.BladeID) error { return p.t.Reconnect(b) }
func (p *stickingPort) Close() error               { return p.t.Close() }

func (p *stickingPort) Post(b *rdma.Batch, first int) {
	for i := first; i < b.Len(); i++ {
		if p.f.sticks() || len(p.held) > 0 {
			p.held = append(p.held, held{b, i})
			continue
		}
		w := b.WR(i)
		var x rdma.Batch
		a := rdma.RemoteAddr{Blade: w.Blade, Key: w.Key, Off: w.Off}
		switch w.Op {
		case rdma.OpRead:
			x.Read(a, w.Local, w.Len)
		case rdma.OpWrite:
			x.Write(a, w.Local, w.Len)
		case rdma.OpCAS:
			x.CAS(a, w.Cmp, w.Swap)
		case rdma.OpFAA:
			x.FAA(a, w.Swap)
		case rdma.OpFlush:
			x.Flush(a, w.Len)
		default:
			b.Complete(i, rdma.StatusBadOp)
			continue
		}
		_ = p.t.Plain().Do(&x)
		w.Result = x.Result(0)
		b.Complete(i, x.WR(0).Status)
	}
}

func (p *stickingPort) Poll() {
	select {
	case <-p.f.gone:
		all := p.held
		p.held = nil
		for _, x := range all {
			x.b.Complete(x.i, rdma.StatusFlushed)
		}
	default:
	}
}

func (p *stickingPort) Wait(until int64) {
	n := len(p.held)
	if n > 0 && !p.said {
		p.said = true
		close(p.f.stuck)
	}
	for p.Poll(); len(p.held) == n && (until != math.MaxInt64 || n > 0) && p.Now() < until; p.Poll() {
		time.Sleep(50 * time.Microsecond)
	}
}

// TestRestEnds: the release of a lock, which a commit does not wait for, hangs, and the context of
// the transaction ends. The call returns what it has committed. The lock is seen to all the same,
// when the worker is not used any more.
func TestRestEnds(t *testing.T) {
	for _, pooled := range []bool{true, false} {
		inner, err := inproc.New(inproc.Options{
			Seed: 3, Blades: []inproc.BladeOptions{{Size: 16 << 20}, {Size: 16 << 20}},
		})
		if err != nil {
			t.Fatal(err)
		}
		f := &sticking{Fabric: inner, stuck: make(chan struct{}), gone: make(chan struct{})}
		o := tiny()
		o.BladeSize, o.Fabric, o.Catalog, o.LeaseTerm, o.Retries = 0, f, &catalog.Mem{}, 200*time.Millisecond, 10_000
		db := reopen(t, o)
		words, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		add := func(tx *txn.Tx) error {
			v, _, err := words.Lookup(tx, 7)
			return errors.Join(err, words.Put(tx, 7, v+1))
		}
		w, update := (*txn.Worker)(nil), db.Update
		if !pooled {
			w = newWorker(t, db)
			update = w.Update
		}
		count := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.posted
		}
		// how many requests a commit posts: the last one writes the image of the primary,
		// and is not waited for
		last := math.MaxInt
		for range 3 {
			from := 0
			if err := update(t.Context(), func(tx *txn.Tx) error {
				err := add(tx)
				from = count()
				return err
			}); err != nil {
				t.Fatal(err)
			}
			last = min(last, count()-from)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- update(ctx, func(tx *txn.Tx) error {
				err := add(tx)
				f.mu.Lock()
				f.at = f.posted + last
				f.mu.Unlock()
				return err
			})
		}()
		<-f.stuck
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("pooled: %v: the transaction is committed, and its error is %v", pooled, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("pooled: %v: it does not return", pooled)
		}
		if pooled {
			close(f.gone) // the release has failed
		}
		if err := db.Update(t.Context(), add); err != nil {
			t.Errorf("pooled: %v: %v", pooled, err)
		}
		if !pooled {
			close(f.gone)
		}
		if err := update(t.Context(), add); err != nil { // in a session that has rejoined
			t.Errorf("pooled: %v: %v", pooled, err)
		}
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			v, err := words.Get(tx, 7)
			if v != 6 {
				t.Errorf("pooled: %v: %d transactions have taken effect, want 6", pooled, v)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if w != nil {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(db.Close(t.Context()), inner.Close()); err != nil {
			t.Error(err)
		}
	}
}
