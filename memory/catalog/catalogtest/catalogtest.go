package catalogtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"txnode/memory"
)

// Test runs the conformance suite. open returns a catalog that is empty; reopen
// closes and opens it again, and is nil when that cannot be done.
func Test(t *testing.T, open func(t *testing.T) memory.Catalog, reopen func(t *testing.T, c memory.Catalog) memory.Catalog) {
	t.Run("Empty", func(t *testing.T) {
		c := open(t)
		if e, _, err := c.Load(); len(e) != 0 || err != nil {
			t.Errorf("%v, %v", e, err)
		}
		if c.Name() == "" {
			t.Error("it has no name")
		}
	})
	t.Run("AgainstMap", func(t *testing.T) { againstMap(t, open(t), reopen) })
	t.Run("Revision", func(t *testing.T) { revision(t, open(t)) })
	t.Run("Aliasing", func(t *testing.T) { aliasing(t, open(t)) })
	t.Run("Concurrent", func(t *testing.T) { concurrent(t, open(t)) })
}

// againstMap makes random changes to the catalog and a map.
func againstMap(t *testing.T, c memory.Catalog, reopen func(*testing.T, memory.Catalog) memory.Catalog) {
	r := rand.New(rand.NewPCG(1, 7))
	want := map[string]string{}
	_, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 60 {
		var changes []memory.Entry
		used := map[string]bool{}
		for range r.IntN(20) {
			key := fmt.Sprintf("%c/%04x", 'a'+rune(r.IntN(3)), r.IntN(60))
			if used[key] {
				continue
			}
			used[key] = true
			if r.IntN(3) == 0 {
				changes = append(changes, memory.Entry{Key: key})
				delete(want, key)
			} else {
				v := strings.Repeat(string(rune('A'+r.IntN(26))), 1+r.IntN(300))
				if r.IntN(20) == 0 {
					v = strings.Repeat(v, 300)
				}
				changes = append(changes, memory.Entry{Key: key, Value: []byte(v)})
				want[key] = v
			}
		}
		if _, err := c.Apply(rev, changes); err != nil {
			t.Fatal(err)
		}
		if reopen != nil && round%20 == 19 {
			c = reopen(t, c)
		}
		entries, loaded, err := c.Load()
		if err != nil {
			t.Fatal(err)
		}
		rev = loaded
		if !slices.IsSortedFunc(entries, func(a, b memory.Entry) int { return strings.Compare(a.Key, b.Key) }) {
			t.Fatal("entries are out of order")
		}
		if len(entries) != len(want) {
			t.Fatalf("%d entries, want %d", len(entries), len(want))
		}
		for _, e := range entries {
			if want[e.Key] != string(e.Value) {
				t.Fatalf("%q has %d bytes, want %d", e.Key, len(e.Value), len(want[e.Key]))
			}
		}
	}
}

func revision(t *testing.T, c memory.Catalog) {
	_, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	next, err := c.Apply(rev, []memory.Entry{{Key: "a", Value: []byte("1")}})
	if err != nil || next == rev {
		t.Fatalf("revision %d, then %d, %v", rev, next, err)
	}
	if _, err := c.Apply(rev, []memory.Entry{{Key: "a", Value: []byte("2")}, {Key: "b", Value: []byte("2")}}); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("an old revision: %v", err)
	}
	e, loaded, err := c.Load()
	if err != nil || loaded != next || len(e) != 1 || string(e[0].Value) != "1" {
		t.Errorf("after a refused change: %v at %d, %v", e, loaded, err)
	}
}

// aliasing: neither side sees what the other does to its slices.
func aliasing(t *testing.T, c memory.Catalog) {
	_, rev, _ := c.Load()
	v := []byte("value")
	if _, err := c.Apply(rev, []memory.Entry{{Key: "k", Value: v}, {Key: "empty", Value: []byte{}}}); err != nil {
		t.Fatal(err)
	}
	v[0] = 'X'
	e, _, err := c.Load()
	if err != nil || len(e) != 2 || string(e[1].Value) != "value" || e[0].Value == nil {
		t.Fatalf("%q, %v", e, err)
	}
	e[1].Value[0] = 'Y'
	if e, _, _ = c.Load(); string(e[1].Value) != "value" {
		t.Errorf("%q", e)
	}
}

// concurrent: of those who change the same revision, one wins.
func concurrent(t *testing.T, c memory.Catalog) {
	var wg sync.WaitGroup
	const workers, each = 4, 20
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				for {
					_, rev, err := c.Load()
					if err != nil {
						t.Error(err)
						return
					}
					_, err = c.Apply(rev, []memory.Entry{{Key: fmt.Sprintf("%d/%d", w, i), Value: []byte("x")}})
					if err == nil {
						break
					}
					if !errors.Is(err, memory.ErrRevision) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if e, rev, err := c.Load(); len(e) != workers*each || uint64(rev) < workers*each || err != nil {
		t.Errorf("%d entries at revision %d, %v", len(e), rev, err)
	}
}
