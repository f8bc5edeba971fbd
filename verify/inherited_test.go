package verify_test

import (
	"context"
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/verify"
)

// TestInheritedExtents: an extent to which nothing leads, and words of extents that differ between
// copies, are damage in a segment of a process that has the database open, and unfinished once that
// is gone: the process that adopts the segment looks after them.
func TestInheritedExtents(t *testing.T) {
	const segment = 256 << 10
	fabric := rdmatest.New(rdmatest.Options{Blades: 2, Size: layout.HeaderArea + 16*segment, Seed: 1})
	var cat catalog.Mem
	open := func(index int) (*memory.Space, *rdma.Coro) {
		th, err := rdma.NewThread(fabric, rdma.ThreadOptions{Arena: 1 << 18, Index: index})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := th.Close(); err != nil {
				t.Error(err)
			}
		})
		s, err := memory.Open(th.Plain(), fabric, &cat, memory.Options{
			Backups: 1, SegmentSize: segment, LogArea: 64 << 10, Shared: true, Until: 1 << 60,
		})
		if err = errors.Join(err, s.EndAlone()); err != nil {
			t.Fatal(err)
		}
		return s, th.Plain()
	}
	s, _ := open(0)
	dead, c := open(1)
	var words []uint64 // where they are
	for k := range 2 { // one has lost its word on the primary, the other one on the copy
		x, err := dead.NewExtent(c, 1000)
		if err != nil {
			t.Fatal(err)
		}
		at := dead.View().At(layout.MakeAddr(x.Addr.Segment(), x.Addr.Offset()/memory.ExtentUnit(segment)*8), k)
		clear(fabric.Memory(at.Blade)[at.Off:][:8])
		words = append(words, at.Off)
	}
	findings := func() (sum verify.Summary, kinds map[verify.Kind]int) {
		kinds = map[verify.Kind]int{}
		attach := func(context.Context) (*verify.Database, func() error, error) {
			l, err := layout.LoadLayout(&cat)
			if err != nil {
				return nil, nil, err
			}
			d, err := verify.Attach(fabric, l)
			if err != nil {
				return nil, nil, err
			}
			return d, d.Close, nil
		}
		sum, err := verify.CheckRunning(t.Context(), attach, verify.Options{Report: func(f verify.Finding) error {
			kinds[f.Kind]++
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		return sum, kinds
	}
	if sum, kinds := findings(); sum.Unfinished != 0 || sum.Findings != 3 || kinds[verify.KindOrphan] != 1 ||
		kinds[verify.KindReplica] != 2 {
		t.Errorf("of a process that lives: %+v, the words are at %#x", sum, words)
	}
	if err := s.Follow(); err != nil {
		t.Fatal(err)
	}
	if err := s.Evict(dead.Process()); err != nil {
		t.Fatal(err)
	}
	if sum, kinds := findings(); sum.Unfinished != 3 || sum.Findings != 3 || !sum.Clean() ||
		kinds[verify.KindOrphan] != 1 || kinds[verify.KindReplica] != 2 {
		t.Errorf("of a process that is gone: %+v, the words are at %#x", sum, words)
	}
}
