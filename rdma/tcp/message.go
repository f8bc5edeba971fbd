package tcp

import (
	"fmt"
	"io"
)

// MaxMessage is how long a request to a service, and its reply, may be, in bytes.
const MaxMessage = 64 << 20

// A connection of a service has messages in both directions: a request from the client, then the
// reply to it. A client has one request under way. A message is messageHead bytes,
// little-endian, and a body:
//
//	 0  number  of the request, from 1 on, modulo 2^32; a reply has that of its request
//	 4  code    of a reply: 0, or CallError.Code; 0 in a request
//	 8  len     bytes of the body: at most MaxMessage, and at most maxText of text if code is not
//	            0
//	12  -       4 bytes, zero
const messageHead = 16

func putMessage(p []byte, number, code uint32, n int) {
	_ = p[messageHead-1]
	wire.PutUint64(p, uint64(number)|uint64(code)<<32)
	wire.PutUint64(p[8:], uint64(n))
}

// getMessage decodes the head of the message of a number.
func getMessage(p []byte, number uint32) (code uint32, n int, err error) {
	_ = p[messageHead-1]
	v, size := wire.Uint64(p), wire.Uint64(p[8:])
	code = uint32(v >> 32)
	most := uint64(MaxMessage)
	if code != 0 {
		most = maxText
	}
	switch {
	case v&0xffffffff != uint64(number):
		return 0, 0, fmt.Errorf("%w: message %d in place of %d", ErrProtocol, uint32(v), number)
	case size > most:
		return 0, 0, fmt.Errorf("%w: a message of %d bytes, more than %d", ErrProtocol, size, most)
	}
	return code, int(size), nil
}

// firstRead is how much memory a message gets before its first bytes are there.
const firstRead = 64 << 10

// readBody reads a body of n bytes into p, which it grows. Memory is reserved for at most
// as many bytes as have come, and firstRead. extend is called before each part of the
// body, for its deadline.
func readBody(r io.Reader, p []byte, n int, extend func() error) ([]byte, error) {
	p = p[:0]
	for len(p) < n {
		have := len(p)
		part := min(n, max(2*have, firstRead))
		if cap(p) < part {
			p = append(make([]byte, 0, part), p...)
		}
		p = p[:part]
		if err := extend(); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(r, p[have:]); err != nil {
			return nil, err
		}
	}
	return p, nil
}
