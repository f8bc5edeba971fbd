package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
)

// A request is, little-endian:
//
//	0  format  2
//	1  op
//	2  body
//
//	op      body                                   reply
//	load    -                                      place, entries
//	apply   place, entries: what is to change      place
//	await   place, u32: ms to wait for a later     place
//	alive   beat                                   place, beats
//
// A place is the identity of the catalog, of 16 bytes, and a revision, u64. Entries are their
// number, u32, and for each the length of the key, u32, the length of the value or noValue, u32,
// the key and the value. A beat is the member, u32, the epoch that it knows, u32, the count, u64,
// and the revision that it rests behind, u64.
const (
	format = 2

	opLoad  = 1
	opApply = 2
	opAwait = 3
	opAlive = 4

	placeSize = 24
	entryHead = 8
	beatSize  = 24
	noValue   = math.MaxUint32
)

var wire = binary.LittleEndian

// errMessage: a message is none.
var errMessage = errors.New("catalog: a message of another format")

// place is a revision of a catalog.
type place struct {
	id  layout.Identity
	rev layout.Revision
}

// maxRevision bounds revisions: more changes than any catalog sees.
const maxRevision = 1 << 48

func (at place) append(p []byte) []byte {
	return wire.AppendUint64(append(p, at.id[:]...), uint64(at.rev))
}

// takePlace takes a place off the head of p.
func takePlace(p []byte) (at place, rest []byte, err error) {
	if len(p) < placeSize {
		return at, nil, fmt.Errorf("%w: %d bytes", errMessage, len(p))
	}
	copy(at.id[:], p)
	at.rev = layout.Revision(wire.Uint64(p[16:]))
	if at.rev > maxRevision {
		return at, nil, fmt.Errorf("%w: revision %d", errMessage, at.rev)
	}
	return at, p[placeSize:], nil
}

// sizeOf is how many bytes entries take.
func sizeOf(entries []layout.Entry) int {
	n := 4
	for i := range entries {
		n += entryHead + len(entries[i].Key) + len(entries[i].Value)
	}
	return n
}

func appendEntries(p []byte, entries []layout.Entry) []byte {
	p = wire.AppendUint32(p, uint32(len(entries)))
	for _, e := range entries {
		p = wire.AppendUint32(p, uint32(len(e.Key)))
		if e.Value == nil {
			p = wire.AppendUint32(p, noValue)
		} else {
			p = wire.AppendUint32(p, uint32(len(e.Value)))
		}
		p = append(append(p, e.Key...), e.Value...)
	}
	return p
}

// getEntries decodes entries, which are all of p. They do not share its memory.
func getEntries(p []byte) ([]layout.Entry, error) {
	if len(p) < 4 {
		return nil, fmt.Errorf("%w: %d bytes of entries", errMessage, len(p))
	}
	n := wire.Uint32(p)
	p = p[4:]
	if uint64(n) > uint64(len(p)/entryHead) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", errMessage, n, len(p))
	}
	out := make([]layout.Entry, n)
	for i := range out {
		if len(p) < entryHead {
			return nil, fmt.Errorf("%w: %d of %d entries", errMessage, i, n)
		}
		key, value := uint64(wire.Uint32(p)), uint64(wire.Uint32(p[4:]))
		p = p[entryHead:]
		none := value == noValue
		if none {
			value = 0
		}
		if key+value > uint64(len(p)) {
			return nil, fmt.Errorf("%w: an entry of %d bytes where %d are left", errMessage, key+value, len(p))
		}
		out[i].Key = string(p[:key])
		if !none {
			out[i].Value = append([]byte{}, p[key:key+value]...)
		}
		p = p[key+value:]
	}
	if len(p) > 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the entries", errMessage, len(p))
	}
	return out, nil
}

func appendBeats(p []byte, beats ...layout.Beat) []byte {
	for _, b := range beats {
		p = wire.AppendUint32(wire.AppendUint32(p, b.Member), uint32(b.Knows))
		p = wire.AppendUint64(wire.AppendUint64(p, b.Count), uint64(b.Rested))
	}
	return p
}

// getBeats decodes beats, which are all of p.
func getBeats(p []byte) ([]layout.Beat, error) {
	if len(p)%beatSize != 0 {
		return nil, fmt.Errorf("%w: %d bytes of beats", errMessage, len(p))
	}
	out := make([]layout.Beat, 0, len(p)/beatSize)
	for ; len(p) > 0; p = p[beatSize:] {
		out = append(out, layout.Beat{
			Member: wire.Uint32(p), Knows: layout.Epoch(wire.Uint32(p[4:])),
			Count: wire.Uint64(p[8:]), Rested: layout.Revision(wire.Uint64(p[16:])),
		})
	}
	return out, nil
}

// codes of errors, for those that callers test for.
var codes = []struct {
	code uint32
	err  error
}{
	{1, memory.ErrRevision}, {2, memory.ErrClosed}, {3, memory.ErrNoSpace}, {4, layout.ErrDamaged}, {5, errMessage},
	{6, layout.ErrForeign}, {7, memory.ErrEnded},
}

// told is the error that the service sends for err.
func told(err error) error {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return &tcp.CallError{Code: c.code, Text: err.Error()}
		}
	}
	return err
}

// farError is an error of the catalog itself, in another process.
type farError struct {
	text string
	is   error
}

// Error returns the text that the service has sent.
func (e *farError) Error() string { return e.text }

// Unwrap returns the error that the catalog's was, if it is one that callers test for.
func (e *farError) Unwrap() error { return e.is }

// heard is what the client makes of an answer that is no reply.
func heard(e *tcp.CallError) error {
	for _, c := range codes {
		if c.code == e.Code {
			return &farError{e.Text, c.err}
		}
	}
	return &farError{text: e.Text}
}
