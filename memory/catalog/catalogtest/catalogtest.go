package catalogtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
)

// Test runs the conformance suite. open returns a catalog that is empty; reopen
// closes and opens it again, and is nil when that cannot be done.
func Test(t *testing.T, open func(t *testing.T) layout.Catalog,
	reopen func(t *testing.T, c layout.Catalog) layout.Catalog) {
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
	t.Run("Await", func(t *testing.T) { await(t, open(t)) })
	t.Run("Alive", func(t *testing.T) { alive(t, open(t), reopen) })
	t.Run("Concurrent", func(t *testing.T) { concurrent(t, open(t)) })
}

// againstMap makes random changes to the catalog and a map.
func againstMap(t *testing.T, c layout.Catalog, reopen func(*testing.T, layout.Catalog) layout.Catalog) {
	r := rand.New(rand.NewPCG(1, 7))
	want := map[string]string{}
	_, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 60 {
		var changes []layout.Entry
		used := map[string]bool{}
		for range r.IntN(20) {
			key := fmt.Sprintf("%c/%04x", 'a'+rune(r.IntN(3)), r.IntN(60))
			if used[key] {
				continue
			}
			used[key] = true
			if r.IntN(3) == 0 {
				changes = append(changes, layout.Entry{Key: key})
				delete(want, key)
			} else {
				v := strings.Repeat(string(rune('A'+r.IntN(26))), 1+r.IntN(300))
				if r.IntN(20) == 0 {
					v = strings.Repeat(v, 300)
				}
				changes = append(changes, layout.Entry{Key: key, Value: []byte(v)})
				want[key] = v
			}
		}
		made, err := c.Apply(rev, changes)
		if err != nil {
			t.Fatal(err)
		}
		if reopen != nil && round%20 == 19 {
			id, e := c.Identity()
			c = reopen(t, c)
			if again, err := c.Identity(); again != id || id == (layout.Identity{}) || e != nil || err != nil {
				t.Fatalf("its identity is %v, and was %v: %v, %v", again, id, err, e)
			}
		}
		entries, loaded, err := c.Load()
		if err != nil {
			t.Fatal(err)
		}
		if loaded < made {
			t.Fatalf("it has gone back to revision %d, from %d", loaded, made)
		}
		rev = loaded
		if !slices.IsSortedFunc(entries, func(a, b layout.Entry) int { return strings.Compare(a.Key, b.Key) }) {
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

// alive registers members, which say that they are alive.
func alive(t *testing.T, c layout.Catalog, reopen func(*testing.T, layout.Catalog) layout.Catalog) {
	_, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	change := func(changes ...layout.Entry) {
		t.Helper()
		if rev, err = c.Apply(rev, changes); err != nil {
			t.Fatal(err)
		}
	}
	// beat says that a member is alive, and returns the count of it, and what of each member is
	// known.
	beat := func(b layout.Beat) (count uint64, knows []layout.Epoch) {
		t.Helper()
		was, err := c.Revision()
		if err != nil {
			t.Fatal(err)
		}
		all, err := c.KeepAlive(b)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range all {
			if x.Member == b.Member {
				count = x.Count
			}
			if knows = append(knows, x.Knows); i > 0 && x.Member <= all[i-1].Member {
				t.Errorf("%+v are out of order", all)
			}
		}
		if now, err := c.Revision(); now != was || err != nil {
			t.Errorf("the catalog is at revision %d behind a sign of life, and was at %d: %v", now, was, err)
		}
		return count, knows
	}
	if _, err := c.KeepAlive(layout.Beat{Member: 7, Knows: 3}); !errors.Is(err, memory.ErrEnded) {
		t.Errorf("a member that is not registered: %v", err)
	}
	change(layout.Entry{Key: "process/00000007", Value: []byte("x")},
		layout.Entry{Key: "process/0000001f", Value: []byte("y")}, layout.Entry{Key: "process/x", Value: []byte("z")})
	first, knows := beat(layout.Beat{Member: 7, Knows: 3})
	if !slices.Equal(knows, []layout.Epoch{3, 0}) {
		t.Errorf("members know %d", knows)
	}
	second, _ := beat(layout.Beat{Member: 7, Knows: 4})
	if beat(layout.Beat{Member: 31, Knows: 9}); second == first {
		t.Errorf("the count stays %d", first)
	}
	if _, knows := beat(layout.Beat{}); !slices.Equal(knows, []layout.Epoch{4, 9}) {
		t.Errorf("members know %d", knows)
	}
	change(layout.Entry{Key: "cluster/server/01000002", Value: []byte("s")},
		layout.Entry{Key: "cluster/server/00000002", Value: []byte("the number of a process")})
	if _, knows := beat(layout.Beat{Member: 0x1000002, Knows: 1}); !slices.Equal(knows, []layout.Epoch{4, 9, 1}) {
		t.Errorf("members, with a server of blades, know %d", knows)
	}
	if _, err := c.KeepAlive(layout.Beat{Member: 2}); !errors.Is(err, memory.ErrEnded) {
		t.Errorf("a server with the number of a process: %v", err)
	}
	change(layout.Entry{Key: "cluster/server/01000002"})
	if _, err := c.KeepAlive(layout.Beat{Member: 0x1000002}); !errors.Is(err, memory.ErrEnded) {
		t.Errorf("a server that has resigned: %v", err)
	}
	change(layout.Entry{Key: "process/00000007"})
	if _, err := c.KeepAlive(layout.Beat{Member: 7, Knows: 5}); !errors.Is(err, memory.ErrEnded) {
		t.Errorf("a member that is registered no more: %v", err)
	}
	if reopen != nil {
		c = reopen(t, c)
	}
	if count, _ := beat(layout.Beat{Member: 31, Knows: 9}); count == 0 {
		t.Error("a member that is still registered has no sign of life")
	}
}

func revision(t *testing.T, c layout.Catalog) {
	_, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	next, err := c.Apply(rev, []layout.Entry{{Key: "a", Value: []byte("1")}})
	if err != nil || next == rev {
		t.Fatalf("revision %d, then %d, %v", rev, next, err)
	}
	if _, err := c.Apply(rev, []layout.Entry{
		{Key: "a", Value: []byte("2")}, {Key: "b", Value: []byte("2")},
	}); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("an old revision: %v", err)
	}
	e, loaded, err := c.Load()
	if err != nil || loaded != next || len(e) != 1 || string(e[0].Value) != "1" {
		t.Errorf("after a refused change: %v at %d, %v", e, loaded, err)
	}
}

// aliasing: neither side sees what the other does to its slices.
func aliasing(t *testing.T, c layout.Catalog) {
	_, rev, _ := c.Load()
	v := []byte("value")
	if _, err := c.Apply(rev, []layout.Entry{{Key: "k", Value: v}, {Key: "empty", Value: []byte{}}}); err != nil {
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

// await: it returns at once when there has been a change, or ctx has ended; and else when there is
// a change, of which it misses none.
func await(t *testing.T, c layout.Catalog) {
	_, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	if now, err := c.Revision(); now != rev || err != nil {
		t.Errorf("nothing has changed at %d: %d, %v", rev, now, err)
	}
	const changes = 50
	type seen struct {
		n   int
		rev layout.Revision
		err error
	}
	done := make(chan seen)
	const watchers = 3
	for range watchers {
		go func() { // it counts the entries until it has seen them all
			s := seen{rev: rev}
			for s.n < changes && s.err == nil {
				if _, s.err = c.Await(context.Background(), s.rev); s.err == nil {
					var entries []layout.Entry
					entries, s.rev, s.err = c.Load()
					if len(entries) < s.n {
						s.err = fmt.Errorf("%d entries, and there were %d", len(entries), s.n)
					}
					s.n = len(entries)
				}
			}
			done <- s
		}()
	}
	at := rev
	for i := range changes {
		if at, err = c.Apply(at, []layout.Entry{{Key: fmt.Sprintf("%04d", i), Value: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		if now, err := c.Revision(); now != at || err != nil {
			t.Errorf("changed since %d, and at %d: %d, %v", rev, at, now, err)
		}
	}
	for range watchers {
		if s := <-done; s.err != nil || s.n != changes || s.rev != at {
			t.Errorf("%d entries at %d, %v: want %d at %d", s.n, s.rev, s.err, changes, at)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	go stop()
	if now, err := c.Await(ctx, at); now != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("canceled at %d: %d, %v", at, now, err)
	}
}

// concurrent: of those who change the same revision, one wins.
func concurrent(t *testing.T, c layout.Catalog) {
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
					_, err = c.Apply(rev, []layout.Entry{{Key: fmt.Sprintf("%d/%d", w, i), Value: []byte("x")}})
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
