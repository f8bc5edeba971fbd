package sim

import (
	"bufio"
	"fmt"
	"io"

	"txnode/rdma"
)

// tracer sums up what happens, and writes it down if asked to.
type tracer struct {
	hash uint64
	w    *bufio.Writer
}

type traceKind uint8

const (
	traceEffect traceKind = iota
	tracePlace
	traceComplete
)

func (k traceKind) String() string { return [...]string{"effect", "place", "complete"}[k] }

func (t *tracer) init(w io.Writer, seed uint64) {
	t.hash = mix64(seed ^ 0x7e2f)
	if w != nil {
		t.w = bufio.NewWriter(w)
	}
}

func (t *tracer) add(x uint64) { t.hash = (t.hash ^ x) * 0x9fb21c651e98df25; t.hash ^= t.hash >> 29 }

// verb notes that something became of a request.
func (t *tracer) verb(f *Fabric, k traceKind, g *group, v *verb) {
	w := &v.wr
	t.add(uint64(f.now))
	t.add(w.Off<<8 ^ uint64(w.Len)<<40 ^ uint64(k)<<4 ^ uint64(w.Op))
	t.add(w.Result ^ v.seq<<20 ^ uint64(g.p.index)<<8 ^ uint64(w.Status)<<4 ^ uint64(w.Blade)<<48)
	if t.w != nil {
		t.line(f, k, g, v)
	}
}

func (t *tracer) line(f *Fabric, k traceKind, g *group, v *verb) {
	w := &v.wr
	half := ""
	if v.state == verbHalf {
		half = " first part"
	}
	fmt.Fprintf(t.w, "%d.%03d thread %d %v #%d %v %v %d bytes", f.now/1000, f.now%1000, g.p.index, k, v.seq,
		w.Op, rdma.RemoteAddr{Blade: w.Blade, Off: w.Off}, w.Len)
	switch w.Op {
	case rdma.OpCAS, rdma.OpFAA, rdma.OpMaskedCAS:
		fmt.Fprintf(t.w, " cmp %#x swap %#x found %#x", w.Cmp, w.Swap, w.Result)
	}
	fmt.Fprintf(t.w, ": %v%s\n", w.Status, half)
}

// note notes something else.
func (t *tracer) note(now int64, what string, a, b uint64) {
	t.add(uint64(now))
	t.add(a)
	t.add(b)
	if t.w != nil {
		fmt.Fprintf(t.w, "%d.%03d %s %d %#x\n", now/1000, now%1000, what, a, b)
	}
}

func (t *tracer) flush() error {
	if t.w == nil {
		return nil
	}
	if err := t.w.Flush(); err != nil {
		return fmt.Errorf("sim: trace: %w", err)
	}
	return nil
}
