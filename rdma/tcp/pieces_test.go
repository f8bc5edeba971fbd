package tcp

import (
	"testing"

	"txnode/rdma"
)

// TestPieces: how a request in pieces ends, by how its pieces do. A WRITE of which a piece has
// taken effect and another one has failed may have taken effect.
func TestPieces(t *testing.T) {
	const ok, key, flushed, gone = rdma.StatusOK, rdma.StatusKey, rdma.StatusFlushed, rdma.StatusNoBlade
	for _, x := range []struct {
		op     rdma.Op
		pieces [3]rdma.Status
		want   rdma.Status
	}{
		{rdma.OpWrite, [3]rdma.Status{ok, ok, ok}, ok},
		{rdma.OpWrite, [3]rdma.Status{key, flushed, flushed}, key},
		{rdma.OpWrite, [3]rdma.Status{ok, key, flushed}, rdma.StatusInternal},
		{rdma.OpWrite, [3]rdma.Status{ok, ok, gone}, rdma.StatusInternal},
		{rdma.OpWrite, [3]rdma.Status{flushed, flushed, flushed}, flushed},
		{rdma.OpRead, [3]rdma.Status{ok, key, flushed}, key},
		{rdma.OpRead, [3]rdma.Status{key, flushed, flushed}, key},
	} {
		th, p := loneThread(t)
		q := &p.qps[0]
		var b rdma.Batch
		at := rdma.RemoteAddr{Key: 1, Off: 8}
		if x.op == rdma.OpWrite {
			b.Write(at, 0, 300<<10)
		} else {
			b.Read(at, 0, 300<<10)
		}
		b.FAA(at, 1) // its status is its own
		th.Plain().Post(&b)
		if q.tail-q.head != 4 {
			t.Fatalf("%d frames, want 4", q.tail-q.head)
		}
		for i, s := range append(x.pieces[:], rdma.StatusOK) {
			n := replySize
			switch {
			case s != rdma.StatusOK:
			case i == 3:
				n += 8
			case x.op == rdma.OpRead:
				n += int(q.ring[i].n)
			}
			reply := make([]byte, n)
			putReply(reply, uint32(i), s)
			for len(reply) > 0 {
				if q.start > 0 {
					q.end, q.start = copy(q.in, q.in[q.start:q.end]), 0
				}
				k := copy(q.in[q.end:], reply)
				reply, q.end = reply[k:], q.end+k
				if err := q.consume(); err != nil {
					t.Fatal(err)
				}
			}
			if i < 2 && b.WR(0).Status != rdma.StatusOK {
				t.Errorf("%v %v: piece %d has completed the request", x.op, x.pieces, i)
			}
		}
		if !b.Done() || b.WR(0).Status != x.want || b.WR(1).Status != rdma.StatusOK {
			t.Errorf("%v %v: %v and then %v; want %v", x.op, x.pieces, b.WR(0).Status, b.WR(1).Status, x.want)
		}
	}
}

// TestPieceBoundaries: no word of a region comes in two pieces.
func TestPieceBoundaries(t *testing.T) {
	th, p := loneThread(t)
	q := &p.qps[0]
	var b rdma.Batch
	for _, off := range []uint64{0, 1, 8, 63, 64, 4095} {
		b.Write(rdma.RemoteAddr{Key: 1, Off: off}, 3, 400_001)
	}
	th.Plain().Post(&b)
	var want uint64
	left := 0
	for p := q.out; len(p) > 0; {
		var r request
		if err := r.get(p); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			left = 400_001
		} else if r.off != want || r.off%rdma.LineSize != 0 {
			t.Errorf("a later piece begins at %#x, the one before ended at %#x", r.off, want)
		}
		if left -= int(r.len); int(r.rest) != left {
			t.Errorf("a piece tells of %d bytes more, %d are left", r.rest, left)
		}
		want = r.off + uint64(r.len)
		p = p[r.size():]
	}
	if left != 0 {
		t.Errorf("%d bytes were not sent", left)
	}
}
