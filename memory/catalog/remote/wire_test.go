package remote

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
)

// full is a service of a catalog with two entries.
func full(t testing.TB) *service {
	t.Helper()
	m := &catalog.Mem{}
	if _, err := m.Apply(0, []layout.Entry{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte{}}}); err != nil {
		t.Fatal(err)
	}
	return &service{cat: m, limit: tcp.MaxMessage}
}

// TestRequestsAreChecked: what is no request is refused, with a text for the log of the client.
func TestRequestsAreChecked(t *testing.T) {
	s := full(t)
	id, _ := s.cat.Identity()
	at := place{id, 1}
	head := func(op byte, rest ...byte) []byte { return append([]byte{format, op}, rest...) }
	one := appendEntries(nil, []layout.Entry{{Key: "k", Value: []byte("v")}})
	apply := func(p []byte) []byte { return append(at.append(head(opApply)), p...) }
	for name, p := range map[string][]byte{
		"nothing":               nil,
		"another format":        {format + 1, opLoad},
		"the format of before":  {format - 1, opLoad},
		"another request":       head(4),
		"a load of something":   head(opLoad, 0),
		"no place":              head(opApply),
		"half a place":          at.append(head(opAwait))[:20],
		"a revision too large":  place{id, maxRevision + 1}.append(head(opAwait)),
		"no time to wait":       at.append(head(opAwait)),
		"no entries":            apply(nil),
		"more entries":          apply([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),
		"all entries":           apply([]byte{255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0}),
		"a longer key":          apply([]byte{1, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0}),
		"a longer value":        apply([]byte{1, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255}),
		"a byte behind":         apply(append(one[:len(one):len(one)], 0)),
		"a byte of a value":     apply(one[:len(one)-1]),
		"two, and one is there": apply(append([]byte{2}, one[1:]...)),
	} {
		var e *tcp.CallError
		if _, err := s.answer(t.Context(), p); !errors.As(err, &e) || !errors.Is(heard(e), errMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, rev, err := s.cat.Load(); len(entries) != 2 || rev != 1 || err != nil {
		t.Errorf("%v at %d, %v", entries, rev, err)
	}
	if _, err := s.answer(t.Context(), apply(one)); err != nil {
		t.Errorf("a good request: %v", err)
	}
}

// tooMuch is a catalog that no message has room for.
type tooMuch struct{ layout.Catalog }

func (tooMuch) Load() ([]layout.Entry, layout.Revision, error) {
	return []layout.Entry{{Key: "a", Value: make([]byte, tcp.MaxMessage)}}, 1, nil
}

// TestTooMuch: a catalog that is too large for a message says so.
func TestTooMuch(t *testing.T) {
	s := &service{cat: tooMuch{&catalog.Mem{}}, limit: tcp.MaxMessage}
	if _, err := s.answer(t.Context(), []byte{format, opLoad}); err == nil ||
		err.Error() != fmt.Sprintf("the entries have %d bytes: at most %d can be sent to other processes",
			tcp.MaxMessage+4+8+1+placeSize, tcp.MaxMessage) {
		t.Errorf("%v", err)
	}
}

// TestRoom: the service refuses a change after which the catalog would be too large for a message,
// makes any other, and looks at all entries only where it has to.
func TestRoom(t *testing.T) {
	m := &looking{Catalog: &catalog.Mem{}}
	s := &service{cat: m, limit: 1000}
	id, _ := m.Identity()
	rev := layout.Revision(0)
	apply := func(changes ...layout.Entry) error {
		t.Helper()
		p, err := s.answer(t.Context(), appendEntries(place{id, rev}.append([]byte{format, opApply}), changes))
		if err == nil {
			at, _, _ := takePlace(p)
			rev = at.rev
		} else if e, ok := errors.AsType[*tcp.CallError](err); ok {
			err = heard(e)
		}
		if _, e := s.answer(t.Context(), []byte{format, opLoad}); e != nil {
			t.Fatalf("it cannot be loaded: %v", e)
		}
		return err
	}
	v := func(n int) []byte { return make([]byte, n) }
	if err := apply(layout.Entry{Key: "a", Value: v(400)}, layout.Entry{Key: "b", Value: v(400)}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		what    string
		change  layout.Entry
		refused bool
	}{
		{"more than there is room for", layout.Entry{Key: "c", Value: v(200)}, true},
		{"less", layout.Entry{Key: "c", Value: v(100)}, false},
		{"one in the place of another", layout.Entry{Key: "a", Value: v(400)}, false},
		{"a larger one", layout.Entry{Key: "a", Value: v(480)}, true},
		{"one that is not there goes", layout.Entry{Key: "none"}, false},
		{"one goes", layout.Entry{Key: "b"}, false},
		{"a larger one, then", layout.Entry{Key: "a", Value: v(480)}, false},
	} {
		err := apply(x.change)
		if errors.Is(err, memory.ErrNoSpace) != x.refused || !x.refused && err != nil {
			t.Errorf("%s: %v", x.what, err)
		}
	}
	s.limit = 1 << 20
	looked := m.looks
	for range 50 {
		if err := apply(layout.Entry{Key: "a", Value: v(100)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.looks - looked - 50; n > 1 { // 50 of them are the test's
		t.Errorf("it has looked at all entries %d times for 50 small changes", n)
	}
}

// looking counts what is loaded.
type looking struct {
	layout.Catalog
	looks int
}

func (l *looking) Load() ([]layout.Entry, layout.Revision, error) {
	l.looks++
	return l.Catalog.Load()
}

// TestNote: answers are ordered by what they say. One that is late changes nothing; one that was
// asked for when a later revision was known, and one of another catalog, are refused, and nothing
// is learnt from them.
func TestNote(t *testing.T) {
	c := &Client{calls: &tcp.Caller{}}
	this, other := layout.Identity{1}, layout.Identity{2}
	for i, x := range []struct {
		before, at place
		rev        layout.Revision // known afterwards
		err        error
	}{
		{place{}, place{this, 0}, 0, nil}, // of an empty catalog
		{place{}, place{this, 5}, 5, nil},
		{place{this, 0}, place{this, 3}, 5, nil}, // late: it was asked for when revision 0 was known
		{place{this, 5}, place{this, 5}, 5, nil},
		{place{this, 5}, place{this, 9}, 9, nil},
		{place{this, 5}, place{this, 5}, 9, nil}, // late, by a process that has ended since
		{place{this, 9}, place{this, 8}, 9, layout.ErrForeign},
		{place{this, 9}, place{other, 12}, 9, layout.ErrForeign},
		{place{this, 9}, place{layout.Identity{}, 12}, 9, layout.ErrForeign},
		{place{this, 9}, place{this, 10}, 10, nil}, // the process that is there is used on
	} {
		moved := c.poll.wait()
		was := c.known
		if err := c.note(x.before, x.at); c.known != (place{this, x.rev}) || !errors.Is(err, x.err) ||
			(err == nil) != (x.err == nil) {
			t.Errorf("%d: the latest %v, %v", i, c.known, err)
		}
		select {
		case <-moved:
			if c.known == was {
				t.Errorf("%d: what waits was woken for nothing", i)
			}
		default:
			if c.known != was {
				t.Errorf("%d: what waits was not woken", i)
			}
		}
	}
	if at, asked := c.place(); !asked || at != (place{this, 10}) {
		t.Errorf("%v, %v", at, asked)
	}
}

// FuzzRequest: no request harms the service; a reply is one that a client understands.
func FuzzRequest(f *testing.F) {
	at := place{layout.Identity{1}, 1}
	f.Add([]byte{format, opLoad})
	f.Add(appendEntries(at.append([]byte{format, opApply}), []layout.Entry{{Key: "c", Value: []byte("2")}, {Key: "a"}}))
	f.Add(wire.AppendUint32(at.append([]byte{format, opAwait}), 0))
	f.Add(wire.AppendUint32(place{layout.Identity{2}, 9}.append([]byte{format, opAwait}), 1<<31))
	f.Fuzz(func(t *testing.T, request []byte) {
		s := full(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it does not wait
		reply, err := s.answer(ctx, request)
		if err != nil {
			return
		}
		now, rest, err := takePlace(reply)
		if id, _ := s.cat.Identity(); err != nil || now.id != id {
			t.Fatalf("a reply %x: %v", reply, err)
		}
		if request[1] == opLoad {
			if entries, err := getEntries(rest); err != nil || len(entries) != 2 {
				t.Fatalf("%v, %v", entries, err)
			}
		} else if len(rest) > 0 {
			t.Fatalf("%d bytes behind the place", len(rest))
		}
	})
}

// FuzzEntries: whatever a service replies, the client takes no memory for what is not there, and
// what it decodes it encodes the same.
func FuzzEntries(f *testing.F) {
	f.Add(appendEntries(nil, nil))
	f.Add(appendEntries(nil, []layout.Entry{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte{}}, {Key: "c"}}))
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		entries, err := getEntries(p)
		if err != nil {
			if !errors.Is(err, errMessage) {
				t.Fatal(err)
			}
			return
		}
		q := appendEntries(nil, entries)
		if string(q) != string(p) || sizeOf(entries) != len(p) {
			t.Fatalf("%x is encoded as %x, of %d bytes", p, q, sizeOf(entries))
		}
		if again, err := getEntries(q); err != nil || !reflect.DeepEqual(again, entries) {
			t.Fatalf("%v, %v", again, err)
		}
	})
}
