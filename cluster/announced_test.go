package cluster

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
)

var announced = Announced{
	Number: layout.FirstServer + 7, Address: "unix:/run/a", Blades: []uint64{1 << 20, 1 << 21},
	Incarnations: []uint64{1, 1<<64 - 1},
	Stamps:       []string{"x", "y"}, Release: "v1", Domain: "rack", Term: time.Second,
}

// TestAnnouncedEntry: what a server announces is read as it was written; what cannot be is
// ErrDamaged.
func TestAnnouncedEntry(t *testing.T) {
	e := announced.entry()
	all, err := announcedIn([]layout.Entry{{Key: keyServers, Value: encode(two)}, e})
	if err != nil || len(all) != 1 || !reflect.DeepEqual(all[0], announced) {
		t.Fatalf("%+v, %v", all, err)
	}
	for i := range e.Value {
		v := append([]byte{}, e.Value...)
		v[i] ^= 1
		if _, err := announcedIn([]layout.Entry{{Key: e.Key, Value: v}}); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d of %q is another one: %v", i, e.Value, err)
		}
	}
	for what, change := range map[string]func(a *Announced){
		"no address":      func(a *Announced) { a.Address = "" },
		"no blades":       func(a *Announced) { a.Blades = nil },
		"other blades":    func(a *Announced) { a.Incarnations = a.Incarnations[:1] },
		"no term":         func(a *Announced) { a.Term = 0 },
		"a long domain":   func(a *Announced) { a.Domain = strings.Repeat("d", 256) },
		"an endless term": func(a *Announced) { a.Term = 1 << 62 },
	} {
		a := announced
		change(&a)
		if _, err := announcedIn([]layout.Entry{a.entry()}); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := announcedIn([]layout.Entry{{Key: layout.PrefixServer + "x", Value: e.Value}}); !errors.Is(err,
		ErrDamaged) {
		t.Errorf("a key without a number: %v", err)
	}
}

// FuzzAnnounced: no bytes harm what reads announcements.
func FuzzAnnounced(f *testing.F) {
	f.Add(announced.entry().Value)
	f.Fuzz(func(t *testing.T, v []byte) {
		if _, err := announcedIn([]layout.Entry{{Key: announced.key(), Value: v}}); err != nil &&
			!errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}

// ofBefore is a catalog whose daemon knows no servers as members.
type ofBefore struct{ layout.Catalog }

func (c ofBefore) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	if b.Member >= layout.FirstServer {
		return nil, memory.ErrEnded
	}
	return c.Catalog.KeepAlive(b)
}

// TestAnnounceOlderCatalog: a catalog whose daemon is of an earlier release is no reason to
// register again and again; the error says what to do.
func TestAnnounceOlderCatalog(t *testing.T) {
	cat := ofBefore{&catalog.Mem{}}
	a := &announcer{self: announced, o: AnnounceOptions{Term: time.Hour}}
	a.self.Number, a.began = 0, time.Now()
	var rev layout.Revision
	for i := range 3 {
		err := a.follow(t.Context(), cat)
		if !errors.Is(err, memory.ErrEnded) || !strings.Contains(err.Error(), "of an earlier release: replace it") {
			t.Fatal(err)
		}
		now, err := cat.Revision()
		if err != nil || i > 0 && now != rev {
			t.Errorf("the catalog is at revision %d, and was at %d: %v", now, rev, err)
		}
		rev = now
	}
}
