package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"

	"txnode/memory"
	"txnode/memory/catalog/catalogtest"
	"txnode/memory/catalog/etcd"
	"txnode/memory/catalog/etcd/etcdtest"
	"txnode/memory/layout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// prefixes makes catalogs of one etcd different ones.
var prefixes atomic.Int64

func open(t *testing.T, o etcd.Options) *etcd.Client {
	t.Helper()
	c, err := etcd.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// suite runs the conformance suite.
func suite(t *testing.T, endpoint string) {
	of := map[layout.Catalog]etcd.Options{}
	catalogtest.Test(t, func(t *testing.T) layout.Catalog {
		o := etcd.Options{Endpoints: []string{endpoint}, Prefix: fmt.Sprintf("suite/%d", prefixes.Add(1))}
		c := open(t, o)
		of[c] = o
		return c
	}, func(t *testing.T, c layout.Catalog) layout.Catalog {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, of[c])
		of[again] = of[c]
		return again
	})
}

func TestSuite(t *testing.T) {
	t.Run("StandIn", func(t *testing.T) { suite(t, etcdtest.NewStandIn(t).Endpoint) })
	t.Run("Server", func(t *testing.T) { suite(t, etcdtest.Start(t).Endpoint) })
}

// entries are as many, each with a value of so many bytes.
func entries(n, size int, of byte) []layout.Entry {
	out := make([]layout.Entry, n)
	for i := range out {
		out[i] = layout.Entry{Key: fmt.Sprintf("%06d", i), Value: []byte(strings.Repeat(string(of), size))}
	}
	return out
}

func mustApply(t *testing.T, c layout.Catalog, rev layout.Revision, changes []layout.Entry) layout.Revision {
	t.Helper()
	next, err := c.Apply(rev, changes)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func mustLoad(t *testing.T, c layout.Catalog) ([]layout.Entry, layout.Revision) {
	t.Helper()
	e, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	return e, rev
}

func same(a, b []layout.Entry) bool {
	return slices.EqualFunc(a, b, func(x, y layout.Entry) bool {
		return x.Key == y.Key && string(x.Value) == string(y.Value)
	})
}

// sizes are changes of all kinds: with and without staged pieces, as a change and as a new base.
var sizes = []struct {
	name    string
	was     []layout.Entry // nil: the catalog is empty
	changes []layout.Entry
	writes  int // transactions
}{
	{"first", nil, entries(3, 100, 'b'), 1},
	{"first, large", nil, entries(5, 700<<10, 'b'), 4},
	{"small", entries(3, 1000, 'a'), entries(2, 100, 'b'), 1},
	{"large", entries(6, 700<<10, 'a'), entries(5, 700<<10, 'b'), 4},
	{"base", entries(3, 100, 'a'), entries(3, 100<<10, 'b'), 1},
	{"base, large", entries(3, 100, 'a'), entries(5, 700<<10, 'b'), 4},
	{"many", nil, entries(20_000, 100, 'b'), 3},
}

// TestDeaths: a writer dies at each of its requests, which is made or not, or is made when another
// writer has made a change. Readers have the catalog of before or after the change. The next writer
// goes on, and nothing else is left.
func TestDeaths(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	for _, size := range sizes {
		for n := range size.writes {
			if testing.Short() && n != size.writes-1 && size.name != "base, large" {
				continue
			}
			for _, how := range []string{"not made", "answer lost", "late"} {
				t.Run(fmt.Sprintf("%s/%d/%s", size.name, n, how), func(t *testing.T) {
					death(t, s, size.was, size.changes, n, size.writes, how)
				})
			}
		}
	}
}

func death(t *testing.T, s *etcdtest.StandIn, was, changes []layout.Entry, n, writes int, how string) {
	o := etcd.Options{
		Endpoints: []string{s.Endpoint}, Prefix: fmt.Sprintf("death/%d/", prefixes.Add(1)), Control: time.Minute,
	}
	dying, next := open(t, o), open(t, o)
	rev := layout.Revision(0)
	if was != nil {
		rev = mustApply(t, dying, 0, was)
	}
	requests, dead := atomic.Int64{}, make(chan struct{})
	release := make(chan struct{})
	s.Hook(func(request any) etcdtest.Fate {
		if _, ok := request.(*etcdserverpb.TxnRequest); !ok {
			return etcdtest.Fate{Made: true}
		}
		switch i := int(requests.Add(1)) - 1; {
		case i < n:
			return etcdtest.Fate{Made: true}
		case i > n:
			t.Errorf("request %d, after the answer to %d was an error", i, n)
		}
		close(dead)
		switch how {
		case "not made":
			return etcdtest.Fate{Err: rpctypes.ErrGRPCStopped}
		case "answer lost":
			return etcdtest.Fate{Made: true, Err: rpctypes.ErrGRPCTimeout}
		}
		<-release
		return etcdtest.Fate{Made: true}
	})
	answer := make(chan error, 1)
	go func() {
		_, err := dying.Apply(rev, changes)
		answer <- err
	}()
	<-dead
	if how != "late" {
		if err := <-answer; !errors.Is(err, memory.ErrAway) || errors.Is(err, memory.ErrRevision) ||
			!strings.Contains(err.Error(), s.Endpoint) {
			t.Errorf("an answer that is lost: %v", err)
		}
	}
	s.Hook(nil)
	have, at := mustLoad(t, next)
	made := how == "answer lost" && n == writes-1
	want := was
	if made {
		want = overlaid(was, changes)
	}
	if !same(have, want) || (at == rev) == made {
		t.Fatalf("a reader has %d entries at revision %d, and the change of revision %d was made: %v",
			len(have), at, rev, made)
	}
	one := []layout.Entry{{Key: "next", Value: []byte("x")}}
	at = mustApply(t, next, at, one)
	if how == "late" {
		close(release)
		if err := <-answer; !errors.Is(err, memory.ErrRevision) {
			t.Errorf("a request that comes late: %v", err)
		}
	}
	if have, now := mustLoad(t, next); !same(have, append(slices.Clone(want), one...)) || now != at {
		t.Errorf("%d entries at revision %d, want %d at %d", len(have), now, len(want)+1, at)
	}
	if _, err := dying.Apply(rev, changes); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("again: %v", err)
	}
	at = mustApply(t, next, at, []layout.Entry{{Key: "next"}}) // after which there is no garbage of any writer
	if have, now := mustLoad(t, dying); !same(have, want) || now != at {
		t.Errorf("%d entries at revision %d, want %d at %d", len(have), now, len(want), at)
	}
	if extra := etcd.Garbage(o.Prefix, s.Keys()); len(extra) > 0 {
		t.Errorf("keys that belong to nothing: %q", extra)
	}
}

// overlaid are entries with changes made to them; all of either have the first keys of a sequence.
func overlaid(was, changes []layout.Entry) []layout.Entry {
	out := slices.Clone(changes)
	if len(was) > len(changes) {
		out = append(out, was[len(changes):]...)
	}
	return out
}

// TestGarbage: a writer that has died leaves pieces, and the next change removes them.
func TestGarbage(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	c := open(t, etcd.Options{Endpoints: []string{s.Endpoint}})
	rev := mustApply(t, c, 0, entries(3, 100, 'a'))
	s.Hook(func(request any) etcdtest.Fate {
		if r, ok := request.(*etcdserverpb.TxnRequest); ok && len(r.Success) > 1 {
			return etcdtest.Fate{Err: rpctypes.ErrGRPCStopped}
		}
		return etcdtest.Fate{Made: true}
	})
	for range 2 {
		if _, err := c.Apply(rev, entries(5, 700<<10, 'b')); !errors.Is(err, etcd.ErrAway) {
			t.Fatal(err)
		}
	}
	s.Hook(nil)
	if extra := etcd.Garbage(etcd.DefaultPrefix, s.Keys()); len(extra) != 6 {
		t.Errorf("two changes of 3.5 MiB that were not ended have left %d pieces", len(extra))
	}
	if have, now := mustLoad(t, c); !same(have, entries(3, 100, 'a')) || now != rev {
		t.Errorf("%d entries at revision %d, want those of %d", len(have), now, rev)
	}
	mustApply(t, c, rev, []layout.Entry{{Key: "x", Value: []byte("x")}})
	if extra := etcd.Garbage(etcd.DefaultPrefix, s.Keys()); len(extra) > 0 {
		t.Errorf("after the next change: %q", extra)
	}
}

// TestBases: many small changes are gathered in a base, so that keys do not accumulate.
func TestBases(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	c := open(t, etcd.Options{Endpoints: []string{s.Endpoint}})
	rev, most := layout.Revision(0), 0
	for i := range 500 {
		rev = mustApply(t, c, rev, []layout.Entry{{Key: fmt.Sprint(i % 10), Value: fmt.Append(nil, i)}})
		most = max(most, len(s.Keys()))
	}
	if most > 70 {
		t.Errorf("%d keys", most)
	}
	have, _ := mustLoad(t, c)
	for i, e := range have {
		if len(have) != 10 || string(e.Value) != fmt.Sprint(490+i) {
			t.Errorf("%d entries: %q is %q", len(have), e.Key, e.Value)
		}
	}
}

// TestOthersInEtcd: changes of other keys, and of another catalog, neither change the revision
// nor refuse a change.
func TestOthersInEtcd(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	c := open(t, etcd.Options{Endpoints: []string{s.Endpoint}})
	d := open(t, etcd.Options{Endpoints: []string{s.Endpoint}, Prefix: "txnode/second"})
	rev := mustApply(t, c, 0, entries(3, 10, 'a'))
	s.Put("foreign", "1")
	s.Put(etcd.DefaultPrefix+"extra", "1")
	mustApply(t, d, 0, entries(3, 10, 'd'))
	if now, err := c.Revision(); now != rev || err != nil {
		t.Errorf("%d, %v: it is at %d", now, err, rev)
	}
	if have, now := mustLoad(t, c); now != rev || !same(have, entries(3, 10, 'a')) {
		t.Errorf("%v at %d, and it is at %d", have, now, rev)
	}
	mustApply(t, c, rev, entries(3, 10, 'b'))
}

// TestLateAnswer: a read that etcd has executed before the first change, and whose answer comes
// after it, is no loss of the catalog.
func TestLateAnswer(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	c := open(t, etcd.Options{Endpoints: []string{s.Endpoint}})
	var rev layout.Revision
	once := atomic.Bool{}
	s.Hook(func(request any) etcdtest.Fate {
		if _, ok := request.(*etcdserverpb.RangeRequest); !ok || once.Swap(true) {
			return etcdtest.Fate{Made: true}
		}
		return etcdtest.Fate{Made: true, Late: func() {
			var err error
			if rev, err = c.Apply(0, entries(1, 1, 'a')); err != nil {
				t.Error(err)
			}
		}}
	})
	if have, now := mustLoad(t, c); len(have) != 0 || now != 0 {
		t.Errorf("%d entries at revision %d, before the change", len(have), now)
	}
	if have, now := mustLoad(t, c); !same(have, entries(1, 1, 'a')) || now != rev {
		t.Errorf("%d entries at revision %d, after it: want 1 at %d", len(have), now, rev)
	}
}

// etcds are a stand-in and a real one.
func etcds(t *testing.T, f func(t *testing.T, endpoint string, kill func(), restart func())) {
	t.Run("StandIn", func(t *testing.T) {
		s := etcdtest.NewStandIn(t)
		f(t, s.Endpoint, s.Stop, func() { s.Restart(t) })
	})
	t.Run("Server", func(t *testing.T) {
		s := etcdtest.Start(t)
		f(t, s.Endpoint, s.Kill, func() { s.Restart(t) })
	})
}

// TestRestart: etcd ends and is back, again and again. Meanwhile calls fail with ErrAway and
// name the endpoint, and Await goes on waiting. Two clients then have what they had, and hear of
// each other's changes.
func TestRestart(t *testing.T) {
	etcds(t, func(t *testing.T, endpoint string, kill, restart func()) {
		o := etcd.Options{Endpoints: []string{endpoint}, Control: 200 * time.Millisecond}
		c, d := open(t, o), open(t, o)
		rev := mustApply(t, c, 0, []layout.Entry{{Key: "a", Value: []byte("0")}})
		for i := 1; i <= 3; i++ {
			heard := make(chan layout.Revision, 1)
			go func() {
				now, err := d.Await(t.Context(), rev)
				if err != nil {
					t.Error(err)
				}
				heard <- now
			}()
			kill()
			if _, err := c.Apply(rev, []layout.Entry{{Key: "a", Value: []byte("lost")}}); !away(err, endpoint) {
				t.Fatalf("Apply: %v", err)
			}
			if _, _, err := d.Load(); !away(err, endpoint) {
				t.Fatalf("Load: %v", err)
			}
			if _, err := etcd.Open(t.Context(), o); !away(err, endpoint) {
				t.Fatalf("Open: %v", err)
			}
			if now, err := c.Revision(); !away(err, endpoint) {
				t.Fatalf("Revision: %d, %v", now, err)
			}
			restart()
			var have []layout.Entry
			for {
				var now layout.Revision
				var err error
				if have, now, err = c.Load(); err == nil {
					if now != rev {
						t.Fatalf("at revision %d, and it was at %d", now, rev)
					}
					break
				}
				if !away(err, endpoint) {
					t.Fatal(err)
				}
			}
			if len(have) != 1 || string(have[0].Value) != fmt.Sprint(i-1) {
				t.Fatalf("%q", have)
			}
			rev = mustApply(t, c, rev, []layout.Entry{{Key: "a", Value: fmt.Append(nil, i)}})
			if now := <-heard; now != rev {
				t.Errorf("Await: %d, and it is at %d", now, rev)
			}
		}
	})
}

// TestLarge: changes of all sizes are within the limits of an etcd.
func TestLarge(t *testing.T) {
	etcds(t, func(t *testing.T, endpoint string, _, _ func()) {
		for i, size := range sizes {
			c := open(t, etcd.Options{Endpoints: []string{endpoint}, Prefix: fmt.Sprint(i), Control: time.Minute})
			rev := layout.Revision(0)
			if size.was != nil {
				rev = mustApply(t, c, 0, size.was)
			}
			rev = mustApply(t, c, rev, size.changes)
			if have, now := mustLoad(t, c); now != rev || !same(have, overlaid(size.was, size.changes)) {
				t.Errorf("%s: %d entries at revision %d, which was %d", size.name, len(have), now, rev)
			}
		}
	})
}

func away(err error, endpoint string) bool {
	return errors.Is(err, etcd.ErrAway) && errors.Is(err, memory.ErrAway) && !errors.Is(err, memory.ErrClosed) &&
		!errors.Is(err, memory.ErrRevision) &&
		strings.Contains(err.Error(), endpoint) && !strings.Contains(err.Error(), "\n")
}

// TestSilent: an etcd that takes requests and does not answer is away when Options.Control is over.
func TestSilent(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	c := open(t, etcd.Options{Endpoints: []string{s.Endpoint}, Control: 50 * time.Millisecond})
	release := make(chan struct{})
	s.Hook(func(any) etcdtest.Fate { <-release; return etcdtest.Fate{Made: true} })
	if _, _, err := c.Load(); !away(err, s.Endpoint) {
		t.Error(err)
	}
	if _, err := c.Apply(0, entries(1, 1, 'a')); !away(err, s.Endpoint) {
		t.Error(err)
	}
	close(release)
}

// TestWatch: Await misses no change, whatever happens to its watch between its question
// and the first event.
func TestWatch(t *testing.T) {
	for _, how := range []string{"changed", "changed by others, refused here", "compacted", "no leader", "broken"} {
		t.Run(how, func(t *testing.T) {
			s := etcdtest.NewStandIn(t)
			o := etcd.Options{Endpoints: []string{s.Endpoint}}
			c, d := open(t, o), open(t, o)
			c.SetWatchTime(time.Hour)
			rev := mustApply(t, d, 0, entries(1, 1, 'a'))
			mustLoad(t, c)
			next := make(chan layout.Revision, 1)
			watches := atomic.Int64{}
			s.Hook(func(request any) etcdtest.Fate {
				if _, ok := request.(*etcdserverpb.WatchCreateRequest); !ok || watches.Add(1) > 1 {
					return etcdtest.Fate{Made: true}
				}
				to, err := d.Apply(rev, entries(1, 1, 'b')) // behind the question
				if err != nil {
					t.Error(err)
				}
				next <- to
				switch how {
				case "changed by others, refused here":
					if _, err := c.Apply(rev, entries(1, 1, 'c')); !errors.Is(err, memory.ErrRevision) {
						t.Error(err)
					}
				case "compacted":
					s.Put("other", "x")
					s.Compact()
				case "no leader":
					return etcdtest.Fate{Err: rpctypes.ErrGRPCNoLeader}
				case "broken":
					return etcdtest.Fate{Err: rpctypes.ErrGRPCStopped}
				}
				return etcdtest.Fate{Made: true}
			})
			bounded, cancel := context.WithTimeout(t.Context(), time.Minute) // rather than wait for ever
			defer cancel()
			now, err := c.Await(bounded, rev)
			if want := <-next; now != want || err != nil {
				t.Errorf("%d, %v, want %d", now, err, want)
			}
		})
	}
}

// TestOther: an etcd that has lost its data, is another one, or has a catalog that was deleted or
// damaged, is an error for all calls.
func TestOther(t *testing.T) {
	head := etcd.DefaultPrefix + "head"
	for _, c := range []struct {
		name        string
		spoil       func(s *etcdtest.StandIn)
		load, other error // of Load, and of the rest; nil: none
	}{
		{"lost", func(s *etcdtest.StandIn) { s.Replace(false) }, etcd.ErrOther, etcd.ErrOther},
		{"another one", func(s *etcdtest.StandIn) {
			s.Replace(true)
			for range 50 {
				s.Put("x", "x")
			}
		}, etcd.ErrOther, etcd.ErrOther},
		{"deleted", func(s *etcdtest.StandIn) { s.Put(head, "") }, etcd.ErrDamaged, etcd.ErrDamaged},
		{"no head", func(s *etcdtest.StandIn) { s.Put(head, "no head") }, layout.ErrCorrupt, layout.ErrCorrupt},
		{
			"a later format", func(s *etcdtest.StandIn) { s.Put(head, `{"format":2}`) },
			layout.ErrFormat, layout.ErrFormat,
		},
		{"a piece is gone", func(s *etcdtest.StandIn) { s.Put(piece(s), "") }, etcd.ErrDamaged, nil},
		{"a piece is changed", func(s *etcdtest.StandIn) { s.Put(piece(s), "12345678") }, etcd.ErrDamaged, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := etcdtest.NewStandIn(t)
			cat := open(t, etcd.Options{Endpoints: []string{s.Endpoint}})
			cat.SetWatchTime(50 * time.Millisecond)
			rev := mustApply(t, cat, 0, entries(3, 10, 'a'))
			rev = mustApply(t, cat, rev, entries(3, 10, 'b'))
			awaited := make(chan error, 1)
			watched := make(chan struct{}, 1)
			s.Hook(func(request any) etcdtest.Fate {
				if _, ok := request.(*etcdserverpb.WatchCreateRequest); ok {
					select {
					case watched <- struct{}{}:
					default:
					}
				}
				return etcdtest.Fate{Made: true}
			})
			go func() {
				_, err := cat.Await(t.Context(), rev+1000)
				awaited <- err
			}()
			<-watched
			s.Hook(nil)
			s.Stop()
			c.spoil(s)
			s.Restart(t)
			var err error
			for {
				if _, _, err = cat.Load(); !errors.Is(err, etcd.ErrAway) {
					break
				}
			}
			if !errors.Is(err, c.load) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Load: %v", err)
			}
			if c.other == nil {
				return
			}
			if err := <-awaited; !errors.Is(err, c.other) {
				t.Errorf("Await: %v", err)
			}
			if _, err := cat.Apply(rev, entries(3, 10, 'c')); err == nil {
				t.Error("Apply was made")
			}
		})
	}
}

// piece is the first key of the catalog.
func piece(s *etcdtest.StandIn) string {
	least := ""
	for k := range s.Keys() {
		if least == "" || k < least {
			least = k
		}
	}
	return least
}

// TestClosed: Close ends what is under way.
func TestClosed(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	c, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{s.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 100)
	s.Hook(func(request any) etcdtest.Fate {
		asked <- struct{}{}
		if _, ok := request.(*etcdserverpb.TxnRequest); ok {
			<-c.Done()
		}
		return etcdtest.Fate{Made: true}
	})
	awaited, applied := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Await(t.Context(), 7)
		awaited <- err
	}()
	<-asked
	<-asked // it watches
	go func() {
		_, err := c.Apply(0, entries(1, 1, 'a'))
		applied <- err
	}()
	<-asked
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	_, _, err = c.Load()
	_, err2 := c.Apply(0, nil)
	_, err3 := c.Await(t.Context(), 0)
	_, err4 := c.Revision()
	made := <-applied
	if made == nil { // the answer may have been faster
		made = err2
	}
	for _, err := range []error{<-awaited, made, err, err2, err3, err4} {
		if !errors.Is(err, memory.ErrClosed) || !strings.Contains(err.Error(), s.Endpoint) {
			t.Error(err)
		}
	}
}

// TestRefused: what etcd says is said, with what to do.
func TestRefused(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	c := open(t, etcd.Options{Endpoints: []string{s.Endpoint}})
	for _, r := range []struct {
		err  error
		text string
		is   error
	}{
		{rpctypes.ErrGRPCNoSpace, "etcdctl compact", memory.ErrNoSpace},
		{rpctypes.ErrGRPCRequestTooLarge, "--max-request-bytes", nil},
		{rpctypes.ErrGRPCPermissionDenied, "password", nil},
		{rpctypes.ErrGRPCAuthFailed, "password", nil},
		{rpctypes.ErrGRPCNoLeader, "has a leader", etcd.ErrAway},
		{rpctypes.ErrGRPCTooManyOps, "too many operations", nil},
	} {
		s.Hook(func(any) etcdtest.Fate { return etcdtest.Fate{Err: r.err} })
		_, err := c.Apply(0, entries(1, 1, 'a'))
		if err == nil || !strings.Contains(err.Error(), r.text) || !strings.Contains(err.Error(), s.Endpoint) ||
			r.is != nil && !errors.Is(err, r.is) {
			t.Errorf("%v: %v", r.err, err)
		}
	}
}

func TestOptions(t *testing.T) {
	_, err := etcd.Open(t.Context(), etcd.Options{
		Endpoints: []string{"a b"}, Password: "x", Control: -1, Prefix: strings.Repeat("p", 2000),
	})
	if !errors.Is(err, etcd.ErrOptions) {
		t.Fatal(err)
	}
	for _, text := range []string{`"a b"`, "password", "Control", "prefix"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v: nothing of %s", err, text)
		}
	}
	if _, err := etcd.Open(t.Context(), etcd.Options{}); !errors.Is(err, etcd.ErrOptions) {
		t.Error(err)
	}
}
