package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ServiceName is the tcp.Service by which queue pairs are connected.
const ServiceName = "ibverbs"

// A port sends one message for all queue pairs that it connects at a time. Both messages are a
// head and a row for each queue pair, little-endian:
//
//	 0  version    0  blade     0  result   row of the reply; not 0: there is no partner
//	 2  rows       2  -         4  number   of the partner
//	 4  mtu        4  number    8  first packet number
//	 5  readers    8  first    12  flags    1: read-only; 2: FLUSHes are answered
//	 6  starts        packet   16  address  of the region's first byte
//	 7  link          number   24  size     of the region
//	 8  lid       12  -        32  mask     of keys
//	10  -                      36  -
//	16  gid
const (
	headSize   = 32
	rowSize    = 16
	answerSize = 40
	version    = 1
)

// ends is what one side tells of itself.
type ends struct {
	mtu, readers, starts uint8
	ethernet             bool
	lid                  uint16
	gid                  [16]byte
}

// row is a queue pair of a port, to be connected to a blade of the server.
type row struct {
	blade  uint16
	number uint32
	first  uint32
}

// answer is the partner of a row.
type answer struct {
	result   uint32
	number   uint32
	first    uint32
	readOnly bool
	flush    bool
	address  uint64
	size     uint64
	mask     uint32
}

// Results of a row.
const (
	resultDone = iota
	resultStopped
	resultNoMemory
)

var wire = binary.LittleEndian

var errMessage = errors.New("ibverbs: a message that no port and no server sends")

func head(e *ends, rows int) []byte {
	var h [headSize]byte
	wire.PutUint16(h[:], version)
	wire.PutUint16(h[2:], uint16(rows))
	h[4], h[5], h[6] = e.mtu, e.readers, e.starts
	if e.ethernet {
		h[7] = 1
	}
	wire.PutUint16(h[8:], e.lid)
	copy(h[16:], e.gid[:])
	return h[:]
}

// getHead accepts any bytes; size is that of a row.
func getHead(p []byte, size int) (e ends, rows int, err error) {
	if len(p) < headSize {
		return e, 0, fmt.Errorf("%w: %d bytes", errMessage, len(p))
	}
	if v := wire.Uint16(p); v != version {
		return e, 0, fmt.Errorf("ibverbs: the peer speaks version %d of this protocol, and this process %d: use the "+
			"same release of txnode on both sides", v, version)
	}
	rows = int(wire.Uint16(p[2:]))
	e = ends{mtu: p[4], readers: p[5], starts: p[6], ethernet: p[7] == 1, lid: wire.Uint16(p[8:])}
	copy(e.gid[:], p[16:])
	switch {
	case len(p) != headSize+rows*size:
		return e, 0, fmt.Errorf("%w: %d bytes for %d queue pairs", errMessage, len(p), rows)
	case e.mtu < 1 || e.mtu > 5 || p[7] > 1 || e.readers == 0 || e.starts == 0:
		return e, 0, fmt.Errorf("%w: a head %#x", errMessage, p[:headSize])
	}
	return e, rows, nil
}

func (r *row) append(p []byte) []byte {
	p = wire.AppendUint32(p, uint32(r.blade))
	p = wire.AppendUint32(p, r.number)
	return wire.AppendUint64(p, uint64(r.first))
}

func (r *row) get(p []byte) {
	*r = row{blade: wire.Uint16(p), number: wire.Uint32(p[4:]), first: wire.Uint32(p[8:])}
}

func (a *answer) append(p []byte) []byte {
	p = wire.AppendUint32(p, a.result)
	p = wire.AppendUint32(p, a.number)
	p = wire.AppendUint32(p, a.first)
	flags := uint32(0)
	if a.readOnly {
		flags = 1
	}
	if a.flush {
		flags |= 2
	}
	p = wire.AppendUint32(p, flags)
	p = wire.AppendUint64(p, a.address)
	p = wire.AppendUint64(p, a.size)
	return wire.AppendUint64(p, uint64(a.mask))
}

func (a *answer) get(p []byte) {
	*a = answer{
		result: wire.Uint32(p), number: wire.Uint32(p[4:]), first: wire.Uint32(p[8:]), readOnly: p[12]&1 != 0,
		flush: p[12]&2 != 0, address: wire.Uint64(p[16:]), size: wire.Uint64(p[24:]), mask: wire.Uint32(p[32:]),
	}
}

// meet is how a queue pair of one side reaches its partner of the other.
func meet(mine, theirs *ends, number, from, to uint32) path {
	return path{
		gid: theirs.gid, lid: theirs.lid, number: number, from: from, to: to,
		mtu:     min(mine.mtu, theirs.mtu),
		readers: min(mine.readers, theirs.starts),
		starts:  min(mine.starts, theirs.readers),
		timeout: ackTimeout, retry: retries,
	}
}

// A request without an answer is sent again after 4 us times 2^ackTimeout, retries times: half a
// second in all. Cards round that up. More than 6 retries are for ever on rdma_rxe.
const (
	ackTimeout = 14
	retries    = 6
)
