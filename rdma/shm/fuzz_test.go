package shm

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzMessages: each decoder takes a message or says ErrProtocol, and what it takes is
// what would be sent.
func FuzzMessages(f *testing.F) {
	for _, p := range [][]byte{
		(&hello{Version}).bytes(),
		(&welcome{version: Version, blades: 2, life: memberLock + 3}).bytes(),
		(&welcome{version: Version, refused: refusedBusy, blades: 1, life: 1}).bytes(),
		(&call{action: actRevoke, blade: 1, key: 7}).bytes(),
		(&call{action: actProvision, off: 1 << 20, n: 1 << 16}).bytes(),
		(&call{action: actReport}).bytes(),
		(&call{action: actWatch, off: memberLock}).bytes(),
		(&call{action: actAlive}).bytes(),
		(&answer{file: true, readOnly: true, size: 1 << 20, key: 9}).bytes(),
		(&answer{outcome: callStuck, text: "process 7"}).bytes(),
		(&answer{outcome: callNoMemory, text: "the disk is full"}).bytes(),
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var h hello
		var w welcome
		var c call
		var a answer
		for name, m := range map[string]interface {
			get(p []byte) error
			bytes() []byte
		}{"hello": &h, "welcome": &w, "call": &c, "answer": &a} {
			err := m.get(p)
			if err != nil {
				if !errors.Is(err, ErrProtocol) {
					t.Errorf("%s % x: %v", name, p, err)
				}
				continue
			}
			if h.version != Version && name == "hello" || name == "welcome" &&
				(w.version != Version || w.refused != 0) {
				continue // no more of it is looked at
			}
			if again := m.bytes(); !bytes.Equal(again, p) {
				t.Errorf("%s % x is sent as % x", name, p, again)
			}
		}
	})
}

// TestLongText: a text that is too long is cut, not refused.
func TestLongText(t *testing.T) {
	a := answer{outcome: callFailed, text: string(bytes.Repeat([]byte("x"), 1000))}
	var b answer
	if err := b.get(a.bytes()); err != nil || len(b.text) != maxText {
		t.Errorf("%d bytes of text, %v", len(b.text), err)
	}
}
