package tcp

import (
	"encoding/binary"
	"fmt"

	"txnode/rdma"
)

// Version of the wire format. Both sides must speak the same one.
const Version = 2

// magic begins every connection, in both directions: "txn-rdma".
const magic = 0x616d64722d6e7874

var wire = binary.LittleEndian

// Limits of the data path. Every length on the wire is compared with one of them before
// it is believed.
const (
	maxPiece  = 128 << 10 // bytes of payload of one frame; longer requests travel in pieces
	maxDepth  = 1 << 14   // requests of one connection under way
	maxBlades = 1 << 12   // blades of one server
)

// opcode is the kind of a frame of the data path.
type opcode uint8

const (
	opRead      opcode = 1
	opWrite     opcode = 2
	opCAS       opcode = 3
	opFAA       opcode = 4
	opMaskedCAS opcode = 5
	opFlush     opcode = 6
	opReset     opcode = 64  // takes the queue pair out of the error state
	opWrong     opcode = 255 // the client found the request wrong: it fails when its turn comes
)

// opcodes of the verbs.
var opcodes = [rdma.NumOps]opcode{
	rdma.OpRead: opRead, rdma.OpWrite: opWrite, rdma.OpCAS: opCAS, rdma.OpFAA: opFAA, rdma.OpMaskedCAS: opMaskedCAS,
	rdma.OpFlush: opFlush,
}

// request is the head of a frame from client to blade: requestSize bytes, little-endian.
//
//	 0  op        what to do
//	 1  -         3 bytes, zero
//	 4  len       bytes of this piece; 8 for atomics
//	 8  key       access key
//	12  rest      bytes of the same request that later pieces move
//	16  off       of this piece in the blade's region
//
// A body follows, a multiple of 8 bytes:
//
//	WRITE       the payload, and zeros up to the multiple
//	CAS         compare, swap
//	FAA         addend
//	masked CAS  compare, swap, compare mask, swap mask
//
// The frames of a connection are numbered from 0 by both sides.
type request struct {
	op   opcode
	len  uint32
	key  rdma.Key
	rest uint32
	off  uint64
}

const requestSize = 24

// put encodes r at p[:requestSize].
func (r *request) put(p []byte) {
	_ = p[requestSize-1]
	wire.PutUint64(p, uint64(r.op)|uint64(r.len)<<32)
	wire.PutUint64(p[8:], uint64(r.key)|uint64(r.rest)<<32)
	wire.PutUint64(p[16:], r.off)
}

// get decodes p[:requestSize] and checks what can be checked without a blade: afterwards the
// sizes of its body and of its reply are within bounds.
func (r *request) get(p []byte) error {
	_ = p[requestSize-1]
	a, b := wire.Uint64(p), wire.Uint64(p[8:])
	r.op, r.len = opcode(a), uint32(a>>32)
	r.key, r.rest = rdma.Key(b), uint32(b>>32)
	r.off = wire.Uint64(p[16:])
	if a>>8&0xffffff != 0 {
		return fmt.Errorf("%w: reserved bytes of a request are %#x", ErrProtocol, a>>8&0xffffff)
	}
	switch r.op {
	case opRead, opWrite:
		if r.len > maxPiece {
			return fmt.Errorf("%w: a piece of %d bytes, more than %d", ErrProtocol, r.len, maxPiece)
		}
		return nil
	case opCAS, opFAA, opMaskedCAS:
		if r.len != 8 || r.rest != 0 {
			return fmt.Errorf("%w: an atomic of %d bytes and %d more", ErrProtocol, r.len, r.rest)
		}
		return nil
	case opFlush:
		if r.rest != 0 {
			return fmt.Errorf("%w: a FLUSH in pieces", ErrProtocol)
		}
		return nil
	case opReset, opWrong:
		if r.len != 0 || r.rest != 0 || r.key != 0 || r.off != 0 {
			return fmt.Errorf("%w: frame %d has arguments", ErrProtocol, r.op)
		}
		return nil
	}
	return fmt.Errorf("%w: unknown frame %d", ErrProtocol, r.op)
}

// bodies has the size of a body by opcode, but of WRITEs.
var bodies = [8]uint32{opCAS: 16, opFAA: 8, opMaskedCAS: 32}

// size is the number of bytes of the frame, head and body, of a request that get has passed.
func (r *request) size() int {
	if r.op == opWrite {
		return requestSize + padded(r.len)
	}
	return requestSize + int(bodies[r.op&7])
}

// replySize is the number of bytes of the reply to a request that succeeds.
func (r *request) replySize() int {
	switch r.op {
	case opRead:
		return replySize + padded(r.len)
	case opCAS, opFAA, opMaskedCAS:
		return replySize + 8
	}
	return replySize
}

// padded rounds up to a multiple of 8.
func padded(n uint32) int { return int(n+7) &^ 7 }

// Replies come in the order of the requests. A reply is replySize bytes, little-endian:
//
//	0  number   of the frame that it answers, modulo 2^32
//	4  status   rdma.Status
//	5  -        3 bytes, zero
//
// If the status is StatusOK, a READ's payload follows, with zeros up to a multiple of 8 bytes, or
// an atomic's prior value, 8 bytes.
const replySize = 8

func putReply(p []byte, number uint32, s rdma.Status) {
	wire.PutUint64(p, uint64(number)|uint64(s)<<32)
}

// getReply decodes p[:replySize], the reply to a frame of this number.
func getReply(p []byte, number uint32) (rdma.Status, error) {
	v := wire.Uint64(p)
	if v&0xffffffff != uint64(number) {
		return 0, fmt.Errorf("%w: a reply to frame %d in place of %d", ErrProtocol, uint32(v), number)
	}
	if v>>32 > uint64(rdma.StatusInternal) {
		return 0, fmt.Errorf("%w: a reply with status %#x", ErrProtocol, v>>32)
	}
	return rdma.Status(v >> 32), nil
}

// action is what a frame of the control path asks for.
type action uint8

const (
	actBlades    action = 1 // the server's blades
	actProvision action = 2 // rdma.Fabric.Provision
	actGrant     action = 3 // rdma.Fabric.Grant
	actRevoke    action = 4 // rdma.Fabric.Revoke
	lastAction          = actRevoke
)

// call is a frame of the control path, from client to server: callSize bytes, little-endian.
//
//	 0  action
//	 1  -        zero
//	 2  blade    index on this server
//	 4  key      Revoke
//	 8  off      Provision
//	16  n        Provision
type call struct {
	action action
	blade  uint16
	key    rdma.Key
	off, n uint64
}

const callSize = 24

func (c *call) put(p []byte) {
	_ = p[callSize-1]
	wire.PutUint64(p, uint64(c.action)|uint64(c.blade)<<16|uint64(c.key)<<32)
	wire.PutUint64(p[8:], c.off)
	wire.PutUint64(p[16:], c.n)
}

func (c *call) get(p []byte) error {
	_ = p[callSize-1]
	v := wire.Uint64(p)
	c.action, c.blade, c.key = action(v), uint16(v>>16), rdma.Key(v>>32)
	c.off, c.n = wire.Uint64(p[8:]), wire.Uint64(p[16:])
	if v>>8&0xff != 0 || c.action < actBlades || c.action > lastAction {
		return fmt.Errorf("%w: unknown control frame %#x", ErrProtocol, v&0xffff)
	}
	return nil
}

// outcome is how a call ended.
type outcome uint8

const (
	callDone outcome = iota
	callNoMemory
	callBladeDown
	callClosed
	callStaleKey
	callFailed
	numOutcomes
)

// The answer to a call is answerSize bytes, little-endian, and a body:
//
//	0  outcome
//	1  -        3 bytes, zero
//	4  len      bytes of the body: a text if the call failed, else bladeSize bytes a blade
//	            for the blades, keySize bytes for Grant (the key, and 4 bytes, zero), else nothing
const (
	answerSize = 8
	keySize    = 8
	maxAnswer  = maxBlades * bladeSize
	maxText    = 1 << 10
)

func putAnswer(p []byte, o outcome, n int) { wire.PutUint64(p, uint64(o)|uint64(n)<<32) }

func getAnswer(p []byte) (o outcome, n int, err error) {
	v := wire.Uint64(p)
	o, n = outcome(v), int(v>>32)
	if v>>8&0xffffff != 0 || o >= numOutcomes || n > maxAnswer || o != callDone && n > maxText || n%keySize != 0 &&
		o == callDone {
		return 0, 0, fmt.Errorf("%w: an answer %#x to a control frame", ErrProtocol, v)
	}
	return o, n, nil
}

// A blade in the answer to actBlades: bladeSize bytes, little-endian.
//
//	 0  size         of its region in bytes
//	 8  incarnation  rdma.BladeInfo.Incarnation
//	16  key          oldest access key
//	20  flags        1: read-only
const bladeSize = 24

func putBlade(p []byte, b *rdma.BladeInfo) {
	wire.PutUint64(p, b.Size)
	wire.PutUint64(p[8:], b.Incarnation)
	flags := uint32(0)
	if b.ReadOnly {
		flags = 1
	}
	wire.PutUint64(p[16:], uint64(b.Key)|uint64(flags)<<32)
}

// getBlade decodes a blade; the caller knows its id.
func getBlade(p []byte) (rdma.BladeInfo, error) {
	v := wire.Uint64(p[16:])
	if v>>32 > 1 {
		return rdma.BladeInfo{}, fmt.Errorf("%w: flags %#x of a blade", ErrProtocol, v>>32)
	}
	return rdma.BladeInfo{
		Size: wire.Uint64(p), Incarnation: wire.Uint64(p[8:]), Key: rdma.Key(v), ReadOnly: v>>32 == 1,
	}, nil
}
