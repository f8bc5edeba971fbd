package occ_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/occ"
	"txnode/rdma"
)

// TestRefusedPut: a Put that is refused leaves the item as it was, and the
// transaction usable.
func TestRefusedPut(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, tx := b.session()
		must(t, b.do(tx, put("k", "old")))
		must(t, tx.Begin())
		i, err := tx.Stage(b.table, []byte("k"), true)
		must(t, err)
		must(t, tx.Put(i, []byte("new")))
		for _, n := range []int{100 << 10, 1<<20 + 1} { // beyond the log; beyond all values
			var e *occ.TooLargeError
			if err := tx.Put(i, make([]byte, n)); !errors.As(err, &e) || e.Got < n || e.Limit >= n {
				t.Fatalf("a value of %d bytes: %v", n, err)
			}
			if v, ok := tx.Read(i); !ok || string(v) != "new" {
				t.Fatalf("after a refused Put: %q, %v", v, ok)
			}
		}
		must(t, tx.Commit())
		if v, _ := b.value(tx, "k"); v != "new" {
			t.Fatalf("k is %q", v)
		}
	})
}

// TestPutOfWhatWasRead: a value that Read has returned may be part of the image
// that the next Put replaces.
func TestPutOfWhatWasRead(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{})
	_, tx := b.session()
	for _, n := range []int{5, 24, 25, 100, 3000} {
		text := make([]byte, n)
		for i := range text {
			text[i] = byte('a' + i%26)
		}
		must(t, tx.Begin())
		i, err := tx.Stage(b.table, fmt.Appendf(nil, "k%d", n), true)
		must(t, err)
		must(t, tx.Put(i, text))
		for _, cut := range [][2]int{{0, n}, {1, n}, {0, n / 2}} {
			v, _ := tx.Read(i)
			v = v[cut[0]:min(cut[1], len(v))]
			want := bytes.Clone(v)
			must(t, tx.Put(i, v))
			if got, _ := tx.Read(i); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, %v: %q, want %q", n, cut, got, want)
			}
		}
		must(t, tx.Commit())
	}
}

// TestGrowingValue: a value that grows again and again within a transaction takes
// log space in proportion to its final size.
func TestGrowingValue(t *testing.T) {
	eachPolicy(t, func(t *testing.T, b *bed) {
		_, tx := b.session()
		must(t, tx.Begin())
		i, err := tx.Stage(b.table, []byte("list"), true)
		must(t, err)
		for n := 8; n <= 12000; n += 8 { // 9 MB in all, in a log of 64 KiB
			must(t, tx.Put(i, make([]byte, n)))
		}
		must(t, tx.Commit())
		if v, _ := b.value(tx, "list"); len(v) != 12000 {
			t.Fatalf("%d bytes", len(v))
		}
	})
}

// TestSmallArena: transactions that nearly fill the arena follow one another, and
// one that does not fit says so and changes nothing.
func TestSmallArena(t *testing.T) {
	raced.Skip(t)
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			b := newBedSized(t, 2, memory.Options{Backups: 1, SegmentSize: 4 << 20, LogArea: 4 << 20},
				occ.Options{Policy: p})
			th, err := rdma.NewThread(b.fabric, rdma.ThreadOptions{Index: 50, Arena: 1 << 20})
			must(t, err)
			s, err := b.eng.NewSession(th)
			must(t, err)
			tx, err := s.NewTx(th.Plain())
			must(t, err)
			for i := range 20 {
				must(t, b.do(tx, put("big", strings.Repeat(string(rune('a'+i)), 100<<10))))
			}
			for range 100 {
				err := b.do(tx, put("big", strings.Repeat("x", 800<<10)), put("fresh", "x"))
				var e *occ.TooLargeError
				if !errors.As(err, &e) || e.Limit != 1<<20 || e.Got <= e.Limit ||
					!strings.Contains(err.Error(), "Arena") {
					t.Fatalf("a transaction beyond the arena: %v", err)
				}
			}
			if v, _ := b.value(tx, "big"); v != strings.Repeat("t", 100<<10) {
				t.Fatalf("big has %d bytes", len(v))
			}
			if _, ok := b.value(tx, "fresh"); ok {
				t.Fatal("part of a refused transaction shows")
			}
			must(t, s.Close())
			must(t, th.Close())
		})
	}
}
