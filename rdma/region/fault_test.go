package region_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/inproc"
	"txnode/rdma/region"
)

// TestFault: pages of a mapped file that are not there, as with a disk that cannot be read, are
// the death of their blade and not of the process. What was posted before takes effect, once;
// the other blade answers on.
func TestFault(t *testing.T) {
	const size, cut = 1 << 20, 1 << 19
	bad := map[string]func(b *rdma.Batch, a rdma.RemoteAddr){
		"READ":           func(b *rdma.Batch, a rdma.RemoteAddr) { b.Read(a, 0, 64) },
		"READ, unequal":  func(b *rdma.Batch, a rdma.RemoteAddr) { a.Off += 3; b.Read(a, 0, 64) },
		"READ, long":     func(b *rdma.Batch, a rdma.RemoteAddr) { a.Off -= 1 << 14; b.Read(a, 0, 1<<15) },
		"WRITE":          func(b *rdma.Batch, a rdma.RemoteAddr) { b.Write(a, 0, 64) },
		"WRITE, unequal": func(b *rdma.Batch, a rdma.RemoteAddr) { a.Off++; b.Write(a, 5, 3) },
		"WRITE, long":    func(b *rdma.Batch, a rdma.RemoteAddr) { a.Off -= 4096; b.Write(a, 0, 1<<15) },
		"CAS":            func(b *rdma.Batch, a rdma.RemoteAddr) { b.CAS(a, 0, 1) },
		"FAA":            func(b *rdma.Batch, a rdma.RemoteAddr) { b.FAA(a, 1) },
		"masked CAS":     func(b *rdma.Batch, a rdma.RemoteAddr) { b.MaskedCAS(a, 0, 1, 0) },
	}
	for name, post := range bad {
		for _, fence := range []bool{false, true} { // all in execute
			for _, behind := range []int{0, 5, region.Chunk + 3} {
				t.Run(fmt.Sprintf("%s/fence=%v/behind=%d", name, fence, behind), func(t *testing.T) {
					o := inproc.Options{Blades: blades(2, size, t.TempDir())}
					f := open(t, o)
					if fence {
						f.Fence()
					}
					c := connect(t, f)
					defer c.close()
					other := connect(t, f)
					if err := os.Truncate(o.Blades[1].Path, cut); err != nil {
						t.Fatal(err)
					}
					clear(c.Bytes(0, 1<<16))
					c.b.Reset()
					for range behind {
						c.b.FAA(c.at(1, 8), 1)
						c.b.FAA(c.at(0, 8), 1)
					}
					at := c.b.Len()
					post(&c.b, c.at(1, cut+4096))
					end := c.b.Len()
					c.b.FAA(c.at(0, 8), 1)
					c.b.FAA(c.at(1, 8), 1)
					if err := c.Plain().Do(&c.b); !errors.Is(err, rdma.ErrBladeDown) {
						t.Fatalf("the batch ended with %v", err)
					}
					for i := range c.b.Len() {
						want := rdma.StatusOK
						switch {
						case i == end-1:
							want = rdma.StatusNoBlade
						case i >= end && c.b.WR(i).Blade == 1:
							want = rdma.StatusFlushed
						}
						if got := c.b.WR(i).Status; got != want {
							t.Errorf("request %d of %d, the bad one is %d: %v; want %v", i, c.b.Len(), at, got, want)
						}
					}
					if _, err := fabrictest.Rekey(f, 0); err != nil { // which waits for ports that execute
						t.Error(err)
					}
					// Others see the blade dead, and what happened before on the other one.
					if n := binary.LittleEndian.Uint64([]byte(other.read(0, 8, 8))); n != uint64(behind)+1 {
						t.Errorf("%d requests to the other blade have taken effect, not %d", n, behind+1)
					}
					other.b.Reset()
					other.b.Read(other.at(1, 0), 0, 8)
					if err := other.Plain().Do(&other.b); !errors.Is(err, rdma.ErrBladeDown) {
						t.Errorf("another client reads: %v", err)
					}
					err := other.Reconnect(1)
					if !errors.Is(err, rdma.ErrBladeDown) || !strings.Contains(err.Error(), o.Blades[1].Path) {
						t.Errorf("another client connects: %v", err)
					}
					if err := other.Thread.Close(); err != nil {
						t.Error(err)
					}
					// It may be repaired, and started again.
					if err := os.Truncate(o.Blades[1].Path, size); err != nil {
						t.Fatal(err)
					}
					if err := errors.Join(f.RestartBlade(1, true), c.Reconnect(1)); err != nil {
						t.Fatal(err)
					}
					if n := binary.LittleEndian.Uint64([]byte(c.read(1, 8, 8))); n != uint64(behind) {
						t.Errorf("%d requests to the blade have taken effect, not %d", n, behind)
					}
				})
			}
		}
	}
}

// TestKeepFaulty: who looks at what is left of a file gets all that is there.
func TestKeepFaulty(t *testing.T) {
	o := inproc.Options{Blades: blades(1, 1<<20, t.TempDir()), KeepFaulty: true}
	o.Blades[0].ReadOnly = true
	if err := os.WriteFile(o.Blades[0].Path, []byte(strings.Repeat("what is there. ", 1<<20)[:1<<20]),
		0o644); err != nil {
		t.Fatal(err)
	}
	c := connect(t, open(t, o))
	defer c.close()
	if err := os.Truncate(o.Blades[0].Path, 1<<19); err != nil {
		t.Fatal(err)
	}
	for _, off := range []uint64{1 << 19, 1<<20 - 64, 1<<19 - 15} {
		c.b.Reset()
		c.b.Read(c.at(0, off), 0, 64)
		var v *rdma.VerbError
		if err := c.Plain().Do(&c.b); !errors.As(err, &v) || v.Status != rdma.StatusIO || v.Off != off {
			t.Errorf("at %#x: %v", off, err)
		}
		if err := c.Reconnect(0); err != nil {
			t.Error(err)
		}
		if got := c.read(0, 1<<19-16, 14); got != " there. what i" {
			t.Errorf("what is there: %q", got)
		}
	}
}

// TestGuard: a fault in a mapping is an error, and any other panic is none of its business.
func TestGuard(t *testing.T) {
	o := inproc.Options{Blades: blades(2, 1<<20, t.TempDir())}
	c := connect(t, open(t, o))
	defer c.close()
	for _, b := range o.Blades {
		if err := os.Truncate(b.Path, 0); err != nil {
			t.Fatal(err)
		}
	}
	mem, other := c.f.Region(0), c.f.Region(1)
	if err := region.Guard(mem, func() { mem[5000]++ }); err == nil || !strings.Contains(err.Error(), "0x1388 ") {
		t.Errorf("a fault: %v", err)
	}
	if err := region.Guard(mem, func() {}); err != nil {
		t.Error(err)
	}
	for name, fn := range map[string]func(){
		"elsewhere": func() { other[0]++ },
		"no fault":  func() { panic("on purpose") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: it was kept quiet", name)
				}
			}()
			_ = region.Guard(mem, fn)
		}()
	}
}
