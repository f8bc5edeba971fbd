package region_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/region"
)

// pair is a set with one region and a set of the same process that maps it as another process does.
type pair struct {
	owner, other *region.Set
	words        []byte
}

// again is a descriptor of its own for the same memory.
func again(tb testing.TB, f *os.File) *os.File {
	tb.Helper()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		tb.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func control(tb testing.TB) []byte {
	tb.Helper()
	words, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Munmap(words) })
	return words[:region.WordsSize]
}

func openPair(tb testing.TB, o region.Options) *pair {
	tb.Helper()
	p := &pair{words: control(tb)}
	o.Words = p.words
	lines := region.NewOwn()
	var err error
	if p.owner, err = region.New(region.Config{Regions: []region.Options{o}, Lines: lines}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.owner.Close() })
	if p.other, err = region.New(region.Config{Regions: []region.Options{{
		Size: o.Size, File: again(tb, p.owner.File(0)), Words: p.words,
	}}, Lines: lines}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.other.Close() })
	return p
}

// TestShared: two sets on the same memory see the same words, keys and incarnations; what the
// process of the region changes, lanes of the other obey.
func TestShared(t *testing.T) {
	for name, o := range map[string]region.Options{
		"memory": {Size: 1 << 20, Key: 100, Shared: true},
		"file":   {Size: 1 << 20, Key: 100, Path: filepath.Join(t.TempDir(), "blade")},
	} {
		t.Run(name, func(t *testing.T) {
			p := openPair(t, o)
			a, b := another(t, p.owner), another(t, p.other)
			add := func(l *region.Lane, k rdma.Key) (uint64, rdma.Status) {
				wrs := []rdma.WR{{Op: rdma.OpFAA, Key: k, Off: 4096, Len: 8, Swap: 1}}
				l.Execute(wrs)
				if err := l.Reset(0); err != nil && wrs[0].Status == rdma.StatusOK {
					t.Error(err)
				}
				return wrs[0].Result, wrs[0].Status
			}
			for i, l := range []*region.Lane{a, b, b, a} {
				if got, s := add(l, 100); got != uint64(i) || s != rdma.StatusOK {
					t.Fatalf("addition %d: %d, %v", i, got, s)
				}
			}
			if p.owner.Durable() != p.other.Durable() || p.owner.Files() != p.other.Files() {
				t.Error("the sets differ in whether it is a file")
			}
			k, err := p.owner.Grant(0)
			if err != nil {
				t.Fatal(err)
			}
			if _, s := add(b, k); s != rdma.StatusOK {
				t.Errorf("with the key that was granted: %v", s)
			}
			if err := p.owner.Revoke(0, k); err != nil {
				t.Fatal(err)
			}
			if _, s := add(b, 100); s != rdma.StatusKey {
				t.Errorf("with a key that was ended: %v", s)
			}
			if x, y := p.owner.Blades()[0], p.other.Blades()[0]; x != y || x.Key != k {
				t.Errorf("the sets tell %+v and %+v", x, y)
			}
			if _, err := p.other.Grant(0); err == nil {
				t.Error("a key was granted for another process's region")
			}
			if err := p.other.StopBlade(0); err != nil {
				t.Fatal(err)
			}
			if _, s := add(a, k); s != rdma.StatusNoBlade {
				t.Errorf("the other process has stopped the region: %v", s)
			}
			if err := p.owner.Revoke(0, k); !errors.Is(err, rdma.ErrBladeDown) {
				t.Errorf("Revoke of a region that another process has stopped: %v", err)
			}
			was := p.other.Blades()[0].Incarnation
			if err := p.owner.RestartBlade(0, false); err != nil {
				t.Fatal(err)
			}
			now := p.other.Blades()[0]
			if now.Incarnation == was || now.Key == k {
				t.Errorf("restarted: %+v", now)
			}
			if err := b.Reset(0); err != nil {
				t.Fatal(err)
			}
			if got, s := add(b, now.Key); got != 0 || s != rdma.StatusOK {
				t.Errorf("restarted without its memory: the word is %d, %v", got, s)
			}
		})
	}
}

// TestReplace: a set gets the region of the process that has begun anew. Lanes keep the one
// before, which answers nothing, until Reset.
func TestReplace(t *testing.T) {
	next := openPair(t, region.Options{Size: 1 << 16, Key: 200, Shared: true}) // closed last: its words are used
	p := openPair(t, region.Options{Size: 1 << 16, Key: 100, Shared: true})
	l := another(t, p.other)
	o := region.Options{Size: 1 << 16, File: again(t, next.owner.File(0)), Words: next.words}
	if err := p.other.Replace(0, o); err == nil || !strings.Contains(err.Error(), "not stopped") {
		t.Errorf("a region that runs was replaced: %v", err)
	}
	if err := p.other.StopBlade(0); err != nil {
		t.Fatal(err)
	}
	o.File, o.Size = again(t, next.owner.File(0)), 2<<16
	if err := p.other.Replace(0, o); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a region of another size took its place: %v", err)
	}
	o.File, o.Size = again(t, next.owner.File(0)), 1<<16
	if err := p.other.Replace(0, o); err != nil {
		t.Fatal(err)
	}
	wrs := []rdma.WR{{Op: rdma.OpFAA, Key: 200, Len: 8, Swap: 7}}
	if l.Execute(wrs); wrs[0].Status != rdma.StatusNoBlade {
		t.Errorf("before Reset: %v", wrs[0].Status)
	}
	if err := l.Reset(0); err != nil {
		t.Fatal(err)
	}
	wrs[0].Status = rdma.StatusOK
	if l.Execute(wrs) != 0 || binary.LittleEndian.Uint64(next.owner.Region(0)) != 7 {
		t.Errorf("after Reset: %v", wrs[0].Status)
	}
}

// TestSealed: the size of shared memory cannot change.
func TestSealed(t *testing.T) {
	p := openPair(t, region.Options{Size: 1 << 16, Shared: true})
	for _, n := range []int64{0, 1 << 17} {
		if err := p.owner.File(0).Truncate(n); err == nil {
			t.Errorf("the memory has %d bytes now", n)
		}
	}
}
