package remote_test

import (
	"context"
	"fmt"
	"testing"

	"txnode/memory/layout"
)

// BenchmarkClient is what the calls of a client cost, for a catalog of so many entries of
// 64 bytes in memory.
func BenchmarkClient(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		d := newDaemon(b, inMemory())
		c := d.dial()
		changes := make([]layout.Entry, n)
		for i := range changes {
			changes[i] = layout.Entry{Key: fmt.Sprintf("segment/%08x", i), Value: make([]byte, 64)}
		}
		_, rev, err := c.Load()
		if err != nil {
			b.Fatal(err)
		}
		if rev, err = c.Apply(rev, changes); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("load/%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := c.Load(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("apply/%d", n), func(b *testing.B) {
			for b.Loop() {
				if rev, err = c.Apply(rev, changes[:1]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("ask/%d", n), func(b *testing.B) {
			for b.Loop() {
				if now, err := c.Revision(); now != rev || err != nil {
					b.Fatal(now, err)
				}
			}
		})
		// from the change of one client to the return of another's Await
		b.Run(fmt.Sprintf("notice/%d", n), func(b *testing.B) {
			other := d.dial()
			_, seen, err := other.Load()
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				done := make(chan layout.Revision)
				go func() {
					now, err := other.Await(context.Background(), seen)
					if err != nil {
						b.Error(err)
					}
					done <- now
				}()
				if rev, err = c.Apply(rev, changes[:1]); err != nil {
					b.Fatal(err)
				}
				seen = <-done
			}
		})
	}
}
