package index_test

import (
	"errors"
	"testing"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// unheard is a space that does not have a segment; why is what it says of that.
type unheard struct{ why error }

func (s *unheard) ViewOn(*rdma.Thread) *layout.View            { return &layout.View{} }
func (s *unheard) Missing(_ *layout.View, _ layout.Addr) error { return s.why }

// farIndex is an index whose search begins in a segment.
type farIndex struct{ index.Index }

func (farIndex) NodeClass() layout.Class    { return 4 }
func (farIndex) Root() layout.Addr          { return layout.MakeAddr(1, 0) }
func (farIndex) Find(index.Place) index.Hop { return index.Hop{Addr: layout.MakeAddr(7, 64)} }

// TestLookupUnheard: a node lies in a segment that the process does not know. That is damage if the
// catalog says that there is none, and not if the catalog cannot be asked (V547).
func TestLookupUnheard(t *testing.T) {
	f, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 1 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := th.Close(); err != nil {
			t.Error(err)
		}
	}()
	away := errors.New("the catalog is away")
	for _, why := range []error{nil, away} {
		q := &index.Query{Key: []byte("key"), View: &layout.View{}}
		_, err := index.Lookup(th.Plain(), &unheard{why}, farIndex{}, 3, q, index.PlaceOf(q.Key))
		if errors.Is(err, index.ErrCorrupt) != (why == nil) || errors.Is(err, away) != (why != nil) {
			t.Errorf("the space says %v: %v", why, err)
		}
	}
}
