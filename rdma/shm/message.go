package shm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/rdma"
)

// Version of messages and files.
const Version = 2

const magic = 0x65646f6e78742e6d // "m.txnode"

var wire = binary.LittleEndian

// Sizes of messages in bytes; each is one packet of the socket.
const (
	helloSize   = 16
	welcomeSize = 32
	callSize    = 32
	answerSize  = 32
	maxText     = 480
	maxReport   = 60 << 10
)

// hello is the first message of a client.
//
//	0  magic
//	8  version
//	10 -      6 bytes, zero
type hello struct{ version uint16 }

func (h *hello) bytes() []byte {
	p := make([]byte, helloSize)
	wire.PutUint64(p, magic)
	wire.PutUint16(p[8:], h.version)
	return p
}

func (h *hello) get(p []byte) error {
	if len(p) != helloSize || wire.Uint64(p) != magic {
		return fmt.Errorf("%w: a hello % x", ErrProtocol, p)
	}
	h.version = wire.Uint16(p[8:])
	if h.version == Version && wire.Uint64(p[8:])>>16 != 0 {
		return fmt.Errorf("%w: a hello % x", ErrProtocol, p)
	}
	return nil
}

// refusal is why a server does not want a client; 0: it does.
type refusal uint8

const (
	refusedVersion refusal = iota + 1
	refusedUser
	refusedBusy
)

// String says it in words, with what to do.
func (r refusal) String() string {
	switch r {
	case refusedVersion:
		return "it speaks another version of the protocol: use the same release of txnode in all processes"
	case refusedUser:
		return "only the user that runs the server, and root, may connect"
	case refusedBusy:
		return "it has as many connections as it may: raise its limit"
	}
	return fmt.Sprintf("refusal %d", uint8(r))
}

// welcome is the answer to a hello. The descriptor of the file of keys comes with it, unless the
// client is refused.
//
//	 0  magic
//	 8  version  of the server
//	10  refusal
//	11  -        0
//	12  blades   how many, 2 bytes
//	14  -        2 bytes, zero
//	16  life     the number of the server as a member, which no earlier one of the name has
//	24  -        8 bytes, zero
type welcome struct {
	version uint16
	refused refusal
	blades  uint16
	life    uint64
}

func (w *welcome) bytes() []byte {
	p := make([]byte, welcomeSize)
	wire.PutUint64(p, magic)
	wire.PutUint64(p[8:], uint64(w.version)|uint64(w.refused)<<16|uint64(w.blades)<<32)
	wire.PutUint64(p[16:], w.life)
	return p
}

func (w *welcome) get(p []byte) error {
	if len(p) != welcomeSize || wire.Uint64(p) != magic {
		return fmt.Errorf("%w: the answer is % x: the server is no txnode", ErrProtocol, p)
	}
	v := wire.Uint64(p[8:])
	*w = welcome{version: uint16(v), refused: refusal(v >> 16), blades: uint16(v >> 32), life: wire.Uint64(p[16:])}
	if w.version != Version || w.refused != 0 {
		return nil
	}
	if v>>24&0xff != 0 || v>>48 != 0 || w.blades == 0 || w.blades > maxBlades || !member(w.life).valid() ||
		wire.Uint64(p[24:]) != 0 {
		return fmt.Errorf("%w: a welcome % x", ErrProtocol, p)
	}
	return nil
}

// action is what a call is for.
type action uint8

const (
	actAttach action = iota + 1
	actProvision
	actGrant
	actRevoke
	actReport
	actWatch // the last call of a connection
	actAlive // the answer to a question on it; it has no answer itself
)

// call is what a client asks for.
//
//	 0  action
//	 1  -      0
//	 2  blade  of the server
//	 4  key    that Revoke names
//	 8  offset of Provision, or member of actWatch
//	16  length of Provision, or for how many nanoseconds actRevoke may wait
//	24  -      8 bytes, zero
type call struct {
	action action
	blade  uint16
	key    rdma.Key
	off, n uint64
}

func (c *call) bytes() []byte {
	p := make([]byte, callSize)
	wire.PutUint64(p, uint64(c.action)|uint64(c.blade)<<16|uint64(c.key)<<32)
	wire.PutUint64(p[8:], c.off)
	wire.PutUint64(p[16:], c.n)
	return p
}

func (c *call) get(p []byte) error {
	if len(p) != callSize {
		return fmt.Errorf("%w: a call of %d bytes", ErrProtocol, len(p))
	}
	v := wire.Uint64(p)
	*c = call{
		action: action(v), blade: uint16(v >> 16), key: rdma.Key(v >> 32), off: wire.Uint64(p[8:]),
		n: wire.Uint64(p[16:]),
	}
	if v>>8&0xff != 0 || c.action < actAttach || c.action > actAlive || wire.Uint64(p[24:]) != 0 {
		return fmt.Errorf("%w: a call % x", ErrProtocol, p)
	}
	return nil
}

// outcome is how a call has ended.
type outcome uint8

const (
	callDone outcome = iota
	callFailed
	callNoMemory
	callBladeDown
	callClosed
	callStaleKey
	callStuck
)

var outcomes = [...]error{
	callNoMemory: rdma.ErrNoMemory, callBladeDown: rdma.ErrBladeDown, callClosed: rdma.ErrClosed,
	callStaleKey: rdma.ErrStaleKey,
	callStuck:    ErrStuck,
}

func outcomeOf(err error) outcome {
	if err == nil {
		return callDone
	}
	for o, is := range outcomes {
		if is != nil && errors.Is(err, is) {
			return outcome(o)
		}
	}
	return callFailed
}

// answer is the answer to a call; the descriptor of the memory comes with that to actAttach. After
// that to actWatch, each further one is the question whether the client lives.
//
//	 0  outcome
//	 1  flags   of the blade: 1 read-only, 2 a file
//	 2  text    how long it is
//	 4  key     that was granted
//	 8  size    of the blade
//	16  -       16 bytes, zero
//	32  text    of the error, or the report that was asked for
type answer struct {
	outcome        outcome
	readOnly, file bool
	key            rdma.Key
	size           uint64
	text           string
	report         bool // the text may have maxReport bytes
}

// most is how long the text may be.
func (a *answer) most() int {
	if a.report && a.outcome == callDone {
		return maxReport
	}
	return maxText
}

func (a *answer) bytes() []byte {
	text := a.text[:min(len(a.text), a.most())]
	p := make([]byte, answerSize, answerSize+len(text))
	v := uint64(a.outcome) | uint64(len(text))<<16 | uint64(a.key)<<32
	if a.readOnly {
		v |= 1 << 8
	}
	if a.file {
		v |= 2 << 8
	}
	wire.PutUint64(p, v)
	wire.PutUint64(p[8:], a.size)
	return append(p, text...)
}

func (a *answer) get(p []byte) error {
	if len(p) < answerSize {
		return fmt.Errorf("%w: an answer of %d bytes", ErrProtocol, len(p))
	}
	v := wire.Uint64(p)
	*a = answer{
		report: a.report, outcome: outcome(v), readOnly: v>>8&1 != 0, file: v>>9&1 != 0, key: rdma.Key(v >> 32),
		size: wire.Uint64(p[8:]),
	}
	text := p[answerSize:]
	if v>>10&0x3f != 0 || a.outcome > callStuck || int(v>>16&0xffff) != len(text) || len(text) > a.most() ||
		[16]byte(p[16:]) != [16]byte{} {
		return fmt.Errorf("%w: an answer % x", ErrProtocol, p)
	}
	a.text = string(text)
	return nil
}

// err is the error that a call of a server has ended with.
func (a *answer) err(server string) error {
	if a.outcome == callDone {
		return nil
	}
	return &failure{"shm: server " + server + ": " + a.text, outcomes[a.outcome]}
}

// failure is an error whose text says already what it is.
type failure struct {
	text string
	is   error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.is }
