package tcp

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
)

// A connection begins with four frames:
//
//	client  hello      what the connection is for
//	server  challenge  how the client is to prove that it may connect
//	client  proof      of the shared secret, or zeros
//	server  welcome    limits, and the server's own proof
//
// A server that refuses says why in the challenge or in the welcome, and closes. Neither side
// tells anything else before the other one's proof has been checked.

// purpose is what a connection is for.
type purpose uint8

const (
	forData    purpose = 1 // a queue pair to one blade
	forControl purpose = 2
	forService purpose = 3 // requests to a service
)

const (
	helloSize     = 64
	challengeSize = 64
	proofSize     = sha256.Size
	welcomeSize   = 64
	nonceSize     = 32
)

// hello is helloSize bytes, little-endian.
//
//	 0  magic
//	 8  version
//	10  purpose
//	11  -        zero
//	12  blade    index on this server, for data
//	14  -        2 bytes, zero
//	16  nonce    32 random bytes
//	48  service  its name, ASCII, and zeros up to 16 bytes
type hello struct {
	version uint16
	purpose purpose
	blade   uint16
	nonce   [nonceSize]byte
	service string
}

func (h *hello) bytes() (p [helloSize]byte) {
	wire.PutUint64(p[:], magic)
	wire.PutUint64(p[8:], uint64(h.version)|uint64(h.purpose)<<16|uint64(h.blade)<<32)
	copy(p[16:], h.nonce[:])
	copy(p[48:], h.service)
	return p
}

// get decodes a hello. A hello of another version has no error: nothing but its version is known.
func (h *hello) get(p *[helloSize]byte) error {
	if m := wire.Uint64(p[:]); m != magic {
		return fmt.Errorf("%w: a connection begins with %#x: its client is no txnode", ErrProtocol, m)
	}
	v := wire.Uint64(p[8:])
	*h = hello{version: uint16(v)}
	if h.version != Version {
		return nil
	}
	h.purpose, h.blade = purpose(v>>16), uint16(v>>32)
	copy(h.nonce[:], p[16:])
	name := bytes.TrimRight(p[48:], "\x00")
	h.service = string(name)
	fits := h.service == ""
	if h.purpose == forService {
		fits = serviceName(h.service) && h.blade == 0
	}
	if v>>24&0xff != 0 || v>>48 != 0 || h.purpose < forData || h.purpose > forService || !fits {
		return fmt.Errorf("%w: a hello %#x, %q", ErrProtocol, v, name)
	}
	return nil
}

// refusal is why a server does not want a connection; 0: it does.
type refusal uint8

const (
	refusedVersion refusal = iota + 1
	refusedUser
	refusedSecret
	refusedBlade
	refusedBusy
	refusedMemory
	refusedService
	refusedElsewhere
)

// String says it in words, with what to do.
func (r refusal) String() string {
	switch r {
	case refusedVersion:
		return "it speaks another version of the protocol: use the same release of txnode on both sides"
	case refusedUser:
		return "this user may not connect: connect as the user that runs the server, or have it allow this one"
	case refusedSecret:
		return "the shared secret is wrong or missing: give both sides the same"
	case refusedBlade:
		return "it has no blades, or not this one: compare the lists of addresses"
	case refusedBusy:
		return "it has as many connections as it may: raise its limit, or use fewer threads"
	case refusedMemory:
		return "it has no memory for one more connection"
	case refusedElsewhere:
		return "its blades are reached through an RDMA device: name it as rdma:HOST:PORT"
	case refusedService:
		return "it has no such service: connect to the server that has it"
	}
	return fmt.Sprintf("refusal %d", uint8(r))
}

// challenge is challengeSize bytes, little-endian.
//
//	 0  magic
//	 8  version  of the server
//	10  refusal
//	11  secret   1: the client has to prove that it has the secret
//	12  -        4 bytes, zero
//	16  nonce    32 random bytes
//	48  -        16 bytes, zero
type challenge struct {
	version uint16
	refused refusal
	secret  bool
	nonce   [nonceSize]byte
}

func (c *challenge) bytes() (p [challengeSize]byte) {
	wire.PutUint64(p[:], magic)
	v := uint64(c.version) | uint64(c.refused)<<16
	if c.secret {
		v |= 1 << 24
	}
	wire.PutUint64(p[8:], v)
	copy(p[16:], c.nonce[:])
	return p
}

func (c *challenge) get(p *[challengeSize]byte) error {
	if m := wire.Uint64(p[:]); m != magic {
		return fmt.Errorf("%w: the answer begins with %#x: the server is no txnode, or wants TLS", ErrProtocol, m)
	}
	v := wire.Uint64(p[8:])
	*c = challenge{version: uint16(v), refused: refusal(v >> 16)}
	if c.version != Version || c.refused != 0 {
		return nil
	}
	c.secret = v>>24&0xff == 1
	copy(c.nonce[:], p[16:])
	if v>>25 != 0 || [16]byte(p[48:]) != [16]byte{} {
		return fmt.Errorf("%w: a challenge %#x", ErrProtocol, v)
	}
	return nil
}

// welcome is welcomeSize bytes, little-endian.
//
//	 0  refusal
//	 1  durable  1: every region is a file; 2: the blades have their data path elsewhere
//	 2  blades   of the server; 0 if it has services only
//	 4  depth    requests that may be under way on a data connection
//	 8  proof    of the server, 32 bytes, or zeros
//	40  -        24 bytes, zero
type welcome struct {
	refused refusal
	durable bool
	// the blades are reached in another way, and have their control path here alone
	elsewhere bool
	blades    uint16
	depth     uint32
	proof     [proofSize]byte
}

func (w *welcome) bytes() (p [welcomeSize]byte) {
	v := uint64(w.refused) | uint64(w.blades)<<16 | uint64(w.depth)<<32
	if w.durable {
		v |= 1 << 8
	}
	if w.elsewhere {
		v |= 1 << 9
	}
	wire.PutUint64(p[:], v)
	copy(p[8:], w.proof[:])
	return p
}

func (w *welcome) get(p *[welcomeSize]byte) error {
	v := wire.Uint64(p[:])
	*w = welcome{
		refused: refusal(v), durable: v>>8&1 == 1, elsewhere: v>>9&1 == 1, blades: uint16(v >> 16),
		depth: uint32(v >> 32),
	}
	copy(w.proof[:], p[8:])
	if w.refused != 0 {
		return nil
	}
	if v>>10&0x3f != 0 || w.blades > maxBlades || w.depth == 0 || w.depth > maxDepth || [24]byte(p[40:]) != [24]byte{} {
		return fmt.Errorf("%w: a welcome %#x", ErrProtocol, v)
	}
	return nil
}

// prove returns the proof that one side has the secret; it depends on both nonces and on what
// both have said.
func prove(secret []byte, side string, h *[helloSize]byte, c *[challengeSize]byte) (proof [proofSize]byte) {
	m := hmac.New(sha256.New, secret)
	_, _ = io.WriteString(m, "txnode rdma/tcp: ") // a hash returns no error
	_, _ = io.WriteString(m, side)
	_, _ = m.Write(h[:])
	_, _ = m.Write(c[:])
	m.Sum(proof[:0])
	return proof
}

// greet is the client's side of the beginning of a connection.
func greet(c io.ReadWriter, secret []byte, h hello) (*welcome, error) {
	h.version = Version
	_, _ = rand.Read(h.nonce[:]) // never fails
	said := h.bytes()
	if _, err := c.Write(said[:]); err != nil {
		return nil, err
	}
	var heard [challengeSize]byte
	if _, err := io.ReadFull(c, heard[:]); err != nil {
		return nil, err
	}
	var ch challenge
	if err := ch.get(&heard); err != nil {
		return nil, err
	}
	switch {
	case ch.version != Version:
		return nil, fmt.Errorf("%w: the server speaks version %d, this client %d: %v",
			ErrRefused, ch.version, Version, refusedVersion)
	case ch.refused != 0:
		return nil, fmt.Errorf("%w: %v", ErrRefused, ch.refused)
	case !ch.secret && secret != nil:
		return nil, fmt.Errorf("%w: the server knows no shared secret, and this client has one: give both the same",
			ErrRefused)
	}
	var proof [proofSize]byte
	if ch.secret {
		proof = prove(secret, "client", &said, &heard)
	}
	if _, err := c.Write(proof[:]); err != nil {
		return nil, err
	}
	var last [welcomeSize]byte
	if _, err := io.ReadFull(c, last[:]); err != nil {
		return nil, err
	}
	var w welcome
	if err := w.get(&last); err != nil {
		return nil, err
	}
	if w.refused != 0 {
		return nil, fmt.Errorf("%w: %v", ErrRefused, w.refused)
	}
	if w.blades == 0 && h.purpose != forService {
		return nil, fmt.Errorf("%w: a server without blades takes a connection to blades", ErrProtocol)
	}
	if want := prove(secret, "server", &said, &heard); secret != nil && !hmac.Equal(w.proof[:], want[:]) {
		return nil, fmt.Errorf("%w: the server does not know the shared secret", ErrRefused)
	}
	return &w, nil
}

// receive is the server's side up to the welcome, which the caller sends with finish. refused is
// what the server has to say by the time of the challenge.
func receive(c io.ReadWriter, secret []byte, refused refusal) (*hello, *welcome, error) {
	var heard [helloSize]byte
	if _, err := io.ReadFull(c, heard[:]); err != nil {
		return nil, nil, err
	}
	var h hello
	if err := h.get(&heard); err != nil {
		return nil, nil, err
	}
	if h.version != Version {
		refused = refusedVersion
	}
	ch := challenge{version: Version, refused: refused, secret: secret != nil}
	if refused == 0 {
		_, _ = rand.Read(ch.nonce[:]) // never fails
	}
	said := ch.bytes()
	if _, err := c.Write(said[:]); err != nil {
		return nil, nil, err
	}
	if refused != 0 {
		return nil, nil, fmt.Errorf("%w: %v", ErrRefused, refused)
	}
	var proof [proofSize]byte
	if _, err := io.ReadFull(c, proof[:]); err != nil {
		return nil, nil, err
	}
	var w welcome
	if secret != nil {
		if want := prove(secret, "client", &heard, &said); !hmac.Equal(proof[:], want[:]) {
			return nil, nil, finish(c, &welcome{refused: refusedSecret})
		}
		w.proof = prove(secret, "server", &heard, &said)
	}
	return &h, &w, nil
}

// finish sends the welcome; a refusal is the error that it returns.
func finish(c io.Writer, w *welcome) error {
	p := w.bytes()
	if _, err := c.Write(p[:]); err != nil {
		return err
	}
	if w.refused != 0 {
		return fmt.Errorf("%w: %v", ErrRefused, w.refused)
	}
	return nil
}
