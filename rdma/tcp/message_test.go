package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

// TestBodyGrows: memory for a body comes with its bytes, and what is read is what was sent.
func TestBodyGrows(t *testing.T) {
	extended := 0
	extend := func() error {
		extended++
		return nil
	}
	for _, n := range []int{0, 1, firstRead, firstRead + 1, 10*firstRead + 7} {
		sent := make([]byte, n)
		for i := range sent {
			sent[i] = byte(i * 7)
		}
		got, err := readBody(iotest.HalfReader(bytes.NewReader(sent)), nil, n, extend)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
	}
	// A length of which nothing comes gets the first part only.
	extended = 0
	r := &meter{}
	if _, err := readBody(r, nil, MaxMessage, extend); !errors.Is(err, io.EOF) || r.asked > firstRead || extended != 1 {
		t.Errorf("%d bytes of memory for a message that has none, %d deadlines, %v", r.asked, extended, err)
	}
	r = &meter{left: 3 * firstRead}
	if _, err := readBody(r, nil, MaxMessage, extend); !errors.Is(err, io.ErrUnexpectedEOF) || r.asked > 8*firstRead {
		t.Errorf("%d bytes of memory for a message of which %d come, %v", r.asked, 3*firstRead, err)
	}
	want := errors.New("no deadline")
	if _, err := readBody(r, nil, 1, func() error { return want }); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
}

// meter has some bytes, and knows for how many it was asked at most.
type meter struct{ left, asked int }

func (m *meter) Read(p []byte) (int, error) {
	m.asked = max(m.asked, cap(p))
	n := min(len(p), m.left)
	m.left -= n
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestUnasked: what a server sends before it is asked, or with another number, is no reply.
func TestUnasked(t *testing.T) {
	reply := func(number uint32) []byte { return MessageFrame(number, 0, 0, "") }
	client, server := net.Pipe()
	l := newLine(client)
	if _, err := server.Write(reply(1)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	<-l.gone
	if !errors.Is(l.err, ErrProtocol) || !l.broken() {
		t.Errorf("a reply to no request: %v", l.err)
	}
	l.close()
	_ = server.Close()

	client, server = net.Pipe()
	l = newLine(client)
	go func() {
		_, _ = io.ReadFull(server, make([]byte, messageHead))
		_, _ = server.Write(reply(2))
	}()
	if _, _, err := l.do(t.Context(), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("the reply to another request: %v", err)
	}
	l.close()
	_ = server.Close()

	// A context that ends when the reply is there leaves a connection that is not used again.
	client, server = net.Pipe()
	l = newLine(client)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.ReadFull(server, make([]byte, messageHead))
		cancel()
		_, _ = server.Write(reply(1))
	}()
	if _, _, err := l.do(ctx, nil); err == nil && !l.broken() {
		t.Error("a connection whose deadline is over is used on")
	}
	l.close()
	_ = server.Close()
}
