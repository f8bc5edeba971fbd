package occ_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"txnode/occ"
)

// collector keeps what a tap is told, as text.
type collector struct {
	told []string
	fail error
}

func (k *collector) sink(n uint64, writes []occ.TapWrite) error {
	if k.fail != nil {
		return k.fail
	}
	s := fmt.Sprint(n)
	for _, w := range writes {
		if w.Deleted {
			s += fmt.Sprintf(" -%s", w.Key)
		} else {
			s += fmt.Sprintf(" %s=%s", w.Key, w.Value)
		}
	}
	k.told = append(k.told, s)
	return nil
}

func settled(t *testing.T, tap *occ.Tap, n uint64, want bool) {
	t.Helper()
	got, err := tap.Settled(n)
	must(t, err)
	if got != want {
		t.Errorf("settled up to %d: %v", n, got)
	}
}

func TestTap(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		var k collector
		_, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("x", "1"), put("y", "1"), put("z", "1"))) // before
		tap := occ.NewTap(k.sink)
		must(t, b.eng.Attach(tap))
		if b.eng.Attach(occ.NewTap(k.sink)) == nil {
			t.Error("two taps at once")
		}
		must(t, b.do(one, put("x", "2"), lock("z")))
		must(t, b.do(one, get("x")))
		must(t, b.do(two, del("y"), put("new", "3")))
		must(t,
			b.do(two, lazyPut("z", "a value that is too long for the block that its record is in, so that it moves")))
		must(t, one.Begin())
		must(t, b.apply(one, put("x", "never")))
		must(t, one.Rollback())
		want := []string{
			"1 x=2", "2 -y new=3", "3 z=a value that is too long for the block that its record is in, so that it moves",
		}
		if !slices.Equal(k.told, want) {
			t.Errorf("told %q, want %q", k.told, want)
		}
		if tap.Cut() != 3 {
			t.Errorf("cut %d", tap.Cut())
		}
		settled(t, tap, 3, true)
		b.eng.Detach(tap)
		must(t, b.do(one, put("x", "4")))
		if len(k.told) != 3 {
			t.Errorf("told after it was detached: %q", k.told)
		}

		failing := collector{fail: errors.New("disk full")}
		tap = occ.NewTap(failing.sink)
		must(t, b.eng.Attach(tap))
		must(t, b.do(one, put("x", "5"))) // is not the transaction's problem
		if _, err := tap.Settled(0); !errors.Is(err, failing.fail) {
			t.Errorf("the sink's error is lost: %v", err)
		}
		b.eng.Detach(tap)
	})
}

// The number says where the transaction is in the serial order, so what it has
// read must still hold when it draws it, however long ago it was validated.
func TestTapOrdersReads(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		var k collector
		_, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("x", "1"), put("y", "1")))
		tap := occ.NewTap(k.sink)
		must(t, b.eng.Attach(tap))
		defer b.eng.Detach(tap)
		must(t, one.Begin())
		must(t, b.apply(one, get("x"), put("y", "2"))) // validated here, under policy default
		must(t, b.do(two, put("x", "2")))              // after it in every serial order
		var c *occ.ConflictError
		if err := one.Commit(); !errors.As(err, &c) || c.Reason != occ.AbortValidation {
			t.Errorf("commits as number %d, what follows it has number 1: %v", tap.Cut(), err)
		}
		settled(t, tap, tap.Cut(), true)
		if !slices.Equal(k.told, []string{"1 x=2"}) {
			t.Errorf("told %q", k.told)
		}
	})
}

// A transaction that commits after the tap was detached comes after all that have a
// number, so what it has read must hold then.
func TestTapDetached(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		var k collector
		_, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("x", "1"), put("y", "1")))
		for _, before := range []bool{true, false} { // began before the tap was attached, or after
			tap := occ.NewTap(k.sink)
			if !before {
				must(t, b.eng.Attach(tap))
			}
			must(t, one.Begin())
			must(t, b.apply(one, get("x"), put("y", "2")))
			if before {
				must(t, b.eng.Attach(tap))
			}
			must(t, b.do(two, put("x", "2")))
			b.eng.Detach(tap)
			var c *occ.ConflictError
			if err := one.Commit(); !errors.As(err, &c) || c.Reason != occ.AbortValidation {
				t.Errorf("began before the tap %v: commits after a copy that has what it must come before: %v",
					before, err)
			}
		}
	})
}

// TestTapEndsCommit: whoever copies what transactions write panics, or ends the goroutine, in
// the middle of a commit, which is decided by then.
func TestTapEndsCommit(t *testing.T) {
	for _, exits := range []bool{false, true} {
		t.Run(fmt.Sprintf("exits=%v", exits), func(t *testing.T) {
			eachPolicy(t, func(t *testing.T, b *bed) {
				session, tx := b.session()
				_, other := b.session()
				must(t, b.do(tx, put("x", "1"), put("y", "1")))
				tap := occ.NewTap(func(uint64, []occ.TapWrite) error {
					if exits {
						runtime.Goexit()
					}
					panic("disk full")
				})
				must(t, b.eng.Attach(tap))
				ended := make(chan error, 1)
				go func() {
					err := errors.New("it has not returned")
					defer func() {
						if p := recover(); p != nil {
							err = fmt.Errorf("panic: %v", p)
						}
						_ = tx.Rollback() // what who runs transactions does then
						ended <- err
					}()
					err = b.do(tx, put("x", "2"), put("y", "2"))
				}()
				if err := <-ended; (err != nil) != exits {
					t.Errorf("the transaction: %v", err)
				}
				if _, err := tap.Settled(0); err == nil {
					t.Error("nobody knows that the copy is not complete")
				}
				b.eng.Detach(tap)
				if (session.Broken() != nil) != exits {
					t.Errorf("the session: %v", session.Broken())
				}
				must(t, session.Rejoin(tx.Coro()))
				for _, k := range []string{"x", "y"} {
					if v, _ := b.value(other, k); v != "2" {
						t.Errorf("%s is %q", k, v)
					}
				}
				must(t, b.do(other, put("x", "3"), put("y", "3")))
			})
		})
	}
}
