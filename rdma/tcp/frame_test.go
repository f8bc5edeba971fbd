package tcp

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"txnode/rdma"
)

// TestGolden compares frames with testdata/frames.txt, byte by byte: what is on the wire changes
// with Version only.
func TestGolden(t *testing.T) {
	var got strings.Builder
	show := func(name string, p []byte) { fmt.Fprintf(&got, "%s\n%s\n", name, hex.Dump(p)) }
	frame := func(r request, words ...uint64) []byte {
		p := make([]byte, requestSize, requestSize+8*len(words))
		r.put(p)
		for _, w := range words {
			p = wire.AppendUint64(p, w)
		}
		return p
	}
	h := hello{version: Version, purpose: forData, blade: 3}
	c := challenge{version: Version, secret: true}
	for i := range h.nonce {
		h.nonce[i], c.nonce[i] = byte(i), byte(0x40+i)
	}
	hb, cb := h.bytes(), c.bytes()
	show("hello, data, blade 3", hb[:])
	show("challenge, secret", cb[:])
	proof := prove([]byte("correct horse battery staple"), "client", &hb, &cb)
	show("proof", proof[:])
	w := welcome{durable: true, blades: 2, depth: 256, proof: prove([]byte("correct horse battery staple"),
		"server", &hb, &cb)}
	wb := w.bytes()
	show("welcome, durable, 2 blades, depth 256", wb[:])
	show("READ of 64 bytes at 0x1122334455667788, key 0xaabbccdd",
		frame(request{op: opRead, len: 64, key: 0xaabbccdd, off: 0x1122334455667788}))
	show("WRITE of 5 bytes, 0x1000 more in later pieces",
		append(frame(request{op: opWrite, len: 5, key: 1, rest: 0x1000, off: 64}), "hello\x00\x00\x00"...))
	show("CAS, compare 1, swap 2", frame(request{op: opCAS, len: 8, key: 1, off: 8}, 1, 2))
	show("FAA of 3", frame(request{op: opFAA, len: 8, key: 1, off: 8}, 3))
	show("masked CAS, compare 1, swap 2, masks 0xff and 0xff00",
		frame(request{op: opMaskedCAS, len: 8, key: 1, off: 8}, 1, 2, 0xff, 0xff00))
	show("FLUSH of 4096 bytes", frame(request{op: opFlush, len: 4096, key: 1, off: 8}))
	show("reset", frame(request{op: opReset}))
	var p [replySize]byte
	putReply(p[:], 7, rdma.StatusKey)
	show("reply to frame 7, stale key", p[:])
	var k [callSize]byte
	(&call{action: actProvision, blade: 2, off: 4096, n: 8192}).put(k[:])
	show("call, provision", k[:])
	(&call{action: actGrant, blade: 2}).put(k[:])
	show("call, grant", k[:])
	(&call{action: actRevoke, blade: 2, key: 9}).put(k[:])
	show("call, revoke", k[:])
	var a [answerSize + bladeSize]byte
	putAnswer(a[:], callDone, bladeSize)
	putBlade(a[answerSize:], &rdma.BladeInfo{Size: 1 << 30, Incarnation: 0x1234567890, Key: 5, ReadOnly: true})
	show("answer, one blade", a[:])
	sb := (&hello{version: Version, purpose: forService, service: "catalog"}).bytes()
	show("hello, service, without its nonce", sb[:])
	show("request 1 to a service", MessageFrame(1, 0, 5, "hello"))
	show("reply to request 1, with code 7", MessageFrame(1, 7, 3, "why"))

	const file = "testdata/frames.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("frames differ from %s; if that is meant, raise Version and run with -rewrite:\n%s",
			file, got.String())
	}
}

// TestFramesAreChecked: a length, or anything else, that cannot be is refused.
func TestFramesAreChecked(t *testing.T) {
	ok := request{op: opRead, len: maxPiece, key: 1, rest: 1 << 31, off: 64}
	if p := encoded(ok); ok.get(p) != nil {
		t.Fatal("a good frame is refused")
	}
	for name, r := range map[string]request{
		"a READ too long":     {op: opRead, len: maxPiece + 1},
		"a WRITE too long":    {op: opWrite, len: 1<<32 - 1},
		"an atomic of 4":      {op: opCAS, len: 4},
		"an atomic in pieces": {op: opFAA, len: 8, rest: 8},
		"a FLUSH in pieces":   {op: opFlush, rest: 1},
		"a reset of a place":  {op: opReset, off: 8},
		"op 0":                {op: 0},
		"op 7":                {op: 7},
		"op 254":              {op: 254},
	} {
		var got request
		if err := got.get(encoded(r)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := 1; i < 4; i++ {
		p := encoded(ok)
		p[i] = 1
		if err := new(request).get(p); !errors.Is(err, ErrProtocol) {
			t.Errorf("reserved byte %d is set: %v", i, err)
		}
	}
	var p [answerSize]byte
	for _, x := range []struct {
		o outcome
		n int
	}{
		{callDone, maxAnswer + bladeSize}, {callDone, 1}, {callFailed, maxText + 1}, {numOutcomes, 0},
		{callDone, 1<<32 - 8},
	} {
		putAnswer(p[:], x.o, x.n)
		if _, _, err := getAnswer(p[:]); !errors.Is(err, ErrProtocol) {
			t.Errorf("an answer %d of %d bytes: %v", x.o, x.n, err)
		}
	}
	var m [messageHead]byte
	for name, x := range map[string]struct {
		number, code uint32
		n            int
	}{
		"longer than a message":   {5, 0, MaxMessage + 1},
		"of all that a word says": {5, 0, -1},
		"longer than a text":      {5, 1, maxText + 1},
		"another number":          {6, 0, 1},
	} {
		putMessage(m[:], x.number, x.code, x.n)
		if _, _, err := getMessage(m[:], 5); !errors.Is(err, ErrProtocol) {
			t.Errorf("a message: %s: %v", name, err)
		}
	}
	putReply(p[:], 5, rdma.StatusInternal+1)
	if _, err := getReply(p[:], 5); !errors.Is(err, ErrProtocol) {
		t.Errorf("an unknown status: %v", err)
	}
	putReply(p[:], 5, rdma.StatusOK)
	if _, err := getReply(p[:], 6); !errors.Is(err, ErrProtocol) {
		t.Errorf("the reply to another frame: %v", err)
	}
}

func encoded(r request) []byte {
	p := make([]byte, requestSize)
	r.put(p)
	return p
}
