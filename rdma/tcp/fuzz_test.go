package tcp

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/rdma/region"
)

var rewrite = flag.Bool("rewrite", false, "write golden files anew")

// frames encodes requests with bodies of zeros.
func frames(all ...request) (p []byte) {
	for _, r := range all {
		head := make([]byte, requestSize)
		r.put(head)
		p = append(append(p, head...), make([]byte, r.size()-requestSize)...)
	}
	return p
}

// FuzzSession: whatever a client sends, in whatever parts, the blade replies to each frame in order
// or ends the connection, and a region whose key the client does not have stays as it is.
func FuzzSession(f *testing.F) {
	const key, size = 7, 1 << 16
	f.Add(frames(request{op: opRead, len: 64, key: key}, request{op: opCAS, len: 8, key: key, off: 8}), uint16(24))
	f.Add(frames(request{op: opWrite, len: 100, key: key, off: 3}, request{op: opMaskedCAS, len: 8, key: key},
		request{op: opFAA, len: 8, key: key}), uint16(1))
	f.Add(frames(request{op: opWrite, len: 1 << 10, rest: 1 << 20, key: key}, request{op: opReset},
		request{op: opRead, len: maxPiece, key: key}), uint16(1000))
	f.Add(frames(request{op: opRead, len: 8, key: key, off: 1 << 63}, request{op: opWrong}, request{op: opReset},
		request{op: opFlush, len: 1 << 31, key: key}), uint16(5))
	f.Fuzz(func(t *testing.T, sent []byte, step uint16) {
		set, err := region.New(region.Config{Regions: []region.Options{{Size: size, Key: key}, {Size: size, Key: 8}}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSession(set, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		other, err := set.NewLane(size)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(s.close(), other.Close(), set.Close()); err != nil {
				t.Error(err)
			}
		}()
		var replies []byte
		for rest, broken := sent, false; len(rest) > 0 && !broken; {
			// As serve does, with a connection that has so many bytes at a time.
			n := copy(s.in[s.end:], rest[:min(len(rest), int(step)+1)])
			rest, s.end = rest[n:], s.end+n
			for more := true; more && !broken; {
				var err error
				if more, err = s.turn(); err != nil {
					broken = true
				}
				if s.full > len(s.out) || s.start > s.end {
					t.Fatalf("%d bytes of replies; received [%d, %d)", s.full, s.start, s.end)
				}
				replies = append(replies, s.out[:s.full]...)
				s.full = 0
			}
			if s.start == s.end {
				s.start, s.end = 0, 0
			} else if s.end == len(s.in) || s.start > len(s.in)/2 {
				s.end = copy(s.in, s.in[s.start:s.end])
				s.start = 0
			}
		}
		checkReplies(t, sent, replies, s.number)
		wr := []rdma.WR{{Op: rdma.OpRead, Blade: 1, Key: 8, Len: size}}
		if other.Execute(wr) != 0 || !bytes.Equal(other.Arena()[:size], make([]byte, size)) {
			t.Error("the blade beside has changed")
		}
	})
}

// checkReplies decodes replies beside the requests that they answer.
func checkReplies(t *testing.T, sent, replies []byte, number uint32) {
	for i := range number {
		var r request
		if err := r.get(sent); err != nil {
			t.Fatalf("frame %d was answered: %v", i, err)
		}
		sent = sent[r.size():]
		status, err := getReply(replies, i)
		if err != nil {
			t.Fatal(err)
		}
		n := replySize
		if status == rdma.StatusOK {
			n = r.replySize()
		}
		replies = replies[n:]
	}
	if len(replies) > 0 {
		t.Errorf("%d bytes after the last reply", len(replies))
	}
}

// FuzzReplies: whatever a blade replies, in whatever parts, the client completes each request once,
// and nothing of its arena changes but where READs go.
func FuzzReplies(f *testing.F) {
	ok := func(n uint32, payload int) []byte {
		p := make([]byte, replySize+payload)
		putReply(p, n, rdma.StatusOK)
		return p
	}
	f.Add(bytes.Join([][]byte{ok(0, 64), ok(1, 8), ok(2, 0), ok(3, 104)}, nil), uint16(10))
	f.Add(bytes.Join([][]byte{ok(0, 64), ok(1, 8), {2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0}}, nil), uint16(1))
	f.Add(bytes.Join([][]byte{ok(0, 64), ok(1, 8), ok(2, 0), ok(3, 104), ok(4, 5000), ok(5, 0), ok(6, 8)}, nil),
		uint16(100))
	f.Fuzz(func(t *testing.T, got []byte, step uint16) {
		th, p := loneThread(t)
		q := &p.qps[0]
		arena := p.arena[:16<<10]
		for i := range arena {
			arena[i] = 0xee
		}
		var b rdma.Batch
		at := rdma.RemoteAddr{Key: 1}
		b.Read(at, 64, 64)
		b.FAA(at, 1)
		b.Write(at, 4096, 64)
		b.Read(at, 1027, 101)
		b.Read(at, 8192, 5000)
		b.MaskedCAS(at, 1, 2, 256)
		th.Plain().Post(&b)
		for rest := got; len(rest) > 0 && q.link != nil && q.head != q.tail; {
			if q.start > 0 {
				q.end, q.start = copy(q.in, q.in[q.start:q.end]), 0
			}
			n := copy(q.in[q.end:], rest[:min(len(rest), int(step)+1)])
			rest, q.end = rest[n:], q.end+n
			if q.consume() != nil {
				q.sever()
			}
		}
		q.sever()
		if !b.Done() {
			t.Error("not everything has completed")
		}
		for i := range arena {
			if arena[i] != 0xee && (i < 64 || i >= 128) && (i < 1027 || i >= 1128) && (i < 8192 || i >= 13192) {
				t.Fatalf("byte %d of the arena has changed", i)
			}
		}
		failed := false
		for i := range b.Len() {
			if s := b.WR(i).Status; s > rdma.StatusInternal {
				t.Errorf("request %d: status %d", i, s)
			} else if s == rdma.StatusTimeout {
				failed = true
			} else if failed {
				t.Errorf("request %d has an answer and one before has none", i)
			}
		}
	})
}

// FuzzHellos: no frame of the beginning of a connection harms the decoders, and what they accept
// they encode the same.
func FuzzHellos(f *testing.F) {
	h, c, w := (&hello{version: Version, purpose: forControl}).bytes(), (&challenge{version: Version}).bytes(),
		(&welcome{blades: 1, depth: 1}).bytes()
	s := (&hello{version: Version, purpose: forService, service: "catalog"}).bytes()
	f.Add(h[:])
	f.Add(s[:])
	f.Add(c[:])
	f.Add(w[:])
	f.Fuzz(func(t *testing.T, got []byte) {
		p := [64]byte(append(got, make([]byte, 64)...))
		var h hello
		if h.get(&p) == nil && h.version == Version &&
			(h.bytes() != p || (h.purpose == forService) != serviceName(h.service)) {
			t.Errorf("hello %x to service %q is encoded as %x", p, h.service, h.bytes())
		}
		var c challenge
		if c.get(&p) == nil && c.version == Version && c.refused == 0 && c.bytes() != p {
			t.Errorf("challenge %x is encoded as %x", p, c.bytes())
		}
		var w welcome
		if w.get(&p) == nil && w.refused == 0 && w.bytes() != p {
			t.Errorf("welcome %x is encoded as %x", p, w.bytes())
		}
		if a, n, err := getAnswer(p[:]); err == nil && (n > maxAnswer || a >= numOutcomes) {
			t.Errorf("answer %d of %d bytes", a, n)
		}
		var x call
		if x.get(p[:]) == nil && x.action > lastAction {
			t.Errorf("call %d", x.action)
		}
		if code, n, err := getMessage(p[:], wire.Uint32(p[:])); err == nil && (n < 0 || n > MaxMessage || code != 0 &&
			n > maxText) {
			t.Errorf("a message of %d bytes, code %d", n, code)
		}
		if b, err := getBlade(p[:]); err == nil {
			var q [bladeSize]byte
			if putBlade(q[:], &b); q != [bladeSize]byte(p[:]) {
				t.Errorf("blade %x is encoded as %x", p[:bladeSize], q)
			}
		}
	})
}

// FuzzService: whatever a client sends to a service, in whatever parts, each request is answered in
// order, and what is none ends the connection. It gets no memory for bytes that have not come.
func FuzzService(f *testing.F) {
	f.Add(append(MessageFrame(1, 0, 5, "hello"), MessageFrame(2, 0, 0, "")...), uint16(3))
	f.Add(append(MessageFrame(1, 0, 5, "hello"), MessageFrame(1, 0, 5, "again")...), uint16(100))
	f.Add(MessageFrame(1, 0, MaxMessage, "short"), uint16(1000))
	f.Add(MessageFrame(1, 9, 3, "why"), uint16(1))
	f.Fuzz(func(t *testing.T, sent []byte, step uint16) {
		s := &Server{}
		s.o.Timeout = time.Minute
		client, server := net.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- s.serve(server, func(_ context.Context, request []byte) ([]byte, error) {
				if cap(request) > 2*len(sent)+firstRead {
					t.Errorf("%d bytes of memory for %d that were sent", cap(request), len(sent))
				}
				return append([]byte("to "), request...), nil
			})
		}()
		var got bytes.Buffer
		received := make(chan error, 1)
		go func() {
			_, err := got.ReadFrom(client)
			received <- err
		}()
		for rest := sent; len(rest) > 0; {
			n, err := client.Write(rest[:min(len(rest), int(step)+1)])
			if err != nil {
				break
			}
			rest = rest[n:]
		}
		var want []byte
		broken, number := false, uint32(1)
		for rest := sent; len(rest) > 0; number++ {
			if len(rest) < messageHead {
				broken = true
				break
			}
			code, n, err := getMessage(rest, number)
			if err != nil || code != 0 || n > len(rest)-messageHead {
				broken = true
				break
			}
			want = append(append(want, MessageFrame(number, 0, n+3, "to ")...), rest[messageHead:messageHead+n]...)
			rest = rest[messageHead+n:]
		}
		_ = client.Close()
		err := <-ended
		<-received
		if !broken && err != nil && !errors.Is(err, io.ErrClosedPipe) { // it takes no reply after its last request
			t.Errorf("a client that sends requests only: %v", err)
		}
		if !bytes.HasPrefix(want, got.Bytes()) {
			t.Errorf("replies %x, want a beginning of %x", got.Bytes(), want)
		}
	})
}
