package channelhost_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"txnode/channel"
	"txnode/memory"
	"txnode/memory/catalog/catalogtest"
	"txnode/rdma"
)

// placed is an object of a channel.
type placed interface {
	Place() channel.Place
	Close()
}

// TestSilentBlade: a process hears nothing of a blade, and declares it dead. Another one
// reaches the blade, and has not heard of that. It uses an object there, which the first one
// has opened again elsewhere: nothing that it does succeeds when the new object is there.
// Either it hears of the epoch, and then the new object is made, or it does not, and then its
// registration has to end before.
func TestSilentBlade(t *testing.T) {
	ctx := t.Context()
	for name, open := range map[string]func(c *rdma.Coro, s channel.Scope) (use func() error, o placed, err error){
		"var": func(c *rdma.Coro, s channel.Scope) (func() error, placed, error) {
			v, err := channel.OpenVar[uint64](ctx, c, s, "o")
			return func() error { _, err := v.Load(c); return err }, v, err
		},
		"mutex": func(c *rdma.Coro, s channel.Scope) (func() error, placed, error) {
			l, err := channel.OpenMutex(ctx, c, s, "o")
			return func() error {
				_, err := l.Lock(ctx, c)
				if err == nil {
					err = l.Unlock(c)
				}
				return err
			}, l, err
		},
		"queue": func(c *rdma.Coro, s channel.Scope) (func() error, placed, error) {
			q, err := channel.OpenQueue(ctx, c, s, "o", channel.Plain[uint64]("o"), 4, 4)
			return func() error {
				if err := q.Push(ctx, c, 1); err != nil {
					return err
				}
				item, err := q.Take(ctx, c)
				if err == nil {
					err = q.Done(c, item)
				}
				return err
			}, q, err
		},
	} {
		for _, hears := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, it hears of the epoch %v", name, hears), func(t *testing.T) {
				b := newBed(t, 3, 1, 0)
				term := int64(time.Hour)
				if !hears {
					term = int64(2 * time.Second)
				}
				now := b.fabric.Now()
				o := memory.Options{
					Backups: 1, SegmentSize: segment, LogArea: 64 << 10, Shared: true, ClockDrift: 0.1,
					Until: now + int64(time.Hour),
				}
				one, _ := b.open(o)
				o.Until = now + term
				cat := &catalogtest.Unheard{Catalog: &b.cat}
				two, _ := b.openOn(cat, o)
				m, c := b.join(0)
				late, lc := b.join(1)
				use, object, err := open(c, m.Scope("s"))
				check(t, err)
				lateUse, lateObject, err := open(lc, late.Scope("s"))
				check(t, err)
				check(t, errors.Join(use(), lateUse()))
				blade := object.Place().Blade
				cat.Away.Store(!hears)
				check(t, one.AdvanceEpoch(one.DeclareDead(blade)))
				object.Close()

				made := make(chan error, 1)
				go func() {
					var err error
					use, object, err = open(c, m.Scope("s"))
					if err == nil {
						err = use()
					}
					made <- err
				}()
				used, is, followed := 0, false, false
				for began := time.Now(); !is; {
					select {
					case err := <-made:
						check(t, err)
						is = true
					default:
					}
					err := lateUse()
					switch {
					case err == nil && is:
						t.Error("the object is used in its old home after it was made in another one")
					case err == nil:
						used++
					}
					if hears && !followed && time.Since(began) > 50*time.Millisecond {
						if is {
							t.Error("the object was made although another process may use the old one")
						}
						followed = true
						check(t, two.Follow())
						check(t, two.Acknowledge())
					}
				}
				t.Logf("the object was used %d times in its old home", used)
				if used == 0 {
					t.Error("the other process does not use the object: this tests nothing")
				}
				cat.Away.Store(false)
				if err := lateUse(); !errors.Is(err, channel.ErrFenced) && !errors.Is(err, channel.ErrIncarnation) {
					t.Errorf("the old object is used: %v", err)
				}
				lateObject.Close()
				if hears {
					if lateUse, _, err = open(lc, late.Scope("s")); err == nil {
						err = lateUse()
					}
					check(t, err)
				}
				check(t, use())
			})
		}
	}
}
